"""The modules of Lib/test that are run, and the test methods that they hold.

In: the name of a module, such as `test_abc`. Out: a `unittest` case for each of its methods, as its
own loader makes them. Doctests are no methods and are left out.
"""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import unittest
from collections.abc import Iterator

NAMES = """
abc augassign baseexception binop bisect bool builtin call class collections compare complex
contains context contextlib copy dataclasses datetime decimal decorators defaultdict deque descr
dict dictviews dynamic enum enumerate except_star exception_hierarchy exception_variations
exceptions float fractions fstring funcattrs functools generator_stop generators genericalias
genericclass
grammar hash heapq int isinstance iter itertools json keywordonlyarg list long
math named_expressions operator opcodes ordered_dict patma pickle positional_only_arg pow
property raise random range re richcmp scope set slice sort statistics string struct subclassinit
super tuple typechecks types typing unary unpack userdict userlist userstring weakref weakset with
yield_from
""".split()

MODULES = [f"test_{name}" for name in NAMES]


SAMPLE_EVERY = 14
"""`make test` runs one method in so many of some modules."""


def missing() -> str:
    """Why the exam cannot be run with this Python; empty where it can."""
    if importlib.util.find_spec("test") is None:
        return "this Python comes without the package `test`"
    if importlib.util.find_spec("test.test_abc") is None:
        return "the package `test` of this Python is without CPython's tests"
    return ""


def cases(module: str) -> list[unittest.TestCase]:
    """The test methods of `test.<module>`, each with an instance of its class."""
    loaded = importlib.import_module(f"test.{module}")
    loader = unittest.TestLoader()
    return [case for case in _flat(loader.loadTestsFromModule(loaded)) if _is_method(case)]


def _flat(suite: unittest.TestSuite | unittest.TestCase) -> Iterator[unittest.TestCase]:
    if isinstance(suite, unittest.TestCase):
        yield suite
        return
    for part in suite:
        yield from _flat(part)


def _is_method(case: unittest.TestCase) -> bool:
    if isinstance(case, (doctest.DocTestCase, unittest.IsolatedAsyncioTestCase)):
        return False
    return not isinstance(case, unittest.FunctionTestCase) and hasattr(case, name_of(case))


def name_of(case: unittest.TestCase) -> str:
    """The name of its method."""
    return case.id().rpartition(".")[2]
