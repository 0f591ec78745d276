"""The models that the demo, the tests and the benchmarks share: built from configs, random
weights, nothing downloaded.

Comes in: a name of MODELS and a `Recipe` (layers, dtype, attention). Goes out: a module in eval
mode, and inputs for any (batch, length) from a fixed seed. The Hugging Face ones are small
(hidden 256); the plain ones are examples/*.py.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Literal, TypeAlias

import torch
from torch import Tensor, nn

from anyshape.errors import AnyshapeError
from anyshape.nouns import frozen
from anyshape.optional import require
from anyshape.options import near

Mask = Literal["none", "ones", "padded"]
Inputs: TypeAlias = Mapping[str, Tensor | bool]
"""Keyword arguments of a call."""
MASKS: tuple[Mask, ...] = ("none", "ones", "padded")

# (batch, length) in the order in which one compiled model sees them.
SHAPES: tuple[tuple[int, int], ...] = (
    (2, 7),
    (2, 16),
    (1, 33),
    (3, 64),
    (2, 100),
    (2, 1),
    (1, 1),
    (4, 200),
)

TOKEN_SHAPES = MappingProxyType({"input_ids": "batch length", "attention_mask": "batch length"})
HIDDEN = 256
VOCABULARY = 1000
EXAMPLES = Path(__file__).parents[2] / "examples"


@frozen
class Recipe:
    """How to build a model."""

    layers: int = 4
    dtype: torch.dtype = torch.float32
    attention: Literal["sdpa", "eager"] = "sdpa"
    experts: str | None = None  # how a mixture of experts is run; None: the library's default
    window: int | None = None  # sliding window of those that have one; None: above every length


USUAL = Recipe()


@frozen
class Model:
    """One model: how to build it, what it takes, and what about it varies."""

    build: Callable[[Recipe], nn.Module]
    inputs: Callable[[int, int, Mask, Recipe], Inputs]
    masks: tuple[Mask, ...] = ("none",)
    attentions: tuple[str, ...] = ("",)  # "" where the model has no choice
    shapes: Mapping[str, str] = field(
        default_factory=lambda: TOKEN_SHAPES
    )  # for anyshape.compile(shapes=...)
    library: Literal["transformers", "examples"] = "transformers"


def hugging_face(
    class_name: str, config_name: str, **settings: object
) -> Callable[[Recipe], nn.Module]:
    """A builder for a transformers model; `{layers}`-like settings are functions of the recipe."""

    def build(recipe: Recipe) -> nn.Module:
        transformers = require("transformers")
        values = {
            key: value(recipe) if callable(value) else value for key, value in settings.items()
        }
        config = getattr(transformers, config_name)(**values)
        if recipe.experts is not None:
            config._experts_implementation = recipe.experts
        torch.manual_seed(0)
        create = getattr(transformers, class_name)._from_config
        model = create(config, dtype=recipe.dtype, attn_implementation=recipe.attention)
        return model.eval()

    return build


def layers(recipe: Recipe) -> int:
    return recipe.layers


def window(recipe: Recipe) -> int:
    return recipe.window or 4096


DECODER = {
    "vocab_size": VOCABULARY,
    "hidden_size": HIDDEN,
    "intermediate_size": 688,
    "num_hidden_layers": layers,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "max_position_embeddings": 4096,
}


def seeded(batch: int, length: int) -> torch.Generator:
    return torch.Generator().manual_seed(1_000_003 * batch + length)


def attention_mask(batch: int, length: int, kind: Mask, side: str) -> Tensor | None:
    """No mask, ones, or i + 1 tokens of padding for row i on one side, but a token at least."""
    if kind == "none":
        return None
    mask = torch.ones(batch, length, dtype=torch.int64)
    if kind == "padded":
        for row in range(batch):
            count = min(row + 1, length - 1)
            if side == "left":
                mask[row, :count] = 0
            else:
                mask[row, length - count :] = 0
    return mask


def tokens(batch: int, length: int, kind: Mask, recipe: Recipe) -> dict[str, Tensor]:
    """Token ids, padded on the left as for generation.

    With eager attention on the right: rows that may see nothing are NaN there in float64, the
    reference.
    """
    ids = torch.randint(0, VOCABULARY, (batch, length), generator=seeded(batch, length))
    mask = attention_mask(batch, length, kind, "left" if recipe.attention == "sdpa" else "right")
    return {"input_ids": ids} if mask is None else {"input_ids": ids, "attention_mask": mask}


def cacheless_tokens(batch: int, length: int, kind: Mask, recipe: Recipe) -> Inputs:
    return {**tokens(batch, length, kind, recipe), "use_cache": False}


def pictures(batch: int, length: int, kind: Mask, recipe: Recipe) -> dict[str, Tensor]:
    """Pictures of one size: only the batch varies."""
    pixels = torch.randn(batch, 3, 64, 64, generator=seeded(batch, 0))
    return {"pixel_values": pixels.to(recipe.dtype)}


def from_example(name: str) -> ModuleType:
    """The module examples/NAME.py of the checkout that this package is run from."""
    path = EXAMPLES / f"{name}.py"
    if not path.exists():
        raise AnyshapeError(
            "E106",
            name=name,
            why=f"it stands in examples/{name}.py, which is not installed with the package",
            hint="run the demo from a checkout",
        )
    qualified = f"anyshape_examples.{name}"
    if qualified not in sys.modules:
        spec = importlib.util.spec_from_file_location(qualified, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[qualified] = module
        spec.loader.exec_module(module)
    return sys.modules[qualified]


def example(name: str, shapes: Mapping[str, str]) -> Model:
    """A model of examples/NAME.py, which has `build()` and `inputs(batch, length, generator)`."""

    def build(recipe: Recipe) -> nn.Module:
        torch.manual_seed(0)
        return from_example(name).build().to(recipe.dtype).eval()

    def inputs(batch: int, length: int, kind: Mask, recipe: Recipe) -> dict[str, Tensor]:
        made = from_example(name).inputs(batch, length, seeded(batch, length))
        return {
            key: value.to(recipe.dtype) if value.is_floating_point() else value
            for key, value in made.items()
        }

    return Model(build, inputs, library="examples", shapes=shapes)


BOTH = ("sdpa", "eager")

MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "llama": Model(
            hugging_face("LlamaForCausalLM", "LlamaConfig", **DECODER),
            cacheless_tokens,
            MASKS,
            BOTH,
        ),
        "qwen3": Model(
            hugging_face("Qwen3ForCausalLM", "Qwen3Config", **DECODER, head_dim=32),
            cacheless_tokens,
            MASKS,
            BOTH,
        ),
        "qwen3-moe": Model(
            hugging_face(
                "Qwen3MoeForCausalLM",
                "Qwen3MoeConfig",
                **DECODER,
                head_dim=32,
                num_experts=8,
                num_experts_per_tok=2,
                moe_intermediate_size=128,
            ),
            cacheless_tokens,
            MASKS,
            BOTH,
        ),
        "gpt2": Model(
            hugging_face(
                "GPT2LMHeadModel",
                "GPT2Config",
                vocab_size=VOCABULARY,
                n_embd=HIDDEN,
                n_layer=layers,
                n_head=8,
                n_positions=1024,
                bos_token_id=0,
                eos_token_id=0,
            ),
            cacheless_tokens,
            MASKS,
            BOTH,
        ),
        "gemma3": Model(
            hugging_face(
                "Gemma3ForCausalLM",
                "Gemma3TextConfig",
                **DECODER,
                head_dim=32,
                sliding_window=window,
                sliding_window_pattern=2,
            ),
            cacheless_tokens,
            MASKS,
            BOTH,
        ),
        "bert": Model(
            hugging_face(
                "BertModel",
                "BertConfig",
                vocab_size=VOCABULARY,
                hidden_size=HIDDEN,
                intermediate_size=1024,
                num_hidden_layers=layers,
                num_attention_heads=8,
            ),
            tokens,
            MASKS,
            BOTH,
        ),
        "vit": Model(
            hugging_face(
                "ViTModel",
                "ViTConfig",
                hidden_size=HIDDEN,
                intermediate_size=1024,
                num_hidden_layers=layers,
                num_attention_heads=8,
                image_size=64,
                patch_size=16,
            ),
            pictures,
            attentions=BOTH,
            shapes={"pixel_values": "batch 3 64 64"},
        ),
        "resnet": example("resnet", {"pixels": "batch 3 height width"}),
        "two-tower": example("two_tower", {"history": "users length", "candidates": "items"}),
        "jepa": example(
            "jepa",
            {
                "context": "batch length 128",
                "seen": "batch length",
                "hidden": "batch hidden",
                "target": "batch hidden 128",
            },
        ),
    }
)


def find(name: str) -> Model:
    """The model of that name. Raises E106 with the names most like it."""
    if name not in MODELS:
        raise AnyshapeError("E106", name=name, near=near(name, MODELS))
    return MODELS[name]


def present() -> tuple[str, ...]:
    """The names of all models; where only the package is installed, without the examples."""
    return tuple(n for n, m in MODELS.items() if m.library != "examples" or EXAMPLES.is_dir())


def build(name: str, recipe: Recipe = USUAL) -> nn.Module:
    """The module, in eval mode, the same weights each time."""
    return find(name).build(recipe)


def inputs(
    name: str,
    batch: int,
    length: int,
    mask: Mask = "none",
    recipe: Recipe = USUAL,
) -> Inputs:
    """Keyword arguments of one call, the same each time. `length` is tokens, pixels a side or
    history, as the model has it.
    """
    return find(name).inputs(batch, length, mask, recipe)


def tensors(output: object) -> Iterator[Tensor]:
    """Every tensor of a model's output, in order."""
    match output:
        case Tensor():
            yield output
        case Mapping():
            for value in output.values():
                yield from tensors(value)
        case list() | tuple():
            for value in output:
                yield from tensors(value)
