"""What code that runs at another time may read while it is interpreted: what is the same by then.

In: each read that an own backward or a hook makes (``own_backwards.py``, ``tensor_hooks.py``). Out:
nothing, or the function is left to autograd: the program may write to what was read before the
gradients are taken, and no guard is asked by then. What stays the same is what cannot change, what
this code has made itself, the context that it is handed (``Alone.is_ctx_written``), a variable
that is assigned once, and the functions, classes and modules that names of the program's and of
libraries stand for.
"""

from __future__ import annotations

import dis
import types
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

from anyshape.capture.guards.constant_kinds import CALLED, CONSTANTS, EQUAL, IDENTITY
from anyshape.capture.heap.purity import C_DESCRIPTORS
from anyshape.capture.heap.quiet_classes import has_entry
from anyshape.capture.heap.sources import Source
from anyshape.capture.heap.values import IMMUTABLE, NULL, PROXIES, Break
from anyshape.capture.heap.watched_reads import CONTENTS, watch
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.functions import Section
from anyshape.capture.tensors.autograd_functions import left_native

BOUND: tuple[Any, ...] = (types.CodeType, types.MethodType, *C_DESCRIPTORS)
UNCHANGING: tuple[Any, ...] = (
    *(IMMUTABLE - {type}),
    *CONSTANTS,
    *EQUAL,
    *PROXIES,
    *BOUND,
    tuple,
    frozenset,
)
FIXED: tuple[Any, ...] = (*CALLED, *IDENTITY, *C_DESCRIPTORS)
"""What a name hardly ever stops to stand for."""
NAMED = (type, types.ModuleType, types.FunctionType, staticmethod, classmethod, property)
"""Objects whose attributes are names that a program is made of."""


def watch_section(domain: RecordingDomain, section: Section) -> None:
    """From here on each read is one of the section's, until it is closed."""
    heap = domain.machine.heap
    section.births = len(heap.births)
    section.outer = domain.functions.section
    domain.functions.section = section
    domain.machine.class_changed()  # classes are asked again
    watch(heap, partial(_refuse_changing, domain, section))


def leave_section(domain: RecordingDomain, section: Section) -> None:
    outer = domain.functions.section = section.outer
    watcher = None if outer is None else partial(_refuse_changing, domain, outer)
    watch(domain.machine.heap, watcher)


def refuse_source(domain: RecordingDomain, source: Source, value: Any) -> None:
    """The section sees a value from outside, whoever has asked for it."""
    holder = source.base.pinned if source.base is not None else None
    if not _is_fixed(value) and not _is_of_library(domain, holder):
        raise _left(domain, source.text)


def _refuse_changing(
    domain: RecordingDomain, section: Section, obj: Any, name: Any, value: Any
) -> None:
    """Of one read: what was read of which object, and what was found there."""
    heap = domain.machine.heap

    def is_made_inside(x: Any) -> bool:
        return heap.births.get(id(x), -1) >= section.births

    if type(obj) is types.CellType:
        same = is_made_inside(obj) or _is_fixed(value) or _is_assigned_once(domain, name)
    elif issubclass(type(obj), UNCHANGING) or is_made_inside(obj):
        same = True
    elif _is_context(section, obj) or _is_of_interpreter(domain, obj):
        same = True
    elif value is NULL:
        same = _is_scope(obj) or not issubclass(type(obj), dict)
    elif issubclass(type(obj), NAMED) or _is_scope(obj):
        same = _is_fixed(value) or _is_of_library(domain, obj)
    else:
        same = issubclass(type(obj), IDENTITY) and type(value) in CONSTANTS  # of `enum`, `dtype`
    if not same or (_advances(value) and not is_made_inside(value)):
        raise _left(domain, name)


def _left(domain: RecordingDomain, name: Any) -> Break:
    what = f" ({name})" if type(name) is str and name else ""
    return left_native(domain, f"whose backward reads what may have changed by then{what}")


def _is_fixed(value: Any) -> bool:
    return value is not CONTENTS and issubclass(type(value), FIXED)


def _is_scope(obj: Any) -> bool:
    """Whether it holds the names of a module."""
    return type(obj) is dict and "__name__" in obj and "__spec__" in obj


def _is_of_library(domain: RecordingDomain, holder: Any) -> bool:
    if _is_scope(holder):
        return domain.relied.is_library(holder, "global")
    return issubclass(type(holder), NAMED) and domain.relied.is_library(holder, "attr")


def _is_of_interpreter(domain: RecordingDomain, obj: Any) -> bool:
    """Whether it is a container that only the interpreter knows, as that of a call's keywords."""
    known = domain.machine.heap.is_created(obj) or domain.is_outside(obj)
    return type(obj) in (list, dict) and not known and not _is_scope(obj)


def _is_context(section: Section, obj: Any) -> bool:
    return section.ctx is not None and (obj is section.ctx or obj is section.ctx.__dict__)


def _advances(value: Any) -> bool:
    """Whether reading it changes it."""
    return type(value) is Generator or (
        not issubclass(type(value), (*UNCHANGING, *FIXED)) and has_entry(type(value), "__next__")
    )


# ---- variables -----------------------------------------------------------------------------------
def _is_assigned_once(domain: RecordingDomain, name: Any) -> bool:
    """Whether the variable that the running code knows by a name is assigned in one place, that is
    gone through once: whoever has read it once will read the same."""
    frame = domain.machine.current()
    reader = frame.code.code
    known = [each.code.code for each in domain.machine.frames()]
    known += domain.interpreted
    owners = [code for code in known if name in code.co_cellvars and reader in _inside(code)]
    return bool(owners) and all(_assigns_once(owner, name) for owner in owners)


def _inside(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code and that of all functions in it."""
    yield code
    for part in code.co_consts:
        if type(part) is types.CodeType:
            yield from _inside(part)


def _assigns_once(owner: types.CodeType, name: str) -> bool:
    count = owner.co_argcount + owner.co_kwonlyargcount
    count += bool(owner.co_flags & 0x04) + bool(owner.co_flags & 0x08)  # *args, **kwargs
    of_caller = name in owner.co_varnames[:count]
    own = list(_writes(owner, name))
    inner = [at for code in _inside(owner) if code is not owner for at in _writes(code, name)]
    if inner or len(own) + of_caller > 1:
        return False
    return not any(first <= at <= last for at in own for first, last in _loops(owner))


def _writes(code: types.CodeType, name: str) -> Iterable[int]:
    for each in dis.get_instructions(code):
        if each.opname in ("STORE_DEREF", "DELETE_DEREF") and each.argval == name:
            yield each.offset


def _loops(code: types.CodeType) -> Iterable[tuple[int, int]]:
    for each in dis.get_instructions(code):
        if each.opcode in dis.hasjrel and each.argval < each.offset:
            yield each.argval, each.offset
