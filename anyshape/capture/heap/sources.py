"""Where a value came from: path expressions rooted at the slots of a program point or at a pinned
object.

In: reads of outside objects. Out: hash-consed `Source`s, used alike for guards, for graph
inputs and for replaying writes. A source is *pinned* when an identity guard proves which object
lies there; then generated code names the object itself and walks no path, unless it is *borrowed*:
handed in by the caller, who alone keeps it alive. The key of a step may be a source itself, which
is read anew with it: `layers[self.index]`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal

from anyshape.capture.heap import quiet_reads
from anyshape.capture.heap.descriptions import short
from anyshape.capture.heap.mirrors import mapping_behind
from anyshape.capture.heap.purity import is_library
from anyshape.capture.heap.quiet_classes import class_module

Kind = Literal[
    "slot",
    "const",
    "attr",
    "item",
    "cell",
    "get",
    "stride",
    "local",
    "target",
    "call",
    "len",
    "behind",
    "names",
    "member",
    "number",
    "descriptor",
]

ABSENT = object()
_TRANSPARENT = frozenset({"_modules", "_parameters", "_buffers"})


class Source:
    """One step of a path: `kind` and `key` applied to `base`. Compared by identity; made by
    `Sources`. `is_varying`: another key decides in each call which element it is."""

    __slots__ = ("base", "is_borrowed", "is_varying", "key", "kind", "pinned", "text")

    def __init__(self, base: Source | None, kind: Kind, key: Any, text: str) -> None:
        self.base = base
        self.kind = kind
        self.key = key
        self.is_varying = isinstance(key, Source)
        self.text = text
        self.pinned: Any = ABSENT
        self.is_borrowed = False

    @property
    def is_pinned(self) -> bool:
        return self.pinned is not ABSENT

    @property
    def is_constant(self) -> bool:
        """Whether what is made of it may hold the object itself."""
        return self.pinned is not ABSENT and not self.is_borrowed

    def __repr__(self) -> str:
        return self.text


class Sources:
    """The sources of one capture, and which outside object came from where."""

    def __init__(self) -> None:
        self._interned: dict[tuple[int, str, Any], Source] = {}
        self._of: dict[int, Source] = {}
        self._alive: list[Any] = []
        self._constants: dict[int, tuple[Any, Source]] = {}
        self.read_at_end: set[Source] = set()  # for what is made of the graph's results

    def slot(self, index: int, text: str) -> Source:
        """The value handed in at `index` when the program point is entered."""
        return self._intern(None, "slot", index, text)

    def const(self, obj: Any, text: str) -> Source:
        """A root that is this very object, whatever happens."""
        source = self._intern(None, "const", id(obj), text)
        self.pin(source, obj)
        return source

    def local(self, name: str, text: str) -> Source:
        """A number that the entry computes from sizes."""
        return self._intern(None, "local", name, text)

    def child(self, base: Source, kind: Kind, key: Any, text: str | None = None) -> Source:
        """The source one step further: `child(layers, "item", 0)` is `layers[0]`."""
        return self._intern(base, kind, key, text)

    def pin(self, source: Source, obj: Any, *, borrowed: bool = False) -> None:
        """States that a guard proves `source` to be `obj`, which is not kept alive if it is
        `borrowed`."""
        source.pinned = obj
        source.is_borrowed = borrowed
        self.remember(obj, source)

    def remember(self, obj: Any, source: Source) -> None:
        """Remembers that the outside object `obj` came from `source`; the first source stays."""
        if id(obj) not in self._of:
            self._of[id(obj)] = source
            self._alive.append(obj)

    def remember_constant(self, obj: Any, source: Source) -> None:
        """Remembers where a text, a number or a tuple of such was handed in: its value is relied
        on, and given back it is the object that this call was handed."""
        if type(obj) is not int or not -5 <= obj <= 256:  # which is one object everywhere
            self._constants.setdefault(id(obj), (obj, source))

    def of_constant(self, obj: Any) -> Source | None:
        """Where such an object was handed in, if it was."""
        found = self._constants.get(id(obj))
        return None if found is None else found[1]

    def of(self, obj: Any) -> Source | None:
        """Where the object was first read from, if it was."""
        return self._of.get(id(obj))

    def read_objects(self) -> Iterator[tuple[Any, Source]]:
        """Every outside object that was read, with its source."""
        for obj in self._alive:
            source = self._of.get(id(obj))
            if source is not None:
                yield obj, source

    def forget(self) -> None:
        """No more sources are asked for: which object came from where is forgotten."""
        self._of.clear()
        self._alive.clear()
        self._constants.clear()
        for source in self._interned.values():
            if source.is_borrowed:
                source.pinned = ABSENT

    def _intern(self, base: Source | None, kind: Kind, key: Any, text: str | None) -> Source:
        index: tuple[Any, ...]
        try:
            kinds = (*map(type, key),) if kind == "call" else type(key)  # 1, 1.0, True are equal
            index = (id(base), kind, (kinds, key))
            found = self._interned.get(index)
        except TypeError:
            index = (id(base), kind, id(key))
            self._alive.append(key)
            found = self._interned.get(index)
        if found is None:
            found = Source(base, kind, key, text or describe_step(base, kind, key))
            self._interned[index] = found
        return found


def describe_step(base: Source | None, kind: str, key: Any) -> str:
    """`model` and attr `_modules` and item `"0"` read as `model[0]`, a parameter as
    `model.weight`: as the program has them."""
    assert base is not None
    if kind == "cell":
        return str(key)  # the variable
    if kind in ("behind", "names"):
        return base.text
    if kind == "number":
        return f"the number in {base.text}"
    if kind in ("attr", "member") or (kind == "item" and base.kind == "names"):
        return f"{base.text}.{key}"
    if kind == "item" and base.kind == "attr" and base.key in _TRANSPARENT and isinstance(key, str):
        assert base.base is not None
        owner = base.base.text
        return f"{owner}[{key}]" if key.isdigit() else f"{owner}.{key}"
    if kind == "get":
        return f"{base.text}.get({short(key)})"
    if kind == "stride":
        return f"{base.text}.stride({key})"
    if kind == "target":
        return f"{base.text}()"
    if kind == "len":
        return f"len({base.text})"
    if kind == "call":
        return f"{base.text}({', '.join(map(short, key))})"
    return f"{base.text}[{key.text if isinstance(key, Source) else short(key)}]"


def number_in(tensor: Any) -> Any:
    """The number that a tensor without dimensions on the CPU holds; None for any other, and for one
    of a class of the program's, whose code would be asked."""
    if not is_library(class_module(type(tensor))) or not tensor.is_cpu or tensor.dim():
        return None
    return tensor.item()


