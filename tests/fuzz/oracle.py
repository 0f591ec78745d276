"""What a call did, and how it differs from eager's: results, arguments, memory, exceptions."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

import anyshape
from anyshape.capture.interpreter.domain import Concrete
from anyshape.capture.python.language import python_machine
from anyshape.errors import AnyshapeWarning
from anyshape.reference import strides_that_matter
from tests.fuzz.programs import Fuzzed, function_of, random_state, seed, tensors_in
from tests.fuzz.roundings import SIDES, OtherRoundings, Overflows, Side
from tests.fuzz.stores import LastStored

UNITS = 4
"""Units in the last place, of the largest number of a tensor, that a result may be off beside
twice eager's own error: those of a few operators in a row."""
UNITS_WITHOUT_REFERENCE = 64
FLOAT32 = torch.finfo(torch.float32).eps
EAGERS_MISTAKE = "INTERNAL ASSERT FAILED"
"""Of eager torch itself, which asks for a report: there is nothing to compare with."""
OUR_MISTAKES = re.compile(r"\bE(?:602|9\d\d|5\d\d)\b")


@dataclass(frozen=True, slots=True)
class Outcome:
    """One call: its arguments afterwards and its result, or what it raised."""

    arguments: list[Any]
    versions: list[int]
    results: Any
    error: str = ""
    message: str = ""
    random_state: Tensor | None = None
    gradients: tuple[Any, ...] = ()


def call(function: Callable[..., Any], arguments: list[Any]) -> Outcome:
    """Calls and looks."""
    seed()
    tensors = [t for t in arguments if isinstance(t, Tensor)]
    before = [t._version for t in tensors]
    results, error, message, gradients = None, "", "", ()
    try:
        results = function(*arguments)
        gradients = gradients_of(results, [t for t in tensors if t.requires_grad and t.is_leaf])
    except Exception as raised:
        error, message = type(raised).__name__, str(raised)
    versions = [t._version - was for t, was in zip(tensors, before)]
    return Outcome(arguments, versions, results, error, message, random_state(), gradients)


def gradients_of(results: Any, inputs: list[Tensor]) -> tuple[Any, ...]:
    """Of all results together, as far as they have any; None where an input has none."""
    outputs = [t for t in tensors_in(results) if t.requires_grad and not t.is_complex()]
    if not inputs or not outputs:
        return ()
    total = sum(_weighed(t).sum() for t in outputs)
    return torch.autograd.grad(total, inputs, allow_unused=True)


def _weighed(t: Tensor) -> Tensor:
    """Times odd numbers in no order: the gradient of a plain sum is 0 behind a softmax, but for
    what rounding leaves. Of float64 a plain sum, whose cotangent repeats one element."""
    if t.dtype is torch.float64:
        return t
    numbers = torch.arange(t.numel(), dtype=torch.float64, device=t.device).cos()
    return t.double() * ((numbers * 3).floor() * 2 + 1).view(t.shape)


Reference = Callable[[], "Outcome | None"]
Catching = Callable[[], AbstractContextManager[list[Any]]]


