"""Kernels of this process: made when a schedule is first chosen, launched by address.

In: ``DeviceFunction``s. Out: functions that take addresses and numbers, as kernels of other targets
do, and records by which C launches them (``records.py``). A launch reads the caller's current
stream. What is going to be launched first can be said before (``expect``), so that it is compiled
side by side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import field
from typing import Any

import torch

from anyshape.ir.code import ArgType, DeviceFunction, NativeFunction
from anyshape.ir.loops import Kernel, PointerParam, ScalarParam, SizeParam
from anyshape.nouns import mutable, replace
from anyshape.runtime.cache import DiskCache
from anyshape.runtime.launch import Loaded
from anyshape.targets.cpu.build import Builder
from anyshape.targets.reduction_phases import analyse
from anyshape.targets.triton.binaries import (
    COMPILER,
    Binary,
    LoadedKernel,
    driver_entry,
    in_context,
    load_binary,
    overlaps,
)
from anyshape.targets.triton.kernel import total_dtype, totals
from anyshape.targets.triton.library_product import ByLibrary, by_library
from anyshape.targets.triton.online import online
from anyshape.targets.triton.products import LONGEST_SUM
from anyshape.targets.triton.records import (
    LAUNCH_FUNCTION,
    LAUNCH_NAME,
    Launched,
    Record,
    driver_call,
)
from anyshape.targets.triton.schedules import (
    DIVISOR,
    LARGEST_GRID,
    Choice,
    Chooser,
    KernelSchedule,
    works_in_fiber,
)
from anyshape.targets.triton.tuning import Tuned

SHORT_WORK = 1 << 20
"""Elements that a kernel touches in a microsecond or two."""
MOST_SIZES = 4096
"""Combinations of sizes that a launcher keeps what it chose for."""
Launch = Callable[[int, tuple[Any, ...]], None]
Chosen = tuple[LoadedKernel | None, int, int, Launch]


@mutable
class Launcher:
    """One kernel on one device, with machine code for each schedule that was chosen.

    ``chosen``: what to launch, by sizes and by the lowest bits of all addresses: a loaded kernel,
    its number of tiles, whether it begins early, or a function that launches several. ``direct``
    and ``cut`` hand arguments to the driver: those of the kernel, and of its phases over shares.
    """

    function: DeviceFunction
    chooser: Chooser
    direct: Callable[..., int]
    cut: Callable[..., int]
    cache: DiskCache
    tuned: Tuned | None = None
    library: tuple[ByLibrary, Callable[..., None]] | None = None
    """Where schedules are measured: how a library makes a product, and what launches the rest."""
    compiled: dict[KernelSchedule, LoadedKernel] = field(default_factory=dict)
    chosen: dict[tuple[int, ...], Chosen] = field(default_factory=dict)
    choices: dict[tuple[int, ...], Choice] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def call(self) -> Callable[..., None]:
        """The function that launches: a lookup by sizes, then the driver's own call. The driver
        launches on the current device."""
        names = [param.name for param in self.function.kernel.params]
        addresses = " | ".join(names[n] for n in self.chooser.pointers) or "0"
        key = "".join(f"{names[n]}, " for n in self.chooser.sizes)
        given = ", ".join(names)
        text = f"""def launch({given}):
    if current() != device:
        with entered(device):
            return launch({given})
    key = ({key}({addresses}) & 15)
    found = table.get(key)
    if found is None:
        found = choose(key, ({given},))
    loaded, tiles, early, slow = found
    if loaded is None or direct(
        entry, loaded.function, stream(device), tiles, 1, loaded.threads, loaded.shared, early,
        {given}
    ):
        slow(stream(device), ({given},))
