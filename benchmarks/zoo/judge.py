"""One entry, start to end, in this process: build it three times, call it at every size, compare.

Comes in: an `Entry`. Goes out: a `Finding`, one row of docs/models.md. A value is right as
anyshape/tools/accuracy.py says; where the entry cannot run in float64, eager itself is the
reference and a relative error of 1e-5 (a hundredth in half precision) is allowed.
"""

from __future__ import annotations

import copy
import dataclasses
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from anyshape.capture.heap.breaks import GraphBreak
from anyshape.errors import AnyshapeWarning
from anyshape.tools import accuracy
from anyshape.tools.timing import interleaved
from benchmarks.zoo.entry import Entry, Sizes
from benchmarks.zoo.setting import PLAIN, Setting

ROUNDS = 7


@dataclass(slots=True)
class Finding:
    """What one entry showed."""

    name: str
    family: str
    failure: str = ""  # it could not be built, or eager fails at every size
    wrong: list[str] = field(default_factory=list)
    shapes: int = 0
    specializations: int = 0
    segments: int = 0
    breaks: list[str] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    eager_ops: int = 0
    kernels: int = 0
    compile_seconds: float = 0.0
    over_eager: float = 0.0
    recompiles: list[str] = field(default_factory=list)
    eager_graphs: list[str] = field(default_factory=list)  # why eager torch runs a graph whole

    @property
    def right(self) -> bool:
        return not self.wrong and not self.failure


def examine(entry: Entry, timed: bool = True, setting: Setting = PLAIN) -> Finding:
    """Everything about one entry; a failure to build it is in the finding."""
    finding = Finding(entry.name, entry.family)
    try:
        eager = setting.program(entry.build())
    except Exception as error:
        finding.failure = f"not built: {describe(error)}"
        return finding
    with torch.set_grad_enabled(entry.grad or setting.gradients):
        compare(entry, eager, finding, timed, setting)
    return finding


def compare(
    entry: Entry, eager: Callable[..., object], finding: Finding, timed: bool, setting: Setting
) -> None:
    ours = copy.deepcopy(eager)
    fast = setting.compiled(ours)
    reference = in_float64(eager)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for sizes in entry.shapes:
            at_one_size(entry, sizes, (eager, fast, reference), finding, setting)
        fill_stats(finding, fast)
        if timed and finding.shapes:
            finding.over_eager = speed(entry, eager, fast, setting)
    texts = (str(each.message) for each in caught if issubclass(each.category, AnyshapeWarning))
    finding.warned = list(dict.fromkeys(t for t in texts if "anyshape" in t.lower() or "[E" in t))
    if not finding.shapes and not finding.wrong:
        finding.failure = finding.failure or "eager fails at every size"


def at_one_size(
    entry: Entry,
    sizes: Sizes,
    runs: tuple[Callable[..., object], ...],
    finding: Finding,
    setting: Setting,
) -> None:
    """One call of each; what differs goes into the finding."""
    eager, fast, reference = runs
    given = [arguments(entry, sizes, setting) for _ in range(3)]
    outcome, expected = attempt(eager, given[0]), None
    if isinstance(outcome, Failure):
        if not finding.shapes:
            finding.failure = f"eager at {sizes}: {describe(outcome.error)}"
        expected = type(outcome.error)
    result = attempt(fast, given[1])
    if isinstance(result, Failure):
        if not expected:
            finding.wrong.append(f"{sizes} raised {describe(result.error)}")
        elif type(result.error) is not expected:
            finding.wrong.append(
                f"{sizes} raised {describe(result.error)}, eager {describe(outcome.error)}"
            )
        return
    if expected:
        finding.wrong.append(f"{sizes} passed, eager raised {describe(outcome.error)}")
        return
    finding.failure = ""
    finding.shapes += 1
    doubled = {key: double(value) for key, value in given[2].items()}
    truth = attempt(reference, doubled) if reference is not None else None
    both = (result, given[1]), (outcome, given[0])
    faults = differences(*both, (truth, doubled), entry.grad or setting.gradients)
    finding.wrong += [f"{sizes} {fault}" for fault in faults[:3]]
    if entry.grad and isinstance(eager, nn.Module):
        faults = gradient_faults(fast, eager)
        finding.wrong += [f"{sizes} {fault}" for fault in faults[:3]]
    elif setting.gradients and isinstance(eager, nn.Module):
        fault = fault_of_all_gradients((fast, result), (eager, outcome))
        finding.wrong += [f"{sizes} {fault}"] if fault else []


