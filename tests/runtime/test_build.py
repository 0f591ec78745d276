"""Long texts are several shared objects, compiled side by side, as are those of several threads and
of the halves of a training step; each is kept for itself.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import anyshape
from anyshape.errors import AnyshapeError
from anyshape.ir.code import NativeFunction
from anyshape.nouns import replace
from anyshape.options import Options
from anyshape.targets.cpu import build
from anyshape.targets.cpu.build import (
    LINKED,
    MOST_PARTS,
    PART_BYTES,
    SOURCE,
    Builder,
    Toolchain,
    compile_c,
    dealt,
    text_of,
)
from anyshape.targets.cpu.few_passes import FEW_PASSES, PASSES
from anyshape.targets.cpu.native_prelude import NATIVE_PRELUDE
from anyshape.targets.cpu.prelude import standing_before, texts
from anyshape.targets.cpu.target import builder_of

ADDED = 11  # functions, each of them worth a C compiler's start


def adding(number: int) -> NativeFunction:
    text = (
        f"void add{number}(float *x, long n) {{ for (long i = 0; i < n; i++) x[i] += {number}; }}"
    )
    return NativeFunction(text + "\n/*" + "-" * PART_BYTES + "*/\n", ("pointer", "int64"))


FUNCTIONS = {f"add{number}": adding(number) for number in range(ADDED)}


def assert_adds(builder: Builder, functions: dict[str, NativeFunction] = FUNCTIONS) -> None:
    made = builder.functions(functions)
    for number in range(len(functions)):
        values = (ctypes.c_float * 3)(1, 2, 3)
        made[f"add{number}"](ctypes.addressof(values), 3)
        assert list(values) == [1 + number, 2 + number, 3 + number]


@pytest.fixture
def sources(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the C compiler reads."""
    read: list[str] = []
    compile_c = build.compile_c

    def noting(toolchain: Toolchain, source: str) -> bytes:
        read.append(source)
        return compile_c(toolchain, source)

    monkeypatch.setattr(build, "compile_c", noting)
    return read


def test_few_passes_are_made_of_what_is_no_kernel() -> None:
    """Steps of native regions and callers have no loops over elements."""
    kernel = NativeFunction("void kernel(float *x) { /* many */ }", ("pointer",))
    silent = NativeFunction("void silent(float *x) { /* many */ }", ("pointer",), caller="none")
    step = NativeFunction("long step(void **v) { /* few */ }", caller="none", few_passes=True)
    region = NativeFunction("void *call_region() { /* few */ }", caller="own", few_passes=True)
    given = {"a_step": step, "call_region": region, "kernel": kernel, "silent": silent}
    (part,) = Builder.create(Options(cache=False)).start(given)
    many, few = text_of(part.functions).split(FEW_PASSES)
    assert "call_" not in many and "/* few */" not in many and many.count("/* many */") == 2
    assert few.count("/* few */") == 2 and few.count("void *call_nothing_p(") == 1


def test_few_passes_are_made_of_what_steps_call_and_kernels_behind_it_get_all() -> None:
    for part in NATIVE_PRELUDE:
        passes = FEW_PASSES if FEW_PASSES in part else PASSES.format("O0")
        begin, _, rest = part.partition(passes)
        text, _, behind = rest.partition("#pragma GCC pop_options")
        assert begin.strip() == "#pragma GCC push_options" and not behind.strip()
        assert "anyshape_" in text


def test_of_what_steps_call_the_compiler_reads_what_is_named() -> None:
    given = texts(*NATIVE_PRELUDE)
    product = standing_before("if (anyshape_gemm(v[a[0]], 0, 0)) return 1;", given)
    assert "anyshape_gemm(" in product
    assert "anyshape_blob(" not in product and "anyshape_result(" not in product
    handle = standing_before("anyshape_blob(v[a[0]])", given)
    assert handle.index("int anyshape_handle(") < handle.index("int anyshape_blob(")
    assert "anyshape_gemm(" not in handle and standing_before("", given) == given[0]


def test_steps_are_in_one_part_unless_they_are_most_of_the_text() -> None:
    kernels = {f"kernel{n}": PART_BYTES for n in range(4)}
    few = {f"step{n}": 99 for n in range(30)}
    parts = dealt(kernels | few, 2, few.keys())
    assert [name for part in parts for name in part if name in few] == [*sorted(few)]
    assert sorted(few.keys() & part for part in parts)[0] == set()
    many = {f"step{n}": PART_BYTES for n in range(30)}
    parts = dealt(kernels | many, 2, many.keys())
    assert len(parts) == 2 and all(many.keys() & part for part in parts)