@contextmanager
def catching() -> Iterator[list[Any]]:
    """Warnings, as they come."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield caught


def differences(
    found: Outcome,
    wanted: Outcome,
    *,
    exact: bool,
    reference: Reference = lambda: None,
    nudges: Sequence[Reference] = (),
    narrow: bool = False,
    coarse: float = 0.0,
) -> Iterator[str]:
    """How a call differs from eager's. ``reference``: the same call in float64; ``nudges``: calls
    that are a rounding off; ``narrow``: it has none, and some numbers are not float64;
    ``coarse``: a unit of 1, of the dtype that rounds most in it."""
    if EAGERS_MISTAKE in wanted.message or any(map(_is_impossible, _leaves(wanted))):
        return
    if found.error != wanted.error or (exact and found.message != wanted.message):
        yield f"raises {found.error or 'nothing'}, eager {wanted.error or 'nothing'}: {found.message or wanted.message}"
        return
    ours, theirs = list(_leaves(found)), list(_leaves(wanted))
    if [name for name, _ in ours] != [name for name, _ in theirs]:
        yield f"results are nested as {[n for n, _ in ours]}, eager's as {[n for n, _ in theirs]}"
        return
    truths = _Truths(reference, len(theirs))
    nudged = [_Truths(nudge, len(theirs)) for nudge in nudges]
    for number, ((name, a), (_, b)) in enumerate(zip(ours, theirs)):
        problems = list(unlike(a, b, exact, lambda: truths.of(number), narrow, coarse))
        if problems and not exact and _is_carried(a, b, truths.of(number), nudged, number, coarse):
            continue
        for problem in problems:
            if not (_is_empty_gradient(name, b) and problem.startswith("requires_grad")):
                yield f"{name}: {problem}"
        if not name.startswith("gradient") and _is_view(a) and not _is_view(b):
            yield f"{name}: a view, eager's is none"
    for number, (a, b) in enumerate(zip(found.versions, wanted.versions)):
        if (a > 0) != (b > 0):
            yield f"argument {number}: version counter + {a}, eager's + {b}"
    ours, theirs = shared(found), shared(wanted)
    if ours != theirs:
        yield f"memory is shared by {ours}, eager's by {theirs}"
    states = found.random_state, wanted.random_state
    if states[0] is not None and not torch.equal(*states):
        yield "random state differs afterwards"


def _is_empty_gradient(name: str, value: Any) -> bool:
    """Some formulas of eager give back their argument, or a copy, where there are no elements."""
    return name.startswith("gradient") and isinstance(value, Tensor) and not value.numel()


def _is_impossible(leaf: tuple[str, Any]) -> bool:
    """A tensor with a size of -1, which eager makes of ``torch.tensor(0).expand(-1, 0)``."""
    return isinstance(leaf[1], Tensor) and any(size < 0 for size in leaf[1].shape)


def _is_carried(
    a: Any, b: Any, truth: Any, nudged: Sequence[_Truths], number: int, coarse: float
) -> bool:
    """Do two results differ in values alone, and by no more than roundings?"""
    if not isinstance(a, Tensor) or not isinstance(b, Tensor):
        return False
    if any(_told_by(of, a) != _told_by(of, b) for of in ASPECTS.values()):
        return False
    return close(a, b, truth, nudged=[n.of(number) for n in nudged], coarse=coarse)


@dataclass(slots=True)
class _Truths:
    """The leaves of another call, once somebody asks."""

    reference: Reference
    count: int
    leaves: list[Any] | None = None

    def of(self, number: int) -> Tensor | None:
        if self.leaves is None:
            outcome = self.reference()
            leaves = [] if outcome is None else [leaf for _, leaf in _leaves(outcome)]
            self.leaves = leaves if len(leaves) == self.count else [None] * self.count
        return self.leaves[number]


def _leaves(outcome: Outcome) -> Iterator[tuple[str, Any]]:
    """Arguments and results under their names."""
    for number, value in enumerate(outcome.arguments):
        yield f"argument {number}", value
    yield from _parts("result", outcome.results)
    for number, value in enumerate(outcome.gradients):
        yield f"gradient {number}", value


def _parts(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _parts(f"{name}[{key!r}]", part)
    elif isinstance(value, (tuple, list)):
        kind = type(value).__name__
        yield f"{name} of {kind}", len(value)
        for number, part in enumerate(value):
            yield from _parts(f"{name}[{number}]", part)
    else:
        yield name, value


def unlike(
    a: Any,
    b: Any,
    exact: bool,
    truth: Callable[[], Tensor | None] = lambda: None,
    narrow: bool = False,
    coarse: float = 0.0,
) -> Iterator[str]:
    """How two results differ."""
    if not isinstance(b, Tensor):
        if type(a) is not type(b) or (a != b and not (a != a and b != b)):
            yield f"value {a!r}, eager's {b!r}"
        return
    if not isinstance(a, Tensor):
        yield f"value {a!r}, eager's is a tensor"
        return
    for aspect, of in ASPECTS.items():
        ours, eagers = _told_by(of, a), _told_by(of, b)
        if ours != eagers:
            yield f"{aspect} {ours}, eager's {eagers}"
            return
    near = partial(close, narrow=narrow, coarse=coarse if narrow else 0.0)
    if not same(a, b) and (exact or not near(a, b, truth())):
        yield f"values {_short(a)}\n   eager's {_short(b)}"


ASPECTS: Mapping[str, Callable[[Tensor], Any]] = {
    "dtype": lambda t: t.dtype,
    "shape": lambda t: tuple(t.shape),
    "strides": strides_that_matter,
    "offset": lambda t: t.storage_offset() if t.numel() else 0,
    "requires_grad": lambda t: t.requires_grad,
    "is_leaf": lambda t: t.is_leaf,
    "is_conj": lambda t: t.is_conj(),
}


def _is_view(value: Any) -> bool:
    """Of one that was made without gradients, autograd refuses to write it with some."""
    return isinstance(value, Tensor) and value._is_view()


def _told_by(of: Callable[[Tensor], Any], t: Tensor) -> Any:
    """What the tensor says of itself; some views say nothing once their base was written."""
    try:
        return of(t)
    except RuntimeError as error:
        return f"raises {type(error).__name__}"


def _short(t: Tensor) -> str:
    text = str(t.tolist())
    return text if len(text) < 2000 else text[:2000] + "..."


def _plain(t: Tensor) -> Tensor:
    """Of real numbers."""
    t = t.detach()
    return torch.view_as_real(t.resolve_conj().resolve_neg()) if t.is_complex() else t


def same(a: Tensor, b: Tensor) -> bool:
    """Equal, NaN to NaN."""
    a, b = _plain(a), _plain(b)
    return bool(((a == b) | (a != a) & (b != b)).all())


def close(
    ours: Tensor,
    eager: Tensor,
    truth: Any,
    narrow: bool = False,
    nudged: Sequence[Any] = (),
    coarse: float = 0.0,
) -> bool:
    """As near to eager as eager is to float64, and a few units in the last place: those of float32
    where nobody says what float64 is made of (``narrow``). ``nudged`` are results of arguments that
    are half a unit off, of float32 or of what is ``coarse``, and of operators that round to the
    other side: how far that carries is no mistake, up to a limit."""
    ours, eager = _plain(ours), _plain(eager)
    if not eager.is_floating_point():
        return False
    unit = max(torch.finfo(eager.dtype).eps, torch.finfo(torch.float32).eps if narrow else 0.0)
    a, b, t = ours.double(), eager.double(), _as_shaped(truth, eager)
    odd = ~b.isfinite() | ~a.isfinite()
    told = odd if t is None else odd & ~_overflows(a, b, t, eager.dtype)
    if not same(a[told], b[told]):
        return False
    largest = float(b[~odd].abs().max()) if (~odd).any() else 0.0
    most = UNITS_WITHOUT_REFERENCE * unit * max(largest, 1.0)
    allowed = max(most, UNITS * coarse * largest)
    others = [o for other in nudged if (o := _as_shaped(other, eager)) is not None]
    if t is not None or others:
        base = b if t is None else t
        own = _farthest(b, base, odd)
        if eager.dtype is torch.float64 and own <= allowed:  # nothing is wider
            allowed = max(allowed, 2 * own)
        else:
            least = unit * max(largest, 1.0)
            if eager.dtype is torch.float64:  # what was rounded to float32 on the way is told
                most, least = most / unit * FLOAT32, FLOAT32 * largest
            most = max(most, UNITS * coarse * largest)
            carried = max((_farthest(other, base, odd) for other in others), default=0.0)
            allowed = 2 * max(own, min(carried, most)) + UNITS * least
    return bool((torch.where(odd, 0.0, a - b).abs() <= allowed).all())


def _as_shaped(truth: Any, eager: Tensor) -> Tensor | None:
    """The numbers in float64; None where there are none of this shape."""
    if not isinstance(truth, Tensor):
        return None
    numbers = _plain(truth).double()
    return numbers if numbers.shape == eager.shape else None


def _farthest(one: Tensor, other: Tensor, odd: Tensor) -> float:
    """The largest distance of two numbers, of those that are finite."""
    off = torch.where(odd | ~one.isfinite() | ~other.isfinite(), 0.0, one - other).abs()
    return float(off.max()) if off.numel() else 0.0


def _overflows(a: Tensor, b: Tensor, truth: Tensor, dtype: torch.dtype) -> Tensor:
    """Where float16 has no number for the result, or for what it is made of: eager has none, though
    there is one. Partial sums decide whether it is infinite or NaN."""
    return truth.isfinite() & ~a.isfinite() & ~b.isfinite() & (dtype is torch.float16)


def shared(outcome: Outcome) -> list[str]:
    """Pairs of arguments and results that lie in one storage, and at which distance."""
    named = [(n, t) for n, t in _leaves(outcome) if isinstance(t, Tensor) and t.numel() > 0]
    return [
        f"{p}, {q} at {(y.data_ptr() - x.data_ptr())}{' the same' if x is y else ''}"
        for i, (p, x) in enumerate(named)
        for q, y in named[i + 1 :]
        if x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    ]


def counters_unlike(found: Outcome, wanted: Outcome) -> Iterator[str]:
    """Moves version counters: what lies in memory of which autograd is told that it was written.
    Nothing else may be asked of the outcomes afterwards."""
    if not found.error:
        ours, theirs = counted_together(found), counted_together(wanted)
        if ours != theirs:
            yield f"version counters are shared by {ours}, eager's by {theirs}"


def counted_together(outcome: Outcome) -> list[str]:
    """Pairs of arguments and results with one version counter; of what has memory."""
    results = [(n, t) for n, t in _leaves(outcome) if not n.startswith("gradient")]
    named = [(n, t) for n, t in results if isinstance(t, Tensor) and t.numel()]
    found = []
    for number, (name, tensor) in enumerate(named):
        before = [t._version for _, t in named]
        torch.autograd.graph.increment_version(tensor)
        moved = [n for (n, t), was in zip(named, before) if t._version != was]
        others = {n for n, _ in named[number + 1 :]}
        found += [f"{name}, {other}" for other in moved if other in others]
    return found


# --- the same program in float64 ---

NARROW = re.compile(r"torch\.(float32|float16|bfloat16|half)\b|\.(float|half|bfloat16)\(\)")
NARROW_KINDS = {
    "float32": "float64",
    "float16": "float64",
    "bfloat16": "float64",
    "complex64": "complex128",
}
DRAWS = re.compile(r"rand|bernoulli|dropout\((?!.*False\))|uniform_|multinomial|torch\.normal")


def in_float64(program: Fuzzed) -> Fuzzed | None:
    """The program with wide arguments and conversions; None where it draws random numbers."""
    if DRAWS.search(program.source):
        return None

    def wide(text: str) -> str:
        text = NARROW.sub(lambda m: "torch.float64" if m[1] else ".double()", text)
        return text.replace("torch.complex64", "torch.complex128")

    inputs = tuple(replace(i, dtype=NARROW_KINDS.get(i.dtype, i.dtype)) for i in program.inputs)
    return replace(
        program, inputs=inputs, lines=tuple(map(wide, program.lines)), result=wide(program.result)
    )


def is_narrow(program: Fuzzed) -> bool:
    """Has the program no reference, though not all numbers in it are float64?"""
    narrow = any(i.dtype in NARROW_KINDS for i in program.inputs) or NARROW.search(program.source)
    return bool(narrow) and DRAWS.search(program.source) is not None


HALVES = {
    "bfloat16": re.compile(r"\bbfloat16\b"),
    "float16": re.compile(r"(?<!b)\bfloat16\b|\bhalf\b"),
}


def coarsest(program: Fuzzed) -> float:
    """A unit of 1, of the dtype that rounds most of those in the program; at least float32's."""
    kinds = {i.dtype for i in program.inputs}
    for name, spelled in HALVES.items():
        if name in kinds or spelled.search(program.source):
            return float(torch.finfo(getattr(torch, name)).eps)
    return float(torch.finfo(torch.float32).eps)


