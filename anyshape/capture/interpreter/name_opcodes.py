"""Opcodes of names: locals, cells, globals, a class body's own names."""

from __future__ import annotations

from types import CellType
from typing import Any

from anyshape.capture.heap.values import NULL, Call, contents
from anyshape.capture.interpreter import attributes, iteration_polyfills, protocol
from anyshape.capture.interpreter.continuations import DISCARD
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.interpreter.opcode_results import also, drop, enter, push, release

UNBOUND = "cannot access local variable {!r} where it is not associated with a value"
UNBOUND_FREE = (
    "cannot access free variable {!r} where it is not associated with a value in enclosing scope"
)


# ---- locals and cells ----------------------------------------------------------------------------
def load_fast(machine: Interpreter, frame: Frame, arg: int) -> None:
    value = frame.locals[arg]
    if value is NULL:
        raise UnboundLocalError(UNBOUND.format(frame.code.local_names[arg]))
    frame.stack.append(value)


def load_closure(machine: Interpreter, frame: Frame, arg: int) -> None:
    frame.stack.append(frame.locals[arg])


def load_fast_and_clear(machine: Interpreter, frame: Frame, arg: int) -> None:
    frame.stack.append(frame.locals[arg])
    frame.locals[arg] = NULL


def store_fast(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    if machine.recording and type(frame.locals[arg]) is Generator:
        closer = release(machine, frame, frame.locals, arg)
        frame.locals[arg] = frame.stack.pop()
        return closer
    frame.locals[arg] = frame.stack.pop()
    return None


def delete_fast(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    if frame.locals[arg] is NULL:
        raise UnboundLocalError(UNBOUND.format(frame.code.local_names[arg]))
    if machine.recording and type(frame.locals[arg]) is Generator:
        return release(machine, frame, frame.locals, arg)
    frame.locals[arg] = NULL
    return None


def make_cell(machine: Interpreter, frame: Frame, arg: int) -> None:
    value = frame.locals[arg]
    cell = CellType() if value is NULL else CellType(value)
    if machine.recording:
        machine.heap.create(cell)
    frame.locals[arg] = cell


def copy_free_vars(machine: Interpreter, frame: Frame, arg: Any) -> None:
    """The closure was put into the last slots when the function was called."""


def read_cell(machine: Interpreter, frame: Frame, slot: int) -> Any:
    """The contents of the cell in a slot."""
    cell = frame.locals[slot]
    if machine.recording:
        value = machine.heap.cell(cell, frame.code.local_names[slot])
    else:
        value = contents(cell)
    if value is NULL:
        raise _unbound_cell(frame, slot)
    return value


def _unbound_cell(frame: Frame, slot: int) -> NameError:
    name = frame.code.local_names[slot]
    if name in frame.code.code.co_freevars:
        return NameError(UNBOUND_FREE.format(name), name=name)
    return UnboundLocalError(UNBOUND.format(name), name=name)


def load_deref(machine: Interpreter, frame: Frame, arg: int) -> None:
    frame.stack.append(read_cell(machine, frame, arg))


def store_deref(machine: Interpreter, frame: Frame, arg: int) -> None:
    cell = frame.locals[arg]
    if machine.recording:
        machine.heap.set_cell(cell, frame.stack[-1])
    else:
        cell.cell_contents = frame.stack[-1]
    frame.stack.pop()


def delete_deref(machine: Interpreter, frame: Frame, arg: int) -> None:
    read_cell(machine, frame, arg)
    if machine.recording:
        machine.heap.set_cell(frame.locals[arg], NULL)
    else:
        del frame.locals[arg].cell_contents


# ---- names ---------------------------------------------------------------------------------------
def read_global(machine: Interpreter, frame: Frame, name: str) -> Any:
    """A global or builtin name."""
    if machine.recording and not frame.code.hidden:
        return machine.heap.global_name(frame.globals, frame.builtins, name)
    value = frame.globals.get(name, NULL)
    if value is NULL:
        value = frame.builtins.get(name, NULL)
        if value is NULL:
            raise NameError(f"name {name!r} is not defined", name=name)
    return value


def load_global(machine: Interpreter, frame: Frame, arg: tuple[str, bool]) -> None:
    name, null = arg
    value = read_global(machine, frame, name)
    if null:
        frame.stack.append(NULL)
    frame.stack.append(value)


def store_global(machine: Interpreter, frame: Frame, arg: str) -> Frame | None:
    return drop(
        machine, frame, 1, protocol.store_item(machine, frame.globals, arg, frame.stack[-1])
    )


def delete_global(machine: Interpreter, frame: Frame, arg: str) -> None:
    globals_ = machine.heap.mirror_of(frame.globals) if machine.recording else frame.globals
    if arg not in globals_:
        raise NameError(f"name {arg!r} is not defined", name=arg)
    protocol.store_item(machine, frame.globals, arg, NULL)


def _is_mapping(machine: Interpreter, names: Any) -> bool:
    """Whether Python code says what these names are."""
    kind = type(names)
    if kind is dict:
        return False
    return any(attributes.is_python(machine, kind, n) for n in ("__getitem__", "__missing__"))


def _from_names(machine: Interpreter, names: Any, name: str) -> Any:
    if machine.recording and issubclass(type(names), dict):
        return machine.heap.item_or_null(names, name)
    try:
        return names[name]
    except KeyError:
        return NULL


def _name_or_global(
    machine: Interpreter, frame: Frame, names: Any, name: str, pops: int
) -> Frame | None:
    if _is_mapping(machine, names):
        args = (names, name, frame.globals, frame.builtins)
        return push(machine, frame, pops, Call(iteration_polyfills.name_or_global, args))
    value = _from_names(machine, names, name)
    found = read_global(machine, frame, name) if value is NULL else value
    return push(machine, frame, pops, found)


def _name_or_cell(
    machine: Interpreter, frame: Frame, names: Any, slot: int, pops: int
) -> Frame | None:
    name = frame.code.local_names[slot]
    if _is_mapping(machine, names):
        args = (names, name, frame.locals[slot])
        return push(machine, frame, pops, Call(iteration_polyfills.name_or_cell, args))
    value = _from_names(machine, names, name)
    return push(machine, frame, pops, read_cell(machine, frame, slot) if value is NULL else value)


def load_name(machine: Interpreter, frame: Frame, arg: str) -> Frame | None:
    return _name_or_global(machine, frame, frame.names, arg, 0)


def store_name(machine: Interpreter, frame: Frame, arg: str) -> Frame | None:
    return drop(machine, frame, 1, protocol.store_item(machine, frame.names, arg, frame.stack[-1]))


def delete_name(machine: Interpreter, frame: Frame, arg: str) -> Frame | None:
    result = machine.call(iteration_polyfills.delete_name, (frame.names, arg))
    return enter(machine, frame, also(result, DISCARD))


def load_classderef(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    return _name_or_cell(machine, frame, frame.names, arg, 0)


def load_locals(machine: Interpreter, frame: Frame, arg: Any) -> None:
    frame.stack.append(frame.names)


def load_from_dict_or_globals(machine: Interpreter, frame: Frame, arg: str) -> Frame | None:
    return _name_or_global(machine, frame, frame.stack[-1], arg, 1)


def load_from_dict_or_deref(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    return _name_or_cell(machine, frame, frame.stack[-1], arg, 1)


def setup_annotations(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    made = machine.call(iteration_polyfills.setup_annotations, (frame.names,))
    return enter(machine, frame, also(made, DISCARD))