FUNCTIONS: Mapping[str, Callable[[Any], Any]] = {
    "behind": mapping_behind,
    "number": number_in,
    "descriptor": quiet_reads.descriptor_of,
}
"""Steps that a function does."""
STEPS = {
    "cell": "{}.cell_contents",
    "target": "{}()",
    "len": "len({})",
    "names": "object.__getattribute__({}, '__dict__')",  # past a `__getattribute__` of the program
}


def expression(source: Source, constant: Callable[[Any, str], str]) -> str:
    """Python text that reads the source; `slots` is the list of entry values, `constant(obj,
    hint)` names an object."""
    if source.is_constant:
        return constant(source.pinned, source.text)
    if source.kind == "slot":
        return f"slots[{source.key}]"
    if source.kind == "local":
        return str(source.key)
    base = source.base
    assert base is not None
    if source.kind == "stride":
        return f"{expression(base, constant)}.stride({source.key})"
    if source.kind == "attr":
        if base.is_constant and quiet_reads.is_of_its_own(base.pinned, source.key):
            return _in_names_of(base, source.key, constant)
        if str(source.key).isidentifier():
            return f"{expression(base, constant)}.{source.key}"
        return f"getattr({expression(base, constant)}, {_key(source.key, constant)})"
    if source.kind == "member":
        return f"object.__getattribute__({expression(base, constant)}, {source.key!r})"
    if source.kind in STEPS:
        return STEPS[source.kind].format(expression(base, constant))
    if source.kind in FUNCTIONS:
        function = FUNCTIONS[source.kind]
        return f"{constant(function, function.__name__)}({expression(base, constant)})"
    if source.kind == "call":
        return f"{expression(base, constant)}(*{constant(source.key, 'arguments')})"
    key = _key(source.key, constant)
    if source.kind == "get":
        return f"dict.get({expression(base, constant)}, {key})"
    return f"{expression(base, constant)}[{key}]"


def _in_names_of(base: Source, key: Any, constant: Callable[[Any, str], str]) -> str:
    names = constant(quiet_reads.own_names(base.pinned), base.text + ".__dict__")
    return f"{names}[{_key(key, constant)}]"


def _key(key: Any, constant: Callable[[Any, str], str]) -> str:
    """A key as text; an object of a subclass of `int` or `str` may have any `repr`."""
    if isinstance(key, Source):
        return expression(key, constant)
    return repr(key) if type(key) in (str, int) else constant(key, "key")


def path_expression(source: Source, constant: Callable[[Any, str], str]) -> str:
    """As `expression`, but one step is walked even where the source itself is pinned: for the
    guard that pins it."""
    if not source.is_constant or source.kind == "const":
        return expression(source, constant)
    pinned, source.pinned = source.pinned, ABSENT
    try:
        return expression(source, constant)
    finally:
        source.pinned = pinned


def read_source(source: Source, slots: list[Any]) -> Any:
    """What lies at the source now; raises what Python raises where the path is broken."""
    if source.is_constant:
        return source.pinned
    if source.kind == "slot":
        return slots[source.key]
    return read_path(source, slots)


def read_path(source: Source, slots: list[Any]) -> Any:
    """As `read_source`, but one step is walked even where the source itself is pinned."""
    if source.kind == "const":
        return source.pinned
    if source.kind == "slot":
        return slots[source.key]
    assert source.base is not None
    key = read_source(source.key, slots) if source.is_varying else source.key
    return step(read_source(source.base, slots), source.kind, key)


def step(obj: Any, kind: str, key: Any) -> Any:
    """One step of a path on a real object; no code of the program runs for it."""
    if kind == "attr":
        return quiet_reads.attribute(obj, key)
    if kind in quiet_reads.ASKING and (
        quiet_reads.asks_the_program(obj, kind) or quiet_reads.asks_keys(obj, kind)
    ):
        raise TypeError(f"code of the program would answer for {key}")
    if kind == "cell":
        return obj.cell_contents
    if kind == "stride":
        return obj.stride(key)
    if kind == "len":
        return len(obj)
    if kind == "names":
        return object.__getattribute__(obj, "__dict__")
    if kind == "member":
        return quiet_reads.member(obj, key)
    if kind in FUNCTIONS:
        return FUNCTIONS[kind](obj)
    if kind in ("target", "call"):
        return obj(*(key or ()))
    return dict.get(obj, key) if kind == "get" else obj[key]