def reference_of(program: Fuzzed, case: int, nudged: bool = False) -> Outcome | None:
    """The call in float64, where it can be made so; ``nudged``: with arguments that are up to half
    a unit off, of float32 or of halves where the program has any."""
    wide = in_float64(program)
    if wide is None:
        return None
    before, unit = torch.get_default_dtype(), coarsest(program)
    torch.set_default_dtype(torch.float64)
    try:
        arguments = wide.arguments(case)
        with torch.no_grad():
            for number, x in enumerate(arguments if nudged else ()):
                if isinstance(x, Tensor) and x.dtype is torch.float64:
                    once = _without_repeats(x)
                    off = torch.arange(once.numel(), dtype=x.dtype, device=x.device)
                    off = off.add(number).cos()
                    once.mul_(1 + off.view(once.shape) * (unit / 2))
        return call(function_of(wide.source), arguments)
    finally:
        torch.set_default_dtype(before)


def overflowed(program: Fuzzed, case: int) -> Outcome | None:
    """The call where a half has overflowed in it, with some number in place of what is infinite or
    NaN, for a program without a reference; None where nothing has."""
    half = "float16" in {i.dtype for i in program.inputs} or HALVES["float16"].search(
        program.source
    )
    if not half:
        return None
    with Overflows() as seen:
        outcome = call(function_of(program.source), program.arguments(case))

    def number(leaf: Any) -> Any:
        is_half = isinstance(leaf, Tensor) and leaf.dtype is torch.float16
        return leaf.detach().nan_to_num(0.0, 0.0, 0.0) if is_half else None

    arguments, results, gradients = tree_map(
        number, (outcome.arguments, outcome.results, outcome.gradients)
    )
    changed = replace(outcome, arguments=arguments, results=results, gradients=gradients)
    return changed if seen.found else None