def test_a_builder_knows_steps_from_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(build, "cores", lambda: 2)
    texts = {f"step{n}": f"long step{n}(void **v) {{ return {n}; }}" for n in range(9)}
    steps = {
        name: NativeFunction(text, caller="none", few_passes=True) for name, text in texts.items()
    }
    kernels = {name: FUNCTIONS[name] for name in ("add0", "add1")}
    parts = Builder.create(Options(cache=False)).start(kernels | steps)
    assert all(part.done.result() for part in parts)
    assert sorted(len(steps.keys() & part.functions.keys()) for part in parts) == [0, 9]
    assert ["call_nothing_pi" in part.functions for part in parts].count(True) == 1


TEXT = """
long all(long n) { return n + 9; }
void *call_all(void *self, void **n, long count) { return PyLong_FromLong(all(PyLong_AsLong(*n))); }
"""
SHARED = NativeFunction(TEXT, caller="own", few_passes=True, shared=True)


def test_what_programs_share_is_compiled_once_along_with_the_first(
    sources: list[str], tmp_path: Path
) -> None:
    """It is found by its own text from then on, and so is what it was compiled along with."""
    for number in (0, 1, 0):
        builder = Builder.create(Options(cache_dir=str(tmp_path)))
        made = builder.functions({f"add{number}": FUNCTIONS[f"add{number}"], "all": SHARED})
        values = (ctypes.c_float * 1)(1)
        made[f"add{number}"](ctypes.addressof(values), 1)
        assert values[0] == 1 + number and made["all"](1) == 10
    assert ["long all(" in source for source in sources] == [True, False]
    builder = Builder.create(Options(cache_dir=str(tmp_path)))
    assert builder.functions({"all": SHARED})["all"](2) == 11 and not builder.compiled


def test_what_programs_share_is_compiled_alone_where_nothing_else_is(
    sources: list[str], tmp_path: Path
) -> None:
    options = Options(cache_dir=str(tmp_path))
    Builder.create(options).functions({"add0": FUNCTIONS["add0"]})
    both = Builder.create(options).functions({"add0": FUNCTIONS["add0"], "all": SHARED})
    assert both["all"](1) == 10 and len(sources) == 2
    assert [source.count("add0(float") for source in sources] == [1, 0]


def test_without_a_cache_what_programs_share_is_compiled_once_a_process(
    sources: list[str],
) -> None:
    builder = Builder.create(Options(cache=False))
    for number in range(3):
        made = builder.functions({f"add{number}": FUNCTIONS[f"add{number}"], "all": SHARED})
        assert made["all"](number) == number + 9
    assert ["long all(" in source for source in sources] == [True, False, False]


def test_two_processes_that_build_what_programs_share_at_once_have_it_both(tmp_path: Path) -> None:
    """Builders know each other by the cache alone, as processes do."""
    options = Options(cache_dir=str(tmp_path))

    def built(number: int) -> int:
        wanted = {f"add{number}": FUNCTIONS[f"add{number}"], "all": SHARED}
        return int(Builder.create(options).functions(wanted)["all"](number))

    with ThreadPoolExecutor(2) as pool:
        assert [*pool.map(built, range(4))] == [9, 10, 11, 12]
    builder = Builder.create(options)
    assert builder.functions({"all": SHARED})["all"](4) == 13 and builder.compiled == 0


def test_what_is_compiled_along_with_an_object_that_fails_is_compiled_alone() -> None:
    """Another program may wait for it, whose text is not to blame."""
    builder = Builder.create(Options(cache=False))
    broken = NativeFunction("void broken(long n) { no C }", ("int64",))
    (own, shared) = sorted(
        builder.start({"broken": broken, "all": SHARED}), key=lambda part: part.shared
    )
    assert list(own.along) == [shared]
    with pytest.raises(AnyshapeError):
        own.result()
    assert shared.result()
    assert builder.functions({"add0": FUNCTIONS["add0"], "all": SHARED})["all"](1) == 10


EVERY_LIBRARY = """
double exp(double); float sinf(float); void *malloc(unsigned long); void free(void *);
void *aligned_alloc(unsigned long, unsigned long); int omp_get_num_threads(void);
void many(double *x, float *y, int *most, long n)
{
    double *copy = malloc(8 * n), *other = aligned_alloc(64, 64);
    __builtin_memcpy(copy, x, 8 * n);
    #pragma omp parallel
    *most = omp_get_num_threads();
    #pragma omp simd
    for (long i = 0; i < n; i++) x[i] = exp(copy[i]), y[i] = sinf(y[i]);
    y[0] += (float)((__int128)n * n / (n + most[1]));
    free(copy); free(other);
}
"""
"""Of the C library, the mathematical one, its vectors, OpenMP, and gcc's own (a long division)."""


