"""Hugging Face's own `generate` over a compiled forward: right, and compiled twice at most."""

from __future__ import annotations

import warnings

import pytest
import torch

import anyshape
from anyshape.errors import AnyshapeWarning
from anyshape.tools import models
from anyshape.tools.models import Recipe


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_generate_compiles_a_prefill_and_a_step(name: str) -> None:
    module = models.build(name, Recipe())
    prompts = [torch.randint(1, module.config.vocab_size, shape) for shape in ((2, 9), (3, 17))]
    settings = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    wanted = [module.generate(p, attention_mask=torch.ones_like(p), **settings) for p in prompts]
    module.forward = anyshape.compile(module.forward)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AnyshapeWarning)
        for prompt, expected in zip(prompts, wanted, strict=True):
            mask = torch.ones_like(prompt)
            assert torch.equal(module.generate(prompt, attention_mask=mask, **settings), expected)
    stats = module.forward.stats()
    assert stats.specializations <= 2
    assert stats.graph_breaks == 0


def test_a_condition_on_a_size_fixed_later_is_still_computed() -> None:
    """`x.shape[1] > 1` is recorded before the program relies on `x.shape[1] == 1`."""

    def attend(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        q = x.unsqueeze(1)
        causal = x.shape[1] > 1
        y = torch.nn.functional.scaled_dot_product_attention(q, q, q, is_causal=causal)
        rest = torch.zeros(3) if x.shape[1] == 1 else torch.zeros(3, 4)
        return y, rest + x.shape[1]

    compiled = anyshape.compile(attend, fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error", AnyshapeWarning)
        for length in (1, 5, 1, 2):
            x = torch.randn(2, length, 8)
            for found, wanted in zip(compiled(x), attend(x), strict=True):
                torch.testing.assert_close(found, wanted)
    assert compiled.stats().specializations == 2