def _without_repeats(x: Tensor) -> Tensor:
    """Each element of memory once."""
    return x[tuple(slice(0, 1) if step == 0 else slice(None) for step in x.stride())]


def rounded(program: Fuzzed, case: int, side: Side) -> Outcome:
    """The call, whose operators round to other sides."""
    arguments = program.arguments(case)
    with OtherRoundings(side):
        return call(function_of(program.source), arguments)


# --- one program ---


def wrong(
    program: Fuzzed,
    *,
    verify: bool = False,
    order: tuple[int, ...] = (),
    options: Mapping[str, object] = {},
    concrete: bool = True,
    silent: bool = True,
    catch: Catching = catching,
) -> list[str]:
    """How the concrete domain and the compiled code differ from eager, at each size. ``silent``:
    that something ran natively is a difference too; else only mistakes of ours are."""
    function = function_of(program.source)
    fast = anyshape.compile(function, options={"verify": verify, **options})
    found = []
    for case in order or range(len(program.sizes)):
        with catch() as caught:
            problems = list(_in_case(program, function, fast, case, concrete))
        if problems and not is_decided(program, function, case):
            problems = []
        problems += (f"compiled: warns {text}" for text in _told(caught, silent))
        found += [f"sizes {dict(program.sizes[case])}: {problem}" for problem in problems]
    return found


