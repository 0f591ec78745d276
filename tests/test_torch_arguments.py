"""Every argument of torch.compile is taken by anyshape.compile."""

from __future__ import annotations

import inspect

import pytest
import torch
from torch.fx.experimental.dynamic_spec import IntVar, ShapesSpec, ShapeVar, TensorSpec

import anyshape
import anyshape.dynamo.backend
from anyshape.errors import AnyshapeError, AnyshapeWarning
from anyshape.torch_arguments import declared_in, translate


def test_every_argument_is_taken() -> None:
    theirs = inspect.signature(torch.compile).parameters
    assert set(theirs) <= set(inspect.signature(anyshape.compile).parameters)


def test_a_model_by_name_and_a_limit_of_recompiles() -> None:
    fast = anyshape.compile(model=lambda x: x + 1, recompile_limit=3, isolate_recompiles=True)
    assert torch.equal(fast(torch.ones(2)), torch.full((2,), 2.0))
    assert translate(recompile_limit=3).options == {"max_variants": 3}


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"backend": "inductor"}, "backend='inductor' of torch.compile is ignored"),
        ({"options": {"max_autotune": True}}, r"options=\['max_autotune'\] of torch.compile is"),
        ({"options": {"triton.cudagraphs": True, "guard_filter_fn": len}}, "guard_filter_fn"),
    ],
)
def test_what_changes_nothing_is_told_in_one_line(settings: dict[str, object], told: str) -> None:
    with pytest.warns(AnyshapeWarning, match=told) as caught:
        anyshape.compile(lambda x: x, **settings)
    assert len(caught) == 1 and "\n" not in str(caught[0].message)


def test_an_option_that_means_the_same_here_is_translated() -> None:
    assert translate(options={"force_disable_caches": True}).options == {"cache": False}


def test_our_own_backend_is_no_news() -> None:
    assert not translate(backend="anyshape").notes
    assert not translate(backend=anyshape.dynamo.backend.compile_fx).notes


def test_an_option_that_nobody_knows_is_an_error() -> None:
    with pytest.raises(AnyshapeError, match="did you mean 'max_variants'"):
        anyshape.compile(lambda x: x, options={"max_variant": 3})


def test_torchs_spec_of_shapes_declares_sizes() -> None:
    batch = ShapeVar("batch", max=64)
    spec = ShapesSpec({"x": TensorSpec([batch, 3]), "y": TensorSpec([batch, None]), "z": None})
    fast = anyshape.compile(lambda x, y: x + y, shapes_spec=spec)
    fast(torch.ones(4, 3), torch.ones(4, 3))
    with pytest.raises(AnyshapeError) as caught:
        fast(torch.ones(65, 3), torch.ones(65, 3))
    assert caught.value.code == "E314"
    with pytest.raises(AnyshapeError) as caught:
        fast(torch.ones(4, 3), torch.ones(5, 3))
    assert caught.value.code == "E311"


def test_what_cannot_be_declared_of_a_spec_is_named() -> None:
    batch = ShapeVar("batch")
    spec = ShapesSpec({"n": IntVar("n"), "x": TensorSpec([batch * 2])}, assumptions=[batch > 3])
    shapes, bounds, unread = declared_in(spec)
    assert (shapes, bounds) == (None, ()) and sorted(unread) == ["assumptions", "n", "x"]
