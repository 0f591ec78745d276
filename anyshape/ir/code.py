"""What code generation makes and the runtime links: texts, and what each free name of them is.

``Code`` is a whole program: functions by name (names are content addresses, so equal texts are
one function), the tables that native regions reach constants through, and the Python function that
runs it all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from anyshape.ir.buffers import Buffer
from anyshape.ir.loops import Kernel
from anyshape.nouns import frozen

ArgType = Literal["pointer", "int64", "double"]
Reference = tuple[str, object]
"""("function", dotted text) | ("kernel", name) | ("table", name) | ("dtype", DType) |
("replayed", (name, ``Replayable``)): a native region's function by way of graphs |
("constant" | "pointer", name of a constant input) | ("module", name) | ("object", what it is) |
("twin", None): what runs while a profiler records |
("library", symbol of torch's own library) | ("text", what C reads) |
("tensor", (constant, shape, strides)) |
("plan", numbers) | ("kept", sizes of cells that calls keep something in) |
("flag" | "flag address", (device, site)): what ``Traps`` knows of them, as a tensor, or where"""


def flag_address(flag: Buffer) -> Reference:
    """Where a buffer lies that is a flag."""
    return "flag address", (flag.device, flag.site)


@frozen
class NativeFunction:
    """A function that the host calls by address. ``returns_status``: it returns 0, or why it
    failed. ``caller``: Python calls it through a function that is made by ``argtypes``, or through
    one of its own text, or not at all. ``few_passes`` of a compiler do: it has no loops over
    elements. ``shared``: programs have it in common, so that it is an object of its own, which is
    compiled once for all of them."""

    text: str
    argtypes: tuple[ArgType, ...] = ()
    returns_status: bool = False
    caller: Literal["made", "own", "none"] = "made"
    few_passes: bool = False
    shared: bool = False


@frozen
class DeviceFunction:
    """A kernel that is built when it is launched, on the device of this number; ``text`` is how it
    reads under a schedule that is right for every size."""

    name: str
    text: str
    kernel: Kernel
    device: int


Function: TypeAlias = NativeFunction | DeviceFunction


@frozen
class Replayable:
    """Of a native region that its device may record and replay: the device's number, how many of
    what it is handed are floats, which come last, and does it call a library?"""

    device: int
    floats: int
    has_library: bool


@frozen
class PrintedRegion:
    """A native region: the function that the host calls, the functions of its steps, the entries of
    the table that it is handed, and its plan and those of its bodies, which are data, with sizes of
    what each keeps. An entry is a reference, ("part", number of a step's function), ("plan",
    number), ("kept", number of a plan) or ("entry", None). ``replayable``: what there is to know
    where its device may replay it."""

    entry: Function
    parts: tuple[Function, ...]
    table: tuple[Reference, ...]
    plans: tuple[tuple[int, ...], ...]
    kept: tuple[tuple[int, ...], ...] = ()
    replayable: Replayable | None = None


RegionNames: TypeAlias = tuple[str, str, Replayable | None]
"""Of a native region's function and of its table, and what there is to know where its device may
replay it."""


@frozen
class HostCode:
    """``text`` defines ``run``; ``parameters`` are its inputs, ``names`` its free names."""

    text: str
    parameters: tuple[str, ...]
    names: Mapping[str, Reference]


@frozen
class Code:
    """A program as text. ``tables`` are what native regions are handed: equal ones share a
    function, not their constants."""

    functions: Mapping[str, Function]
    tables: Mapping[str, tuple[Reference, ...]]
    host: HostCode

    def __str__(self) -> str:
        """Python first, then each function once."""
        return "\n".join([self.host.text, *(f.text for f in self.functions.values())])
