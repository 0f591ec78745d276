"""The plugins that run other projects' tests really compile them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
EACH = """
import unittest, torch

def test_function():
    assert torch.compiler.is_compiling()

class Case(unittest.TestCase):
    def test_method(self):
        self.assertTrue(torch.compiler.is_compiling())
"""
INSTEAD = """
import torch, torch._dynamo
from torch._dynamo.testing import CompileCounter

def test_both_ways():
    counter, seen = CompileCounter(), []

    def program(x):
        seen.append(torch.compiler.is_compiling())
        return x + 1

    torch.compile(program, backend=counter, fullgraph=True)(torch.ones(2))
    torch._dynamo.optimize(counter, nopython=True)(program)(torch.ones(2))
    assert seen == [True, True]
    assert counter.frame_count == 1 and counter.frame_count == 7
"""


PLUGINS = {"each_test_compiled": (EACH, 2), "instead_of_torch_compile": (INSTEAD, 1)}
NO_OTHERS = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def said(folder: Path, names: Iterable[str], *options: str) -> str:
    """What pytest says of the tests for these plugins, in a process of its own."""
    paths = [folder / f"test_of_others_for_{name}.py" for name in names]
    for path, name in zip(paths, names):
        path.write_text(PLUGINS[name][0])
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    ran = subprocess.run(
        [*command, *map(str, paths)], capture_output=True, text=True, timeout=250,
        cwd=ROOT, env={**os.environ, **NO_OTHERS},
    )  # fmt: skip
    return ran.stdout


@pytest.mark.parametrize("plugin", PLUGINS)
def test_tests_are_compiled(plugin: str, tmp_path: Path) -> None:
    found = said(tmp_path, [plugin], "-p", f"conformance.plugins.{plugin}")
    assert f"{PLUGINS[plugin][1]} passed" in found, found


def test_without_a_plugin_no_test_is_compiled(tmp_path: Path) -> None:
    found = said(tmp_path, [*PLUGINS])
    assert f"{sum(count for _, count in PLUGINS.values())} failed" in found, found
    assert "passed" not in found, found
