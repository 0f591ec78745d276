"""Opcodes that move and make values: stack, attributes, items, operators, containers, strings."""

from __future__ import annotations

from types import FrameType, MethodType
from typing import Any

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.heap.values import (
    BOUND_IN_C,
    BY_VALUE,
    NULL,
    PROXIES,
    Call,
    OpaqueValue,
    TextValue,
)
from anyshape.capture.interpreter import (
    attributes,
    c_callbacks,
    iteration_polyfills,
    mapping_polyfills,
    polyfills,
    protocol,
    size_texts,
)
from anyshape.capture.interpreter.attributes import BOUND
from anyshape.capture.interpreter.continuations import AttributeOf, CalleeOf, settled_attribute
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame
from anyshape.capture.interpreter.frame_views import FrameView
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.interpreter.opcode_results import again, drop, push, push_by, release


# ---- the stack -----------------------------------------------------------------------------------
def pop_top(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    if machine.recording and type(frame.stack[-1]) is Generator:
        closer = release(machine, frame, frame.stack, -1)
        frame.stack.pop()
        return closer
    frame.stack.pop()
    return None


def push_null(machine: Interpreter, frame: Frame, arg: Any) -> None:
    frame.stack.append(NULL)


def copy(machine: Interpreter, frame: Frame, arg: int) -> None:
    frame.stack.append(frame.stack[-arg])


def swap(machine: Interpreter, frame: Frame, arg: int) -> None:
    stack = frame.stack
    stack[-1], stack[-arg] = stack[-arg], stack[-1]


def load_const(machine: Interpreter, frame: Frame, arg: Any) -> None:
    frame.stack.append(arg)


def nothing(machine: Interpreter, frame: Frame, arg: Any) -> None:
    """An instruction that only CPython's own machinery needs."""


# ---- attributes and items ------------------------------------------------------------------------
def load_attr(machine: Interpreter, frame: Frame, arg: str) -> Frame | None:
    owner = frame.stack[-1]
    found = attributes.load_attr(machine, owner, arg)
    kind = type(found)
    if kind is Call or kind is Frame:
        found = settled_attribute(machine, found, owner, arg)
        return push_by(machine, frame, 1, found, AttributeOf(owner, arg))
    frame.stack[-1] = found
    return None


def load_method(machine: Interpreter, frame: Frame, arg: str) -> Frame | None:
    stack = frame.stack
    found = attributes.load_method(machine, stack[-1], arg)
    if type(found) is BOUND:
        stack.insert(-1, found.function)
        return None
    owner, kind = stack[-1], type(found)
    if kind is Call or kind is Frame:
        silent = attributes.is_silent(machine, owner, arg)
        found = machine.settle(found) if silent else settled_attribute(machine, found, owner, arg)
        stack[-1] = NULL
        return push_by(machine, frame, 0, found, AttributeOf(owner, arg, silent))
    stack[-1] = NULL
    stack.append(found)
    return None


def load_attr_or_method(machine: Interpreter, frame: Frame, arg: tuple[str, bool]) -> Frame | None:
    name, method = arg
    return load_method(machine, frame, name) if method else load_attr(machine, frame, name)


def load_attr_or_callee(machine: Interpreter, frame: Frame, arg: tuple[str, bool]) -> Frame | None:
    """As `load_attr_or_method` with NULL behind what is called, as 3.13 has it."""
    name, method = arg
    if not method:
        return load_attr(machine, frame, name)
    stack = frame.stack
    found = attributes.load_method(machine, stack[-1], name)
    kind = type(found)
    if kind is Call or kind is Frame:
        silent = attributes.is_silent(machine, stack[-1], name)
        return push_by(machine, frame, 1, found, CalleeOf(stack[-1], name, silent))
    if kind is BOUND:
        stack.insert(-1, found.function)
    else:
        stack[-1:] = found, NULL
    return None


def load_super_attr(
    machine: Interpreter, frame: Frame, arg: tuple[str, bool, bool]
) -> Frame | None:
    """`super().name` in 3.12: global super, class and self are on the stack; one that is the
    program's own `super` gets what the program hands it."""
    name, method, handed = arg
    supertype, cls, receiver = frame.stack[-3:]
    if supertype is super and type(receiver) not in PROXIES:
        found = attributes.super_getattr(machine, super(cls, receiver), name)
    else:
        args = (cls, receiver) if handed or supertype is super else ()
        found = Call(polyfills.attribute_of_result, (supertype, args, name))
    result = machine.settle(found)
    del frame.stack[-3:]
    if method:
        frame.stack.append(NULL)
    return push(machine, frame, 0, result)


def store_attr(machine: Interpreter, frame: Frame, arg: str) -> Frame | None:
    value, obj = frame.stack[-2:]
    return drop(machine, frame, 2, attributes.store_attr(machine, obj, arg, value))


def delete_attr(machine: Interpreter, frame: Frame, arg: str) -> Frame | None:
    return drop(machine, frame, 1, attributes.delete_attr(machine, frame.stack[-1], arg))


def binary_subscr(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    obj, key = frame.stack[-2:]
    return push(machine, frame, 2, protocol.load_item(machine, obj, key))


def store_subscr(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    value, obj, key = frame.stack[-3:]
    return drop(machine, frame, 3, protocol.store_item(machine, obj, key, value))


def delete_subscr(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    obj, key = frame.stack[-2:]
    return drop(machine, frame, 2, protocol.store_item(machine, obj, key, NULL))


def binary_slice(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    obj, start, stop = frame.stack[-3:]
    return push(machine, frame, 3, protocol.load_item(machine, obj, slice(start, stop)))


def store_slice(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    value, obj, start, stop = frame.stack[-4:]
    return drop(machine, frame, 4, protocol.store_item(machine, obj, slice(start, stop), value))


# ---- operators -----------------------------------------------------------------------------------
def binary_op(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    a, b = frame.stack[-2:]
    return push(machine, frame, 2, protocol.binary(machine, arg, a, b))


def unary_negative(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    return push(machine, frame, 1, protocol.unary(machine, "-", frame.stack[-1]))


def unary_positive(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    return push(machine, frame, 1, protocol.unary(machine, "+", frame.stack[-1]))


def unary_invert(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    return push(machine, frame, 1, protocol.unary(machine, "~", frame.stack[-1]))


def unary_not(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    value = frame.stack[-1]
    if type(value) in PROXIES:
        return push(machine, frame, 1, machine.domain.unary("not", value))
    answer = protocol.truth(machine, value)
    if type(answer) is bool:
        frame.stack[-1] = not answer
        return None
    return again(machine, frame, answer)


def compare_op(machine: Interpreter, frame: Frame, arg: str) -> Frame | None:
    a, b = frame.stack[-2:]
    return push(machine, frame, 2, protocol.compare(machine, arg, a, b))


def is_op(machine: Interpreter, frame: Frame, arg: int) -> None:
    stack = frame.stack
    a, b = stack[-2:]
    if machine.recording and a is not b:
        _refuse_unread(a, b)
    same: Any = a is b or (machine.recording and machine.domain.is_one(a, b))
    if type(same) in PROXIES:
        stack[-2:] = [machine.domain.unary("not", same) if arg else same]
        return
    same = same or _is_frame_of(a, b)
    del stack[-1]
    stack[-1] = same != bool(arg)
    if machine.recording:
        if not frame.code.hidden:  # where C asks, equal ones are as good
            note_values(machine, a, b)
        if not same:
            _note_identity(machine, a, b)


def _is_frame_of(a: Any, b: Any) -> bool:
    """Whether one is the program's own view of a frame, and the other a traceback's."""
    if type(b) is FrameView:
        a, b = b, a
    return type(a) is FrameView and type(b) is FrameType and a.stands_for(b)


def _refuse_unread(a: Any, b: Any) -> None:
    """An object that is handed on unread may be another one that was read."""
    kinds = [v.kind if type(v) is OpaqueValue else type(v) for v in (a, b)]
    unread = OpaqueValue in (type(a), type(b))
    if unread and kinds[0] is kinds[1] and kinds[0] not in protocol.PLAIN:
        raise broken("changing-value", "is")


def note_values(machine: Interpreter, a: Any, b: Any) -> None:
    """Equal values may be one object or two."""
    kind = type(a)
    if kind not in BY_VALUE and kind is not MethodType and kind not in BOUND_IN_C:
        return
    if kind is type(b) and (a is b or kind is tuple or a == b):
        machine.domain.identify_value(a)
        machine.domain.identify_value(b)


def _note_identity(machine: Interpreter, a: Any, b: Any) -> None:
    """Two objects that are not one: that is relied on, unless their classes say so."""
    if type(a) is type(b) and type(a) not in protocol.PLAIN:
        machine.domain.identify(a)
        machine.domain.identify(b)


def contains_op(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    item, container = frame.stack[-2:]
    answer = protocol.contains(machine, container, item)
    if arg:
        kind = type(answer)
        if kind is Call:
            answer = Call(polyfills.not_contained, (container, item))
        elif kind in PROXIES:
            answer = machine.domain.unary("not", answer)
        else:
            answer = not answer
    return push(machine, frame, 2, answer)


# ---- making containers ---------------------------------------------------------------------------
def _take(frame: Frame, count: int) -> list[Any]:
    if not count:
        return []
    stack = frame.stack
    values = stack[-count:]
    del stack[-count:]
    return values


def _made(machine: Interpreter, frame: Frame, value: Any) -> None:
    if machine.recording:
        machine.heap.create(value)
    frame.stack.append(value)


def build_tuple(machine: Interpreter, frame: Frame, arg: int) -> None:
    _made(machine, frame, tuple(_take(frame, arg)))


def build_list(machine: Interpreter, frame: Frame, arg: int) -> None:
    _made(machine, frame, _take(frame, arg))


def build_set(machine: Interpreter, frame: Frame, arg: int) -> None:
    made = set([protocol.plain_key(machine, item) for item in frame.stack[-arg:]] if arg else ())
    _take(frame, arg)
    _made(machine, frame, made)


def build_map(machine: Interpreter, frame: Frame, arg: int) -> None:
    parts = frame.stack[-2 * arg :] if arg else []
    keys = [protocol.plain_key(machine, key) for key in parts[::2]]
    made = dict(zip(keys, parts[1::2], strict=True))
    _take(frame, 2 * arg)
    _made(machine, frame, made)


def build_const_key_map(machine: Interpreter, frame: Frame, arg: int) -> None:
    keys = frame.stack.pop()
    _made(machine, frame, dict(zip(keys, _take(frame, arg), strict=True)))


def build_string(machine: Interpreter, frame: Frame, arg: int) -> None:
    if any(type(part) in PROXIES for part in frame.stack[-arg:]):
        if any(type(part) not in (str, TextValue) for part in frame.stack[-arg:]):
            raise broken("proxy-leak", "a text that differs from call to call")
        frame.stack.append(size_texts.joined(_take(frame, arg)))
    else:
        frame.stack.append("".join(_take(frame, arg)))


def build_slice(machine: Interpreter, frame: Frame, arg: int) -> None:
    frame.stack.append(slice(*_take(frame, arg)))


def list_to_tuple(machine: Interpreter, frame: Frame, arg: Any) -> None:
    made = frame.stack[-1]
    items = tuple(machine.heap.mirror(made) if machine.recording else made)
    frame.stack.pop()
    _made(machine, frame, items)


def write_into(machine: Interpreter, method: Any, target: Any, *values: Any) -> None:
    """Writes into a container under construction, which an earlier segment may have begun."""
    if machine.recording and not machine.heap.is_created(target):
        machine.native(method, (target, *values), {})
        return
    machine.heap.will_write(target)
    method(target, *values)


def list_append(machine: Interpreter, frame: Frame, arg: int) -> None:
    write_into(machine, list.append, frame.stack[-arg - 1], frame.stack[-1])
    frame.stack.pop()


def set_add(machine: Interpreter, frame: Frame, arg: int) -> None:
    element = protocol.plain_key(machine, frame.stack[-1])
    write_into(machine, set.add, frame.stack[-arg - 1], element)
    frame.stack.pop()


def map_add(machine: Interpreter, frame: Frame, arg: int) -> None:
    key, value = frame.stack[-2:]
    key = protocol.plain_key(machine, key)
    write_into(machine, dict.__setitem__, frame.stack[-arg - 2], key, value)
    del frame.stack[-2:]


def list_extend(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    target, iterable = frame.stack[-arg - 1], frame.stack[-1]
    if protocol.is_not_iterable(machine, iterable):
        kind = bare_name(protocol.class_shown(machine, iterable))
        raise TypeError(f"Value after * must be an iterable, not {kind}")
    if type(iterable) not in protocol.CONTAINERS and protocol.needs_interpretation(
        machine, iterable
    ):
        return again(machine, frame, Call(iteration_polyfills.list_of, (iterable,)))
    items = list(_iterator(machine, iterable))
    if machine.recording:
        machine.heap.create(items)
    write_into(machine, list.extend, target, items)
    frame.stack.pop()
    return None


def _refuse_to_unpack(machine: Interpreter, value: Any) -> None:
    if protocol.is_not_iterable(machine, value):
        kind = protocol.class_shown(machine, value).__name__
        raise TypeError(f"cannot unpack non-iterable {kind} object")


def _iterator(machine: Interpreter, iterable: Any) -> Any:
    protocol.will_exhaust(machine, iterable)
    return protocol.iterate(machine, iterable)


def set_update(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    target, iterable = frame.stack[-arg - 1], frame.stack[-1]
    if protocol.must_be_taken_for_a_set(machine, iterable):
        return drop(machine, frame, 1, Call(iteration_polyfills.update_set, (target, iterable)))
    items = machine.heap.mirror(iterable) if machine.recording else iterable
    if machine.recording and c_callbacks.hashes_elements(machine, items):
        raise broken("unknown-call", "set.update")
    write_into(machine, set.update, target, items)
    frame.stack.pop()
    return None


def dict_update(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    target, source = frame.stack[-arg - 1], frame.stack[-1]
    refusal = f"{bare_name(type(source))!r} object is not a mapping"
    if protocol.is_python_mapping(machine, source):
        return again(machine, frame, Call(mapping_polyfills.dict_from_mapping, (source, refusal)))
    if not issubclass(type(source), dict) and not hasattr(source, "keys"):
        raise TypeError(refusal)
    entries = machine.heap.mirror(source) if machine.recording else source
    write_into(machine, dict.update, target, entries)
    frame.stack.pop()
    return None


def dict_merge(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    target, source = frame.stack[-arg - 1], frame.stack[-1]
    fn = callee(frame.stack, -arg - 3)
    refusal = ""
    if machine.lookup(type(source), "keys") is NULL:  # the text of an object is asked of its class
        kind = bare_name(type(source))
        refusal = f"{shown_callable(fn)} argument after ** must be a mapping, not {kind}"
    if protocol.is_python_mapping(machine, source):
        return again(machine, frame, Call(mapping_polyfills.dict_from_mapping, (source, refusal)))
    if not issubclass(type(source), dict) and not hasattr(source, "keys"):
        raise TypeError(refusal)
    entries = machine.heap.mirror(source) if machine.recording else source
    for key in entries.keys():
        if key in target:
            shown = shown_callable(fn)
            raise TypeError(f"{shown} got multiple values for keyword argument '{key}'")
    write_into(machine, dict.update, target, entries)
    frame.stack.pop()
    return None


def callee(stack: list[Any], index: int) -> Any:
    """What is called: it is there, or under a NULL that is."""
    fn = stack[index]
    return stack[index - 1] if fn is NULL else fn


def shown_callable(fn: Any) -> str:
    name = getattr(fn, "__qualname__", None)
    if not issubclass(type(name), str):
        return str(fn)
    module = getattr(fn, "__module__", None)
    prefix = "" if module in (None, "builtins") else f"{module}."
    return f"{prefix}{name}()"


# ---- unpacking and formatting --------------------------------------------------------------------
def unpack_sequence(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    stack = frame.stack
    value = stack[-1]
    kind = type(value)
    if kind is not tuple and kind is not list:
        _refuse_to_unpack(machine, value)
        if protocol.needs_interpretation(machine, value) and kind not in PROXIES:
            return again(machine, frame, Call(iteration_polyfills.unpack_list, (value, arg)))
        return again(machine, frame, _first_values(machine, value, arg))
    if machine.recording:
        value = machine.heap.mirror(value)
    if len(value) != arg:
        raise ValueError(_wrong_count(len(value), arg))
    stack.pop()
    stack.extend(reversed(value))
    return None


def _first_values(machine: Interpreter, value: Any, count: int) -> list[Any]:
    values = []
    for item in _iterator(machine, value):
        values.append(item)
        if len(values) > count:
            break
    if machine.recording:
        machine.heap.create(values)
    return values


def _wrong_count(have: int, want: int) -> str:
    if have < want:
        return f"not enough values to unpack (expected {want}, got {have})"
    return f"too many values to unpack (expected {want})"


def unpack_ex(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    stack = frame.stack
    value = stack[-1]
    _refuse_to_unpack(machine, value)
    before, after = arg & 0xFF, arg >> 8
    if protocol.needs_interpretation(machine, value) and type(value) not in PROXIES:
        return again(machine, frame, Call(iteration_polyfills.unpack_starred, (value, before)))
    values = list(_iterator(machine, value))
    if len(values) < before + after:
        wanted = before + after
        raise ValueError(
            f"not enough values to unpack (expected at least {wanted}, got {len(values)})"
        )
    middle = values[before : len(values) - after]
    if machine.recording:
        machine.heap.create(middle)
    stack.pop()
    stack.extend(reversed([*values[:before], middle, *values[len(values) - after :]]))
    return None


CONVERSIONS = {0: None, 1: "str", 2: "repr", 3: "ascii"}
CONVERTERS = {1: str, 2: repr, 3: ascii}


def format_value(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    pops = 2 if arg & 4 else 1
    spec = frame.stack[-1] if arg & 4 else ""
    value = frame.stack[-pops]
    conversion = CONVERSIONS[arg & 3]
    if conversion is None:
        return push(machine, frame, pops, protocol.format_value(machine, value, spec))
    return push(machine, frame, pops, Call(polyfills.convert_and_format, (conversion, value, spec)))


def convert_value(machine: Interpreter, frame: Frame, arg: int) -> Frame | None:
    return push(machine, frame, 1, Call(CONVERTERS[arg], (frame.stack[-1],)))


def format_simple(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    value = frame.stack[-1]
    if type(value) is str:
        return None
    return push(machine, frame, 1, protocol.format_value(machine, value, ""))


def format_with_spec(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    value, spec = frame.stack[-2:]
    return push(machine, frame, 2, protocol.format_value(machine, value, spec))


def load_assertion_error(machine: Interpreter, frame: Frame, arg: Any) -> None:
    frame.stack.append(AssertionError)


def get_len(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    return push(machine, frame, 0, protocol.length(machine, frame.stack[-1]))
