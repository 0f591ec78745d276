"""Short programs stay short: what a first call does besides what the program asks for.

Counts, not seconds: modules imported, calls of functions, runs of the C compiler and the text that
it reads. The times are in benchmarks/short.py.
"""

from __future__ import annotations

import cProfile
import os
import pstats
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import anyshape
from anyshape.capture.heap import quiet_reads
from anyshape.ir.code import NativeFunction
from anyshape.options import Options
from anyshape.targets.cpu import build
from anyshape.targets.cpu.native_prelude import NATIVE_PRELUDE
from anyshape.targets.cpu.prelude import standing_before, texts
from anyshape.targets.cpu.target import builder_of
from anyshape.targets.reduction_phases import Phases

CALLS = 4_800  # of functions, in the first call of `x + 1`: a few more than there are
TEXT = 6_000  # bytes of C
MODEL = 23_000  # the same of four kernels, the steps on them and their callers: without the prelude


def profiled(fast, *args) -> pstats.Stats:
    profile = cProfile.Profile()
    profile.enable()
    fast(*args)
    profile.disable()
    return pstats.Stats(profile)


def calls_of(stats: pstats.Stats, file: str, name: str) -> int:
    return sum(
        found[1]
        for (path, _, own), found in stats.stats.items()
        if path.endswith(file) and own == name
    )


@pytest.fixture
def sources(tmp_path, monkeypatch) -> list[str]:
    """What the C compiler reads, from an empty cache on."""
    read: list[str] = []
    compile_c = build.compile_c

    def noting(toolchain, source):
        read.append(source)
        return compile_c(toolchain, source)

    monkeypatch.setattr(build, "compile_c", noting)
    monkeypatch.setenv("ANYSHAPE_CACHE_DIR", str(tmp_path))
    return read


def modules_loaded_by(program: str, cache_dir) -> tuple[list[str], list[str]]:
    """Of all modules, those that a new process loads by importing anyshape, and those that it has
    loaded after the program."""
    count = f"""
import sys, torch
before = {{*sys.modules}}
import anyshape
print(*({{*sys.modules}} - before))
{program}
print(*({{*sys.modules}} - before))
"""
    environ = {**os.environ, "ANYSHAPE_CACHE_DIR": str(cache_dir)}
    command = [sys.executable, "-c", count]
    done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    imported, called = map(str.split, done.stdout.splitlines())
    return imported, called


FIRST_CALL = "anyshape.compile(lambda x: x + 1)(torch.ones(4))"
TRAINED = "anyshape.compile(lambda x: x + 1)(torch.ones(4, requires_grad=True)).sum().backward()"
MODULES = 508  # of ours and Python's, in the first call of `x + 1`: a few more than there are
UNUSED = (
    *("anyshape.training", "anyshape.runtime.boundary", "anyshape.dynamo", "anyshape.tools"),
    *("anyshape.targets.triton", "anyshape.moe", "anyshape.attention", "triton"),
)


def test_importing_anyshape_imports_a_handful_of_modules(tmp_path):
    imported, _ = modules_loaded_by("", tmp_path)
    assert len(imported) <= 8, sorted(imported)


def test_the_first_call_of_a_process_loads_what_its_program_needs(tmp_path):
    """No gradients and no GPU; two modules of `autograd` ask whether the graph records any."""
    _, loaded = modules_loaded_by(FIRST_CALL, tmp_path)
    assert len(loaded) <= MODULES, len(loaded)
    assert [one for one in loaded if f"{one}.".startswith(tuple(f"{u}." for u in UNUSED))] == []
    of_gradients = {one for one in loaded if one.startswith("anyshape.autograd.")}
    assert of_gradients == {"anyshape.autograd.outline", "anyshape.autograd.memory"}


