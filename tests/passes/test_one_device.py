"""Kernels read one device: numbers of the host are handed over, positions copied, the rest refused."""

from __future__ import annotations

import textwrap

import pytest

from anyshape.ir.dtypes import float32, int64
from anyshape.ir.graph import HOST, TensorType, Value
from anyshape.ir.parse import parse_graph
from anyshape.ir.text import print_graph
from anyshape.ir.verify import verify_graph
from anyshape.ops import OPS
from anyshape.ops.build import Builder
from anyshape.ops.context import OpError, TypeContext
from anyshape.ops.rules import require_one_device
from anyshape.passes.one_device import read_one_device
from anyshape.passes.pipeline import INFERENCE
from anyshape.symbolic import Facts

HEAD = """
# symbol s0: backed entry = 3

def graph(
    x_0,  # argument 'x' : float32[s0] on cuda:0
    x_1,  # argument 's' : float32[]
    x_2,  # argument 'i' : int64[s0]
):
"""

# name: (before, after); an empty `after` is a program that stays as it is.
PROGRAMS = {
    "a number of the host is handed over once": (
        """
        div_0 = torch.div(x_0, x_1)  # div : float32[s0] on cuda:0
        mul_0 = torch.mul(x_1, div_0)  # mul : float32[s0] on cuda:0
        return (mul_0,)
        """,
        """
        item_0 = torch.Tensor.item(x_1)  # item : float n0
        full_0 = anyshape.eager.full((), item_0, torch.float32, 'cuda:0')  # full : float32[] on cuda:0
        div_0 = torch.div(x_0, full_0)  # div : float32[s0] on cuda:0
        mul_0 = torch.mul(full_0, div_0)  # mul : float32[s0] on cuda:0
        return (mul_0,)
        """,
    ),
    "what the host computes with it stays on the host": (
        """
        sqrt_0 = torch.sqrt(x_1)  # sqrt : float32[]
        div_0 = torch.div(x_0, sqrt_0)  # div : float32[s0] on cuda:0
        return (div_0, sqrt_0)
        """,
        """
        sqrt_0 = torch.sqrt(x_1)  # sqrt : float32[]
        item_0 = torch.Tensor.item(sqrt_0)  # item : float n0
        full_0 = anyshape.eager.full((), item_0, torch.float32, 'cuda:0')  # full : float32[] on cuda:0
        div_0 = torch.div(x_0, full_0)  # div : float32[s0] on cuda:0
        return (div_0, sqrt_0)
        """,
    ),
    "positions of the host are copied": (
        """
        index_0 = anyshape.eager.index(x_0, (x_2,))  # index : float32[s0] on cuda:0
        return (index_0,)
        """,
        """
        to_device_0 = anyshape.eager.to_device(x_2, 'cuda:0')  # to_device : int64[s0] on cuda:0
        index_0 = anyshape.eager.index(x_0, (to_device_0,))  # index : float32[s0] on cuda:0
        return (index_0,)
        """,
    ),
    "kernels of each device read its own memory": (
        """
        mul_0 = torch.mul(x_0, 2.0)  # mul : float32[s0] on cuda:0
        neg_0 = torch.neg(x_1)  # neg : float32[]
        return (mul_0, neg_0)
        """,
        "",
    ),
}


def program(lines: str) -> str:
    return HEAD + textwrap.indent(textwrap.dedent(lines).strip(), "    ")


@pytest.mark.parametrize("name", PROGRAMS)
def test_each_kernel_reads_the_memory_of_its_device(name: str) -> None:
    before, after = PROGRAMS[name]
    made = read_one_device(parse_graph(program(before)), OPS)
    verify_graph(made)
    spell = {row.name: row.torch for row in OPS.values()}.__getitem__
    wanted = parse_graph(program(after or before))
    assert print_graph(made, spell) == print_graph(wanted, spell)


def test_the_scheduler_is_handed_no_kernel_of_two_devices() -> None:
    before, _ = PROGRAMS["a number of the host is handed over once"]
    *_, (_, final) = INFERENCE.stages(parse_graph(program(before)), OPS)
    assert [node.op for node in final.nodes] == ["item", "full", "div", "mul"]


def of(device: str, *shape: int, dtype=float32) -> Value:
    return Value("x_0", TensorType(dtype, device, shape, tuple(1 for _ in shape)))


REFUSED = {
    "a join": ("cat", (((of("cuda:0", 3), of(HOST, 3)), 0))),
    "rows at positions of the host": (
        "index_select", (of("cuda:0", 3), 0, of(HOST, 2, dtype=int64)),
    ),
    "the host's rows at a device's positions": (
        "index", (of(HOST, 3), (of("cuda:0", 2, dtype=int64),)),
    ),
    "another device's positions": (
        "index", (of("cuda:0", 3), (of("cuda:1", 2, dtype=int64),)),
    ),
    "values of the host": (
        "index_put", (of("cuda:0", 3), (of(HOST, 2, dtype=int64),), of(HOST, 2), False),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_eager_refuses_of_two_devices_is_refused(name: str) -> None:
    with pytest.raises(OpError, match="device"):
        require_one_device(*REFUSED[name])


def test_what_eager_takes_of_two_devices_is_taken() -> None:
    positions = of(HOST, 2, dtype=int64)
    require_one_device("index", (of("cuda:0", 3), (positions,)))
    require_one_device("index_put", (of("cuda:0", 3), (positions,), of(HOST), False))
    require_one_device("scatter", (of("cuda:0", 3), 0, of("cuda:0", 2, dtype=int64), of(HOST)))


def builder() -> Builder:
    space = parse_graph(program("return (x_0,)")).space
    return Builder(TypeContext(space, Facts(space)))


# name: how the capture calls a row of vectors x (a device), y and i (the host).
CALLS = {
    "in place": lambda b, x, y, i: b.call("index_add_", x, 0, i, x),
    "composite": lambda b, x, y, i: b.call("cross_entropy", b.reshape(x, (1, 3)), i),
    "rows of a table": lambda b, x, y, i: b.call("embedding", i, b.reshape(x, (3, 1))),
    "element by element": lambda b, x, y, i: b.add(x, y),
    "filled where a mask says": lambda b, x, y, i: b.call("masked_fill", x, b.gt(y, 0.0), 1.0),
}


@pytest.mark.parametrize("name", CALLS)
def test_rows_made_of_others_refuse_what_those_refuse(name: str) -> None:
    b = builder()
    x, y = (b.input(TensorType(float32, d, (3,), (1,)), "argument", d) for d in ("cuda:0", HOST))
    i = b.input(TensorType(int64, HOST, (3,), (1,)), "argument", "i")
    with pytest.raises(OpError, match="device"):
        CALLS[name](b, x, y, i)


def test_masks_of_the_host_that_index_are_copied() -> None:
    b = builder()
    x, y = (b.input(TensorType(float32, d, (3,), (1,)), "argument", d) for d in ("cuda:0", HOST))
    b.call("index_put_", x, (b.gt(y, 0.0),), 1.0)
    assert [node.op for node in b.nodes] == ["gt", "to_device", "masked_fill_"]
