"""What a call did: results, what it did to its arguments, who shares memory with whom."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

import anyshape
from anyshape.capture.interpreter.concrete import Concrete
from anyshape.capture.python.language import python_machine
from anyshape.tools.accuracy import strides_that_matter
from tests.fuzz.programs import SIZES, Fuzzed, function_of


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call: its arguments afterwards and its results, or what it raised."""

    arguments: list[Tensor]
    versions: list[int]
    results: tuple[Any, ...]
    error: str = ""


def call(function: Callable[..., Any], arguments: list[Tensor]) -> Outcome:
    """Calls and looks."""
    before = [t._version for t in arguments]
    try:
        results = function(*arguments)
    except Exception as error:
        return Outcome(arguments, [], (), f"{type(error).__name__}: {error}")
    versions = [t._version - was for t, was in zip(arguments, before)]
    return Outcome(arguments, versions, results)


def differences(found: Outcome, wanted: Outcome, *, exact: bool) -> Iterator[str]:
    """How a call differs from eager's."""
    if found.error or wanted.error:
        if found.error != wanted.error:
            yield f"raises {found.error!r}, eager {wanted.error!r}"
        return
    for number, (a, b) in enumerate(zip(found.arguments, wanted.arguments)):
        for problem in unlike(a, b, exact):
            yield f"argument {number}: {problem}"
    for number, (a, b) in enumerate(zip(found.versions, wanted.versions)):
        if (a > 0) != (b > 0):
            yield f"argument {number}: version counter + {a}, eager's + {b}"
    if len(found.results) != len(wanted.results):
        yield f"{len(found.results)} results, eager {len(wanted.results)}"
        return
    for number, (a, b) in enumerate(zip(found.results, wanted.results)):
        for problem in unlike(a, b, exact):
            yield f"result {number}: {problem}"
    ours, theirs = shared(found), shared(wanted)
    if ours != theirs:
        yield f"memory is shared by {ours}, eager's by {theirs}"


def unlike(a: Any, b: Any, exact: bool) -> Iterator[str]:
    """How two results differ."""
    if not isinstance(b, Tensor):
        if type(a) is not type(b) or a != b:
            yield f"{a!r}, eager's {b!r}"
        return
    for aspect, of in (
        ("dtype", lambda t: t.dtype),
        ("shape", lambda t: tuple(t.shape)),
        ("strides", strides_that_matter),
    ):
        if of(a) != of(b):
            yield f"{aspect} {of(a)}, eager's {of(b)}"
            return
    if not (torch.equal(a, b) if exact else close(a, b)):
        yield f"{a.tolist()}\n   eager's {b.tolist()}"


def close(a: Tensor, b: Tensor) -> bool:
    """Equal but for rounding; programs keep whole numbers apart from what is rounded."""
    if not a.is_floating_point():
        return torch.equal(a, b)
    tolerance = 1e-4 if a.dtype in (torch.float32, torch.float64) else 2e-2
    return torch.allclose(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)


def shared(outcome: Outcome) -> list[str]:
    """Pairs of arguments and results that lie in one storage, and at which distance."""
    named = [
        *((f"argument {i}", t) for i, t in enumerate(outcome.arguments)),
        *((f"result {i}", t) for i, t in enumerate(outcome.results) if isinstance(t, Tensor)),
    ]
    named = [(name, t) for name, t in named if t.numel() > 0]
    return [
        f"{p}, {q} at {(y.data_ptr() - x.data_ptr())}{' the same' if x is y else ''}"
        for i, (p, x) in enumerate(named)
        for q, y in named[i + 1 :]
        if x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    ]


def wrong(program: Fuzzed, *, verify: bool = False, order: tuple[int, ...] = ()) -> list[str]:
    """How the concrete domain and the compiled code differ from eager, at each size."""
    function = function_of(program.source)
    fast = anyshape.compile(function, options={"verify": verify})
    found = []
    for case in order or range(len(SIZES)):
        eager = call(function, program.arguments(case))
        concrete = call(
            lambda *xs: python_machine(Concrete()).run(function, *xs), program.arguments(case)
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            ours = call(fast, program.arguments(case))
        problems = [
            *(f"concrete domain: {p}" for p in differences(concrete, eager, exact=True)),
            *(f"compiled: {p}" for p in differences(ours, eager, exact=False)),
            *(
                f"compiled: warns {w.message}"
                for w in caught
                if issubclass(w.category, anyshape.errors.AnyshapeWarning)
            ),
        ]
        found += [f"sizes {dict(SIZES[case])}: {p}" for p in problems]
    return found
