"""The operator that compiled layers are: what it computes by any choice of kernels, and one specialization for all."""

import pytest
import torch

import anyshape
from anyshape.moe import routed
from anyshape.moe.experts import Activation
from anyshape.moe.layer import MoE
from anyshape.moe.router import Routing

ROUTINGS = {
    "output": Routing(8, 2),
    "input": Routing(8, 2, function="sigmoid", apply_to="input"),
    "groups": Routing(8, 2, groups=4, top_groups=2, group_best=2, renormalize=True, scale=2.5),
}


def layer(routing: Routing, *, shared: bool = False, interleaved: bool = False) -> MoE:
    torch.manual_seed(0)
    activation = Activation(interleaved=interleaved)
    size = 8 if shared else None
    return MoE(16, 24, routing, shared_size=size, expert_bias=True, activation=activation)


@pytest.mark.parametrize("routing", ROUTINGS.values(), ids=ROUTINGS)
@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("fp8", [False, True])
def test_a_compiled_layer_is_one_operator_right_at_every_number_of_tokens(
    routing: Routing, shared: bool, fp8: bool
) -> None:
    eager = layer(routing, shared=shared, interleaved=shared)
    eager = eager.bfloat16().to_fp8() if fp8 else eager
    fast = anyshape.compile(eager, fullgraph=True)
    for tokens in (7, 1, 2, 64, 0):
        x = torch.randn(tokens, 16, dtype=eager.experts.dtype)
        with torch.no_grad():
            torch.testing.assert_close(fast(x), eager(x), rtol=1.6e-2 if fp8 else 1e-5, atol=1e-4)
    stats = fast.stats()
    assert stats.specializations == 1 and stats.graph_breaks == 0
    assert stats.eager_ops == 1 + shared  # whose activation is one


def test_few_valid_tokens() -> None:
    eager = layer(ROUTINGS["output"])
    fast = anyshape.compile(eager, fullgraph=True)
    for tokens, valid in ((7, 3), (1, 1), (64, 9)):
        x, count = torch.randn(tokens, 16), torch.tensor([valid], dtype=torch.int32)
        with torch.no_grad():
            made, wanted = (side(x, valid_tokens=count)[:valid] for side in (fast, eager))
        torch.testing.assert_close(made, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("each", [0, 512])
def test_rows_are_gathered_before_the_product_or_by_it(
    each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routed, "FUSED_GATHER_ROWS", each)
    eager = layer(ROUTINGS["input"])
    called = []
    gather = routed.REFERENCES["gather_mul"]
    monkeypatch.setitem(routed.REFERENCES, "gather_mul", lambda *g: called.append(1) or gather(*g))
    x = torch.randn(40, 16)
    with torch.no_grad():
        made = anyshape.compile(eager, fullgraph=True)(x)
        torch.testing.assert_close(made, eager(x), rtol=1e-5, atol=1e-5)
    assert len(called) == (each == 0)


def test_torch_accepts_the_operator() -> None:
    eager = layer(ROUTINGS["output"], shared=True)
    x = torch.randn(5, 16)
    taken = []

    class Taken(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            if function is routed.ROUTED:
                taken.append((args, kwargs))
            return function(*args, **(kwargs or {}))

    with torch.no_grad(), Taken():
        eager._compiled(x, None)
    ((args, kwargs),) = taken
    detached = tuple(a.detach() if isinstance(a, torch.Tensor) else a for a in args)
    given = {n: v.detach() if isinstance(v, torch.Tensor) else v for n, v in kwargs.items()}
    torch.library.opcheck(routed.ROUTED, detached, given)