def test_gradients_are_loaded_where_a_graph_records_some(tmp_path):
    _, loaded = modules_loaded_by(TRAINED, tmp_path)
    assert {"anyshape.training", "anyshape.runtime.boundary"} < {*loaded}
    assert not any(one.startswith("anyshape.targets.triton") for one in loaded)


def test_a_first_call_of_x_plus_one_is_little_work():
    x = torch.randn(8)
    anyshape.compile(lambda x: x + 1)(x)
    assert profiled(anyshape.compile(lambda x: x + 1), x).total_calls < CALLS


@pytest.mark.parametrize(
    "file, name",
    (
        ("refused_by_eager.py", "_error"),  # torch has taken arguments like these before
        ("launch_lists.py", "divided_kernel"),  # a list is of two launches
        ("dict_version_guards.py", "word_addresses"),  # few guards are asked one by one
        ("inspect.py", "signature"),
        ("typing.py", "get_type_hints"),
    ),
)
def test_a_first_call_of_what_was_compiled_before_asks_nothing_again(file, name):
    def add(x):
        return x + 1

    x = torch.randn(8)
    anyshape.compile(add)(x)
    assert not calls_of(profiled(lambda: anyshape.compile(add)(x)), file, name)


def test_what_a_kernels_cells_need_is_worked_out_once(monkeypatch):
    """Several loops of one kernel ask it: of full vectors, of what is left, of sums."""
    asked = []
    work_out = Phases._closure

    def noted(phases, roots, stop, elements):
        if elements is phases.kernel.elements:
            asked.append((phases, roots, stop))
        return work_out(phases, roots, stop, elements)

    monkeypatch.setattr(Phases, "_closure", noted)
    x = torch.rand(4, 7)
    fast = anyshape.compile(lambda x: torch.softmax(x * 1.2345, -1) + x.var(1, keepdim=True))
    torch.testing.assert_close(fast(x), torch.softmax(x * 1.2345, -1) + x.var(1, keepdim=True))
    assert len({(id(phases), *rest) for phases, *rest in asked}) == len(asked) > 0


def test_objects_of_classes_of_c_are_asked_for_no_method_of_the_programs(monkeypatch):
    class Own(dict):
        def __getitem__(self, key):
            return 1

    asked = []
    entry = quiet_reads.is_of_code
    monkeypatch.setattr(
        quiet_reads, "is_of_code", lambda cls, name: asked.append(cls) or entry(cls, name)
    )
    assert not any(quiet_reads.asks_the_program(obj, "item") for obj in ({}, [], (), torch))
    assert asked == []
    assert quiet_reads.asks_the_program(Own(), "item") and asked == [Own]


def test_the_first_call_of_a_process_takes_no_text_apart(tmp_path):
    program = """
import cProfile, pstats, torch, anyshape
compiled, x = anyshape.compile, torch.ones(4)
profile = cProfile.Profile()
profile.runcall(lambda: compiled(lambda x: x * 3)(x))
print(sorted({name for _, _, name in pstats.Stats(profile).stats} & {"parts", "get_type_hints"}))
"""
    environ = {**os.environ, "ANYSHAPE_CACHE_DIR": str(tmp_path)}
    run = subprocess.run([sys.executable, "-c", program], env=environ, capture_output=True)
    assert run.stdout.decode().strip() == "[]", run.stderr  # the compiler's thread is not profiled


def test_what_is_kept_of_compiled_c_is_found_by_its_own_text(tmp_path, monkeypatch):
    asked, standing_before = [], build.standing_before  # by threads, which no profile sees
    monkeypatch.setattr(
        build, "standing_before", lambda *given: asked.append(given) or standing_before(*given)
    )
    options = Options(cache_dir=str(tmp_path))
    wanted = {"f": NativeFunction("void f(i64 n) { (void)as_erf_f64(n); }", ("int64",))}
    for runs in (1, 0):
        builder = build.Builder.create(options, texts())
        asked.clear()
        builder.load(wanted)
        assert builder.compiled == len(asked) == runs


