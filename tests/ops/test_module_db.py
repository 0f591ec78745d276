"""Every module of torch's own database: results, gradients, buffers and layouts as eager's."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.testing._internal.common_modules import ModuleInfo, module_db
from torch.utils._pytree import tree_leaves, tree_map

import anyshape

SAMPLES = 2
EVERY = [
    pytest.param(
        *(info, index, training),
        id=f"{info.name}-{index}-{'train' if training else 'eval'}",
        marks=[] if training and not index else [pytest.mark.slow],
    )
    for info in module_db
    for index in range(SAMPLES)
    for training in (False, True)
]


def tensors(tree: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, Tensor)]


def own(tree: Any) -> Any:
    """The same arguments in memory of their own."""

    def copied(leaf: Any) -> Any:
        if not isinstance(leaf, Tensor):
            return leaf
        return leaf.detach().clone().requires_grad_(leaf.requires_grad)

    return tree_map(copied, tree)


def shown(call: Callable[..., Any], module: torch.nn.Module, args: Any, kwargs: Any) -> list[Any]:
    """What a call and its backward pass show; the error's class where eager raises."""
    torch.manual_seed(3)
    try:
        made = tensors(call(*args, **kwargs))
        losses = [t for t in made if t.requires_grad]
        for t in losses:
            weights = torch.arange(t.numel()).reshape(t.shape) % 7 + 1
            (t * weights).sum().backward(retain_graph=True)
    except Exception as error:
        return [type(error)]
    given = [t.grad for t in tensors((args, kwargs))]
    inside = [p.grad for p in module.parameters()]
    return [*made, *given, *inside, *module.buffers(), [t.stride() for t in made]]


def samples(info: ModuleInfo, training: bool) -> Iterator[Any]:
    torch.manual_seed(0)
    for sample in info.module_inputs_func(
        info, "cpu", torch.float32, requires_grad=True, training=training
    ):
        if sample.forward_input is not None:
            yield sample


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("info", "index", "training"), EVERY)
def test_a_module_does_what_it_does_in_eager(info: Any, index: int, training: bool) -> None:
    found = list(samples(info, training))
    if index >= len(found):
        pytest.skip("the database has fewer samples of it")
    made, given = found[index].constructor_input, found[index].forward_input
    module = info.module_cls(*made.args, **made.kwargs).train(training)
    ours = copy.deepcopy(module)
    wanted = shown(module, module, own(given.args), own(given.kwargs))
    fast = anyshape.compile(ours)
    got = shown(fast, ours, own(given.args), own(given.kwargs))
    assert len(got) == len(wanted)
    for mine, eager in zip(got, wanted):
        if isinstance(eager, Tensor):
            torch.testing.assert_close(mine, eager, rtol=1e-4, atol=1e-4, equal_nan=True)
        else:
            assert mine == eager
    assert not fast.stats().internal_errors
