"""The two opcodes of 3.12 that hold many small ones: CALL_INTRINSIC_1 and CALL_INTRINSIC_2."""

from __future__ import annotations

import sys
import typing
from collections.abc import Callable
from types import CodeType
from typing import Any

from anyshape.capture.heap.hidden_dicts import hidden_dict
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


def _type_parameter(kind: str) -> Callable[[Interpreter, Frame, Any], None]:
    def make(machine: Interpreter, frame: Frame, arg: Any) -> None:
        options = {} if kind == "TypeVarTuple" else {"infer_variance": True}
        made = getattr(typing, kind)(frame.stack[-1], **options)
        (hidden_dict(made) or {}).pop("__module__", None)  # the program has called nothing
        frame.stack[-1] = machine.heap.create(made) if machine.recording else made

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
    7: _type_parameter("TypeVar"),
    8: _type_parameter("ParamSpec"),
    9: _type_parameter("TypeVarTuple"),
    10: _generic,
}
TWO: dict[int, Callable[[Any, Frame, Any], Frame | None]] = {
    1: exception_opcodes.prep_reraise_star,
    4: _set_type_parameters,
}


def prepare_1(code: CodeType, arg: int) -> Any:
    """The handler of an intrinsic, or `Unsupported`: lazily evaluated type aliases and bounds run
    natively.
    """
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
