"""A frame that CPython goes on with from the middle: a loop of many turns without a tensor costs as
much as it does natively.

In: a real frame at a loop, between segments. Out: what the frame returns. CPython cannot be told
where to begin, so that the code gets a few instructions in front, which put locals and stack where
they were and jump; the user's lines and handlers move with it.

    def f(n):                 RESUME
        for i in range(n):    LOAD_CONST iterator over [n, i, ...]
            ...               UNPACK_SEQUENCE, STORE_FAST ... (the stack is left)
                              JUMP_FORWARD to FOR_ITER, then all that f had
"""

from __future__ import annotations

import dis
import gc
from collections.abc import Callable, Iterator, Sequence
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_GENERATOR, CO_ITERABLE_COROUTINE
from types import CellType, CodeType, FunctionType
from typing import Any

from anyshape.capture.heap.values import LOST, NULL
from anyshape.capture.interpreter import calls_of_the_program
from anyshape.capture.interpreter.control_opcodes import leave
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Code, Frame, handled_exception
from anyshape.capture.interpreter.generators import Generator
from anyshape.capture.interpreter.instructions import cache_count, handler_rows
from anyshape.capture.interpreter.iterator_states import native_rest

UNIT = 2
"""Bytes of an instruction."""
_AWAITING = CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE
NO_LINE = 0x80 | 15 << 3
"""In a table of lines: the next instructions, at most eight, are on no line."""


def hand_over(machine: Interpreter) -> None:
    """From here on, each frame is handed over where it comes to a loop, those of generators and of
    polyfills too."""
    frames = list(machine.frames())
    for interpreter in (machine, *(found.machine for found in _generators(frames))):
        interpreter.handing = _hand_over_at_loops
    for frame in frames:
        _hand_over_at_loops(frame)


def _generators(frames: Sequence[Frame]) -> Iterator[Generator]:
    """Those that frames lead to: each is run by a machine of its own."""
    left: list[Any] = [value for frame in frames for value in (*frame.locals, *frame.stack)]
    seen = set()
    while left:
        value = left.pop()
        kind = type(value)
        if kind not in (Generator, CellType, tuple, list) or id(value) in seen:
            continue
        seen.add(id(value))
        if kind is Generator:
            yield value
            left += (*value.frame.locals, *value.frame.stack)
        else:
            left += gc.get_referents(value)


def _hand_over_at_loops(frame: Frame) -> None:
    if frame.instructions is not frame.code.instructions:
        return  # done before
    loops = _loops_of(frame)
    frame.instructions = [
        (_run_rest, None) if loops(*opcode) else instruction
        for opcode, instruction in zip(frame.code.opcodes, frame.code.instructions)
    ]


def _loops_of(frame: Frame) -> Callable[[str, Any], bool]:
    """Where a frame can be handed over. A polyfill can, if it calls nothing that the interpreter
    has to answer; for one that works as an iterator of C, that iterator goes on."""
    code = frame.code.code
    if not frame.code.hidden:
        can = frame.names is None and not code.co_flags & _AWAITING
        return _is_of_a_loop if can else _never
    if code.co_flags & CO_GENERATOR:
        heads = [arg for name, arg in frame.code.opcodes if name == "JUMP_BACKWARD"]
        return lambda name, arg: name == "JUMP_BACKWARD" and arg == min(heads)
    named = (frame.globals.get(name) for name in code.co_names)
    return _never if any(type(value) is FunctionType for value in named) else _is_of_a_loop


def _is_of_a_loop(name: str, arg: Any) -> bool:
    """There, only iterators and what `with` has to call lie on the stack, and a condition."""
    return name == "FOR_ITER" or "JUMP_BACKWARD" in name


def _never(name: str, arg: Any) -> bool:
    return False


