"""Would GeneratorExit, raised where a generator is suspended, run any code of the program?

In: a suspended frame. Out: a bool. `try: ... yield ... except IndexError: return`, as in
`collections.abc.Sequence.__iter__`, lets it pass; a `finally`, a `with` block and a bare `except`
do not. Where it passes, nothing tells a dropped generator from one that was closed.
"""

from __future__ import annotations

import builtins
from typing import Any

from anyshape.capture.heap.class_flags import HEAP_TYPE
from anyshape.capture.heap.quiet_classes import flags_of, mro_of, namespace_of
from anyshape.capture.heap.values import NULL
from anyshape.capture.interpreter.frame import Frame

JUMPS_TO_THE_NEXT_CLAUSE = ("POP_JUMP_FORWARD_IF_FALSE", "POP_JUMP_IF_FALSE")
QUIET = frozenset(
    {
        *JUMPS_TO_THE_NEXT_CLAUSE,
        *("PUSH_EXC_INFO", "LOAD_GLOBAL", "BUILD_TUPLE", "CHECK_EXC_MATCH"),
        *("COPY", "POP_EXCEPT"),
        "CALL_INTRINSIC_1",  # 3.12: what makes a RuntimeError of a StopIteration
    }
)


def closes_quietly(frame: Frame) -> bool:
    """Whether closing the generator of this frame, suspended at a yield, only ends it."""
    code = frame.code
    row = code.handled_by[frame.index - 1]
    while row is not None:
        at = row.target
        while code.opcodes[at][0] != "RERAISE":
            opcode = code.opcodes[at][0]
            if opcode not in QUIET:
                return False
            argument = code.instructions[at][1]
            if opcode == "LOAD_GLOBAL" and not _lets_exits_pass(frame, argument[0]):
                return False
            at = argument if opcode in JUMPS_TO_THE_NEXT_CLAUSE else at + 1
        row = code.handled_by[at]
    return True


def _lets_exits_pass(frame: Frame, name: str) -> bool:
    """Whether `except <name>` has no interest in GeneratorExit."""
    kind: Any = frame.globals.get(name, getattr(builtins, name, None))
    return issubclass(type(kind), type) and issubclass(kind, Exception)


def may_have_a_close(delegate: Any) -> bool:
    """Whether closing a generator that delegates to this calls something: it asks for `close`."""
    if delegate is NULL:
        return False
    kind = type(delegate)
    return bool(flags_of(kind) & HEAP_TYPE) or any("close" in namespace_of(b) for b in mro_of(kind))