"""
        namespace: dict[str, Any] = {
            "table": self.chosen,
            "choose": self._choose,
            "direct": self.direct,
            "entry": driver_entry(),
            "stream": torch._C._cuda_getCurrentRawStream,
            "device": self.function.device,
            "current": torch._C._cuda_getDevice,
            "entered": torch.cuda.device,
        }
        exec(compile(text, f"<launch of {self.function.name}>", "exec"), namespace)
        made: Callable[..., None] = namespace["launch"]
        return made

    def launched(self, arguments: tuple[Any, ...], stream: int, refused: bool) -> Launched | None:
        """What C is to launch, or None where that was done: of several kernels, or where the driver
        refused it in C."""
        sizes, bits = (arguments[n] for n in self.chooser.sizes), 0
        for n in self.chooser.pointers:
            bits |= arguments[n]
        key = (*sizes, bits & (DIVISOR - 1))
        loaded, tiles, early, launch = self.chosen.get(key) or self._choose(key, arguments)
        if launch is _nothing:
            return 0, 0, 0, 0, 0
        if loaded is None or refused:
            launch(stream, arguments)
            return None
        return loaded.function, tiles, loaded.threads, loaded.shared, early

    def schedules_at(self, sizes: Mapping[str, int]) -> list[str]:
        """Those that were chosen for these sizes; where fibers are cut one for each phase."""
        params = self.function.kernel.params
        wanted = [sizes.get(params[n].name) for n in self.chooser.sizes]
        found = (c for key, c in self.choices.items() if [*key[:-1]] == wanted)
        texts = (
            [str(c)] if c.library else [str(s) for s, _ in parts_of(self.function.kernel, c)]
            for c in found
        )
        return [*dict.fromkeys(text for each in texts for text in each)]

    def expect(self, arguments: tuple[Any, ...]) -> None:
        """Begins to make what a launch with such arguments needs."""
        choices = [self.chooser.schedule(arguments)]
        if self.tuned is not None:
            choices += self._candidates(arguments)
        for choice in choices:
            for schedule, _ in parts_of(self.function.kernel, choice):
                self._start(schedule)

    def _choose(self, key: tuple[int, ...], arguments: tuple[Any, ...]) -> Chosen:
        with self.lock:
            choice = self._choice(arguments)
            if len(self.chosen) >= MOST_SIZES:
                self.chosen.clear()
                self.choices.clear()
            self.choices[key] = choice
            self.chosen[key] = self._chosen(choice)
            return self.chosen[key]

    def _choice(self, arguments: tuple[Any, ...]) -> Choice:
        """By rule, or what was measured to be fastest at such sizes."""
        if self.tuned is None:
            return self.chooser.schedule(arguments)
        choices = self._candidates(arguments)
        if torch.cuda.is_current_stream_capturing():
            return choices[0]
        if len(choices) == 1 or not self._repeatable(arguments):
            return choices[0]

        def run(choice: Choice) -> Callable[[], None]:
            *_, launch = self._chosen(choice)
            return lambda: launch(
                torch._C._cuda_getCurrentRawStream(self.function.device), arguments
            )

        self.expect(arguments)
        COMPILER.settle()
        return self.tuned.best(self.chooser.kind(arguments), choices, run)

    def _candidates(self, arguments: tuple[Any, ...]) -> tuple[Choice, ...]:
        """The rule's comes first: of a long product that is the library's."""
        found = self.chooser.candidates(arguments)
        if self.library is None:
            return found
        theirs = (replace(found[0], library=True),)
        long = self.chooser.fiber(*arguments) > LONGEST_SUM
        return (*theirs, *found) if long else (*found, *theirs)

    def _repeatable(self, arguments: tuple[Any, ...]) -> bool:
        """Does the kernel leave what it reads, so that it can be run again and again?"""
        params = [*zip(self.function.kernel.params, arguments, strict=True)]
        pointers = [(p.access, a) for p, a in params if isinstance(p, PointerParam)]
        written = {address for access, address in pointers if access != "read"}
        return all(access != "update" for access, _ in pointers) and written.isdisjoint(
            address for access, address in pointers if access == "read"
        )

    def _chosen(self, choice: Choice) -> Chosen:
        tiles = min(choice.tiles, LARGEST_GRID)
        if not tiles:
            return None, 0, 0, _nothing
        if choice.library:
            return None, 0, 0, self._by_library
        if choice.shares > 1:
            return None, 0, 0, self._cut(choice, tiles)
        loaded, early = self._compiled(choice.schedule), self._early(choice.work)

        def launch(stream: int, arguments: tuple[Any, ...]) -> None:
            about = self.direct, loaded, stream, tiles, 1, early
            in_context(lambda: self._launched(*about, arguments))

        return loaded, tiles, early, launch

    def _by_library(self, stream: int, arguments: tuple[Any, ...]) -> None:
        assert self.library is not None
        way, after = self.library
        made = way.product(arguments, device_of(self.function))
        after(*arguments, made.data_ptr())

    def _early(self, work: int) -> int:
        """Does a kernel that touches so many elements begin while the one before it ends? Programs
        of a large one would lie where those before them end first, and not evenly."""
        return int(work <= SHORT_WORK and overlaps(self.function.device))

    def _start(self, schedule: KernelSchedule) -> Future[Binary]:
        return COMPILER.start(self.function, schedule, self.cache)

    def _compiled(self, schedule: KernelSchedule) -> LoadedKernel:
        if schedule not in self.compiled:
            self.compiled[schedule] = load_binary(self._start(schedule).result())
        return self.compiled[schedule]

    def _cut(self, choice: Choice, tiles: int) -> Launch:
        kernel, shares = self.function.kernel, choice.shares
        plan = [*parts_of(kernel, choice)]
        for schedule, _ in plan:
            self._start(schedule)
        left = tiles * choice.schedule.block * shares  # totals that the last phase combines
        works = (choice.work if n > 1 else left for _, n in plan)
        parts = [
            (self._compiled(schedule), count, self._early(work))
            for (schedule, count), work in zip(plan, works, strict=True)
        ]
        sizes = [total_dtype(kernel, n).size_bytes for n in totals(kernel)]
        device = device_of(self.function)

        def launch(stream: int, arguments: tuple[Any, ...]) -> None:
            cells, end, ends = self.chooser.cells(*arguments), 0, []
            for size in sizes:
                ends.append(end)
                end += -(-shares * cells * size // DIVISOR) * DIVISOR
            scratch = torch.empty(end, dtype=torch.uint8, device=device)
            start = scratch.data_ptr()
            given = (*arguments, *(start + end for end in ends), shares, choice.each)
            for loaded, count, early in parts:
                again = (self.cut, loaded, stream, tiles, count, early, given)
                if self._launched(*again):
                    in_context(lambda again=again: self._launched(*again))  # type: ignore[misc]

        return launch

    @staticmethod
    def _launched(
        by: Callable[..., int],
        loaded: LoadedKernel,
        stream: int,
        tiles: int,
        shares: int,
        early: int,
        arguments: tuple[Any, ...],
    ) -> int:
        """The driver's status."""
        about = tiles, shares, loaded.threads, loaded.shared, early
        return by(driver_entry(), loaded.function, stream, *about, *arguments)


