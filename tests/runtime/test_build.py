"""Long texts are several shared objects, compiled side by side; each is kept for itself."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anyshape.errors import AnyshapeError
from anyshape.ir.code import NativeFunction
from anyshape.options import Options
from anyshape.targets.cpu import build
from anyshape.targets.cpu.build import MOST_PARTS, PART_BYTES, Builder, dealt

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


@given(
    st.dictionaries(st.text(max_size=3), st.integers(0, 5 * PART_BYTES), min_size=1),
    st.integers(1, 99),
)
def test_every_name_is_in_one_part_and_no_part_is_empty(sizes: dict[str, int], hands: int) -> None:
    parts = dealt(sizes, hands)
    assert sorted(name for part in parts for name in part) == sorted(sizes)
    assert all(parts) and len(parts) <= min(hands, MOST_PARTS)
    assert len(parts) == 1 or sum(sizes.values()) >= len(parts) * PART_BYTES
    assert parts == dealt(dict(reversed(sizes.items())), hands)


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
