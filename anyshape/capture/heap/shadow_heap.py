"""The shadow heap: outside objects are read through mirrors and never written; what was written is
an ordered log.

A concrete machine has a heap that does nothing: reads and writes are real. A recording machine's
heap knows the objects that the trace created (`created`); those are real and are really written.
Any other mutable container that is written, iterated or handed to C code as a whole gets a
*mirror*: a copy whose elements went through `Domain.read`. Later reads and writes go to the mirror,
and each write is also an `Effect` that replays it on the real object. An instance's attributes are
its `__dict__`, a container like any other; a write to one of them reads no other, so that mirror
is read as a whole only when the program does so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from types import BuiltinFunctionType, CellType, MappingProxyType, ModuleType
from typing import Any

from anyshape.capture.heap import (
    class_attributes,
    descriptions,
    nested_containers,
    purity,
    twins,
    undo,
)
from anyshape.capture.heap.allocation_age import objects_made_since
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.effects import Effect
from anyshape.capture.heap.hidden_dicts import refuse_to_give, replace_namespace
from anyshape.capture.heap.journal import Journal
from anyshape.capture.heap.mirrors import (
    VIEWS,
    Copier,
    Mirror,
    copier_of,
    kind_of_entry,
    maker_of,
    mapping_behind,
    require_growth_of,
    written_behind,
)
from anyshape.capture.heap.nested_containers import containers_in, item_of, length_of, values_of
from anyshape.capture.heap.observer import Observer
from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.heap.quiet_reads import kind_of_absence
from anyshape.capture.heap.sorted_lists import SortedLists
from anyshape.capture.heap.unread_writes import Unread, is_key
from anyshape.capture.heap.values import BOUND_IN_C, IMMUTABLE, NULL, PROXIES, contents

_set_attribute = object.__setattr__
_delete_attribute = object.__delattr__
IN_ORDER, BY_KEY = (list, tuple, deque), (dict, set, frozenset)


def _is_own(cls: type, value: Any) -> bool:
    """Has C made this for the class, and not the program put it there?"""
    if type(value) not in purity.C_DESCRIPTORS:
        return False
    owner = value.__self__ if type(value) is BuiltinFunctionType else value.__objclass__
    return owner is cls


class Heap(Journal):
    """See the module. `effects` is the log; `created` and `mirrors` are keyed by `id` and keep
    their objects alive.
    """

    __slots__ = (
        *("adopts", "answers", "effects", "mirrors", "owners", "slots", "sorting", "unread"),
        "watcher",
    )

    def __init__(self, domain: Observer) -> None:
        super().__init__(domain)
        self.mirrors: dict[int, Mirror] = {}
        self.owners: dict[int, int] = {}  # id of a mirror's state -> id of the real object
        self.answers: dict[tuple[int, str], tuple[int, Any, Any]] = {}
        self.unread: dict[int, Unread] = {}
        self.slots: dict[tuple[int, str], tuple[Any, Any]] = {}  # (id(obj), name) -> (obj, value)
        self.effects: list[Effect] = []
        self.sorting = SortedLists()
        self.adopts: Callable[[Any, Any], Any] = lambda obj, state: None  # no mirror is to hold it
        self.watcher: Callable[[Any, Any, Any], None] | None = None  # see `watched_reads.py`

    def is_created(self, value: Any) -> bool:
        """Whether the trace made this object (immutable constants count as neither)."""
        return id(value) in self.created

    # ---- mirrors ---------------------------------------------------------------------------------
    def mirror(self, obj: Any) -> Any:
        """What stands for a container when it is read as a whole: itself if created or no
        container, else its mirror."""
        kind = type(obj)
        if kind in IMMUTABLE or id(obj) in self.created or kind in PROXIES:
            return obj
        known = self._known(obj)
        if known is not None:
            return known.state
        if kind in VIEWS:
            return maker_of(kind)(self.mirror(self._mapping_of(obj)))
        if kind is MappingProxyType:
            return MappingProxyType(self.mirror(self.behind(obj)))
        copier = copier_of(obj)
        if copier is None:
            self.domain.will_look_inside(obj)
            return obj
        return self._make_mirror(obj, copier)

    def behind(self, obj: Any) -> Any:
        """The outside dict that a `MappingProxyType` shows; any other object as it is."""
        if type(obj) is not MappingProxyType or id(obj) in self.created:
            return written_behind(obj, self.mirrors, self.unread)
        return self._mapping_of(obj)

    def _mapping_of(self, view: Any) -> Any:
        if (mapping := mapping_behind(view)) is None:
            raise broken("unknown-call", "a view of an outside mapping")
        self.domain.behind(view, mapping)
        return mapping

    def _known(self, obj: Any) -> Mirror | None:
        """The mirror that there is already, read as a whole."""
        known = self._written(obj)
        if known is not None and known.touched is not None:
            self._journal(known.read_whole(self.domain.read))
        return known

    def _known_for(self, obj: Any, key: Any) -> Mirror | None:
        """The mirror that tells what lies under a key; None where that is what lies outside."""
        known = self.mirrors.get(id(obj))
        if known is None or known.touched is None or not is_key(key):
            return self._known(obj)
        return known if key in known.touched else None

    def _written(self, obj: Any) -> Mirror | None:
        """The mirror that there is already; one is made where only writes were remembered."""
        unread = self.unread.pop(id(obj), None) if self.unread else None
        if unread is not None:
            self._journal(lambda: self.unread.update({id(obj): unread}))
            copier = copier_of(obj)
            assert copier is not None
            state = self._make_mirror(obj, copier, unread.reading(self.domain.read))
            require_growth_of(state, obj)
            self.mirrors[id(obj)].written = True
            unread.replay(state)
        return self.mirrors.get(id(obj))

    def is_shadowed(self, obj: Any) -> bool:
        return id(obj) in self.mirrors or id(obj) in self.unread

    def store_unread(self, fn: Any, target: Any, args: tuple[Any, ...]) -> None:
        found = self.unread.get(id(target))
        if found is None:
            found = self.unread[id(target)] = Unread(target)
            self._journal(lambda: self.unread.pop(id(target)))
        self._journal(found.write(fn, args))
        self.log(fn, target, args)

    def _appended(self, obj: Any) -> list[Any] | None:
        """What this trace has put at the end of an outside list that it has not read as a whole."""
        unread = self.unread.get(id(obj)) if self.unread else None
        return None if unread is None else unread.appended()

    def _stored(self, obj: Any, key: Any) -> Any:
        """What this trace has stored in an outside dict that it has not read as a whole."""
        unread = self.unread.get(id(obj)) if self.unread else None
        return NULL if unread is None else unread.find(key)

    def mirror_of(self, obj: Any) -> Any:
        """The mirror's state if there is one already, else the object: for who looks at what lies
        there and relies on none of it."""
        known = self._written(obj)
        return obj if known is None else known.state

    def _make_mirror(self, obj: Any, copier: Copier, read: Any = None) -> Any:
        state = copier(read or self.domain.read, obj)
        if state is obj or self.adopts(obj, state):
            return obj
        self.mirrors[id(obj)] = Mirror(obj, state)
        self.owners[id(state)] = id(obj)
        self.created[id(state)] = state
        self._journal(lambda: self._forget_mirror(obj, state))
        return state

    def _forget_mirror(self, obj: Any, state: Any) -> None:
        del self.mirrors[id(obj)], self.owners[id(state)], self.created[id(state)]

    def real(self, obj: Any) -> Any:
        """The outside object behind a mirror's state; any other object as it is."""
        owner = self.owners.get(id(obj))
        return obj if owner is None else self.mirrors[owner].real

    def write(self, obj: Any) -> Any:
        """The container to write instead of `obj`, journalled; the mirror of an outside one."""
        state = obj if id(obj) in self.created else self.mirror(obj)
        self.sorting.write(state)
        if id(state) not in self.owners and id(state) not in self.created:
            require_growth_of(state, obj)
        self._mark_written(state)
        self.will_write(state)
        return state

    def write_entry(self, obj: Any, key: Any) -> Any:
        """The same for a dict, of which the entry under the key is written and nothing read."""
        known = self.mirrors.get(id(obj))
        if known is None or known.touched is None or type(key) is not str:
            return self.write(obj)
        state = self._names_to_write(obj, key)
        self.will_write(state)
        return state

    def _mark_written(self, state: Any) -> None:
        """What a mirror shows from here on is not what lies outside."""
        mirror = self.mirrors.get(self.owners.get(id(state), 0))
        if mirror is not None and not mirror.written:
            require_growth_of(state, mirror.real)
            mirror.written = True
            self._journal(lambda: setattr(mirror, "written", False))

    def log(
        self,
        fn: Callable[..., Any],
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None = None,
    ) -> None:
        self.effects.append(Effect(fn, target, args, kwargs or {}))
        self._journal(lambda: self.effects.pop())
        self.domain.wrote(fn, target, args)

    # ---- reads -----------------------------------------------------------------------------------
    def length(self, obj: Any) -> Any:
        """`len(obj)` of a container with a C `__len__`."""
        obj = self.behind(obj)
        if appended := self._appended(obj):
            before = self.domain.read(obj, "len", None, length_of(obj))
            count, plain = len(appended), type(before) is int
            return before + count if plain else self.domain.binary("+", before, count)
        known = self._known(obj)
        if known is not None:
            return length_of(known.state)
        if type(obj) in IMMUTABLE or id(obj) in self.created or type(obj) in VIEWS:
            return length_of(self.mirror(obj))
        return self.domain.read(obj, "len", None, length_of(obj))

    def item(self, obj: Any, key: Any) -> Any:
        """`obj[key]` by C code."""
        if type(obj) in IMMUTABLE or id(obj) in self.created:
            return self._taken(item_of(obj, key), key)
        appended = self._appended(obj)
        if appended and type(key) is int and -len(appended) <= key < 0:
            return appended[key]
        if issubclass(type(obj), dict) and is_key(key) and id(obj) in self.unread:
            value = self._stored(obj, key)
            return self._outside_item(obj, key) if value is NULL else value
        known, in_order = self._known_for(obj, key), issubclass(type(obj), IN_ORDER)
        if known is not None:
            self.domain.outside_key(key)
            return self._part_of(obj, known.state, key)
        if type(key) is slice or (in_order and type(key) is not int):
            return self._part_of(obj, self.mirror(obj), key)
        if in_order and key < 0:
            count = self.domain.read(obj, "count", None, length_of(obj))
            key += count if key >= -count else 0  # or it is refused
        return self._outside_item(obj, key)

    def _part_of(self, obj: Any, state: Any, key: Any) -> Any:
        """An item by what stands for an object: all of a tuple is the tuple."""
        value = item_of(state, key)
        return obj if value is state and type(key) is slice else self._taken(value, key)

    def _taken(self, value: Any, key: Any) -> Any:
        """What C code gave for a key: for a slice, a new container."""
        new = type(key) is slice and issubclass(type(value), (list, tuple, bytearray))
        return self.create(value) if new else value

    def _outside_item(self, obj: Any, key: Any) -> Any:
        key = self.domain.outside_key(key)
        if issubclass(type(obj), dict):
            entry = self._entry_or_null(obj, key)
            return item_of(obj, key) if entry is NULL else entry  # or it raises
        try:
            value = item_of(obj, key)
        except IndexError:
            self.domain.read(obj, "count", None, length_of(obj))
            raise
        nested_containers.require_kept_item(obj, key, value)
        return self.domain.read(obj, "item", key, value)

    def _entry_or_null(self, obj: dict[Any, Any], key: Any) -> Any:
        self.domain.will_look_up(obj, key)
        if not dict.__contains__(obj, key):
            self.domain.read(obj, "contains", key, False)
            return NULL
        return self.domain.read(obj, kind_of_entry(obj), key, dict.get(obj, key))

    def item_or_null(self, obj: dict[Any, Any], key: Any) -> Any:
        """`obj.get(key, NULL)` of a dict."""
        stored = self._stored(obj, key)
        if stored is not NULL:
            return stored
        if id(obj) in self.created:
            return dict.get(obj, key, NULL)
        outside = self.domain.outside_key(key)
        known = self._known_for(obj, key) if id(obj) in self.mirrors else None
        if known is not None:
            return dict.get(known.state, key, NULL)
        return self._entry_or_null(obj, outside)

    def read_contains(self, container: Any, item: Any) -> Any:
        """The container in which `in` looks: sequences and views are read as a whole."""
        if id(container) not in self.created or id(container) in self.owners:
            self.domain.outside_key(item)
        if issubclass(type(container), dict) and self._stored(container, item) is not NULL:
            return self.created.setdefault(id(found := self.unread[id(container)].entries), found)
        if issubclass(type(container), BY_KEY):
            known = self._known_for(container, item) if id(container) in self.mirrors else None
            self.domain.will_look_up(container, item)
            return container if known is None else known.state
        state = self.mirror(container)
        self.look_inside((item,))
        self.look_inside(state)
        self.domain.will_distinguish(item, state)
        return state

    def read_whole(self, obj: Any) -> Any:
        """What C code gets that reads a container to its depths."""
        state = self.mirror(obj)
        self.look_inside(state)
        return self.as_it_lies(state)

    def as_it_lies(self, state: Any) -> Any:
        """The outside container behind a mirror that shows no more than lies there, which may
        hold itself."""
        owner = self.owners.get(id(state))
        if owner is None or self.mirrors[owner].written:
            return state
        return state if any(type(v) in PROXIES for v in values_of(state)) else self.real(state)

    def look_inside(self, state: Any) -> None:
        """C code will compare or print what lies in a container: outside containers in it are
        relied on, and must be what they are outside."""
        if self.holds_changed(state):
            raise broken("unknown-call", "C code over a container that holds a changed one")

    def holds_changed(self, state: Any) -> bool:
        """Whether a container lies in it that is not outside what the program sees."""
        return any(map(self._is_changed, containers_in(state, self.mirror)))

    def _is_changed(self, item: Any) -> bool:
        inner = self.mirror(item)
        if inner is item:
            shown = issubclass(type(item), nested_containers.READ_BY_C)
            return shown and self.domain.is_outside(item)
        written = id(item) in self.mirrors and self.mirrors[id(item)].written
        return written or any(type(v) in PROXIES for v in values_of(inner))

    def answer_contains(self, container: Any, item: Any, value: bool) -> bool:
        """Report `item in container` of an outside dict or set."""
        if issubclass(type(container), BY_KEY) and id(container) not in self.created:
            self.domain.read(container, "contains", item, value)
        return value

    def instance_attribute(self, obj: Any, namespace: dict[str, Any], name: str) -> Any:
        """`obj.__dict__[name]`, or `NULL`."""
        known = self._known_for(namespace, name)
        if known is not None:
            value = known.state.get(name, NULL)
            if known.touched is not None:
                return value
            real = known.real.get(name, NULL)
            if value is NULL and real is NULL:
                self.absent(obj, name)
            if value is NULL or real is not value:
                return value
        elif id(obj) in self.created:
            return namespace.get(name, NULL)
        else:
            self.domain.will_look_up(namespace, name)
            value = namespace.get(name, NULL)
        if value is NULL:
            self.absent(obj, name)
            return NULL
        return self.domain.read(obj, "attr", name, value)

    def absent(self, obj: Any, name: str, kind: str = "missing") -> None:
        """The program relies on an object having no such name of its own."""
        fixed = type(obj) in IMMUTABLE and not issubclass(type(obj), type)
        if id(obj) not in self.created and not fixed:
            self.domain.read(obj, kind_of_absence(obj, kind), name, NULL)

    def refused(self, obj: Any, name: str, error: Exception) -> None:
        """C code raised something else than AttributeError for an attribute: of an outside object,
        no guard can say when it will again."""
        if id(obj) not in self.created:
            raise broken("unknown-call", f"{bare_name(type(obj))}.{name}, which raised") from error

    def attribute(self, obj: Any, name: str, value: Any) -> Any:
        """An attribute that C code gave."""
        bound = type(value) in BOUND_IN_C and value.__self__ is obj  # anew in each read
        if (
            bound
            or type(obj) in IMMUTABLE
            or id(obj) in self.created
            or nested_containers.is_bound_here(self.domain, obj)
        ):
            return value
        return self.domain.read(obj, "attr", name, value)

    def class_attribute(self, cls: type, name: str, value: Any) -> Any:
        """A raw attribute of a class."""
        if id(cls) in self.created or _is_own(cls, value):
            return value
        return self.domain.read(cls, "attr", name, value)

    def slot(self, obj: Any, descriptor: Any, cls: type, name: str) -> Any:
        """An attribute behind a C descriptor (`__slots__`, getset)."""
        written = self.slots.get((id(obj), name))
        if written is not None:
            if written[1] is NULL:
                raise AttributeError(descriptions.text_of_absence(obj, name))
            return written[1]
        twins.refuse(self.slots, obj, name)
        refuse_to_give(obj, name, self.created)
        try:
            value = descriptor.__get__(obj, cls)
        except AttributeError:
            self.absent(obj, name, "unset")
            raise
        except Exception as error:
            self.refused(obj, name, error)
            raise
        if name == "__dict__" and type(value) is dict:
            return self._instance_namespace(obj, value)
        if id(obj) in self.created:
            is_new = type(value) in (list, dict, set) and not self.domain.is_outside(value)
            return self.create(value) if is_new else value
        if name == "__class__" or nested_containers.is_bound_here(self.domain, obj):
            return value
        nested_containers.require_kept_attribute(obj, descriptor, name, value)
        return self.domain.read(obj, "attr", name, value)

    def _instance_namespace(self, obj: Any, namespace: dict[str, Any]) -> Any:
        if id(obj) in self.created:
            self.namespaces[id(namespace)] = obj
            return self.create(namespace)
        return self.domain.read(obj, "attr", "__dict__", namespace)

    def global_name(self, globals_: dict[str, Any], builtins: Any, name: str) -> Any:
        """A global or builtin name."""
        for scope in (globals_, builtins):
            value = self._name_in(scope, name)
            if value is not NULL:
                return value
        raise NameError(f"name {name!r} is not defined", name=name)

    def _name_in(self, scope: dict[str, Any], name: str) -> Any:
        """What was there before is relied on, not what the program has written since."""
        seen_here = self.unread or id(scope) in self.mirrors
        known = self._known_for(scope, name) if seen_here else None
        self.domain.will_look_up(scope, name)
        value = (scope if known is None else known.state).get(name, NULL)
        before = value if known is None else scope.get(name, NULL)
        if id(scope) in self.created or before is not value:
            return value
        return self.domain.read(scope, "unbound" if value is NULL else "global", name, value)

    def cell(self, cell: CellType, name: str) -> Any:
        """The contents of a cell; NULL where it is empty."""
        written = self.slots.get((id(cell), "cell_contents"))
        if written is not None:
            return written[1]
        value = contents(cell)
        if id(cell) in self.created:
            return value
        if value is NULL:
            self.absent(cell, name, "no_content")
            return NULL
        return self.domain.read(cell, "closure", name, value)

    # ---- writes ----------------------------------------------------------------------------------
    def set_cell(self, cell: CellType, value: Any) -> None:
        """Write a cell; `NULL` empties it."""
        if id(cell) in self.created or not self.domain.records:
            self.will_write(cell)
            undo.write_cell(cell, value)
            return
        self.set_written(cell, "cell_contents", value)
        self.log(undo.write_cell, cell, (value,))

    def set_written(self, obj: Any, name: str, value: Any) -> None:
        key = (id(obj), name)
        before = self.slots.get(key)
        self.slots[key] = (obj, value)
        self._journal(partial(undo.put_entry_back, self.slots, key, before))

    def set_slot(self, obj: Any, descriptor: Any, name: str, value: Any) -> None:
        """Set (or, with `NULL`, delete) an attribute through a C descriptor."""
        if self.domain.records and not self._is_ours(obj):
            if not undo.takes(obj, descriptor, value):
                raise broken("python-effect", f"setting {name!r} of a {bare_name(type(obj))}")
            if value is NULL:
                undo.require_attribute(name, partial(self.slot, obj, descriptor, type(obj), name))
            self.set_written(obj, name, value)
            self._log_attribute(obj, name, value)
            return
        twins.refuse(self.slots, obj, name)
        if self.journal is not None:
            self._journal_write(obj, undo.undo_slot(obj, descriptor))
        if name == "__dict__":
            self._journal(replace_namespace(self.namespaces, obj, value, self.created))
        undo.set_behind(descriptor, obj, value)

    def _is_ours(self, obj: Any) -> bool:
        """Whether it was made here. So were errors that C code has raised meanwhile, which nobody
        registered; before a fork, these would have to be set back."""
        if id(obj) in self.created:
            return True
        if self.journal is not None or not issubclass(type(obj), BaseException):
            return False
        if self.domain.is_outside(obj) or id(obj) not in objects_made_since():
            return False
        self.create(obj)
        return True

    def set_tensor_slot(self, tensor: Any, key: Any, name: str, value: Any) -> None:
        """Set an attribute of an outside tensor; what `key` is stands for the tensor in `slots`."""
        self.set_written(key, name, value)
        self._log_attribute(tensor, name, value)

    def set_instance_attribute(
        self, obj: Any, namespace: dict[str, Any], name: str, value: Any
    ) -> None:
        """`obj.__dict__[name] = value` (`NULL` deletes)."""
        outside = self.domain.records and id(obj) not in self.created
        if value is NULL and outside:  # that it is there, or not, is relied on
            self.instance_attribute(obj, namespace, name)
        state = namespace
        if outside or id(namespace) in self.mirrors:
            state = self._names_to_write(namespace, name)
        self.will_write(state, obj)
        if value is NULL:
            if name not in state:
                raise AttributeError(descriptions.text_of_absence(obj, name))
            del state[name]
        else:
            state[name] = value
        if state is not namespace:
            self._log_attribute(obj, name, value)

    def _names_to_write(self, namespace: dict[str, Any], name: str) -> Any:
        """The mirror, of which nothing is read but what is asked for later."""
        self.domain.will_look_up(namespace, name)
        known = self._written(namespace)
        if known is None:
            self._make_mirror(namespace, lambda _, real: dict(real))
            known = self.mirrors[id(namespace)]
            known.touched = set()
        self._mark_written(known.state)
        undone = known.touch(name)
        if undone is not None:
            self._journal(undone)
        return known.state

    def native_setattr(self, obj: Any, name: str, value: Any) -> None:
        """Set an attribute of a class, a function or another C object by C code."""
        moves = name == "__bases__" and type(obj) is not type  # and its `mro` is called
        if not self.domain.records or (self._is_ours(obj) and not moves):
            if issubclass(type(obj), type):
                self.domain.class_changed()
            if self.journal is not None:
                self._journal_write(obj, undo.undo_attribute(obj, name))
            undo.set_attribute(obj, name, value)
            return
        if issubclass(type(obj), ModuleType):
            return self.set_instance_attribute(obj, vars(obj), name, value)
        class_attributes.write(self, obj, name, value)

    def _log_attribute(self, obj: Any, name: str, value: Any) -> None:
        deleted = value is NULL
        fn, args = (_delete_attribute, (name,)) if deleted else (_set_attribute, (name, value))
        self.log(fn, obj, args)