def parts_of(kernel: Kernel, choice: Choice) -> Iterator[tuple[KernelSchedule, int]]:
    """The kernels that a choice launches, and how many shares each works on: where fibers are cut a
    kernel for each phase, of which the last combines totals; none where a library does it."""
    if choice.library:
        return
    if choice.shares <= 1:
        yield choice.schedule, 1
        return
    phases = analyse(online(kernel).kernel)
    for phase in range(phases.count):
        shares = choice.shares if works_in_fiber(phases, phase) else 1
        yield replace(choice.schedule, phase=phase), shares


def _nothing(stream: int, arguments: tuple[Any, ...]) -> None:
    """There are no cells."""


def direct_launch(kernel: Kernel, *, cut: bool = False) -> tuple[str, NativeFunction]:
    """A C function that launches kernels of such parameters by the driver. An argument that is no
    float is 8 bytes, of which the driver takes the lower ones."""
    floats = [isinstance(p, ScalarParam) and p.dtype.is_floating for p in kernel.params]
    floats += [False] * (len(totals(kernel)) + 2) * cut
    name = f"as_gpu_launch_{''.join('d' if real else 'l' for real in floats)}"
    kinds = ("double" if real else "long" for real in floats)
    given = "".join(f", {kind} a{n}" for n, kind in enumerate(kinds))
    values = "".join(f"&a{n}, " for n in range(len(floats)))
    text = f"""
long {name}(void *entry, void *function, void *stream, long tiles, long shares, long threads,
            long shared, long early{given})
{{
    void *scratch = 0, *profile = 0;
    void *values[] = {{{values}&scratch, &profile}};
    int (*driver)(void *, void *, void **, void **) = entry;
{driver_call("function", "shares")}
    return status;
}}
"""
    types: list[ArgType] = ["pointer", "pointer", "pointer", *["int64"] * 5]  # type: ignore[list-item]
    types += ["double" if real else "int64" for real in floats]
    return name, NativeFunction(text, tuple(types), returns_status=True)


def _launches(
    wanted: Mapping[str, DeviceFunction],
) -> dict[str, tuple[tuple[str, NativeFunction], tuple[str, NativeFunction]]]:
    """The C functions that launch a kernel, and its phases over shares, by its name."""
    return {
        name: (direct_launch(f.kernel), direct_launch(f.kernel, cut=True))
        for name, f in wanted.items()
    }


