"""How the first call grows with the program: `python -m benchmarks.growth [--fast] [--only NAME]`.

Models that decode with a padded, growing cache, by layers; programs with many sizes that data
decides, by sizes; adapters in turn and layers whose weights are moved; and models of the zoo whose
first calls take longest, at their first three shapes. Each row runs in a process of its own with an
empty cache of kernels (models once more, with that cache). Seconds are of a processor, its children
included; work is counted too, which is the same on every machine.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import itertools
import json
import resource
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

import anyshape
from anyshape.dispatch.stats import Stats
from anyshape.optional import require
from benchmarks import report
from benchmarks.zoo.catalogue import ENTRIES

Program = tuple[Callable[..., Any], tuple[Tensor, ...]]


def sliced(count: int) -> Program:
    """Slices by sizes of a list, two checks each."""

    def program(x: Tensor, lengths: Tensor) -> Tensor:
        parts = []
        for size in lengths.tolist():
            anyshape.check(size >= 0)
            anyshape.check(size <= x.shape[0])
            parts.append(x[:size])
        return torch.cat(parts).sum()

    return program, (torch.randn(8), torch.arange(count) % 5)


def sliced_again(count: int) -> Program:
    """Each slice is one of the last slice."""

    def program(x: Tensor, lengths: Tensor) -> Tensor:
        for size in lengths.tolist():
            anyshape.check(size >= 0)
            anyshape.check(size <= x.shape[0])
            x = x[:size]
        return x.sum()

    return program, (torch.randn(count + 9), torch.arange(count, 0, -1) + 4)


def grouped(count: int) -> Program:
    """A product for each group of rows."""

    def program(x: Tensor, counts: Tensor, weight: Tensor) -> Tensor:
        groups = x.split(counts.tolist())
        return torch.cat([group @ weight[i] for i, group in enumerate(groups)])

    counts = torch.arange(count) % 4
    return program, (torch.randn(int(counts.sum()), 4), counts, torch.randn(count, 4, 4))


def masked(count: int) -> Program:
    """A mask by each of some thresholds."""

    def program(x: Tensor, thresholds: Tensor) -> Tensor:
        whole = x.sum()
        for i in range(count):
            whole = whole + x[x > thresholds[i]].sum()
        return whole

    return program, (torch.randn(17), torch.linspace(-1, 1, count))


def found(count: int) -> Program:
    """What is found among what was found."""

    def program(x: Tensor) -> Tensor:
        for _ in range(count):
            x = x[(x > -3).nonzero().squeeze(1)] + 0.001
        return x

    return program, (torch.randn(64),)


def found_and_joined(count: int) -> Program:
    """What is found, joined with what was there, and cut."""

    def program(x: Tensor) -> Tensor:
        for _ in range(count):
            x = torch.cat([x[(x > 0).nonzero().squeeze(1)], x + 0.5])[:16]
        return x

    return program, (torch.randn(16),)


def running_offsets(count: int) -> Program:
    """Slices one behind the other."""

    def program(x: Tensor, lengths: Tensor) -> Tensor:
        at, sums = 0, []
        for size in lengths.tolist():
            anyshape.check(size >= 0)
            anyshape.check(at + size <= x.shape[0])
            sums.append(x[at : at + size].sum())
            at = at + size
        return torch.stack(sums)

    lengths = torch.arange(count) % 4
    return program, (torch.randn(int(lengths.sum())), lengths)


def packed(count: int) -> Program:
    """A softmax of each of some packed sequences."""

    def program(x: Tensor, lengths: Tensor) -> Tensor:
        return torch.cat([part.softmax(0) for part in x.split(lengths.tolist())])

    lengths = torch.arange(count) % 4
    return program, (torch.randn(int(lengths.sum())), lengths)


PROGRAMS: Mapping[str, Callable[[int], Program]] = MappingProxyType(
    {
        made.__name__: made
        for made in (
            sliced,
            sliced_again,
            grouped,
            masked,
            found,
            found_and_joined,
            running_offsets,
            packed,
        )
    }
)
SMALL = MappingProxyType({"hidden_size": 32, "intermediate_size": 64, "vocab_size": 128})
HEADS = MappingProxyType({"num_attention_heads": 4, "num_key_value_heads": 2})
EXPERTS = MappingProxyType(
    {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
)
WINDOWS = MappingProxyType({"head_dim": 8, "sliding_window": 6, "sliding_window_pattern": 2})
ENCODERS = MappingProxyType(
    {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 64,
        "vocab_size": 128,
        "num_heads": 4,
        "decoder_start_token_id": 0,
    }
)
SPEECH = MappingProxyType(
    {
        "d_model": 32,
        "vocab_size": 128,
        "num_mel_bins": 8,
        "max_source_positions": 20,
        "max_target_positions": 64,
        "encoder_attention_heads": 4,
        "decoder_attention_heads": 4,
        "encoder_ffn_dim": 64,
        "decoder_ffn_dim": 64,
        "pad_token_id": 0,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "decoder_start_token_id": 1,
        "suppress_tokens": None,
        "begin_suppress_tokens": None,
    }
)


@dataclass(frozen=True)
class Model:
    """Classes of the library, the settings that say how many layers there are, other settings, and
    what `generate` is asked beyond eight tokens, for how many sequences."""

    config: str
    model: str
    settings: Mapping[str, object]
    asked: Mapping[str, object]
    layers: tuple[str, ...] = ("num_hidden_layers",)
    batch: int = 3
    speech: bool = False

    def built(self, layers: int) -> Any:
        """With random weights."""
        transformers = require("transformers")
        counts = dict.fromkeys(self.layers, layers)
        config = getattr(transformers, self.config)(**counts, **self.settings)
        torch.manual_seed(0)
        return getattr(transformers, self.model)(config).eval()

    def inputs(self) -> dict[str, Tensor]:
        """Tokens with padding on the left, or speech."""
        if self.speech:
            return {"input_features": torch.randn(self.batch, 8, 40)}
        ids = torch.randint(3, 128, (3, 9))
        mask = torch.ones_like(ids)
        mask[0, :4] = mask[1, :2] = 0
        return {"input_ids": ids[: self.batch], "attention_mask": mask[: self.batch]}


DECODER = MappingProxyType({"max_position_embeddings": 256, **SMALL, **HEADS})
GREEDY = MappingProxyType({"do_sample": False})
LLAMA = Model("LlamaConfig", "LlamaForCausalLM", DECODER, GREEDY)
BOTH = ("num_layers", "num_decoder_layers")
ENCODER_AND_DECODER = ("encoder_layers", "decoder_layers")
MODELS: Mapping[str, Model] = MappingProxyType(
    {
        "llama": LLAMA,
        "llama, sampled": replace(LLAMA, asked={"do_sample": True}),
        "llama, beams": replace(LLAMA, asked={"num_beams": 3, **GREEDY}),
        "llama, prompt lookup": replace(
            LLAMA, asked={"prompt_lookup_num_tokens": 2, **GREEDY}, batch=1
        ),
        "qwen3-moe": Model("Qwen3MoeConfig", "Qwen3MoeForCausalLM", {**DECODER, **EXPERTS}, GREEDY),
        "gemma3": Model("Gemma3TextConfig", "Gemma3ForCausalLM", {**DECODER, **WINDOWS}, GREEDY),
        "t5": Model("T5Config", "T5ForConditionalGeneration", ENCODERS, GREEDY, BOTH),
        "whisper": Model(
            "WhisperConfig",
            "WhisperForConditionalGeneration",
            SPEECH,
            GREEDY,
            ENCODER_AND_DECODER,
            speech=True,
        ),
    }
)
ZOO = (
    "SwinForImageClassification",
    "Swinv2Model",
    "DebertaModel",
    "ProphetNetModel",
    "BlipForImageTextRetrieval",
    "MaskFormerSwinModel",
    "DonutSwinModel",
    "GroundingDinoForObjectDetection",
    "LEDModel",
    "Sam3Model",
    "LightOnOcrForConditionalGeneration",
    "Florence2ForConditionalGeneration",
    "TimesFm2_5ModelForPrediction",
)
SHAPES = 3
LAYERS = (4, 16, 32)
SIZES = (128, 1024)


def first_generate(name: str, layers: int) -> tuple[object, Stats]:
    """Eight tokens of a small model, from a batch that is padded on the left. What importing
    has left behind for the garbage collector is collected before."""
    entry = MODELS[name]
    model, inputs = entry.built(layers), entry.inputs()
    fast = anyshape.compile(model)
    gc.collect()
    with torch.no_grad():
        started = cpu_seconds()
        fast.generate(**inputs, max_new_tokens=8, pad_token_id=0, **entry.asked)
        return cpu_seconds() - started, fast.stats()


def first_call(name: str, count: int) -> tuple[object, Stats]:
    """A program with so many sizes, after one with two: what is loaded once is left out."""
    for size in (2, count):
        function, inputs = PROGRAMS[name](size)
        fast = anyshape.compile(function)
        started = cpu_seconds()
        fast(*inputs)
    return cpu_seconds() - started, fast.stats()


def first_calls(name: str, count: int) -> tuple[object, Stats]:
    """A model of the zoo at its first shapes."""
    entry = next(entry for entry in ENTRIES if entry.name == name)
    generator = torch.Generator().manual_seed(0)
    inputs = [entry.inputs(*shape, generator) for shape in entry.shapes[:count]]
    fast = anyshape.compile(entry.build())
    with torch.no_grad():
        started = cpu_seconds()
        for given in inputs:
            fast(**given)
        return cpu_seconds() - started, fast.stats()


def small_llama(layers: int) -> torch.nn.Module:
    """Of two heads and random weights."""
    transformers = require("transformers")
    config = transformers.LlamaConfig(num_hidden_layers=layers, **SMALL, **HEADS)
    torch.manual_seed(0)
    model: torch.nn.Module = transformers.LlamaForCausalLM(config).eval()
    return model


def adapters(count: int) -> tuple[object, Stats]:
    """Two rounds over so many adapters of one rank, by PEFT."""
    peft = importlib.import_module("peft")
    lora = peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=2, init_lora_weights=False)
    model = peft.get_peft_model(small_llama(2), lora, adapter_name="0")
    for i in range(1, count):
        model.add_adapter(str(i), lora)
    fast, ids = anyshape.compile(model), torch.randint(3, 128, (2, 7))
    with torch.no_grad():
        started = cpu_seconds()
        for i in (*range(count), *range(count)):
            model.set_adapter(str(i))
            fast(ids)
        return cpu_seconds() - started, fast.stats()


def offloaded(layers: int) -> tuple[object, Stats]:
    """Three calls of so many layers whose weights accelerate's hooks move in and out."""
    model = importlib.import_module("accelerate").cpu_offload(
        small_llama(layers), execution_device="cpu"
    )
    fast, ids = anyshape.compile(model), torch.randint(3, 128, (2, 7))
    with torch.no_grad():
        model(ids)
        started = cpu_seconds()
        for _ in range(3):
            fast(ids)
        return cpu_seconds() - started, fast.stats()


