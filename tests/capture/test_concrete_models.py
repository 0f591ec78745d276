"""Hugging Face models run under the concrete domain exactly as under CPython: module calls, caches, outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from anyshape.capture.interpreter.domain import Concrete
from anyshape.capture.python.language import python_machine

transformers = pytest.importorskip("transformers")

DECODER = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 500,
}
ENCODER = {
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}
MIXTURE = {"num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 64}

MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("LlamaForCausalLM", "LlamaConfig", DECODER),
    "qwen3": ("Qwen3ForCausalLM", "Qwen3Config", DECODER | {"head_dim": 64}),
    "qwen3-moe": ("Qwen3MoeForCausalLM", "Qwen3MoeConfig", DECODER | MIXTURE),
    "gpt2": (
        "GPT2LMHeadModel",
        "GPT2Config",
        {"n_embd": 256, "n_layer": 2, "n_head": 4, "vocab_size": 500},
    ),
    "gemma3": ("Gemma3ForCausalLM", "Gemma3TextConfig", DECODER | {"head_dim": 64}),
    "bert": ("BertModel", "BertConfig", ENCODER | {"vocab_size": 500}),
    "vit": ("ViTModel", "ViTConfig", ENCODER | {"image_size": 32, "patch_size": 8}),
}
DECODERS = ["llama", "qwen3", "qwen3-moe", "gpt2", "gemma3"]


def build(name: str) -> torch.nn.Module:
    model, config, options = MODELS[name]
    torch.manual_seed(0)
    return getattr(transformers, model)(getattr(transformers, config)(**options)).eval()


def inputs(name: str, batch: int, length: int) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(length)
    if name == "vit":
        return {"pixel_values": torch.randn(batch, 3, 32, 32, generator=generator)}
    return {"input_ids": torch.randint(0, 500, (batch, length), generator=generator)}


def interpreted(fn: Callable[..., Any], **kwargs: Any) -> Any:
    return python_machine(Concrete()).run(fn, **kwargs)


def tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from tensors(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors(item)
    elif hasattr(value, "layers"):
        for layer in value.layers:
            yield from tensors([layer.keys, layer.values])


def assert_same(got: Any, want: Any) -> None:
    assert type(got) is type(want)
    got_tensors, want_tensors = list(tensors(got)), list(tensors(want))
    assert len(got_tensors) == len(want_tensors) > 0
    for a, b in zip(got_tensors, want_tensors, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        assert torch.equal(a, b)


@pytest.mark.parametrize("name", MODELS)
@torch.no_grad()
def test_forward_is_cpythons_bit_for_bit(name: str) -> None:
    model = build(name)
    for batch, length in [(2, 7), (1, 1)]:
        args = inputs(name, batch, length)
        assert_same(interpreted(model, **args), model(**args))


@pytest.mark.parametrize("name", [*DECODERS, "bert"])
@torch.no_grad()
def test_padded_mask_takes_the_same_branches(name: str) -> None:
    model = build(name)
    args = inputs(name, 2, 9)
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[0, :4] = 0
    assert_same(interpreted(model, **args, attention_mask=mask), model(**args, attention_mask=mask))


@pytest.mark.parametrize("name", DECODERS)
@torch.no_grad()
def test_dynamic_cache_grows_as_under_cpython(name: str) -> None:
    model = build(name)
    real = model(**inputs(name, 1, 5), use_cache=True)
    ours = interpreted(model, **inputs(name, 1, 5), use_cache=True)
    for step in range(3):
        token = inputs(name, 1, 1)["input_ids"] + step
        real = model(input_ids=token, past_key_values=real.past_key_values)
        ours = interpreted(model, input_ids=token, past_key_values=ours.past_key_values)
        assert_same(ours, real)
    assert ours.past_key_values.get_seq_length() == 8


@pytest.mark.parametrize("name", ["llama", "bert"])
@torch.no_grad()
def test_eager_attention_and_bfloat16(name: str) -> None:
    model = build(name).to(torch.bfloat16)
    model.set_attn_implementation("eager")
    args = inputs(name, 2, 6)
    assert_same(interpreted(model, **args), model(**args))


def test_gradients_flow_through_an_interpreted_forward() -> None:
    model = build("llama")
    args = inputs("llama", 1, 4)
    grads = []
    for run in (interpreted, lambda fn, **kwargs: fn(**kwargs)):
        model.zero_grad()
        run(model, **args, labels=args["input_ids"]).loss.backward()
        grads.append([p.grad.clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*grads, strict=True))


def test_generate_is_interpreted_whole() -> None:
    model = build("llama")
    ids = inputs("llama", 1, 4)["input_ids"]
    options = {"max_new_tokens": 4, "do_sample": False, "pad_token_id": 0}
    want = model.generate(ids, **options)
    got = interpreted(model.generate, inputs=ids, **options)
    assert torch.equal(got, want)


def test_generators_close_where_they_are_dropped() -> None:
    def program(log: list[object]) -> None:
        def gen():
            try:
                yield 1
                yield 2
            finally:
                log.append("closed")

        log.append(next(gen()))
        for value in gen():
            log.append(value)
            break
        log.append("end")

    natively: list[object] = []
    program(natively)
    log: list[object] = []
    python_machine(Concrete()).run(program, log)
    assert log == natively


def test_hooks_run_in_order() -> None:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU())
    calls: list[str] = []
    model[0].register_forward_pre_hook(lambda module, args: calls.append("pre"))
    model[0].register_forward_hook(lambda module, args, out: calls.append("post") or out * 2)
    x = torch.randn(3, 4)
    want = model(x)
    assert torch.equal(python_machine(Concrete()).run(model, x), want)
    assert calls == ["pre", "post"] * 2
