"""The two opcodes of 3.12 that hold many small ones: CALL_INTRINSIC_1 and CALL_INTRINSIC_2."""

from __future__ import annotations

import dis
import sys
import typing
from collections.abc import Callable
from types import CodeType, FunctionType
from typing import Any

from anyshape.capture.heap.values import Call
from anyshape.capture.interpreter import control_opcodes, exception_opcodes, value_opcodes
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.interpreter.frame import Frame, Unsupported
from anyshape.capture.interpreter.opcode_results import push


def _import_star(machine: Interpreter, frame: Frame, arg: Any) -> None:
    control_opcodes.import_star(machine, frame, arg)
    frame.stack.append(None)


def _print(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    return push(machine, frame, 1, Call(sys.displayhook, (frame.stack[-1],)))


def _c_intrinsic(opcode: str, number: int) -> Callable[..., Any]:
    """A function of as many arguments as the opcode takes, in which CPython executes it."""
    taken = 1 if opcode == "CALL_INTRINSIC_1" else 2
    loads = [("LOAD_FAST", index) for index in range(taken)]
    steps = [("RESUME", 0), *loads, (opcode, number), ("RETURN_VALUE", 0)]
    text = bytes(part for name, arg in steps for part in (dis.opmap[name], arg))
    template = (lambda a: a) if taken == 1 else (lambda a, b: a)
    code = template.__code__.replace(co_code=text, co_stacksize=2)
    return FunctionType(code, {"__name__": "typing"})


def _made_by_c(opcode: str, number: int) -> Callable[[Interpreter, Frame, Any], None]:
    """A parameter or an alias is an object of C's, which calls what computes its bound, its
    default or its value when somebody asks for it."""
    made: list[Callable[..., Any]] = []

    def make(machine: Interpreter, frame: Frame, arg: Any) -> None:
        if not made:
            made.append(_c_intrinsic(opcode, number))
        taken = made[0].__code__.co_argcount
        given, frame.stack[-taken:] = frame.stack[-taken:], []
        value = made[0](*given)
        frame.stack.append(machine.heap.create(value) if machine.recording else value)

    return make


def _generic(machine: Interpreter, frame: Frame, arg: Any) -> None:
    """`Generic[T, *Ts, **P]`: type variable tuples are unpacked."""
    kinds: Any = typing.TypeVarTuple
    parameters = [typing.Unpack[p] if issubclass(type(p), kinds) else p for p in frame.stack[-1]]
    alias: Any = getattr(typing, "_GenericAlias")  # noqa: B009 # what Generic[...] makes; no stub
    frame.stack[-1] = alias(typing.Generic, tuple(parameters))


def _set_type_parameters(machine: Interpreter, frame: Frame, arg: Any) -> None:
    parameters = frame.stack.pop()
    frame.stack[-1].__type_params__ = parameters


ONE: dict[int, Callable[[Any, Frame, Any], Frame | None]] = {
    1: _print,
    2: _import_star,
    3: exception_opcodes.stop_iteration_error,
    5: value_opcodes.unary_positive,
    6: value_opcodes.list_to_tuple,
    **{number: _made_by_c("CALL_INTRINSIC_1", number) for number in (7, 8, 9, 11)},
    10: _generic,
}
TWO: dict[int, Callable[[Any, Frame, Any], Frame | None]] = {
    1: exception_opcodes.prep_reraise_star,
    **{number: _made_by_c("CALL_INTRINSIC_2", number) for number in (2, 3, 5)},
    4: _set_type_parameters,
}


def prepare_1(code: CodeType, arg: int) -> Any:
    """The handler of an intrinsic, or `Unsupported`."""
    return _prepared(ONE, arg, "CALL_INTRINSIC_1")


def prepare_2(code: CodeType, arg: int) -> Any:
    """As `prepare_1`, for those with two operands."""
    return _prepared(TWO, arg, "CALL_INTRINSIC_2")


def _prepared(table: dict[int, Any], arg: int, name: str) -> Any:
    if arg not in table:
        raise Unsupported(f"{name} {arg}")
    return table[arg]


def call_intrinsic_1(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    return arg(machine, frame, None)


def call_intrinsic_2(machine: Interpreter, frame: Frame, arg: Any) -> Frame | None:
    return arg(machine, frame, None)
