"""Library calls that C makes on a GPU beside those of ``targets/cpu/library.py``.

In: a ``Call``. Out: a ``LibraryCall`` that gives its results as memory of torch's, None where only
Python can make it. The functions are those of
torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from anyshape.ir.buffers import NativeKind, StepArg
from anyshape.ir.program import Call, LibraryCall
from anyshape.nouns import frozen
from anyshape.runtime.launch import is_exported
from anyshape.targets.cpu.library import Buffers, as_value, library_call, of_kind


@frozen
class LibraryFunction:
    """How a function of Python's is one of C, or an operator by name (``aten::``): its
    ``parameters`` in order, by kind, ``defaults`` of those that may be left out, and those that
    must be as they are in ``fixed``, whether C has them or not."""

    function: str
    parameters: Mapping[str, NativeKind]
    defaults: Mapping[str, StepArg]
    fixed: Mapping[str, StepArg] = field(default_factory=dict)

    def given(self, step: Call) -> dict[str, StepArg] | None:
        """Every argument by name; None where C has no such call."""
        names = dict.fromkeys((*self.parameters, *self.fixed))
        given = {**self.defaults, **self.fixed, **dict(zip(names, step.args)), **step.kwargs}
        right = all(given[name] == value for name, value in self.fixed.items())
        return given if right and given.keys() == names.keys() else None


FUNCTIONS: Mapping[str, LibraryFunction] = {
    "torch.topk": LibraryFunction(
        "topk",
        {"input": "tensor", "k": "int", "dim": "int", "largest": "bool", "sorted": "bool"},
        {"dim": -1, "largest": True, "sorted": True},
    ),
    "anyshape.eager.sort": LibraryFunction(
        "sort",
        {"input": "tensor", "dim": "int", "descending": "bool"},
        {"dim": -1, "descending": False},
        {"stable": False},
    ),
    "torch.histc": LibraryFunction(
        "histc",
        {"input": "tensor", "bins": "int", "min": "float", "max": "float"},
        {},
    ),
    "torch._grouped_mm": LibraryFunction(
        "aten::_grouped_mm",
        {
            "input": "tensor", "mat2": "tensor", "offs": "tensor?", "bias": "tensor?",
            "out_dtype": "int?",
        },
        {"offs": None, "bias": None},
        {"out_dtype": None},
    ),
}  # fmt: skip


def gpu_call(step: Call, buffers: Buffers, kind: str = "cuda") -> LibraryCall | None:
    """The call as C makes it, None where it cannot."""
    found = FUNCTIONS.get(step.function)
    if found is None:
        return library_call(step, buffers, kind)
    given = found.given(step)
    if given is None or step.guessed or step.may_alias:
        return None
    args = tuple((kind, as_value(given[name], buffers)) for name, kind in found.parameters.items())
    if "::" in found.function:
        return LibraryCall(step, found.function, args, dispatched=True)
    call = of_kind(LibraryCall(step, found.function, args, returned=True), kind)
    return call if is_exported(call.function) else None