def flux(blocks: int) -> tuple[Any, Callable[[], dict[str, Tensor]]]:
    """A small Flux with so many blocks of each kind, and inputs of another size each time."""
    diffusers = importlib.import_module("diffusers")
    torch.manual_seed(0)
    model = diffusers.FluxTransformer2DModel(
        in_channels=4,
        num_layers=blocks,
        num_single_layers=blocks,
        attention_head_dim=16,
        num_attention_heads=2,
        joint_attention_dim=32,
        pooled_projection_dim=32,
        axes_dims_rope=(4, 4, 8),
    ).eval()
    turns = itertools.count()

    def inputs() -> dict[str, Tensor]:
        turn = next(turns)
        height, width, text = 3 + turn, 4 + turn % 3, 5 + turn
        axes = torch.arange(1.0), torch.arange(float(height)), torch.arange(float(width))
        return {
            "hidden_states": torch.randn(1, height * width, 4),
            "encoder_hidden_states": torch.randn(1, text, 32),
            "pooled_projections": torch.randn(1, 32),
            "timestep": torch.rand(1),
            "img_ids": torch.cartesian_prod(*axes),
            "txt_ids": torch.zeros(text, 3),
        }

    return model, inputs


def flux_swaps(model: Any) -> tuple[Callable[[], object], ...]:
    """What is done to the adapters before each of ten calls."""
    lora = importlib.import_module("peft").LoraConfig(
        r=4, target_modules=["to_q", "to_k", "to_v", "to_out.0"], init_lora_weights=False
    )
    return (
        lambda: None,
        lambda: model.add_adapter(lora, "a"),
        lambda: model.set_adapters(["a"], [0.5]),
        lambda: model.set_adapters(["a"], [0.8]),
        lambda: (model.add_adapter(lora, "b"), model.set_adapter("b")),
        lambda: model.set_adapters(["a", "b"], [0.7, 0.3]),
        lambda: model.set_adapter("a"),
        model.disable_lora,
        model.enable_lora,
        lambda: model.delete_adapters(["b"]),
    )