def test_the_compiler_reads_what_a_kernel_names(sources):
    fast = anyshape.compile(lambda x: x + 1)
    assert fast(torch.ones(8)).tolist() == [2.0] * 8
    assert len(sources) == 1 and len(sources[0]) < TEXT


def forty(x, w):
    names = "sin cos tanh exp sigmoid abs neg sqrt rsqrt log log1p expm1 erf atan sinh cosh asinh"
    for name in (*names.split(), "floor", "relu", "sign"):
        f = getattr(torch, name)
        x = f(x) @ w
        x = (f(x) - x) @ w
    return x


@pytest.mark.parametrize("cores", (1, 2))
def test_forty_kernels_are_one_run_of_the_compiler_on_each_core(sources, monkeypatch, cores):
    monkeypatch.setattr(build, "cores", lambda: cores)
    fast = anyshape.compile(forty)
    fast(torch.rand(6, 7), torch.rand(7, 7))
    assert fast.stats().kernels == 40
    assert len(sources) == cores


class TwoLayers(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(99, 64)
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(2))
        self.mixes = nn.ModuleList(nn.Linear(64, 192) for _ in range(2))

    def forward(self, tokens):
        x = self.words(tokens)
        for norm, mix in zip(self.norms, self.mixes, strict=True):
            q, k, v = mix(norm(x)).view(*tokens.shape, 3, 4, 16).permute(2, 0, 3, 1, 4)
            x = x + F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        return F.gelu(x).mean(1)


def test_what_the_compiler_reads_of_a_model_and_how_often_it_runs(sources, monkeypatch):
    """Kernels are not printed more often, nor is what steps call read in each part."""
    monkeypatch.setattr(build, "cores", lambda: 2)
    model, tokens = TwoLayers().eval(), torch.randint(0, 99, (2, 9))
    fast = anyshape.compile(model, fullgraph=True)
    with torch.no_grad():
        torch.testing.assert_close(fast(tokens), model(tokens))
    texts = [source for source in sources if "anyshape_fresh(" not in source]
    assert len(sources) - len(texts) <= 1  # of guards, once a process
    assert len(texts) == 1  # two are not worth it
    own = sum(len(text) - text.index("PyLong_AsUnsigned") for text in texts)
    assert own < MODEL and fast.stats().kernels == 4
    for name in ("static long anyshape_gemm(", "static int anyshape_blob(", "long step_launch("):
        assert sum(name in text for text in texts) == 1
    assert not any("\nlong step_" in text for text in texts)
    del sources[:]
    other = anyshape.compile(nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 9)).eval())
    with torch.no_grad():
        other(torch.ones(2, 64))
    assert not any(name in text for text in sources for name in ("gemm", "blob", "long step_"))


@pytest.mark.parametrize(
    "file, name",
    (("refused_by_eager.py", "_is_code_of_ours"), ("ambiguous_layouts.py", "_is_of_one_layout")),
)
def test_what_is_asked_of_calls_does_not_grow_with_equal_layers(file, name):
    def asked(count: int) -> int:
        made = (nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 8), nn.GELU()) for _ in range(count))
        model = nn.Sequential(*made).eval()
        with torch.no_grad():
            return calls_of(profiled(anyshape.compile(model), torch.ones(5, 8)), file, name)

    assert 0 < asked(2) == asked(6)


def test_each_part_of_the_prelude_stands_on_those_that_it_names():
    given = texts(*NATIVE_PRELUDE)
    toolchain = builder_of(Options()).toolchain
    for number, part in enumerate(given):
        text = f"{standing_before(part, given[:number])}\n{part}"
        build.compile_c(toolchain, text)
    assert standing_before("", given) == given[0]
    assert standing_before("as_erf_f32(x)", given).count("as_erf_f32(f32 x)") == 1
    assert "as_load_bf16" not in standing_before("as_erf_f32(x)", given)
