"""Python as the interpreter knows it: every handler of a builtin, and the machine that has
them all.

In: a domain. Out: a `Machine`. The files of polyfills are hidden from tracebacks and from guards.
"""

from __future__ import annotations

from pathlib import Path
from types import CodeType

from anyshape.capture.interpreter import (
    class_polyfills,
    iteration_polyfills,
    mapping_polyfills,
    polyfills,
    search_polyfills,
    sort_polyfills,
)
from anyshape.capture.interpreter.domain import Domain
from anyshape.capture.interpreter.frame import Code
from anyshape.capture.interpreter.machine import Language, Machine
from anyshape.capture.python import instances, itertools_polyfills
from anyshape.capture.python.builtins import BUILTINS, CLASS_METHODS, OBJECT_CALLS
from anyshape.capture.python.stdlib import STDLIB, STDLIB_CLASS_METHODS

TORCH_POLYFILLS = str(Path(__file__).parents[1] / "tensors" / "torch_polyfills.py")  # imports torch
PYTHON = Language(
    functions={**BUILTINS, **STDLIB},
    class_methods={**CLASS_METHODS, **STDLIB_CLASS_METHODS},
    objects=OBJECT_CALLS,
    instantiate=instances.instantiate,
    polyfill_files=frozenset(
        str(module.__file__)
        for module in (
            *(polyfills, class_polyfills, iteration_polyfills, mapping_polyfills),
            *(search_polyfills, sort_polyfills, itertools_polyfills),
        )
    )
    | {TORCH_POLYFILLS},
)


def python_machine(domain: Domain, codes: dict[CodeType, Code] | None = None) -> Machine:
    """An interpreter of Python over a domain; machines may share decoded `codes`."""
    return Machine(domain, PYTHON, codes)
