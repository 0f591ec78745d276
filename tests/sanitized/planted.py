"""Plants mistakes in generated code, one in each process, and prints what the sanitizers say of it, as JSON."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent / "bounds"))
from isolated import isolated

from anyshape import api
from anyshape.ir.loops import Load, Op
from anyshape.options import from_environment
from anyshape.targets.cpu import native
from anyshape.targets.cpu.c_cells import CellPrinter


def program(x):
    """The first kernel reads the argument and writes what dies in the native region, the second reads that and
    writes what is handed out, a library reads and writes the rest."""
    return ((x * 2).sum(0) + 1) @ (x.T @ x) + 1


def one_further(kind, pointer):
    """Every load, or store, of this pointer goes one element too far."""
    lvalue = CellPrinter._lvalue

    def beyond(self, item):
        text = lvalue(self, item)
        planted = isinstance(item, kind) and item.pointer == pointer
        return f"{text[:-1]} + 1]" if planted else text

    CellPrinter._lvalue = beyond


def short_buffers():
    """What lies in the arena is one element shorter than it should be."""
    size_bytes = native.size_bytes
    native.size_bytes = lambda buffer: size_bytes(buffer) - buffer.dtype.size_bytes


def cast_out_of_range():
    value = CellPrinter._value

    def planted(self, number, element):
        text = value(self, number, element)
        is_sum = isinstance(element, Op) and element.op == "mul"
        return f"(f32)(i32)(1e30f * {text})" if is_sum else text

    CellPrinter._value = planted


PLANTS = {
    "nothing": lambda: None,
    "a read past an argument": lambda: one_further(Load, "p0"),
    "a write past a buffer": lambda: one_further(object, "p1"),
    "buffers too short": short_buffers,
    "a number past what an integer holds": cast_out_of_range,
}


def planted(name: str) -> str:
    PLANTS[name]()
    fast = api.compile(program)
    for rows, columns in ((3, 3), (2, 5), (0, 3), (7, 4)):
        x = torch.ones(rows, columns)
        torch.testing.assert_close(fast(x), program(x))
    return ""


if __name__ == "__main__":
    assert from_environment().sanitize
    torch.set_num_threads(1)
    print(json.dumps({name: isolated(lambda name=name: planted(name)) for name in PLANTS}))
