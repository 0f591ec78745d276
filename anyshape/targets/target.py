"""A target: all that is known of one kind of device, as one value.

The driver asks a table of targets (``table.py``) and knows no device itself.
``docs/how-to-target.md`` says how to add one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

import torch

from anyshape.ir.code import Function, PrintedRegion
from anyshape.ir.loops import Kernel
from anyshape.ir.program import Launch, NativeRegion, Program
from anyshape.ir.variants import Variant, Variants
from anyshape.nouns import frozen
from anyshape.options import Options
from anyshape.runtime.launch import Loaded
from anyshape.schedule.placement import SizesInMemory
from anyshape.symbolic import Facts

Run: TypeAlias = Callable[..., tuple[Any, ...]]
Recorded: TypeAlias = Callable[
    [Run, Program, Mapping[str, torch.Tensor]], tuple[Run, Callable[[], str]]
]
PrintRegion: TypeAlias = Callable[
    [NativeRegion, Program, Mapping[Kernel, str], str, Options],
    PrintedRegion,
]


def one_way(kernel: Kernel) -> Variants:
    """The target walks every kernel in one way."""
    return (Variant(True, None),)


def as_it_is(program: Program, facts: Facts) -> Program:
    """The target forms no native regions."""
    return program


def one_by_one(program: Program, options: Options) -> Program:
    """The target launches kernels one by one."""
    return program


def at_once(options: Options) -> None:
    """The target builds with what is always there."""


def awake(options: Options) -> None:
    """The target needs nothing that takes time to begin."""


def nothing() -> None:
    """The target can be used in every process."""


def when_loaded(functions: Mapping[str, Any], options: Options) -> None:
    """The target begins to build what is loaded."""


def no_region(*arguments: Any) -> PrintedRegion:
    """For a target that forms none."""
    raise NotImplementedError("native regions")


def built_when_loaded(function: Any, arguments: tuple[Any, ...], options: Options) -> None:
    """What is loaded is ready."""


def none_measured(function: Any, options: Options) -> Iterable[str]:
    """Nothing is chosen by measuring."""
    return ()


def none_chosen(function: Any, sizes: Mapping[str, int] | None, options: Options) -> Iterable[str]:
    """All that is chosen stands in the text."""
    return ()


def run_as_it_is(
    run: Run, program: Program, constants: Mapping[str, torch.Tensor]
) -> tuple[Run, Callable[[], str]]:
    """Of a device that records nothing."""
    return run, str


def records_nothing(program: Program) -> str | None:
    """The device has no way to do so."""
    return "its device records nothing"


def unknown(options: Options) -> None:
    """The target does not say what its code depends on."""


DEFERRED = (
    *("print_kernel", "load", "awaken", "start", "prepare", "missing", "variants", "listed"),
    *("group", "print_region", "recorded", "why_not_recorded", "expect", "schedules"),
    *("measured", "identity"),
)
"""What of a target is done by its module: all but texts and types."""


@frozen
class Target:
    """One kind of device; ``kind`` is torch's name of it.

    Needed: ``print_kernel(launch, name, device)`` prints a kernel as a ``function``, which is a
    dataclass of the target's own with a ``text``; it raises NotImplementedError for a kernel that
    it has no text for. ``load`` makes callables of these, by name.

    ``awaken`` is called before a graph is translated that may need the target, ``start`` begins to
    build what ``load`` will be asked for; both return at once.
    ``prepare`` raises AnyshapeError where it can build nothing with these options.
    ``missing`` says why the target cannot be used in this process, or None. ``variants`` are the
    ways to walk a kernel. ``listed`` makes launches that may be done at once into lists.
    ``group`` forms native regions, ``print_region`` prints one. ``allocator`` names a short way to
    new memory. ``sizes_in_memory``: what libraries do with those; None where kernels read none.
    ``recorded`` makes of a running program, its steps and its constants one that the device
    replays as a whole, where ``why_not_recorded`` says nothing against it, and a function that
    says why the device has refused since ("": it has not).
    ``expect`` is handed a function that is loaded, and likely arguments (0 for what is no size),
    before it is first called. ``schedules`` describes those that a function has run with, for
    certain sizes or all, where they are chosen at the launch; ``measured``, which were measured.
    ``identity`` is what decides the text of its code besides the graph, the options and our own
    source; None where translations for it are not kept on disk.
    """

    kind: str
    function: type[Function]
    print_kernel: Callable[[Launch, str, str], Function]
    load: Callable[[Mapping[str, Any], Options], Mapping[str, Loaded]]
    awaken: Callable[[Options], None] = awake
    start: Callable[[Mapping[str, Any], Options], None] = when_loaded
    prepare: Callable[[Options], object] = at_once
    missing: Callable[[], str | None] = nothing
    variants: Callable[[Kernel], Variants] = one_way
    listed: Callable[[Program, Options], Program] = one_by_one
    group: Callable[[Program, Facts], Program] = as_it_is
    print_region: PrintRegion = no_region
    allocator: str | None = None
    sizes_in_memory: SizesInMemory | None = None
    recorded: Recorded = run_as_it_is
    why_not_recorded: Callable[[Program], str | None] = records_nothing
    expect: Callable[[Any, tuple[Any, ...], Options], None] = built_when_loaded
    schedules: Callable[[Any, Mapping[str, int] | None, Options], Iterable[str]] = none_chosen
    measured: Callable[[Any, Options], Iterable[str]] = none_measured
    identity: Callable[[Options], str | None] = unknown


def loaded_on_use(
    kind: str, function: type[Function], target: Callable[[], Target], **known: Any
) -> Target:
    """A target whose module is loaded where the target is first asked to do something;
    ``target`` gives it then, ``known`` is what else is said without it."""

    def member(name: str) -> Callable[..., Any]:
        return lambda *arguments: getattr(target(), name)(*arguments)

    members: dict[str, Any] = {name: member(name) for name in DEFERRED}
    return Target(kind, function, **known, **members)
