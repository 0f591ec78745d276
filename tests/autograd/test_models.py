"""Training steps of models: one backward half for every shape, gradients as eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

transformers: Any = pytest.importorskip("transformers")

SMALL = {
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "vocab_size": 50,
}


def qwen_moe() -> Any:
    config = transformers.Qwen3MoeConfig(
        **SMALL, num_key_value_heads=2, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=16,
        head_dim=8, use_cache=False,
    )  # fmt: skip
    return transformers.Qwen3MoeForCausalLM(config)


MODELS: dict[str, Callable[[], Any]] = {
    "llama": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**SMALL, num_key_value_heads=2, use_cache=False)
    ),
    "bert": lambda: transformers.BertForMaskedLM(transformers.BertConfig(**SMALL)),
    "gpt2": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            n_embd=32,
            n_layer=2,
            n_head=4,
            vocab_size=50,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
        )
    ),
    "qwen3-moe": qwen_moe,
}


SINGLE = ("qwen3-moe",)  # torch multiplies grouped matrices in float32 at most


def loss_of(model: Any, tokens: Tensor) -> Tensor:
    return model(input_ids=tokens, labels=tokens).loss


def gradients(call: Callable[..., Tensor], model: Any, tokens: Tensor) -> list[Tensor | None]:
    torch.manual_seed(1)  # what dropout draws
    model.zero_grad()
    call(model, tokens).backward()
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_a_model_are_eagers_at_every_shape(name: str) -> None:
    torch.manual_seed(0)
    model = MODELS[name]().train()
    if name not in SINGLE:
        model = model.double()
    fast = anyshape.compile(loss_of)
    for batch, length in ((2, 7), (1, 16), (3, 1), (2, 33)):
        tokens = torch.randint(0, 50, (batch, length))
        found, expected = (gradients(call, model, tokens) for call in (fast, loss_of))
        rtol, atol = (1e-4, 1e-5) if name in SINGLE else (1e-5, 1e-7)
        torch.testing.assert_close(found, expected, rtol=rtol, atol=atol, equal_nan=True)
    stats = fast.stats()
    assert (stats.gradients, stats.eager_graphs, stats.graph_breaks, stats.eager_ops) == (
        1,
        (),
        0,
        0,
    )


def test_a_picture_model_with_running_statistics() -> None:
    torch.manual_seed(0)
    config = transformers.ResNetConfig(embedding_size=8, hidden_sizes=[8, 16], depths=[1, 1])
    found = []
    for wrap in (anyshape.compile, lambda fn: fn):
        torch.manual_seed(0)
        model = transformers.ResNetForImageClassification(config).double().train()
        fast = wrap(lambda model, pixels: model(pixel_values=pixels).logits.square().sum())
        for size in (2, 5):
            stream = torch.Generator().manual_seed(size)
            fast(
                model, torch.randn(size, 3, 32, 32, generator=stream, dtype=torch.float64)
            ).backward()
        found.append(([p.grad for p in model.parameters()], list(model.buffers())))
        if wrap is anyshape.compile:
            assert fast.stats().eager_graphs == () and fast.stats().gradients > 0
    torch.testing.assert_close(found[0], found[1], rtol=1e-6, atol=1e-9)