def _run_rest(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    generator, rest = frame.generator, None
    if _is_whole(frame):
        rest = _rest(frame) if generator is None else _rest_of_generator(frame)
    if rest is None:
        handler, given = frame.code.instructions[frame.index - 1]
        return handler(machine, frame, given)
    if generator is not None:
        generator.go_on_with(rest)
        return frame
    hidden = frame.code.hidden
    frame.locals, frame.stack = [], []  # what the program drops from here on dies
    frame.code, frame.index = Code(frame.code.code), 1
    frame.code.handled_by, frame.code.hidden = [None], True  # it has handled what it could
    frame.code.opcodes = [("RETURN_VALUE", None)]
    call = _plainly if hidden else calls_of_the_program.call
    return leave(machine, frame, call(frame.back, rest, (), {}))


def _plainly(frame: Frame | None, fn: Any, args: tuple[()], kwargs: dict[str, Any]) -> Any:
    return fn(*args, **kwargs)


def _rest(frame: Frame) -> FunctionType:
    """A function that goes on with the frame; the frame holds its values still."""
    values = [value for value in frame.locals if value is not NULL] + frame.stack[::-1]
    free = len(frame.code.code.co_freevars)
    cells = tuple(frame.locals[len(frame.locals) - free :])
    code = resuming(frame, frame.index - 1, iter(values))
    return FunctionType(code, frame.globals, closure=cells or None)


def _rest_of_generator(frame: Frame) -> Any:
    """What it yields from here on: one of CPython's, or the iterator of C that it stands for."""
    if frame.code.hidden:
        return native_rest(frame.code.code.co_name, frame.values_by_name())
    return _rest(frame)()


def _is_whole(frame: Frame) -> bool:
    """Whether all that the frame is lies in its locals and its stack, as CPython has it there."""
    alone = frame.locals_dict is None and not frame.is_watched()
    known = not any(value is NULL or value is LOST for value in frame.stack)
    known = known and not any(value is LOST for value in frame.locals)
    return alone and known and handled_exception(frame) is None


def resuming(frame: Frame, index: int, values: Iterator[Any]) -> CodeType:
    """Code that goes on with the frame at this instruction: `values` are its locals, and its stack
    from the top down. The iterator holds none of them once they have been taken."""
    code = frame.code.code
    bound = [slot for slot, value in enumerate(frame.locals) if value is not NULL]
    count = len(bound) + len(frame.stack)
    front = _instruction("RESUME", 0) + _instruction("LOAD_CONST", len(code.co_consts))
    if code.co_flags & CO_GENERATOR:
        front = _instruction("RETURN_GENERATOR", 0) + _instruction("POP_TOP", 0) + front
    front += _instruction("UNPACK_SEQUENCE", count)
    for slot in bound:
        front += _instruction("STORE_FAST", slot)
    front += _instruction("JUMP_FORWARD", _begin(code, frame.code.offsets[index]) // UNIT)
    return code.replace(
        co_code=bytes(front) + code.co_code,
        co_consts=(*code.co_consts, values),
        co_argcount=0,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~0x0C,  # no `*args` and `**kwargs`
        co_stacksize=code.co_stacksize + count,
        co_linetable=bytes(_without_lines(len(front) // UNIT)) + code.co_linetable,
        co_exceptiontable=bytes(_moved(code, len(front))),
    )


def _instruction(name: str, arg: int) -> list[int]:
    parts = arg.to_bytes(max(1, (arg.bit_length() + 7) // 8), "big")
    more = dis.opmap["EXTENDED_ARG"]
    wide = [byte for part in parts[:-1] for byte in (more, part)]
    return [*wide, dis.opmap[name], parts[-1], *[0] * (UNIT * cache_count(name))]


def _begin(code: CodeType, offset: int) -> int:
    """Where the instruction begins, with what its argument is made of."""
    while offset and code.co_code[offset - UNIT] == dis.opmap["EXTENDED_ARG"]:
        offset -= UNIT
    return offset


def _without_lines(count: int) -> Iterator[int]:
    for left in range(count, 0, -8):
        yield NO_LINE | min(left, 8) - 1


def _moved(code: CodeType, by: int) -> Iterator[int]:
    """The table of handlers, in numbers of six bits, of which the first of a row is marked."""
    for row in handler_rows(code):
        numbers = (
            (row.start + by) // UNIT,
            (row.end - row.start) // UNIT,
            (row.target + by) // UNIT,
            row.depth << 1 | row.lasti,
        )
        for position, number in enumerate(numbers):
            yield from _sixes(number, 0x80 if position == 0 else 0)


def _sixes(number: int, mark: int) -> Sequence[int]:
    digits = [number & 0x3F]
    while number := number >> 6:
        digits.insert(0, number & 0x3F)
    digits = [digit | 0x40 for digit in digits[:-1]] + digits[-1:]
    return [digits[0] | mark, *digits[1:]]
