"""`anyshape demo`, with a compiler that is eager, and with one that is wrong."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import anyshape
from anyshape import api
from anyshape.runtime.cache import DiskCache
from anyshape.tools import cli, demo, models
from anyshape.tools.colour import painted

ROOT = Path(anyshape.__file__).parents[1]


class Eager:
    """Stands for a compiled module: calls it and changes what it returns."""

    def __init__(
        self,
        module: nn.Module,
        change: Callable[[torch.Tensor], torch.Tensor],
        specializations: int,
    ):
        self.module, self.change, self.specializations = module, change, specializations

    def __call__(self, *args: object, **kwargs: object) -> object:
        return self.change(self.module(*args, **kwargs))

    def stats(self) -> SimpleNamespace:
        return SimpleNamespace(
            compile_seconds=0.5,
            specializations=self.specializations,
            graph_breaks=0,
            kernels=3,
            externs=4,
            eager_ops=0,
            joined=5,
            guarded=1,
        )


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def install(
        change: Callable[[torch.Tensor], torch.Tensor] = lambda y: y, specializations: int = 1
    ) -> None:
        monkeypatch.setattr(
            api, "compile", lambda module, **_: Eager(module, change, specializations)
        )

    return install


DEMO = ["demo", "resnet", "--lengths", "5,8"]


def test_a_right_model_is_a_table_and_status_0(
    compiler: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    compiler()
    assert cli.main(DEMO) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[1] for line in lines if line.startswith("resnet")] == ["(2,5)", "(2,8)"]
    assert (
        "1 specialization, 0 graph breaks, 3 kernels, 4 externs, 0 operators run eagerly; "
        "branches on sizes: 5 joined, 1 guarded" in "\n".join(lines)
    )


def test_a_wrong_result_is_status_1(
    compiler: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    compiler(change=lambda y: y * (1 + 1e-5))
    assert cli.main(DEMO) == 1
    assert "WRONG" in capsys.readouterr().out


def test_another_dtype_is_wrong(
    compiler: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    compiler(change=lambda y: y.double())
    assert cli.main(DEMO) == 1
    assert "dtype is torch.float64, eager's is torch.float32" in capsys.readouterr().out


def test_a_second_specialization_is_status_1(compiler: Callable[..., None]) -> None:
    compiler(specializations=2)
    assert cli.main(DEMO) == 1


def test_a_failure_is_told_and_the_next_model_runs(
    compiler: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def fail_on_pictures(y: torch.Tensor) -> torch.Tensor:
        if y.shape[-1] == 10:
            raise RuntimeError("no kernel")
        return y

    compiler(change=fail_on_pictures)
    assert cli.main(["demo", "resnet", "two-tower", "--lengths", "5"]) == 1
    out = capsys.readouterr().out
    assert "RuntimeError: no kernel" in out
    assert any(line.startswith("two-tower") for line in out.splitlines())
    assert "not right: resnet\n" in out


def test_json_has_what_the_table_has(compiler: Callable[..., None], tmp_path: Path) -> None:
    compiler()
    file = tmp_path / "figures.json"
    assert cli.main([*DEMO, "--dtype", "bfloat16", "--json", str(file)]) == 0
    (model,) = json.loads(file.read_text())["models"]
    assert model["name"] == "resnet"
    assert model["right"] is True
    assert [shape["length"] for shape in model["shapes"]] == [5, 8]
    assert (model["joined"], model["guarded"]) == (5, 1)
    assert json.loads(file.read_text())["dtype"] == "bfloat16"


def test_models_run_on_the_device_that_is_named(
    compiler: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device of another type is waited for in each call that is timed."""
    waits: list[torch.device] = []
    monkeypatch.setattr(demo, "on_device", lambda arguments, device: arguments)
    monkeypatch.setattr(torch.accelerator, "synchronize", waits.append)
    monkeypatch.setattr(nn.Module, "to", lambda module, device: module)
    monkeypatch.setattr(demo, "machine", str)
    compiler()
    file = tmp_path / "figures.json"
    flags = ["--lengths", "3", "--layers", "1", "--device", "meta", "--json", str(file)]
    assert cli.main(["demo", "llama", *flags]) == 0
    assert json.loads(file.read_text())["device"] == "meta"
    assert len(waits) > 2 and set(waits) == {torch.device("meta")}