def flux_adapters(blocks: int) -> tuple[object, Stats]:
    """Ten calls of so many blocks, between which LoRA adapters come, change and go."""
    model, inputs = flux(blocks // 2)
    fast, seconds = anyshape.compile(model), 0.0
    with torch.no_grad():
        for swap in flux_swaps(model):
            swap()
            started = cpu_seconds()
            fast(**inputs())
            seconds += cpu_seconds() - started
        return seconds, fast.stats()


SWAPS: Mapping[str, tuple[Callable[[int], tuple[object, Stats]], tuple[int, int]]] = (
    MappingProxyType(
        {
            "adapters": (adapters, (4, 12)),
            "offloaded": (offloaded, (2, 8)),
            "flux, adapters": (flux_adapters, (2, 6)),
        }
    )
)


def cpu_seconds() -> float:
    """What this process and its children have used: other work on the machine does not count."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def worker(name: str, count: int) -> dict[str, object]:
    """The figures of one row, measured in this process."""
    if name in SWAPS:
        seconds, stats = SWAPS[name][0](count)
    else:
        measure = first_generate if name in MODELS else first_calls if name in ZOO else first_call
        seconds, stats = measure(name, count)
    return {
        "s": seconds,
        "questions": stats.questions,
        "solver steps": stats.solver_steps,
        "kernels": stats.kernels,
        "specializations": stats.specializations,
        "programs": stats.programs,
        "MB": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def measured(name: str, count: int, caches: str, limit: float) -> dict[str, object]:
    """The same, in a process of its own."""
    found = report.figures_of("benchmarks.growth", [name, str(count)], caches, limit)
    return {"s": found} if isinstance(found, str) else found


def row_of(name: str, count: int, limit: float) -> dict[str, object]:
    """One line of the table."""
    with tempfile.TemporaryDirectory() as caches:
        row: dict[str, object] = {
            "program": name,
            "n": count,
            **measured(name, count, caches, limit),
        }
        if name in MODELS or name in ZOO:
            row["s with a cache"] = measured(name, count, caches, limit)["s"]
    if isinstance(row["s"], float):
        row["ms each"] = row["s"] / count * 1e3
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--worker", nargs=2, help="used by the script itself")
    parser.add_argument("--fast", action="store_true", help="the small numbers only; nothing kept")
    parser.add_argument("--only", nargs="*", help="programs to measure anew; all if not given")
    parser.add_argument("--limit", type=float, default=300, help="seconds for one row")
    arguments = parser.parse_args()
    if arguments.worker:
        name, count = arguments.worker
        print(json.dumps(worker(name, int(count))))
        return
    cases = [(name, n) for name in MODELS for n in LAYERS[: 1 if arguments.fast else None]]
    cases += [(name, n) for name in PROGRAMS for n in SIZES[: 1 if arguments.fast else None]]
    cases += [(name, SHAPES) for name in ZOO]
    cases += [(name, n) for name, (_, sizes) in SWAPS.items() for n in sizes]
    rows: list[dict[str, object]] = []
    for name, n in cases:
        if arguments.only and name not in arguments.only:
            continue
        rows.append(row_of(name, n, arguments.limit))
        print(report.table(rows[-1:]), flush=True)
        if not arguments.fast:
            kept = report.merged("growth", rows, ("program", "n")) if arguments.only else rows
            report.save("growth", kept)


if __name__ == "__main__":
    main()