def is_decided(program: Fuzzed, function: Callable[..., Any], case: int) -> bool:
    """Does eager do the same twice, and with other numbers in memory that nobody wrote? Some of its
    kernels, and views past what was written, read it."""
    once, again = (call(function, program.arguments(case)) for _ in range(2))
    if list(differences(once, again, exact=True)):
        return False
    with warnings.catch_warnings(), unwritten_memory_filled():
        warnings.simplefilter("ignore")
        filled = call(function, program.arguments(case))
    return not any(": values " in p for p in differences(once, filled, exact=False))


@contextmanager
def unwritten_memory_filled() -> Iterator[None]:
    """New memory holds NaN, or the largest integer."""
    was, before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.utils.deterministic.fill_uninitialized_memory,
    )
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = True
    try:
        yield
    finally:
        torch.utils.deterministic.fill_uninitialized_memory = before
        torch.use_deterministic_algorithms(was)


def _in_case(
    program: Fuzzed, function: Callable[..., Any], fast: Any, case: int, concrete: bool
) -> Iterator[str]:
    eager = call(function, program.arguments(case))
    if concrete:
        by_hand = call(
            lambda *xs: python_machine(Concrete()).run(function, *xs), program.arguments(case)
        )
        yield from (f"concrete domain: {p}" for p in differences(by_hand, eager, exact=True))
    ours = call(fast, program.arguments(case))
    problems = list(_judged(program, case, ours, eager))
    if problems:  # of several values stored at one place, any may stay
        with LastStored():
            eager = call(function, program.arguments(case))
            problems = list(_judged(program, case, ours, eager)) and problems
    yield from (f"compiled: {p}" for p in problems)
    if not problems:
        yield from (f"compiled: {p}" for p in counters_unlike(ours, eager))


def _judged(program: Fuzzed, case: int, ours: Outcome, eager: Outcome) -> Iterator[str]:
    """How a compiled call differs from eager's by more than roundings carry."""
    nudges = [
        partial(reference_of, program, case, nudged=True),
        *(partial(rounded, program, case, side) for side in SIDES),
    ]

    def truth() -> Outcome | None:
        return reference_of(program, case) or overflowed(program, case)

    judge = partial(differences, reference=truth, nudges=nudges, narrow=is_narrow(program))
    yield from judge(ours, eager, exact=False, coarse=coarsest(program))


def _told(caught: Sequence[Any], silent: bool) -> Iterator[str]:
    """Our own warnings; only of our mistakes, unless there should be none at all."""
    for warning in caught:
        if issubclass(warning.category, AnyshapeWarning):
            if silent or OUR_MISTAKES.search(str(warning.message)):
                yield str(warning.message)
