"""`anyshape doctor`: what this machine can do, and what is missing for the rest.

In: the process and the machine that it runs on. Out: one line for each thing looked at: well, worse
than it could be, or wrong; with what to do about it.
"""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from collections.abc import Callable, Mapping
from typing import Literal

import torch

from anyshape.api import SUPPORTED, compile
from anyshape.capture.interpreter import versions
from anyshape.errors import AnyshapeError
from anyshape.nouns import frozen
from anyshape.options import Options, from_environment, set_variables
from anyshape.runtime.cache import DiskCache
from anyshape.runtime.launch import has_blas, has_library
from anyshape.targets.cpu.build import Toolchain
from anyshape.targets.table import TARGETS

State = Literal["ok", "note", "wrong"]
LIBRARIES = ("triton", "transformers", "accelerate", "diffusers", "peft", "torchao", "rich")


@frozen
class Finding:
    """What was found of one thing; `advice` where something can be done."""

    subject: str
    state: State
    found: str
    advice: str = ""

    def __str__(self) -> str:
        mark = {"ok": "  ", "note": "- ", "wrong": "! "}[self.state]
        lines = [f"{mark}{self.subject:<14}{self.found}"]
        return "\n".join([*lines, f"{'':<16}hint: {self.advice}"] if self.advice else lines)


def examine() -> list[Finding]:
    """All that is looked at, in order; the last is a program that is compiled and run."""
    options = from_environment()
    looks: tuple[Callable[[Options], Finding], ...] = (
        *(_python, _torch, _compiler, _libraries_in_c, _cache, _gpu, _threads, _backend),
        *(_libraries, _variables, _program),
    )
    return [look(options) for look in looks]


def verdict(findings: list[Finding]) -> str:
    """In one line: whether programs are compiled here."""
    wrong = [finding.subject for finding in findings if finding.state == "wrong"]
    notes = [finding.subject for finding in findings if finding.state == "note"]
    if wrong:
        return f"programs are not compiled as they should be: see {', '.join(wrong)}"
    return (
        f"programs are compiled here; less than all is there: {', '.join(notes)}"
        if notes
        else ("programs are compiled here, and nothing is missing")
    )


def _python(options: Options) -> Finding:
    found = f"{platform.python_implementation()} {platform.python_version()}, {sys.executable}"
    known = sys.version_info[:2] in SUPPORTED
    advice = "" if known else f"{versions.NAMES} are read; on others programs run eagerly"
    return Finding("Python", "ok" if known else "wrong", found, advice)


def _torch(options: Options) -> Finding:
    return Finding("torch", "ok", f"{torch.__version__}; anyshape {_version('anyshape')}")


def _compiler(options: Options) -> Finding:
    toolchain = Toolchain.find(options.cc)
    if toolchain is None:
        return Finding("C compiler", "wrong", "none", "install gcc or clang, or set CC")
    return Finding("C compiler", "ok", toolchain.path)


def _libraries_in_c(options: Options) -> Finding:
    if has_blas() and has_library():
        return Finding("torch in C", "ok", "kernels call its products and attention directly")
    advice = "right, and slower for small tensors: this build of torch does not export them"
    return Finding("torch in C", "note", "Python calls libraries between kernels", advice)


def _cache(options: Options) -> Finding:
    cache = DiskCache.open(options.cache_dir)
    if cache.problem is not None:
        advice = "set ANYSHAPE_CACHE_DIR to a directory of your own; until then nothing is kept"
        return Finding("cache", "note", cache.problem, advice)
    entries, size_bytes = cache.size()
    return Finding("cache", "ok", f"{options.cache_dir}: {entries}, {size_bytes / 1e6:.1f} MB")


def _gpu(options: Options) -> Finding:
    target = TARGETS.of("cuda:0")
    missing = "no target serves it" if target is None else target.missing()
    if missing is None:
        return Finding("GPU", "ok", torch.cuda.get_device_name())
    return Finding("GPU", "ok", f"none is used: {missing}")


def _threads(options: Options) -> Finding:
    return Finding("threads", "ok", f"{torch.get_num_threads()} for each operator and kernel")


def _backend(options: Options) -> Finding:
    names = importlib.metadata.entry_points(group="torch_dynamo_backends").names
    if "anyshape" in names:
        return Finding("by name", "ok", "torch.compile(..., backend='anyshape') finds it")
    advice = "install it once more: pip install anyshape, or pip install -e . in a checkout"
    return Finding("by name", "note", "torch does not find backend='anyshape'", advice)


def _libraries(options: Options) -> Finding:
    present = [f"{name} {version}" for name in LIBRARIES if (version := _version(name))]
    return Finding("libraries", "ok", ", ".join(present) or "none of those that use compilers")


def _variables(options: Options) -> Finding:
    given: Mapping[str, str] = set_variables()
    found = ", ".join(f"{name}={value}" for name, value in given.items()) or "none is set"
    if options.disable:
        return Finding("environment", "wrong", found, "unset ANYSHAPE_DISABLE to compile anything")
    return Finding("environment", "ok", found)


def _program(options: Options) -> Finding:
    fast = compile(_doubled, fullgraph=True)
    try:
        right = all(bool((fast(torch.ones(n)) == 3).all()) for n in (3, 0, 1, 64))
    except AnyshapeError as error:
        return Finding("a program", "wrong", error.what, error.hint)
    stats = fast.stats()  # type: ignore[attr-defined]
    if not stats.calls:
        return Finding("a program", "wrong", "runs eagerly, for one of the reasons above")
    state: State = "ok" if right and stats.kernels else "wrong"
    return Finding("a program", state, f"{stats.verdict()}, in {stats.compile_seconds:.2f} s")


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2 + 1


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