def test_an_unknown_model_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["demo", "lama"]) == 2
    assert "did you mean 'llama'" in capsys.readouterr().err


def test_options_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["options"]) == 0
    assert "max_variants" in capsys.readouterr().out


def test_layers_dtype_and_attention_reach_the_model(
    compiler: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    built = []
    build = models.build

    def noted(name: str, recipe: models.Recipe) -> nn.Module:
        built.append(recipe)
        return build(name, recipe)

    monkeypatch.setattr(models, "build", noted)
    compiler()
    flags = ["--layers", "1", "--dtype", "bfloat16", "--attention", "eager", "--mask", "padded"]
    assert cli.main(["demo", "gpt2", "--lengths", "3", *flags]) == 0
    assert built[0] == models.Recipe(1, torch.bfloat16, "eager")
    assert "1 layer, bfloat16, eager attention, mask: padded" in capsys.readouterr().out


def test_against_times_the_peer_in_the_same_process(
    compiler: Callable[..., None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(torch, "compile", lambda module: module)
    compiler()
    file = tmp_path / "figures.json"
    assert cli.main([*DEMO, "--against", "torch.compile", "--json", str(file)]) == 0
    assert "torch.compile" in capsys.readouterr().out
    (model,) = json.loads(file.read_text())["models"]
    assert all(shape["speedup_over_peer"] > 0 for shape in model["shapes"])


@pytest.mark.parametrize("flags", [["--layers", "0"], ["--lengths", "4,x"], ["--dtype", "int8"]])
def test_a_wrong_flag_is_status_2(flags: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["demo", "resnet", *flags])
    assert stopped.value.code == 2 and flags[0] in capsys.readouterr().err


def test_a_file_that_cannot_be_written_is_told_before_the_work(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as stopped:
        cli.main(["demo", "resnet", "--json", str(tmp_path / "absent" / "figures.json")])
    assert stopped.value.code == 2 and "cannot be written" in capsys.readouterr().err


def test_an_interrupt_is_status_130_and_no_traceback(
    compiler: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(y: torch.Tensor) -> torch.Tensor:
        raise KeyboardInterrupt

    compiler(change=interrupted)
    assert cli.main(DEMO) == 130
    assert capsys.readouterr().err.endswith("interrupted\n")


def test_a_reader_that_has_read_enough_ends_the_command_quietly() -> None:
    command = f"{sys.executable} -m anyshape errors | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.stderr, done.stdout.splitlines()) == ("", ["141"])


def test_the_cache_is_measured_cleared_and_its_fault_told(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANYSHAPE_CACHE_DIR", str(tmp_path / "kept"))
    DiskCache.open(str(tmp_path / "kept")).store("ab12", {"a": bytes(1_000_000)})
    assert cli.main(["cache"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/kept: 1 library, 1.0 MB\n"
    assert cli.main(["cache", "--clear"]) == 0
    assert capsys.readouterr().out == f"{tmp_path}/kept: 0 libraries, 0.0 MB\n"
    (tmp_path / "kept").chmod(0o777)
    assert cli.main(["cache"]) == 1
    assert "can be written by others" in capsys.readouterr().out


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_colour_is_for_terminals_that_want_it(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert painted("WRONG", "bold red", io.StringIO()) == "WRONG"
    assert painted("WRONG", "bold red", Terminal()) == "\x1b[1;31mWRONG\x1b[0m"
    monkeypatch.setenv("NO_COLOR", "1")
    assert "31m" not in painted("WRONG", "bold red", Terminal())
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert painted("WRONG", "bold red", Terminal()) == "WRONG"


def test_the_compiler_itself_makes_one_right_specialization_of_a_small_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "figures.json"
    flags = ["--layers", "1", "--lengths", "1,5", "--json", str(file)]
    assert cli.main(["demo", "llama", *flags]) == 0
    (model,) = json.loads(file.read_text())["models"]
    assert (model["specializations"], model["graph_breaks"], model["eager_ops"]) == (1, 0, 0)
    assert model["joined"] > 0 and model["guarded"] == 0
