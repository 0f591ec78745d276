"""What a scalar operator means, by torch: loop bodies of rows are run on whole tensors with these.

``TorchScalars`` is the ``b`` of a ``Pointwise`` body; an ``Element`` is a tensor that knows its ir
dtype.
"""

from __future__ import annotations

from typing import Any

import torch

from anyshape.ir.dtypes import DTYPES, DType, bool_, float32
from anyshape.ir.loops import SCALAR_OPS
from anyshape.torch_names import torch_dtype

FUNCTIONS: dict[str, Any] = {
    "erfp1": lambda x: 1 + torch.erf(x),
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    "floordiv": torch.floor_divide,
    "truncdiv": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "mod": torch.remainder,
    "bit_and": torch.bitwise_and,
    "bit_or": torch.bitwise_or,
    "bit_xor": torch.bitwise_xor,
    "bit_not": torch.bitwise_not,
    "shl": torch.bitwise_left_shift,
    "shr": torch.bitwise_right_shift,
}


class Element:
    """One element of every position at once."""

    def __init__(self, data: torch.Tensor) -> None:
        self.data = data

    @property
    def dtype(self) -> DType:
        return DTYPES[str(self.data.dtype).removeprefix("torch.")]


class TorchScalars:
    """One method for each scalar operator, with torch's own semantics."""

    def __getattr__(self, name: str) -> Any:
        if name not in SCALAR_OPS:
            raise AttributeError(f"no scalar operator {name!r}")
        function = FUNCTIONS.get(name) or getattr(torch, name)
        return lambda *args: Element(function(*self._operands(args)))

    def _operands(self, args: Any) -> list[torch.Tensor]:
        like = next(a for a in args if isinstance(a, Element))
        dtypes = {a.data.dtype for a in args if isinstance(a, Element)}
        assert len(dtypes) == 1, f"operands of different dtypes: {dtypes}"
        return [a.data if isinstance(a, Element) else _number(a, like.data) for a in args]

    def where(self, c: Any, a: Any, b: Any) -> Element:
        assert c.dtype is bool_
        return Element(torch.where(c.data, *self._operands((a, b))))

    def cast(self, x: Element, dtype: DType) -> Element:
        if not isinstance(x, Element):
            return Element(torch.tensor(x, dtype=torch_dtype(dtype)))
        return Element(x.data.to(torch_dtype(dtype)))

    def const(self, value: Any, dtype: DType) -> Element:
        return Element(torch.tensor(value, dtype=torch_dtype(dtype)))


def _number(value: Any, like: torch.Tensor) -> torch.Tensor:
    return torch.tensor(value, dtype=like.dtype)


def working(dtype: DType) -> DType:
    """Below float32, floats are computed in float32."""
    return float32 if dtype.name in ("float16", "bfloat16") else dtype


def run_body(row: Any, args: Any, kwargs: Any, result: DType, promoted: DType) -> torch.Tensor:
    """The row's body over whole tensors, operands cast as ``compute`` and ``own`` say."""
    lower = row.lower
    target = {"result": working(result), "promoted": working(promoted), "own": None}[lower.compute]

    def element(position: int, a: Any) -> Any:
        if not isinstance(a, torch.Tensor):
            return DTYPES[str(a).removeprefix("torch.")] if isinstance(a, torch.dtype) else a
        own = target is None or position in lower.own
        wanted = working(Element(a).dtype) if own else target
        return Element(a.to(torch_dtype(wanted)))

    taken = [element(i, a) for i, a in enumerate(args)]
    made = row.lower.body(TorchScalars(), *taken, **{k: element(-1, v) for k, v in kwargs.items()})
    return made.data.to(torch_dtype(result))
