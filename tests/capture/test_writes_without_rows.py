"""Operators without a row that write an argument are one graph: their form without writes, and a
copy. The caller's tensors hold what eager leaves in them.
"""

from __future__ import annotations

import copy

import pytest
import torch

import anyshape
from anyshape.capture.tensors.functional import writer_of
from anyshape.custom_operators import written_names


def _batch_norm(x, mean, var):
    made = torch.native_batch_norm(x, None, None, mean, var, True, 0.1, 1e-5)
    return made[0], mean + 1.0


def _batch_norm_of_a_row(x, mean, var):
    torch.ops.aten._batch_norm_with_update(x, mean + 1, var, mean, var, 0.1, 1e-5)
    return mean.sum()


def _renormed(table, indices):
    return torch.nn.functional.embedding(indices, table, max_norm=0.5)


def _renormed_view(tables, indices):
    torch.embedding_renorm_(tables[1], indices, 0.5, 2.0)
    return tables * 2


def _into(x, out):
    torch.special.scaled_modified_bessel_k0(x, out=out)
    return out + 1


def _several_out(x, values, vectors):
    torch.linalg.eigh(x + x.mT, out=(values, vectors))
    return values.sum()


def _observed(x, low, high, scale, zero):
    on = torch.ones(1, dtype=torch.int64)
    made, mask = torch._fused_moving_avg_obs_fq_helper(
        x, on, on, low, high, scale, zero, 0.01, 0, 255, -1
    )
    return made, mask, low + high


def _index_reduced(x, index):
    made = torch.zeros(5, 3).index_reduce_(0, index, x, "mean", include_self=False)
    return made, x.index_reduce_(dim=0, index=index * 0, source=x * 2, reduce="amax")


def _batch_norm_by_name(x, mean, var):
    made = torch.native_batch_norm(x, None, None, mean, var, training=True, momentum=0.1, eps=1e-5)
    kept = torch.native_batch_norm(x, None, None, mean, var, training=False, momentum=0.1, eps=1e-5)
    return made[0], kept[0]


def _renormed_by_name(tables, indices):
    torch.embedding_renorm_(tables[1], indices, max_norm=0.5, norm_type=2.0)
    return tables * 2


CASES = {
    "index_reduced": (
        _index_reduced,
        lambda n: (torch.randn(n, 3), torch.randint(0, 5, (n,))),
    ),
    "batch_norm_by_name": (
        _batch_norm_by_name,
        lambda n: (torch.randn(n + 2, 3), torch.zeros(3), torch.ones(3)),
    ),
    "renormed_by_name": (
        _renormed_by_name,
        lambda n: (torch.randn(2, n + 1, 4), torch.randint(0, n + 1, (n,))),
    ),
    "multigamma_by_name": (
        lambda x: (x + 3).mvlgamma_(p=2),
        lambda n: (torch.rand(n, 2),),
    ),
    "observed": (
        _observed,
        lambda n: (
            torch.randn(n, 3),
            torch.full((1,), torch.inf),
            torch.full((1,), -torch.inf),
            torch.ones(1),
            torch.zeros(1, dtype=torch.int32),
        ),
    ),
    "batch_norm": (_batch_norm, lambda n: (torch.randn(n + 2, 3), torch.zeros(3), torch.ones(3))),
    "batch_norm_view": (
        lambda x, both: _batch_norm(x, both[0], both[1]),
        lambda n: (torch.randn(n + 2, 3), torch.rand(2, 3)),
    ),
    "batch_norm_with_update": (
        _batch_norm_of_a_row,
        lambda n: (torch.randn(n + 2, 3, 2), torch.zeros(3), torch.ones(3)),
    ),
    "renormed": (_renormed, lambda n: (torch.randn(n + 1, 4), torch.randint(0, n + 1, (n,)))),
    "renormed_view": (
        _renormed_view,
        lambda n: (torch.randn(2, n + 1, 4), torch.randint(0, n + 1, (n,))),
    ),
    "out": (_into, lambda n: (torch.rand(n, 2) + 0.5, torch.empty(n, 2))),
    "several_out": (
        _several_out,
        lambda n: (torch.randn(n, n), torch.empty(n), torch.empty(n, n).mT),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_written_arguments_are_eagers(name: str) -> None:
    program, make = CASES[name]
    fast = anyshape.compile(program, fullgraph=True)
    for size in (3, 5, 1, 2, 17):
        torch.manual_seed(size)
        args = make(size)
        ours = copy.deepcopy(args)
        with torch.no_grad():
            expected, made = program(*args), fast(*ours)
        torch.testing.assert_close((made, ours), (expected, args))
    assert fast.stats().graph_breaks == 0


def test_what_is_named_as_a_writer_and_has_no_schema_is_no_part_of_a_graph() -> None:
    def program(x):
        y = x.clone()
        y.apply_(lambda value: value + 1)
        return y * 2

    fast = anyshape.compile(program)
    for size in (3, 0, 1, 17):
        x = torch.rand(size)
        assert torch.equal(fast(x), program(x))
    assert fast.stats().graph_breaks > 0


@pytest.mark.parametrize(
    ("name", "written"),
    [
        ("torch._cummax_helper", ("values", "indices")),
        ("torch.Tensor.add_", ("self",)),
        ("torch._C._nn.rrelu_with_noise", ("noise",)),
        ("torch.native_batch_norm", ("running_mean", "running_var")),
        ("torch.sort", ()),
        ("torch.Tensor.add", ()),
    ],
)
def test_the_schema_says_what_is_written(name: str, written: tuple[str, ...]) -> None:
    owner, _, last = name.rpartition(".")
    holder = {"torch": torch, "torch.Tensor": torch.Tensor}.get(owner, torch._C._nn)
    writer = writer_of(getattr(holder, last), name)
    assert (() if writer is None else written_names(writer.operator)) == written


@pytest.mark.parametrize("operator", ["native_batch_norm", "_native_batch_norm_legit"])
def test_what_is_written_and_saved_for_gradients_is_not_written_afterwards(operator: str) -> None:
    def program(x, mean, var):  # type: ignore[no-untyped-def]
        return getattr(torch, operator)(x, None, None, mean, var, True, 0.1, 1e-5)[0].square()

    fast = anyshape.compile(program)
    for count in (3, 2, 17):
        made = []
        for function in (program, fast):
            x = torch.arange(3.0 * count).reshape(count, 3).sin().requires_grad_()
            mean, var = torch.zeros(3), torch.ones(3)
            function(x, mean, var).sum().backward()
            made.append((x.grad, mean, var))
        torch.testing.assert_close(made[1], made[0])


@pytest.mark.parametrize("read", [True, False])
@pytest.mark.parametrize("name", ["i0_", "mvlgamma_", "polygamma_", "igamma_"])
def test_what_cannot_be_cast_to_what_is_written_is_refused(name, read):
    rest = {"mvlgamma_": (1,), "polygamma_": (1,), "igamma_": (torch.ones(3),)}.get(name, ())

    def program(x):
        written = getattr(x * 1, name)(*rest)
        return written + 1 if read else 1

    for run in (program, anyshape.compile(program)):
        with pytest.raises((RuntimeError, NotImplementedError)):
            run(torch.ones(3, dtype=torch.int64))
