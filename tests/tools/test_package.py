"""What `pip install .` gives: a pure-Python wheel that needs torch alone, with the command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import anyshape
from anyshape.tools import cli, models

ROOT = Path(anyshape.__file__).parents[1]
SOURCES = ("pyproject.toml", "README.md", "setup.py")
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_wheel(sys.argv[1]))"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """The wheel of this checkout, by the backend that pyproject.toml names; nothing is fetched."""
    pytest.importorskip("setuptools", "77")
    copy = tmp_path_factory.mktemp("checkout")
    for name in SOURCES:
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "anyshape", copy / "anyshape", ignore=lambda _, names: {"__pycache__"} & {*names})  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(copy / "out")],
        cwd=copy, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return zipfile.ZipFile(copy / "out" / done.stdout.split()[-1])


def text_of(wheel: zipfile.ZipFile, name: str) -> str:
    (found,) = [n for n in wheel.namelist() if n.endswith(f".dist-info/{name}")]
    return wheel.read(found).decode()


def test_the_wheel_is_pure_python_and_holds_every_module_and_nothing_else(
    wheel: zipfile.ZipFile,
) -> None:
    assert Path(str(wheel.filename)).name.endswith("-py3-none-any.whl")
    sources = {str(p.relative_to(ROOT)) for p in (ROOT / "anyshape").rglob("*.py")}
    assert {n for n in wheel.namelist() if ".dist-info/" not in n} == {*sources, "anyshape.pth"}


@pytest.mark.parametrize(
    ("asked", "compile_"), [("", "function"), ("1", "TorchCompile"), ("0", "function")]
)
def test_a_program_that_never_imports_anyshape_has_what_the_environment_asks(
    wheel: zipfile.ZipFile, tmp_path: Path, asked: str, compile_: str
) -> None:
    wheel.extractall(tmp_path)
    program = """if True:
        import site, sys
        site.addsitedir(sys.argv[1])  # as where it is installed
        assert "torch" not in sys.modules
        import torch
        fast = torch.compile(lambda x: x * 2, backend="anyshape")
        assert torch.equal(fast(torch.ones(3)), torch.full((3,), 2.0))
        print(type(torch.compile).__name__, type(fast).__name__)
        """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)],
        cwd=tmp_path, env={**os.environ, "ANYSHAPE_INSTALL": asked},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ours = "CompiledFunction" if compile_ == "TorchCompile" else "function"
    assert done.stdout.split() == [compile_, ours]


def test_torch_is_the_only_hard_dependency_and_the_rest_are_extras(
    wheel: zipfile.ZipFile,
) -> None:
    metadata = message_from_string(text_of(wheel, "METADATA"))
    needed = metadata.get_all("Requires-Dist") or []
    assert [n for n in needed if "extra ==" not in n] == ["torch<2.14,>=2.11"]
    assert {*(metadata.get_all("Provides-Extra") or [])} == {"cli", "demo", "gpu", "test"}


def test_the_command_is_anyshape(wheel: zipfile.ZipFile) -> None:
    lines = text_of(wheel, "entry_points.txt").split("\n")
    assert "anyshape = anyshape.tools.cli:main" in lines


def test_the_package_compiles_and_the_command_runs_outside_of_a_checkout(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    wheel.extractall(tmp_path)
    program = """if True:
        import sys, torch, anyshape
        assert anyshape.__file__.startswith(sys.argv[1])
        fast = anyshape.compile(lambda x: x * 2 + 1, fullgraph=True)
        for n in (3, 0, 1):
            assert torch.equal(fast(torch.ones(n)), torch.full((n,), 3.0))
        from anyshape.tools import cli, models
        assert "llama" in models.present() and "resnet" not in models.present()
        sys.exit(cli.main(["options"]))
        """
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "max_variants" in done.stdout


def test_the_demo_runs_every_model_that_is_there(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert {*models.present()} == {*models.MODELS}
    monkeypatch.setattr(models, "EXAMPLES", tmp_path / "absent")
    assert {*models.MODELS} - {*models.present()} == {"resnet", "two-tower", "jepa"}
    assert cli.main(["demo", "resnet", "--lengths", "3"]) == 1
    assert "run the demo from a checkout" in capsys.readouterr().out


def test_torch_finds_the_backend_by_its_name(wheel: zipfile.ZipFile, tmp_path: Path) -> None:
    wheel.extractall(tmp_path)
    program = """if True:
        import sys, torch
        assert "anyshape" in torch._dynamo.list_backends()
        fast = torch.compile(lambda x: x * 2 + 1, backend="anyshape")
        assert torch.equal(fast(torch.ones(3)), torch.full((3,), 3.0))
        assert sys.modules["anyshape"].__file__.startswith(sys.argv[1])
        """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", program, str(tmp_path)],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_the_source_distribution_builds_the_same_wheel(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    for name in SOURCES:
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "anyshape", tmp_path / "anyshape", ignore=lambda _, names: {"__pycache__"} & {*names})  # fmt: skip

    def build(kind: str, folder: Path) -> str:
        program = BUILD.replace("build_wheel", f"build_{kind}")
        done = subprocess.run(
            [sys.executable, "-c", program, str(tmp_path / "out")],
            cwd=folder, capture_output=True, text=True, timeout=100, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout.split()[-1]

    archive = tmp_path / "out" / build("sdist", tmp_path)
    with tarfile.open(archive) as sources:
        sources.extractall(tmp_path / "unpacked", filter="data")
    (folder,) = (tmp_path / "unpacked").iterdir()
    with zipfile.ZipFile(tmp_path / "out" / build("wheel", folder)) as built:
        assert sorted(built.namelist()) == sorted(wheel.namelist())
