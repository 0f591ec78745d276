"""The house of docs/architecture.md, held: layers, torch-free parts, and what `import anyshape`
costs.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import os
import subprocess
import sys
import textwrap
from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from pathlib import Path

import grimp
import pytest

import anyshape
from anyshape.capture.interpreter.exception_origin import NATIVE_WORK
from anyshape.errors import AnyshapeError
from anyshape.optional import EXTRAS, available, require

PACKAGE = Path(anyshape.__file__).parent
ROOT = PACKAGE.parent


def run_python(code: str, **environ: str) -> str:
    """The last line that `code` prints in a process of its own."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)],
        capture_output=True, text=True, timeout=100, cwd=ROOT, check=False,
        env={**os.environ, **environ},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip().splitlines()[-1]


def sources() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def test_import_linter_keeps_its_contracts() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [program, "--no-cache"], capture_output=True, text=True, timeout=100, cwd=ROOT, check=False,
        env={**os.environ, "COLUMNS": "200"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def imports_of_modules() -> dict[str, set[str]]:
    """Which modules of the package each imports; imports for types count as well."""
    graph = grimp.build_graph("anyshape", exclude_type_checking_imports=False)
    return {name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}


def circles(imports: Mapping[str, AbstractSet[str]]) -> list[set[str]]:
    """The modules that reach one another."""
    reached = {name: set(below) for name, below in imports.items()}
    for middle in imports:
        for name, below in reached.items():
            if middle in below:
                below |= reached[middle]
    found = []
    for name in imports:
        circle = {other for other in reached[name] if name in reached.get(other, ())}
        if circle and circle not in found:
            found.append(circle)
    return found


def test_a_circle_is_found() -> None:
    imports = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": set()}
    assert circles(imports) == [{"a", "b", "c"}]


def test_a_circle_is_at_most_four_files_of_a_package_that_says_why() -> None:
    found = circles(imports_of_modules())
    assert max(map(len, found)) <= 4
    for circle in found:
        (package,) = {name.rpartition(".")[0] for name in circle}
        said = importlib.import_module(package).__doc__ or ""
        named = [name for name in circle if name.rpartition(".")[2] in said]
        assert len(named) == len(circle), f"{package} does not say why {sorted(circle)}"


def test_symbolic_imports_only_the_standard_library_and_the_ground_floor() -> None:
    allowed = {*sys.stdlib_module_names, "anyshape"}
    found = {
        (name.split(".")[0], path.name)
        for path in (PACKAGE / "symbolic").rglob("*.py")
        for name in imported_names(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert {pair for pair in found if pair[0] not in allowed} == set()


def imported_names(tree: ast.AST) -> list[str]:
    names: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            names.append(node.module or "")
    return names


def test_no_module_imports_inside_a_function() -> None:
    lazy = [
        f"{path.relative_to(ROOT)}:{inner.lineno}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for inner in ast.walk(node)
        if isinstance(inner, ast.Import | ast.ImportFrom)
    ]
    assert lazy == []


def test_every_module_says_what_it_is() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for path in sources()
        if not ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert silent == []


def test_no_module_changes_a_global() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in sources()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Global)
    ]
    assert found == []


def test_import_loads_nothing_that_may_be_absent_and_no_dynamo() -> None:
    loaded = run_python(
        """
        import torch, sys
        before = set(sys.modules)
        import anyshape
        anyshape.__all__ and [getattr(anyshape, name) for name in anyshape.__all__]
        absent = ("triton", "rich", "transformers", "torch._dynamo", "torch._inductor", "sympy")
        print(sorted(m for m in set(sys.modules) - before if m in absent))
        """
    )
    assert loaded == "[]"


def test_import_adds_little_to_torchs() -> None:
    """At most 100 ms, and some more with the first use of a public name. The seconds are of a CPU
    on which importing torch takes one: others are slower, or busy."""
    code = """
        import time, torch
        torchs = time.process_time()
        {}
        print((time.process_time() - torchs) / torchs)
        """
    for statement, most in (("import anyshape", 0.1), ("import anyshape.api", 0.4)):
        made = code.format(statement)
        assert min(float(run_python(made, PYTHONDONTWRITEBYTECODE="")) for _ in range(3)) <= most


@pytest.mark.parametrize("package", EXTRAS)
def test_a_missing_package_names_the_extra(package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert not available(package)
    with pytest.raises(AnyshapeError, match=rf"anyshape\[{EXTRAS[package].extra}\]"):
        require(package)


def test_modules_named_by_exception_origin_exist() -> None:
    assert all(importlib.util.find_spec(name) for name in NATIVE_WORK)


def test_no_folder_holds_more_than_forty_files() -> None:
    folders = {path.parent for path in sources()}
    assert all(len(list(folder.glob("*.py"))) <= 40 for folder in folders)


def test_no_file_is_longer_than_600_lines() -> None:
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in sources()}
    assert {str(path.relative_to(ROOT)): n for path, n in lengths.items() if n > 600} == {}
