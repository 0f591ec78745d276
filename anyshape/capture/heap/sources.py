"""Where a value came from: path expressions rooted at the slots of a program point or at a pinned
object.

In: reads of outside objects. Out: hash-consed `Source`s, used alike for guards, for graph
inputs and for replaying writes. A source is *pinned* when an identity guard proves which object
lies there; then generated code names the object itself and walks no path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal

from anyshape.capture.heap.mirrors import mapping_behind

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
]

ABSENT = object()
_TRANSPARENT = frozenset({"_modules", "_parameters", "_buffers"})


class Source:
    """One step of a path: `kind` and `key` applied to `base`. Compared by identity; made by
    `Sources`."""

    __slots__ = ("base", "key", "kind", "pinned", "text")

    def __init__(self, base: Source | None, kind: Kind, key: Any, text: str) -> None:
        self.base = base
        self.kind = kind
        self.key = key
        self.text = text
        self.pinned: Any = ABSENT

    @property
    def is_pinned(self) -> bool:
        return self.pinned is not ABSENT

    def __repr__(self) -> str:
        return self.text


class Sources:
    """The sources of one capture, and which outside object came from where."""

    def __init__(self) -> None:
        self._interned: dict[tuple[int, str, Any], Source] = {}
        self._of: dict[int, Source] = {}
        self._alive: list[Any] = []

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

    def child(self, base: Source, kind: Kind, key: Any) -> Source:
        """The source one step further: `child(layers, "item", 0)` is `layers[0]`."""
        return self._intern(base, kind, key, None)

    def pin(self, source: Source, obj: Any) -> None:
        """States that a guard proves `source` to be `obj`."""
        source.pinned = obj
        self.place(obj, source)

    def place(self, obj: Any, source: Source) -> None:
        """Remembers that the outside object `obj` came from `source`; the first place stays."""
        if id(obj) not in self._of:
            self._of[id(obj)] = source
            self._alive.append(obj)

    def of(self, obj: Any) -> Source | None:
        """Where the object was first read from, if it was."""
        return self._of.get(id(obj))

    def placed(self) -> Iterator[tuple[Any, Source]]:
        """Every outside object that was read, with its place."""
        for obj in self._alive:
            source = self._of.get(id(obj))
            if source is not None:
                yield obj, source

    def forget(self) -> None:
        """No more places are asked for: which object came from where is forgotten."""
        self._of.clear()
        self._alive.clear()

    def _intern(self, base: Source | None, kind: Kind, key: Any, text: str | None) -> Source:
        index: tuple[Any, ...]
        try:
            index = (id(base), kind, (type(key), key))
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
    if kind in ("cell", "behind"):
        return base.text
    if kind == "attr":
        return f"{base.text}.{key}"
    if kind == "item" and base.kind == "attr" and base.key in _TRANSPARENT and isinstance(key, str):
        assert base.base is not None
        owner = base.base.text
        return f"{owner}[{key}]" if key.isdigit() else f"{owner}.{key}"
    if kind == "get":
        return f"{base.text}.get({key!r})"
    if kind == "stride":
        return f"{base.text}.stride({key})"
    if kind == "target":
        return f"{base.text}()"
    if kind == "len":
        return f"len({base.text})"
    if kind == "call":
        return f"{base.text}({', '.join(map(repr, key))})"
    return f"{base.text}[{key!r}]"


STEPS = {"cell": "{}.cell_contents", "target": "{}()", "len": "len({})"}


def expression(source: Source, constant: Callable[[Any, str], str]) -> str:
    """Python text that reads the source; `slots` is the list of entry values, `constant(obj,
    hint)` names an object."""
    if source.is_pinned:
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
        if base.is_pinned and _in_instance_dict(base.pinned, source.key):
            return f"{constant(vars(base.pinned), base.text + '.__dict__')}[{source.key!r}]"
        if base.is_pinned and isinstance(base.pinned, type) and source.key in vars(base.pinned):
            return f"{constant(vars(base.pinned), base.text + '.__dict__')}[{source.key!r}]"
        if str(source.key).isidentifier():
            return f"{expression(base, constant)}.{source.key}"
        return f"getattr({expression(base, constant)}, {source.key!r})"
    if source.kind in STEPS:
        return STEPS[source.kind].format(expression(base, constant))
    if source.kind == "behind":
        return f"{constant(mapping_behind, 'mapping_behind')}({expression(base, constant)})"
    if source.kind == "call":
        return f"{expression(base, constant)}(*{constant(source.key, 'arguments')})"
    key = repr(source.key) if isinstance(source.key, (str, int)) else constant(source.key, "key")
    if source.kind == "get":
        return f"dict.get({expression(base, constant)}, {key})"
    return f"{expression(base, constant)}[{key}]"


def path_expression(source: Source, constant: Callable[[Any, str], str]) -> str:
    """As `expression`, but one step is walked even where the source itself is pinned: for the
    guard that pins it."""
    if not source.is_pinned or source.kind == "const":
        return expression(source, constant)
    pinned, source.pinned = source.pinned, ABSENT
    try:
        return expression(source, constant)
    finally:
        source.pinned = pinned


def _in_instance_dict(obj: Any, name: Any) -> bool:
    return not isinstance(obj, type) and name in getattr(obj, "__dict__", ())


def read_source(source: Source, slots: list[Any]) -> Any:
    """What lies at the source now; raises what Python raises where the path is broken."""
    if source.is_pinned:
        return source.pinned
    if source.kind == "slot":
        return slots[source.key]
    assert source.base is not None
    return step(read_source(source.base, slots), source.kind, source.key)


def read_path(source: Source, slots: list[Any]) -> Any:
    """As `read_source`, but one step is walked even where the source itself is pinned."""
    if source.kind == "const":
        return source.pinned
    if source.kind == "slot":
        return slots[source.key]
    assert source.base is not None
    return step(read_source(source.base, slots), source.kind, source.key)


def step(obj: Any, kind: str, key: Any) -> Any:
    """One step of a path on a real object."""
    if kind == "attr":
        if isinstance(obj, type):
            return vars(obj)[key] if key in vars(obj) else getattr(obj, key)
        return vars(obj)[key] if key in getattr(obj, "__dict__", ()) else getattr(obj, key)
    if kind == "cell":
        return obj.cell_contents
    if kind == "stride":
        return obj.stride(key)
    if kind == "len":
        return len(obj)
    if kind == "behind":
        return mapping_behind(obj)
    if kind in ("target", "call"):
        return obj(*(key or ()))
    return dict.get(obj, key) if kind == "get" else obj[key]