def test_a_library_has_all_that_it_calls_and_none_of_what_compilers_add() -> None:
    toolchain = Toolchain.find("gcc")
    if toolchain is None or not {*LINKED} < {*toolchain.flags}:
        pytest.skip("this compiler adds what it likes")
    binary = compile_c(toolchain, EVERY_LIBRARY)
    needed = {name for name in (b"libm.so", b"libgomp.so", b"libc.so") if name in binary}
    assert needed == {b"libm.so", b"libgomp.so"}
    assert b"__cxa_finalize" not in binary  # of crtbeginS.o
    descriptor = os.memfd_create("all")
    os.write(descriptor, binary)
    many = ctypes.CDLL(f"/proc/self/fd/{descriptor}", mode=os.RTLD_NOW).many
    x, y = (ctypes.c_double * 9)(1), (ctypes.c_float * 9)(1)
    most = (ctypes.c_int * 2)(0, 1)
    many(x, y, most, ctypes.c_long(9))
    assert x[0] == pytest.approx(math.e) and y[0] == pytest.approx(math.sin(1) + 8)
    assert most[0] >= 1


def test_functions_of_the_same_types_are_called_through_one() -> None:
    functions = {
        f"add{number}": NativeFunction(f"long add{number}(long n) {{ return n + {number}; }}",
                                       ("int64",), returns_status=True)
        for number in range(5)
    }  # fmt: skip
    silent = NativeFunction("void silent(long n) { }", ("int64",))
    builder = Builder.create(Options(cache=False))
    (part,) = builder.start({**functions, "silent": silent})
    callers = part.functions.keys() - functions.keys()
    assert callers == {"silent", "call_status_i", "call_nothing_i"}
    made = builder.functions({**functions, "silent": silent})
    assert [made[f"add{number}"](7) for number in range(5)] == [7, 8, 9, 10, 11]
    assert made["silent"](7) is None
    assert [made[name].__name__ for name in ("add3", "silent")] == ["add3", "silent"]
    later = {"later": NativeFunction("void later(long n) { }", ("int64",))}
    (part,) = builder.start(later)
    assert part.functions.keys() == later.keys()  # what calls it is there
    assert builder.functions(later)["later"](7) is None


def test_a_function_that_only_c_called_is_called_by_python_where_that_is_wanted_later() -> None:
    twice = NativeFunction("long twice(long n) { return 2 * n; }", ("int64",), returns_status=True)
    alone = replace(twice, caller="none")
    builder = Builder.create(Options(cache=False))
    (part,) = builder.start({"twice": alone})
    assert part.functions.keys() == {"twice"}
    with pytest.raises(TypeError, match="Python does not call"):
        builder.functions({"twice": alone})["twice"](3)
    assert builder.functions({"twice": twice})["twice"](3) == 6
    assert builder.compiled == 2 and builder.functions({"twice": alone})["twice"](3) == 6


def test_what_calls_kernels_for_python_is_compiled_where_python_calls_them(tmp_path: Path) -> None:
    weight = torch.randn(4, 4)

    def program(x: torch.Tensor) -> torch.Tensor:
        return ((x.exp() + 1) @ weight).sin().sum(-1)

    def callers(program: Callable[..., torch.Tensor], name: str) -> int:
        options = {"cache_dir": str(tmp_path / name)}
        fast = anyshape.compile(program, fullgraph=True, options=options)
        x = torch.randn(3, 4)
        torch.testing.assert_close(fast(x), program(x))
        sources = {path.read_text() for path in (tmp_path / name).rglob(SOURCE)}
        assert sources
        return sum(source.count("void *call_") for source in sources)

    assert callers(program, "region") == 1  # that of the native region
    assert callers(lambda x: x + 1, "kernel") == 1


@given(
    st.dictionaries(st.text(max_size=3), st.integers(0, 5 * PART_BYTES), min_size=1),
    st.integers(1, 99),
    st.sets(st.text(max_size=3)),
)
def test_every_name_is_in_one_part_and_no_part_is_empty(
    sizes: dict[str, int], hands: int, some: set[str]
) -> None:
    parts = dealt(sizes, hands, sizes.keys() & some)
    assert sorted(name for part in parts for name in part) == sorted(sizes)
    assert all(parts) and len(parts) <= min(hands, MOST_PARTS)
    assert len(parts) == 1 or sum(sizes.values()) >= len(parts) * PART_BYTES
    assert parts == dealt(dict(reversed(sizes.items())), hands, sizes.keys() & some)


