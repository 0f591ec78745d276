"""Declaring batch and length costs nothing: as few graphs, specializations, kernels and launches."""

from __future__ import annotations

import pytest
import torch

import anyshape
from anyshape.dispatch import Stats
from anyshape.tools import models
from anyshape.tools.models import MODELS, SHAPES, Mask, Recipe

RECIPE = Recipe(layers=2)


def run(name: str, mask: Mask, declared: bool) -> tuple[Stats, list[torch.Tensor]]:
    """The counts and the results of one model, compiled once and called at every shape."""
    model = models.build(name, RECIPE)
    settings = {"shapes": MODELS[name].shapes} if declared else {}
    fast = anyshape.compile(model, fullgraph=True, options={"fallback": "error"}, **settings)
    results = []
    for batch, length in SHAPES:
        output = fast(**models.inputs(name, batch, length, mask, RECIPE))
        results += models.tensors(output)
    return fast.stats(), results


@torch.no_grad()
@pytest.mark.parametrize("name", MODELS)
def test_declared_sizes_are_as_few_kernels_and_one_specialization(name: str) -> None:
    for mask in MODELS[name].masks[:2]:
        undeclared, expected = run(name, mask, declared=False)
        declared, found = run(name, mask, declared=True)
        assert (declared.specializations, declared.segments, declared.graph_breaks) == (1, 1, 0)
        assert (declared.externs, declared.eager_ops) == (undeclared.externs, 0)
        # fewer where equal sizes are known to be: an attention mask's and the tokens'
        assert declared.kernels <= undeclared.kernels
        assert declared.launches <= undeclared.launches
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
