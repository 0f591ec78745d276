"""The plugins that run other projects' tests really compile them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
    "plugin, text, count",
    [("each_test_compiled", EACH, 2), ("instead_of_torch_compile", INSTEAD, 1)],
)
def test_tests_are_compiled(plugin: str, text: str, count: int, tmp_path: Path) -> None:
    path = tmp_path / "test_of_others.py"
    path.write_text(text)
    for options, wanted in (([], "failed"), (["-p", f"conformance.plugins.{plugin}"], "passed")):
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
        ran = subprocess.run([*command, str(path)], capture_output=True, text=True, timeout=250)
        assert f"{count} {wanted}" in ran.stdout, ran.stdout