def device_of(function: DeviceFunction) -> torch.device:
    """Where the function runs."""
    return torch.device("cuda", function.device)


def after_name(name: str) -> str:
    """The kernel that follows a library's product, where ``name`` is both."""
    return f"after_{name}"


def followers(
    wanted: Mapping[str, DeviceFunction],
) -> dict[str, tuple[ByLibrary, DeviceFunction]]:
    """How libraries make products, and the kernels that follow, by the names of these."""
    found = {}
    for name, function in wanted.items():
        way = by_library(function.kernel)
        if way is not None:
            own = after_name(name)
            found[own] = way, DeviceFunction(own, "", way.after, function.device)
    return found


def _has_sizes(kernel: Kernel) -> bool:
    return any(isinstance(param, SizeParam) for param in kernel.params)


@mutable
class TritonLoader:
    """Loads kernels for one process; each function is one launcher."""

    launchers: dict[tuple[str, int, bool], Launcher] = field(default_factory=dict)
    records: dict[tuple[str, int, bool], Record] = field(default_factory=dict)
    loaded: dict[tuple[str, int, bool], Loaded] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def start(self, wanted: Mapping[str, DeviceFunction], builder: Builder, *, tune: bool) -> None:
        """Begins to build the C functions of launches, and kernels that are handed no sizes: how
        those are launched is known."""
        for name, function in wanted.items():
            kernel = function.kernel
            if (name, function.device, tune) not in self.loaded and not _has_sizes(kernel):
                choice = Chooser.of(kernel).schedule([0] * len(kernel.params))
                for schedule, _ in parts_of(kernel, choice):
                    COMPILER.start(function, schedule, builder.cache)
        calls = (call for pair in _launches(wanted).values() for call in pair)
        builder.start({LAUNCH_NAME: LAUNCH_FUNCTION, **dict(calls)})

    def load(
        self, wanted: Mapping[str, DeviceFunction], builder: Builder, *, tune: bool
    ) -> Mapping[str, Loaded]:
        """Launchers by name. Kernels with sizes are made where they are expected or launched;
        ``builder`` builds the C functions that hand arguments to the driver."""
        after = followers(wanted) if tune else {}
        calls = _launches({**wanted, **{name: f for name, (_, f) in after.items()}})
        built = builder.functions(dict(call for pair in calls.values() for call in pair))
        launch = builder.load({LAUNCH_NAME: LAUNCH_FUNCTION})[LAUNCH_NAME].address
        assert launch is not None
        with self.lock:
            for name, function in wanted.items():
                key = name, function.device, tune
                if key not in self.loaded:
                    direct, cut = (built[call] for call, _ in calls[name])
                    tuned = Tuned(name, function.device, builder.cache) if tune else None
                    chooser = Chooser.of(function.kernel)
                    launcher = Launcher(function, chooser, direct, cut, builder.cache, tuned)
                    if after_name(name) in after:
                        way, rest = after[after_name(name)]
                        direct, cut = (built[call] for call, _ in calls[rest.name])
                        follower = Launcher(
                            rest, Chooser.of(rest.kernel), direct, cut, builder.cache
                        )
                        launcher.library = way, follower.call()
                    record = Record.of(function.kernel, launcher.launched, launch, driver_entry())
                    self.launchers[key], self.records[key] = launcher, record
                    self.loaded[key] = Loaded(launcher.call(), record.address)
            return {name: self.loaded[name, f.device, tune] for name, f in wanted.items()}

    def expect(self, function: DeviceFunction, arguments: tuple[Any, ...], *, tune: bool) -> None:
        """A launch with such arguments comes soon; 0 stands for any address or number."""
        self.launchers[function.name, function.device, tune].expect(arguments)

    def measured(self, function: DeviceFunction, *, tune: bool) -> Iterator[str]:
        """What was measured of the function's schedules."""
        tuned = self.launchers[function.name, function.device, tune].tuned
        return iter(()) if tuned is None else tuned.lines()

    def schedules(
        self, function: DeviceFunction, sizes: Mapping[str, int] | None, *, tune: bool
    ) -> list[str]:
        """Those that the function was launched with; at these sizes, by parameter."""
        launcher = self.launchers[function.name, function.device, tune]
        if sizes is None:
            return [*map(str, launcher.compiled)]
        return launcher.schedules_at(sizes)