def fill_stats(finding: Finding, fast: Callable[..., object]) -> None:
    stats = fast.stats()
    finding.specializations, finding.segments = stats.specializations, stats.segments
    finding.eager_ops, finding.kernels = stats.eager_ops, stats.kernels
    finding.compile_seconds = stats.compile_seconds
    finding.eager_graphs = list(dict.fromkeys(stats.eager_graphs))
    machinery = fast.stats.__self__._lazy.machinery
    breaks = machinery.capturer.breaks if machinery is not None else []
    finding.breaks = list(dict.fromkeys(describe_break(each) for each in breaks))
    finding.recompiles = [str(each) for each in fast.recompiles()][:5]


def describe_break(found: GraphBreak) -> str:
    """The break in one line: its reason and the user's line."""
    location = found.location
    where = f" ({location.file.rsplit('/', 1)[-1]}:{location.line})" if location is not None else ""
    return f"{found.id}: {found.reason}{where}"


def speed(
    entry: Entry, eager: Callable[..., object], fast: Callable[..., object], setting: Setting
) -> float:
    """Times as fast as eager at the entry's last size that eager takes, or 0."""
    given = next(
        made
        for sizes in reversed(entry.shapes)
        if not isinstance(attempt(eager, made := arguments(entry, sizes, setting)), Failure)
    )
    calls = {"eager": lambda: eager(**given), "anyshape": lambda: fast(**given)}
    try:
        return interleaved(calls, ROUNDS).speedup("anyshape", over="eager")
    except Exception:
        return 0.0


# --- running ---


@dataclass(frozen=True, slots=True)
class Failure:
    error: Exception


def arguments(entry: Entry, sizes: Sizes, setting: Setting) -> dict[str, object]:
    batch, length = sizes
    generator = torch.Generator().manual_seed(1_000_003 * batch + length)
    made = entry.inputs(batch, length, generator)
    return {name: setting.argument(value) for name, value in made.items()}


def attempt(call: Callable[..., object], given: Mapping[str, object]) -> object:
    torch.manual_seed(7)
    try:
        return call(**given)
    except Exception as error:
        return Failure(error)


def describe(error: Exception) -> str:
    """The exception and where it came from, in one line."""
    frames = traceback.extract_tb(error.__traceback__)
    location = f" at {frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno}" if frames else ""
    return f"{type(error).__name__}: {str(error).strip()[:300]}{location}".replace("\n", " ")


def in_float64(module: Callable[..., object]) -> Callable[..., object] | None:
    if not isinstance(module, nn.Module):
        return module
    twin = copy.deepcopy(module).double()
    if hasattr(getattr(twin, "config", None), "_experts_implementation"):
        twin.config._experts_implementation = "eager"
    return twin


def double(value: object) -> object:
    match value:
        case Tensor():
            grown = value.detach().double() if value.is_floating_point() else value.clone()
            return grown.requires_grad_(value.requires_grad)
        case list() | tuple() if not hasattr(value, "_fields"):
            return type(value)(double(each) for each in value)
        case dict():
            return {key: double(each) for key, each in value.items()}
    return value


# --- comparing ---


def leaves(value: object, path: str = "", seen: frozenset[int] = frozenset()) -> Iterator:
    """Every tensor and plain value of an output with its path, also those inside objects."""
    if id(value) in seen:
        return
    inside = seen | {id(value)}
    match value:
        case Tensor() | bool() | int() | float() | str() | None:
            yield path, value
        case Mapping():
            for key, each in value.items():
                yield from leaves(each, f"{path}.{key}", inside)
        case list() | tuple() | set():
            for index, each in enumerate(value):
                yield from leaves(each, f"{path}[{index}]", inside)
        case _ if dataclasses.is_dataclass(value) or type(value).__module__.startswith("transfor"):
            for key, each in vars(value).items():
                yield from leaves(each, f"{path}.{key}", inside)
        case _ if hasattr(value, "dtype") and hasattr(value, "tolist"):
            yield path, torch.as_tensor(value)


def differences(ours: object, theirs: object, truths: object, grad: bool) -> list[str]:
    """What of an output is not eager's: its shape as a tree, its tensors, its plain values."""
    mine, expected = dict(leaves(ours)), dict(leaves(theirs))
    if mine.keys() != expected.keys():
        odd = sorted(mine.keys() ^ expected.keys())[:4]
        return [f"another tree: {odd}"]
    exact = {} if has_failed(truths) else dict(leaves(truths))
    found = []
    for path, value in expected.items():
        fault = difference(mine[path], value, exact.get(path), grad)
        if fault:
            found.append(f"{path or 'output'}: {fault}")
    return found


