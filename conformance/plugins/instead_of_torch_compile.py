"""`pytest -p conformance.plugins.instead_of_torch_compile PATHS`: for PyTorch's own `test/dynamo`.

`torch.compile` and `torch._dynamo.optimize` are anyshape's, with the `fullgraph` that the test asks
for, and what counts Dynamo's frames and operators is equal to every number: what is left of a test
are its results and errors. With `SIDE=eager` functions are not compiled: a test counts that fails
with the plugin and passes so. `FULLGRAPH=never` allows graph breaks everywhere.

Tests of one version of PyTorch are run with another one: helpers that are gone since do nothing.
"""

from __future__ import annotations

import os
import unittest
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch._dynamo.eval_frame
import torch._dynamo.exc
import torch._dynamo.test_case
import torch._dynamo.testing
import torch._dynamo.utils
import torch.testing._internal.common_utils
from torch.testing._internal import inductor_utils, triton_utils

import anyshape

IS_EAGER = os.environ.get("SIDE") == "eager"
MAY_ASK = os.environ.get("FULLGRAPH") != "never"
COUNTERS = (
    "CompileCounter",
    "CompileCounterWithBackend",
    "EagerAndRecordGraphs",
    "AotEagerAndRecordGraphs",
)


class AnyNumber(int):
    """Equal to, and in every order with, each number."""

    def _holds(self, other: object) -> bool:
        return True

    __eq__ = __lt__ = __le__ = __gt__ = __ge__ = _holds

    def __ne__(self, other: object) -> bool:
        return False

    def __hash__(self) -> int:
        return 0

    def __add__(self, other: int) -> AnyNumber:
        return self

    __iadd__ = __radd__ = __sub__ = __isub__ = __add__


class Counter:
    """Stands for a backend that counts."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        self.frame_count = self.op_count = self.call_count = AnyNumber()
        self.graphs: list[object] = []

    def __setattr__(self, name: str, value: object) -> None:
        object.__setattr__(self, name, AnyNumber() if name.endswith("_count") else value)

    def __call__(self, module: Any, *args: object) -> Any:
        return module.forward

    def clear(self) -> None:
        self.graphs.clear()


def _compiled(fn: Any, fullgraph: bool) -> Any:
    return fn if IS_EAGER else anyshape.compile(fn, fullgraph=fullgraph and MAY_ASK)


def _compile(
    model: Any = None, *, fullgraph: bool = False, disable: bool = False, **rest: object
) -> Any:
    if model is None:
        return lambda fn: _compile(fn, fullgraph=fullgraph, disable=disable)
    return model if disable else _compiled(model, fullgraph)


def _optimize(
    *args: object, nopython: bool = False, disable: bool = False, **rest: object
) -> Callable[[Any], Any]:
    return lambda fn: fn if disable else _compiled(fn, nopython)


def _optimize_assert(*args: object, **rest: object) -> Callable[[Any], Any]:
    return lambda fn: _compiled(fn, True)


def _compile_module(self: torch.nn.Module, *args: object, **kwargs: Any) -> None:
    self._compiled_call_impl = _compiled(self._call_impl, kwargs.get("fullgraph", False))


def _standard_test(case: Any, fn: Any, nargs: int, *args: object, **rest: object) -> None:
    given = [[torch.randn(10, 10) for _ in range(nargs)] for _ in range(2)]
    wanted = [fn(*values) for values in given]
    run = _compiled(fn, True)
    for _ in range(2):
        for values, value in zip(given, wanted, strict=True):
            case.assertTrue(torch._dynamo.testing.same(run(*values), value))


def _does_nothing(name: str) -> Any:
    """A name of another version of PyTorch. Flags (`HAS_CUDA`) are False, what a test requires is
    not there, classes are exceptions that nobody raises, and helpers are decorators, with arguments
    or without."""
    if name.startswith("__"):
        raise AttributeError(name)
    if name.isupper():
        return False
    if name.startswith("requires_"):
        return unittest.skip(f"{name} of another version of PyTorch")
    if name[0].isupper():
        return type(name, (Exception,), {})

    def helper(*args: Any, **kwargs: Any) -> Any:
        is_decorator = len(args) == 1 and callable(args[0]) and not kwargs
        return args[0] if is_decorator else lambda fn: fn

    return helper


def pytest_configure(config: pytest.Config) -> None:
    dynamo: Any = torch._dynamo
    testing: Any = dynamo.testing
    torch.compile = _compile
    torch.nn.Module.compile = _compile_module  # type: ignore[method-assign]
    for module in (dynamo, dynamo.eval_frame):
        module.optimize, module.optimize_assert = _optimize, _optimize_assert
    for name in COUNTERS:
        setattr(testing, name, Counter)
    testing.standard_test = _standard_test
    helpers: Any = torch.testing._internal.common_utils
    other_versions = (helpers, triton_utils, inductor_utils, dynamo.exc, dynamo.eval_frame)
    for module in (testing, dynamo.utils, *other_versions):
        if "__getattr__" not in vars(module):
            module.__getattr__ = _does_nothing
