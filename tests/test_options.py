"""options.py: the knobs, what they take, and the environment."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

import anyshape
from anyshape.errors import AnyshapeError
from anyshape.options import MODES, Options, from_environment, from_user, list_options


@pytest.mark.parametrize("mode", [None, *MODES])
def test_torch_compiles_modes_are_known(mode: str | None) -> None:
    assert isinstance(from_user(mode), Options)


def test_hyphens_are_underscores() -> None:
    assert from_user(options={"max-variants": 3}).max_variants == 3


def test_an_unknown_option_names_the_nearest() -> None:
    with pytest.raises(AnyshapeError, match="did you mean 'max_variants'"):
        from_user(options={"max_varints": 3})


def test_an_unknown_mode_names_the_nearest() -> None:
    with pytest.raises(AnyshapeError, match="did you mean 'reduce-overhead'"):
        from_user("reduce_overhead")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fallback", "maybe"),
        ("verify", 1),
        ("unroll_budget", True),
        ("unroll_budget", 0),
        ("max_variants", -1),
        ("cc", None),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error(name: str, value: object) -> None:
    with pytest.raises(AnyshapeError) as caught:
        from_user(options={name: value})
    assert caught.value.code == "E102"


def test_options_are_frozen() -> None:
    with pytest.raises(FrozenInstanceError):
        Options().verify = True  # type: ignore[misc]


def test_options_win_over_the_environment() -> None:
    environ = {"CC": "gcc-13"}
    assert from_user(environ=environ).cc == "gcc-13"
    assert from_user(options={"cc": "clang"}, environ=environ).cc == "clang"


@pytest.mark.parametrize(
    ("environ", "directory"),
    [
        ({"ANYSHAPE_CACHE_DIR": "/a", "XDG_CACHE_HOME": "/b", "HOME": "/h"}, "/a"),
        ({"XDG_CACHE_HOME": "/b", "HOME": "/h"}, "/b/anyshape"),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, "/h/.cache/anyshape"),
        ({"HOME": "/h"}, "/h/.cache/anyshape"),
        ({}, ""),
    ],
)
def test_the_cache_lies_where_the_xdg_specification_says(
    environ: dict[str, str], directory: str
) -> None:
    assert from_environment(environ).cache_dir == directory


@pytest.mark.parametrize(
    ("text", "disabled"), [("1", True), ("true", True), ("0", False), ("", False), ("no", False)]
)
def test_anyshape_disable(text: str, disabled: bool) -> None:
    assert from_environment({"ANYSHAPE_DISABLE": text}).disable is disabled


@pytest.mark.parametrize(("text", "proven"), [("1", True), ("0", False), ("", False)])
def test_anyshape_verify_programs(text: str, proven: bool) -> None:
    assert from_environment({"ANYSHAPE_VERIFY_PROGRAMS": text}).verify_programs is proven


def test_every_option_has_a_meaning() -> None:
    assert all(meaning for _, _, meaning in list_options())


def test_only_options_reads_the_environment() -> None:
    package = Path(anyshape.__file__).parent
    readers = {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if re.search(r"\bos\.(environ|getenv)\b", path.read_text(encoding="utf-8"))
    }
    assert readers <= {"options.py"}


def test_every_option_is_read_by_something_else_than_the_table() -> None:
    package = Path(anyshape.__file__).parent
    text = "\n".join(
        path.read_text(encoding="utf-8")
        for path in package.rglob("*.py")
        if path.name != "options.py"
    )
    unread = [n for n, _, _ in list_options() if not re.search(rf"options\.{n}\b", text)]
    assert unread == []
