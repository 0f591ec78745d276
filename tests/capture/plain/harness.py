"""Run a program natively and under the interpreter, and compare everything that it shows.

Torch-free and pytest-free: `run.py` uses it on any Python that the interpreter supports.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import io
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import CodeType, ModuleType
from typing import Any

from anyshape.capture.interpreter.domain import Concrete
from anyshape.capture.interpreter.frame import Code
from anyshape.capture.interpreter.machine import Machine
from anyshape.capture.python.language import PYTHON
from tests.capture.plain.slots import LOG

MODULES = (
    "values",
    "control",
    "functions",
    "classes",
    "slots",
    "exceptions",
    "generators",
    "builtin_functions",
    "library",
    "scopes",
    "semantics",
    "as_c_does",
    "new_in_312",
    "new_in_313",
)
Case = Callable[[], Any]


@dataclass(frozen=True)
class Outcome:
    """What a program returned or raised, and what it printed."""

    result: str
    printed: str


class Watched(Machine):
    """A machine that remembers which opcodes it executed."""

    __slots__ = ("executed",)

    def __init__(self, executed: set[str]) -> None:
        super().__init__(Concrete(), PYTHON)
        self.executed = executed

    def decoded(self, code: CodeType) -> Code:
        if code in self.codes:
            return self.codes[code]
        known = super().decoded(code)
        known.instructions = [
            (self._watched(handler, known.opcodes[index][0]), arg)
            for index, (handler, arg) in enumerate(known.instructions)
        ]
        return known

    def _watched(self, handler: Any, name: str) -> Any:
        # Like a handler it must count as the interpreter's own code, which tracebacks leave out.
        namespace = {"__name__": "anyshape.capture.watched", "handler": handler, "name": name}
        namespace["note"] = self.executed.add
        exec(_WATCHED, namespace)
        return namespace["watched"]


_WATCHED = """
def watched(machine, frame, arg):
    note(name)
    return handler(machine, frame, arg)
"""


def cases() -> Iterator[tuple[str, Case]]:
    """All programs: functions named `case_...` of the modules beside this one."""
    for name in MODULES:
        module = importlib.import_module(f"tests.capture.plain.{name}")
        yield from cases_of(module)


def cases_of(module: ModuleType) -> Iterator[tuple[str, Case]]:
    for name, value in list(vars(module).items()):
        if name.startswith("case_") and inspect.isfunction(value):
            yield f"{module.__name__.rpartition('.')[2]}.{name[5:]}", value


def outcome(call: Callable[[], Any], code: CodeType) -> Outcome:
    """Call it and describe what it did."""
    printed = io.StringIO()
    LOG.clear()
    with contextlib.redirect_stdout(printed):
        try:
            result = describe(call())
        except BaseException as error:
            result = describe_error(error, code)
    return Outcome(result, printed.getvalue())


def describe(value: Any) -> str:
    return f"{type(value).__name__} {value!r}"


def describe_error(error: BaseException, code: CodeType) -> str:
    """Type, text, notes, causes and the lines of the traceback from the program's own frame on."""
    lines = [f"{type(error).__qualname__}({error.args!r})"]
    seen = False
    for frame, line in traceback.walk_tb(error.__traceback__):
        seen = seen or frame.f_code.co_name == code.co_name
        if seen:
            lines.append(f"  {frame.f_code.co_name}:{line}")
    for label, linked in (("cause", error.__cause__), ("context", error.__context__)):
        if linked is not None:
            lines.append(f"{label}: {type(linked).__qualname__}({linked.args!r})")
    lines.append(f"suppress: {error.__suppress_context__} {getattr(error, '__notes__', None)}")
    return "\n".join(lines)


def check(case: Case, executed: set[str]) -> str | None:
    """None when the interpreter does what CPython does, else both outcomes."""
    native = outcome(case, case.__code__)
    machine = Watched(executed)
    ours = outcome(lambda: machine.run(case), case.__code__)
    if native == ours:
        return None
    return (
        f"CPython:\n{native.result}\n{native.printed}\ninterpreter:\n{ours.result}\n{ours.printed}"
    )
