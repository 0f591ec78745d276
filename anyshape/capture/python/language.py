"""Python as the interpreter knows it: every handler of a builtin, and the machine that has
them all.

In: a domain. Out: a `Machine`. The files of polyfills are hidden from tracebacks and from guards.
"""

from __future__ import annotations

import operator
import sys
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from anyshape.capture.heap.values import Call
from anyshape.capture.interpreter import (
    class_polyfills,
    iteration_polyfills,
    mapping_polyfills,
    polyfills,
    search_polyfills,
    sort_polyfills,
    text_polyfills,
)
from anyshape.capture.interpreter.domain import Domain, Interpreter
from anyshape.capture.interpreter.frame import Code
from anyshape.capture.interpreter.machine import Language, Machine
from anyshape.capture.python import (
    cache_polyfills,
    instances,
    itertools_polyfills,
    json_polyfills,
    jsons,
    percent,
    pickle_polyfills,
    program_times,
    texts_of_parts,
    time_polyfills,
    warning_polyfills,
)
from anyshape.capture.python.builtins import BUILTINS, CLASS_METHODS, OBJECT_CALLS
from anyshape.capture.python.stdlib import STDLIB, STDLIB_CLASS_METHODS
from anyshape.nouns import make_methods

CAPTURE = "anyshape.capture."

TORCH_POLYFILLS = str(Path(__file__).parents[1] / "tensors" / "torch_polyfills.py")  # imports torch
POLYFILLS = (
    *(polyfills, class_polyfills, iteration_polyfills, mapping_polyfills),
    *(search_polyfills, sort_polyfills, itertools_polyfills, time_polyfills),
    *(pickle_polyfills, json_polyfills, warning_polyfills),
    *(text_polyfills, cache_polyfills),
)


def operated(machine: Interpreter, function: Any, *values: Any) -> Call | None:
    """What is interpreted instead of an operator of C that would ask the program."""
    if function in TEXTS:
        made = program_times.shown(machine, function, *values)
        if made is None and not any(values[1:]):
            made = texts_of_parts.shown(machine, values[0])
        return made
    if function is operator.mod and type(values[0]) is str:
        return percent.formatted(machine, *values)
    return program_times.operated(machine, function, *values)


TEXTS = (str, repr, format)
PYTHON = Language(
    functions={**BUILTINS, **STDLIB},
    class_methods={**CLASS_METHODS, **STDLIB_CLASS_METHODS},
    objects={**OBJECT_CALLS, **jsons.OBJECT_CALLS},
    instantiate=instances.instantiate,
    operated=operated,
    polyfill_files=frozenset({*(str(module.__file__) for module in POLYFILLS), TORCH_POLYFILLS}),
)


def make_ready(machine: Interpreter) -> None:
    """Makes what the interpreter else makes where it first needs it, so that a program that counts
    what there is in the process does not meet it: decoded polyfills and methods of nouns."""
    for name, module in [*sys.modules.items()]:
        if name.startswith(CAPTURE):
            for value in [*vars(module).values()]:
                if isinstance(value, type) and value.__module__ == name:
                    make_methods(value)
    for module in POLYFILLS:
        for value in vars(module).values():
            if type(value) is FunctionType and value.__code__.co_filename == module.__file__:
                _decode(machine, value.__code__)


def _decode(machine: Interpreter, code: CodeType) -> None:
    machine.decoded(code)
    for inner in code.co_consts:
        if type(inner) is CodeType:
            _decode(machine, inner)


def python_machine(domain: Domain, codes: dict[CodeType, Code] | None = None) -> Machine:
    """An interpreter of Python over a domain; machines may share decoded `codes`."""
    return Machine(domain, PYTHON, codes)
