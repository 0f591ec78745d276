"""The models of the GPU's benchmarks; nothing here imports ANYSHAPE or Triton, so that a first call
that is timed behind it imports what it needs itself."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
import transformers
from torch import Tensor

VOCABULARY = 32000
CLASSES = 1000
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
"""A CPU for dry runs."""
Shape = tuple[int, int]


def llama() -> torch.nn.Module:
    config = transformers.LlamaConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=8, num_attention_heads=16,
        num_key_value_heads=8, vocab_size=VOCABULARY,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def qwen3_moe() -> torch.nn.Module:
    config = transformers.Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=6144, num_hidden_layers=4,
        num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=128,
        num_experts_per_tok=8, moe_intermediate_size=768,
    )  # fmt: skip
    config._experts_implementation = "grouped_mm"
    return transformers.Qwen3MoeForCausalLM(config)


def vit() -> torch.nn.Module:
    """ViT-B/16."""
    return transformers.ViTForImageClassification(transformers.ViTConfig(num_labels=CLASSES))


def resnet() -> torch.nn.Module:
    """A ResNet-50, channels last."""
    model = transformers.ResNetForImageClassification(transformers.ResNetConfig(num_labels=CLASSES))
    return model.to(memory_format=torch.channels_last)


MODELS = {"Llama, 8 layers": llama, "Qwen3-MoE, 4 layers": qwen3_moe}


def tokens(shape: Shape) -> dict[str, object]:
    return {"input_ids": torch.randint(0, VOCABULARY, shape, device=DEVICE), "use_cache": False}


def pixels(shape: Shape) -> Tensor:
    """Pictures, as many and as wide as the shape says."""
    count, size = shape
    return torch.randn(count, 3, size, size, device=DEVICE, dtype=torch.bfloat16)


def pictures(shape: Shape) -> dict[str, object]:
    return {"pixel_values": pixels(shape), "interpolate_pos_encoding": True}


def channels_last(shape: Shape) -> dict[str, object]:
    return {"pixel_values": pixels(shape).to(memory_format=torch.channels_last)}


@dataclass(frozen=True, slots=True)
class Case:
    """A model beside its peers: ways of torch.compile by name, which are handed ``dynamic``."""

    build: Callable[[], torch.nn.Module]
    inputs: Callable[[Shape], dict[str, object]]
    shapes: tuple[Shape, ...]
    peers: Mapping[str, bool | None]


PICTURES = ((8, 224), (3, 224), (8, 192), (2, 256), (32, 224))
PREFILL_AND_DECODE = ((1, 512), (1, 1), (4, 100), (64, 1), (2, 1024))
EXPERTS = ((1, 512), (1, 384), (4, 100), (1, 1), (8, 1), (64, 1), (17, 1), (2, 1024))
CASES: Mapping[str, Case] = {
    "Qwen3-MoE, 4 layers": Case(
        qwen3_moe, tokens, EXPERTS, {"default": None, "static": False}
    ),
    "Llama, 8 layers": Case(
        llama, tokens, PREFILL_AND_DECODE, {"static": False, "default": None}
    ),
    "ResNet-50, channels last": Case(
        resnet, channels_last, PICTURES, {"dynamic": True, "static": False}
    ),
    "ViT-B/16": Case(vit, pictures, PICTURES, {"dynamic": True, "static": False}),
}  # fmt: skip