def difference(mine: object, eager: object, truth: object, grad: bool) -> str:
    if not isinstance(eager, Tensor):
        same = mine == eager or (isinstance(eager, float) and abs(mine - eager) < 1e-5)
        same = same or (eager != eager and mine != mine)
        return "" if type(mine) is type(eager) and same else f"{mine!r}, eager's is {eager!r}"
    if not isinstance(mine, Tensor):
        return f"a {type(mine).__name__}"
    if (
        not isinstance(truth, Tensor)
        or truth.shape != eager.shape
        or not same_integers(mine, truth)
    ):
        truth = eager
    verdict = accuracy.judge_tensor(mine.detach(), eager.detach(), truth.detach())
    fault = verdict.fault or ("" if verdict.right else "values")
    if verdict.fault.startswith("eager itself"):
        fault, truth = "values", eager
    if not grad:
        fault = fault or ("" if mine.requires_grad == eager.requires_grad else "requires_grad")
    if fault != "values":
        return fault
    error = accuracy.relative_error(mine, eager)
    loose = 1e-2 if eager.dtype in (torch.float16, torch.bfloat16) else 1e-5
    if error <= loose:  # eager in float64 branched otherwise, or is as far from us as from eager
        return (
            ""
            if truth is eager or error <= 3e-6
            else f"error {verdict.error:.1e}, allowed {verdict.allowed:.1e}"
        )
    return f"error {verdict.error:.1e}, allowed {verdict.allowed:.1e}, from eager {error:.1e}"


def has_failed(truths: object) -> bool:
    return isinstance(truths, tuple) and isinstance(truths[0], Failure)


def same_integers(mine: Tensor, truth: Tensor) -> bool:
    return mine.is_floating_point() == truth.is_floating_point() or truth.is_complex()


def gradient_faults(fast: nn.Module, eager: nn.Module) -> list[str]:
    """Parameters' gradients, which the entry's own program has made, against eager's: of its dtype
    both, so that a few roundings are between them.
    """
    pairs = zip(fast.named_parameters(), eager.named_parameters())
    found = []
    for (name, ours), (_, theirs) in pairs:
        if (ours.grad is None) != (theirs.grad is None):
            found.append(f"gradient of {name}: {ours.grad is not None}")
        elif ours.grad is not None:
            error = accuracy.relative_error(ours.grad, theirs.grad)
            if error > max(1e-4, 4 * torch.finfo(theirs.grad.dtype).eps):
                found.append(f"gradient of {name} is not eager's: {error:.1e}")
    return found


def fault_of_all_gradients(ours: tuple[nn.Module, object], theirs: tuple[nn.Module, object]) -> str:
    """Gradients of a weighted sum of all results: their distance from eager's, of all together,
    since those that are 0 but for rounding tell nothing alone."""
    found = [attempt(lambda side=side: all_gradients(*side), {}) for side in (theirs, ours)]
    failed = [describe(each.error) if isinstance(each, Failure) else "" for each in found]
    if any(failed):
        return "" if all(failed) else f"backward: {failed[1] or 'passed'}, eager {failed[0]}"
    eager, mine = found
    if eager.keys() != mine.keys():
        return f"gradients of {sorted(eager.keys() ^ mine.keys())[:4]}"
    errors = {name: (mine[name].double() - g.double()).norm().item() for name, g in eager.items()}
    total = sum(g.double().norm().item() ** 2 for g in eager.values()) ** 0.5
    error = sum(e**2 for e in errors.values()) ** 0.5 / total if total else 0.0
    dtype = next((g.dtype for g in eager.values()), torch.float32)
    if error <= max(1e-4, 4 * torch.finfo(dtype).eps) or not total < float("inf"):
        return ""
    worst = max(errors, key=errors.__getitem__)
    return f"gradients are off by {error:.1e}, most that of {worst}"


def all_gradients(module: nn.Module, result: object) -> dict[str, Tensor]:
    """By parameter; those that there are."""
    parameters = {name: p for name, p in module.named_parameters() if p.requires_grad}
    tensors = (t for _, t in leaves(result) if isinstance(t, Tensor) and t.requires_grad)
    sums = [
        (t.double() * torch.arange(1, t.numel() + 1, device=t.device).reshape(t.shape).sin()).sum()
        for t in tensors
        if t.is_floating_point()
    ]
    if not sums or not parameters:
        return {}
    total = torch.stack(sums).sum()
    found = torch.autograd.grad(total, [*parameters.values()], allow_unused=True)
    return {name: g for name, g in zip(parameters, found) if g is not None}
