"""One structure compiled once, all its calls compared with eager.

In: an entry of the database. Out: `Outcome`s, one for each structure: how it was compiled, and what
differs. Random operators are compared under one seed, `empty` and its like by shape.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

import anyshape
from anyshape.errors import AnyshapeWarning
from anyshape.ir.program import EagerCall, ExternCall, LibraryCall
from anyshape.ops import OPS
from conformance import cases
from conformance.cases import Example, Structure
from conformance.exact import excused

# From best to worst.
KINDS = ("generated", "extern", "eager", "break", "error", "wrong")
REFUSED = "refused"  # by eager torch, every call: no operator of this device, and no outcome
NO_CONTENTS = (
    "empty",
    "new_empty",
    "empty_strided",
    "empty_like",
    "new_empty_strided",
    "empty_permuted",
    "resize_",
    "resize_as_",
)
"""Operators whose results show memory that nobody has written."""
EAGER_IS_WRONG: dict[str, Callable[[Example], bool]] = {
    # of an empty matrix it returns the input as it is, where its own documentation and meta kernel
    # say one element for each row
    "addmv": lambda example: example.args[1].numel() == 0,
}
"""Calls for which eager contradicts its own documentation; only that nothing fails is checked."""
TOLERANCES = {
    torch.float64: (1e-7, 1e-7), torch.float32: (1e-4, 1e-5), torch.bfloat16: (2e-2, 2e-2),
    torch.float16: (5e-3, 5e-3), torch.complex64: (1e-4, 1e-5), torch.complex128: (1e-7, 1e-7),
}  # fmt: skip


@dataclass(slots=True)
class Outcome:
    """How one structure fared. `detail` says what is wrong, or which operators have no kernel."""

    structure: str
    dtype: str
    kind: str
    detail: str = ""
    calls: int = 0
    own_rows: bool = True
    fresh: int = 0


def check_entry(entry: Any, most: int, derived: int, device: str = "cpu") -> list[dict[str, Any]]:
    """Outcomes of an entry's structures, over all dtypes."""
    made = []
    for dtype in cases.DTYPES:
        share = most if dtype is torch.float32 else max(most // 3, 1)
        for structure in cases.structures(entry, dtype, share, derived, device):
            outcome = check_structure(entry, structure, str(dtype)[6:])
            made += [asdict(outcome)] if outcome.kind != REFUSED else []
    return made


@torch.no_grad()
def check_structure(entry: Any, structure: Structure, dtype: str) -> Outcome:
    """Compiles the first call, with every dimension unbacked, and compares all of them."""
    operator = entry.op

    def program(*args: Any, **kwargs: Any) -> Any:
        return operator(*args, **kwargs)

    fast = anyshape.compile(program)
    outcome = Outcome(structure.key[:200], dtype, "generated")
    for example in structure.examples:
        outcome.calls += 1
        problem = compare(entry, program, fast, example)
        if problem:
            kind = "error" if problem.startswith("ours raises") else "wrong"
            return _worse(outcome, kind, f"{problem} in {_shown(example)}")
    if all(_refused(program, example) for example in structure.examples):
        return _worse(outcome, REFUSED, "eager refuses every call on this device")
    return _classified(outcome, fast)


def _refused(program: Callable[..., Any], example: Example) -> bool:
    return _attempt(program, cases.mapped(cases.copied, example))[1] is not None


def compare(
    entry: Any, program: Callable[..., Any], fast: Callable[..., Any], example: Example
) -> str | None:
    """How our results differ from eager's for one call, or None."""
    theirs, ours = cases.mapped(cases.copied, example), cases.mapped(cases.copied, example)
    for t in cases.tensors_of(ours):
        for dim in range(t.dim()):
            anyshape.mark_unbacked(t, dim)
    expected, failure = _attempt(program, theirs)
    made, our_failure = _attempt(fast, ours)
    if failure is not None or our_failure is not None:
        return _failures(failure, our_failure)
    if entry.name in EAGER_IS_WRONG and EAGER_IS_WRONG[entry.name](example):
        return None
    contents = entry.name not in NO_CONTENTS
    found, right = [made, list(cases.tensors_of(ours))], [expected, list(cases.tensors_of(theirs))]
    problem = difference(found, right, contents)
    if problem is None or difference(found, right, False) is not None:
        return problem

    def run(again: Example) -> Any:
        return _attempt(program, again)[0]

    return None if excused(run, example, found, right, _close) else problem


def _attempt(run: Callable[..., Any], example: Example) -> tuple[Any, BaseException | None]:
    torch.default_generator.manual_seed(7)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(7)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", AnyshapeWarning)
        try:
            return run(*example.args, **example.kwargs), None
        except Exception as error:
            return None, error


def _failures(theirs: BaseException | None, ours: BaseException | None) -> str | None:
    if theirs is None:
        return f"ours raises {type(ours).__name__}: {str(ours)[:300]}"
    if ours is None:
        return f"eager raises {type(theirs).__name__}: {str(theirs)[:100]}; we do not"
    if type(ours) is not type(theirs):
        return f"ours raises {type(ours).__name__} {str(ours)[:200]}, eager {type(theirs).__name__}"
    return None


def difference(ours: Any, theirs: Any, contents: bool = True) -> str | None:
    """How two results differ: types, dtypes, shapes, strides that matter, values."""
    if isinstance(theirs, Tensor):
        if not isinstance(ours, Tensor):
            return f"{type(ours).__name__} instead of a tensor"
        return _tensor_difference(ours, theirs, contents)
    if isinstance(theirs, (list, tuple)):
        if type(ours) is not type(theirs) or len(ours) != len(theirs):
            return f"{type(ours).__name__} instead of {type(theirs).__name__} of {len(theirs)}"
        found = (difference(a, b, contents) for a, b in zip(ours, theirs))
        return next((problem for problem in found if problem), None)
    same = ours == theirs or (ours != ours and theirs != theirs)
    return None if same is True or same is NotImplemented else f"{ours!r} != {theirs!r}"


def _tensor_difference(ours: Tensor, theirs: Tensor, contents: bool) -> str | None:
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        return f"{ours.dtype}{tuple(ours.shape)} != {theirs.dtype}{tuple(theirs.shape)}"
    if theirs.layout is not torch.strided:
        return None if ours.layout == theirs.layout else f"layout {ours.layout}"
    if theirs.numel():
        pairs = zip(theirs.shape, ours.stride(), theirs.stride())
        if any(a != b for size, a, b in pairs if size > 1):
            return f"strides {ours.stride()} != {theirs.stride()} of {tuple(theirs.shape)}"
    if not contents:
        return None
    return _value_difference(ours, theirs)


def _value_difference(ours: Tensor, theirs: Tensor) -> str | None:
    rtol, atol = TOLERANCES.get(theirs.dtype, (0.0, 0.0))
    try:
        torch.testing.assert_close(
            ours, theirs, rtol=rtol, atol=atol, equal_nan=True, check_stride=False
        )
    except AssertionError as error:
        return str(error).replace("\n", " ")[:200]
    return None


def _close(ours: Tensor, theirs: Tensor) -> bool:
    return _value_difference(ours, theirs) is None


def _classified(outcome: Outcome, fast: Any) -> Outcome:
    stats = fast.stats()
    compiled = fast._lazy.start()
    if stats.graph_breaks or stats.segments == 0:
        reasons = [str(b).partition("\n")[0] for b in compiled.explain().breaks]
        return _worse(outcome, "break", "; ".join(reasons)[:300] or "ran natively")
    variants = compiled._specializations()
    graphs = [v.captured.graph for v in variants if v.captured.graph is not None]
    nodes = [node for graph in graphs for node in graph.nodes]
    outcome.own_rows = not any(OPS[node.op].guessed for node in nodes)
    programs = [v.compiled.program for v in variants if hasattr(v.compiled, "program")]
    steps = [step for program in programs for step in program.flat_steps()]
    calls = [s.call if isinstance(s, LibraryCall) else s for s in steps]
    for name, kind in (("eager", EagerCall), ("extern", ExternCall)):
        names = {step.function for step in calls if isinstance(step, kind)}
        if names:
            return _worse(outcome, name, ", ".join(sorted(names)))
    return outcome


def _worse(outcome: Outcome, kind: str, detail: str) -> Outcome:
    outcome.kind, outcome.detail = kind, detail
    return outcome


def _shown(example: Example) -> str:
    def text(t: Tensor) -> str:
        return f"{str(t.dtype)[6:]}{list(t.shape)}" + (
            "" if t.is_contiguous() else f"/{t.stride()}"
        )

    return str((cases.mapped(text, example.args), cases.mapped(text, example.kwargs)))[:300]