@pytest.mark.parametrize("hands", [1, 2, 3, 64])
def test_parts_are_compiled_and_kept_apart(
    hands: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "cores", lambda: hands)
    options = Options(cache_dir=str(tmp_path))
    first, second = Builder.create(options), Builder.create(options)
    assert_adds(first)
    assert_adds(second)
    assert (first.compiled, second.compiled) == (min(hands, MOST_PARTS), 0)


def test_a_part_that_fails_is_told_and_another_attempt_makes_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(build, "cores", lambda: 2)
    whole, failed = build.compile_c, []

    def once(compiler: build.Toolchain, source: str) -> bytes:
        if "add1(" in source and not failed:
            failed.append(source)
            raise AnyshapeError("E602", output="it was ended by SIGKILL")
        return whole(compiler, source)

    monkeypatch.setattr(build, "compile_c", once)
    builder = Builder.create(Options(cache_dir=str(tmp_path)))
    with pytest.raises(AnyshapeError, match="SIGKILL"):
        assert_adds(builder)
    assert not builder.loaded
    assert_adds(builder)
    assert len(failed) == 1


class Running:
    """How many compilers run at a time, and how many have run; each waits until as many as `meet`
    do."""

    def __init__(self, meet: int) -> None:
        self.barrier = threading.Barrier(meet)
        self.lock, self.now, self.most, self.whole = threading.Lock(), 0, 0, 0

    @contextmanager
    def one(self) -> Iterator[None]:
        with self.lock:
            self.now, self.whole = self.now + 1, self.whole + 1
            self.most = max(self.most, self.now)
        try:
            self.barrier.wait(60)
            yield
        finally:
            with self.lock:
                self.now -= 1


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Running]:
    """Two processors and an empty cache; so many compilers meet."""
    whole = build.compile_c

    def watched(meet: int) -> Running:
        found = Running(meet)

        def watching(compiler: build.Toolchain, source: str) -> bytes:
            with found.one():
                return whole(compiler, source)

        monkeypatch.setattr(build, "compile_c", watching)
        return found

    monkeypatch.setattr(build, "cores", lambda: 2)
    monkeypatch.setenv("ANYSHAPE_CACHE_DIR", str(tmp_path))
    return watched


def test_eight_threads_keep_two_processors_busy_and_no_more(
    running: Callable[[int], Running], tmp_path: Path
) -> None:
    found, builder = running(2), Builder.create(Options(cache_dir=str(tmp_path)))
    with ThreadPoolExecutor(8) as threads:
        names = [f"add{number}" for number in range(8)]
        for _ in threads.map(lambda name: builder.functions({name: FUNCTIONS[name]}), names):
            pass
    assert (found.most, found.whole, builder.compiled) == (2, 8, 8)
    assert_adds(builder, {name: FUNCTIONS[name] for name in names})


def test_threads_that_want_the_same_text_wait_for_one_compiler(
    running: Callable[[int], Running], tmp_path: Path
) -> None:
    found, builder = running(1), Builder.create(Options(cache_dir=str(tmp_path)))
    with ThreadPoolExecutor(8) as threads:
        made = [*threads.map(lambda _: builder.load({"add0": FUNCTIONS["add0"]}), range(8))]
    assert found.whole == 1 and all(each == made[0] for each in made)


def test_first_calls_of_two_threads_meet_in_the_compiler(running: Callable[[int], Running]) -> None:
    found = running(2)
    programs = (lambda x: torch.sin(x) + 1, lambda x: torch.cos(x) * 3)

    def first_call(index: int) -> None:
        x = torch.randn(5)
        torch.testing.assert_close(anyshape.compile(programs[index])(x), programs[index](x))

    with ThreadPoolExecutor(2) as threads:
        assert [*threads.map(first_call, range(2))] == [None, None]
    assert (found.most, found.whole) == (2, 2)


def test_the_halves_of_a_training_step_meet_in_the_compiler(
    running: Callable[[int], Running],
) -> None:
    found, x = running(2), torch.randn(7, requires_grad=True)
    (given,) = torch.autograd.grad(anyshape.compile(lambda x: torch.sin(x) * x)(x).sum(), x)
    torch.testing.assert_close(given, torch.cos(x) * x + torch.sin(x))
    assert (found.most, found.whole) == (2, 2)


def test_what_could_not_be_begun_is_begun_by_the_next_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    builder = Builder.create(Options(cache_dir=str(tmp_path)))

    def refused(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        with pytest.raises(AnyshapeError, match="can't start new thread"):
            assert_adds(builder)
    assert_adds(builder)


def test_a_process_that_was_forked_waits_for_no_compiler_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = Options(cache_dir=str(tmp_path))
    parent = builder_of(options)
    assert builder_of(options) is parent
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert builder_of(options) is not parent
