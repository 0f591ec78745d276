"""All knobs, in one frozen record, and the only reader of the environment.

Comes in: what the user gave to `compile(fullgraph=, dynamic=, mode=, options=)` and the
environment. Goes out: one `Options`, complete and checked, that is handed along; nobody else asks
`os.environ`. An option's name, type, default and meaning stand together below; `list_options`
prints them. Annotations are values here, not texts: what the user gives is compared with them.
"""

import difflib
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import MappingProxyType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from anyshape.errors import AnyshapeError
from anyshape.nouns import replace

T = TypeVar("T")


def option(default: T, meaning: str) -> T:
    """A field of `Options` with its meaning, for `list_options` and the docs."""
    return field(default=default, metadata={"meaning": meaning})


@dataclass(frozen=True, slots=True)
class Options:
    """Every knob of the compiler. `Options()` is the default; build one for a user with
    `from_user`.
    """

    # what compile() names itself
    fullgraph: bool = option(False, "a graph break is an error")
    dynamic: bool | None = option(
        None,
        "None and True: every size is symbolic (True: numbers among the arguments too, from the "
        "first call on); False: every size is static",
    )
    # what may be left to eager torch
    disable: bool = option(False, "run everything eagerly")
    fallback: Literal["eager", "error"] = option("eager", "what an operator without a kernel does")
    # how far capture goes
    max_variants: int = option(
        8, "specializations of a program point; one more replaces the oldest"
    )
    unroll_budget: int = option(
        50_000, "turns of all unrolled Python loops of one capture; calls, twice as many"
    )
    fork_budget: int = option(2_000, "branches on sizes of one capture that run both sides")
    # how sure to be
    verify: bool = option(False, "run the reference interpreter after every pass and compare")
    verify_programs: bool = option(
        False,
        "prove of programs before native regions, too, that no step writes over memory that is "
        "still needed, and raise E502; the final ones are always proven",
    )
    break_every: int = option(
        0, "for tests: a graph break after every so many instructions; 0: only where needed"
    )
    break_seed: int = option(
        0, "for tests: with break_every, breaks at random, about as often; 0: at that distance"
    )
    sizes: Literal["host", "device"] = option(
        "host",
        "for tests: where sizes that data decides are kept; device: in memory alone, where nothing "
        "needs them on the host",
    )
    times: bool = option(False, "say on stderr what each stage of each compile took")
    cuda_graphs: bool = option(
        False,
        "replay programs on a GPU as CUDA graphs, one for each layout of the arguments; needs "
        "memory for each, and copies arguments and results",
    )
    tune: bool = option(
        False,
        "choose how kernels on a GPU are walked by measuring them, once for each kind of sizes; "
        "what was found is kept on disk",
    )
    # memory against time
    activation_memory_budget: float = option(
        1.0,
        "of the bytes that are saved for gradients, the share that may be: below 1 products and "
        "reductions are computed again; 0: all that can be",
    )
    # where kernels come from
    cache: bool = option(True, "keep kernels and programs on disk")
    cache_dir: str = option("", "directory of the cache; empty: no directory for one was found")
    cc: str = option("", "C compiler; empty: the first of cc, gcc, clang")
    sanitize: bool = option(
        False,
        "build C with gcc's address and undefined-behaviour sanitizers, every buffer in memory of "
        "its own; Python must have been started with libasan preloaded",
    )


# A mode is a named set of options. Those about GPUs change nothing on the CPU.
MODES: Mapping[str, Mapping[str, object]] = MappingProxyType(
    {
        "default": MappingProxyType({}),
        "reduce-overhead": MappingProxyType({"cuda_graphs": True}),
        "max-autotune": MappingProxyType({"cuda_graphs": True, "tune": True}),
        "max-autotune-no-cudagraphs": MappingProxyType({"tune": True}),
        "lite": MappingProxyType({}),
    }
)


def from_user(
    mode: str | None = "default",
    options: Mapping[str, object] | None = None,
    *,
    fullgraph: bool = False,
    dynamic: bool | None = None,
    environ: Mapping[str, str] = os.environ,
) -> Options:
    """The options of one `compile` call: defaults, then environment, then mode, then `options`,
    the last one wins.

    Hyphens in names are read as underscores. Raises AnyshapeError E101 to E103 for what it does
    not know.
    """
    settings = MODES.get(mode or "default")
    if settings is None:
        raise AnyshapeError("E103", name=mode, near=near(str(mode), MODES))
    given = {name.replace("-", "_"): value for name, value in (options or {}).items()}
    chosen: dict[str, Any] = {**settings, **given, "fullgraph": fullgraph, "dynamic": dynamic}
    for name, value in chosen.items():
        if name not in TYPES:
            raise AnyshapeError("E101", name=name, near=near(name, TYPES))
        if not _fits(value, TYPES[name]):
            raise AnyshapeError(
                "E102",
                name=name,
                value=value,
                expected=_describe(TYPES[name]),
                default=getattr(Options(), name),
            )
    return replace(from_environment(environ), **chosen)


TYPES: Mapping[str, Any] = MappingProxyType({one.name: one.type for one in fields(Options)})
"""The type of each option."""


def from_environment(environ: Mapping[str, str] = os.environ) -> Options:
    """The defaults as the environment changes them: ANYSHAPE_DISABLE, ANYSHAPE_VERIFY_PROGRAMS,
    ANYSHAPE_TIMES, ANYSHAPE_SIZES, ANYSHAPE_CACHE_DIR, CC, ANYSHAPE_SANITIZE.
    """
    return Options(
        disable=_truthy(environ.get("ANYSHAPE_DISABLE", "")),
        verify_programs=_truthy(environ.get("ANYSHAPE_VERIFY_PROGRAMS", "")),
        times=_truthy(environ.get("ANYSHAPE_TIMES", "")),
        sizes="device" if environ.get("ANYSHAPE_SIZES", "") == "device" else "host",
        cache_dir=_cache_dir(environ),
        cc=environ.get("CC", ""),
        sanitize=_truthy(environ.get("ANYSHAPE_SANITIZE", "")),
    )


def installs(environ: Mapping[str, str] = os.environ) -> Literal["", "named", "everything"]:
    """What ANYSHAPE_INSTALL asks for: 1, that torch.compile(backend="anyshape")
    uses our own capture; everything, that every torch.compile does."""
    asked = environ.get("ANYSHAPE_INSTALL", "")
    if not _truthy(asked):
        return ""
    return "everything" if asked.strip().lower() == "everything" else "named"


def set_variables(environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables of the environment that are read here, those that are set."""
    read = ("CC", "XDG_CACHE_HOME")
    return {n: v for n, v in environ.items() if n.startswith("ANYSHAPE_") or n in read}


def tells_progress(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether the tools say what takes long: ANYSHAPE_PROGRESS=0 silences them."""
    return _truthy(environ.get("ANYSHAPE_PROGRESS") or "1")


def _cache_dir(environ: Mapping[str, str]) -> str:
    if given := environ.get("ANYSHAPE_CACHE_DIR"):
        return given
    # The XDG base directory specification: a relative path is to be ignored.
    base = environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(base):
        home = environ.get("HOME", "")
        base = str(Path(home) / ".cache") if os.path.isabs(home) else ""
    return str(Path(base) / "anyshape") if base else ""


def _truthy(text: str) -> bool:
    return text.strip().lower() not in ("", "0", "false", "no", "off")


def near(name: str, known: Iterable[str]) -> str:
    """A hint for a name that is not known: the names most like it, or else all of them."""
    names = sorted(known)
    close = difflib.get_close_matches(name, names, n=3)
    if close:
        return "did you mean " + " or ".join(repr(match) for match in close) + "?"
    return "known: " + ", ".join(names)


def _fits(value: object, expected: object) -> bool:
    origin = get_origin(expected)
    if origin is Literal:
        return value in get_args(expected)
    if origin in (Union, UnionType):
        return any(_fits(value, part) for part in get_args(expected))
    if expected is int and isinstance(value, bool):
        return False
    if expected is int and isinstance(value, int):
        return value > 0
    if expected is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1
    return isinstance(expected, type) and isinstance(value, expected)


def _describe(expected: object) -> str:
    origin = get_origin(expected)
    if origin is Literal:
        return " or ".join(repr(choice) for choice in get_args(expected))
    if origin in (Union, UnionType):
        return " or ".join(_describe(part) for part in get_args(expected))
    if expected is int:
        return "an int above 0"
    if expected is float:
        return "a number from 0 to 1"
    assert isinstance(expected, type), expected
    return "None" if expected is type(None) else f"a {expected.__name__}"


def list_options() -> list[tuple[str, object, str]]:
    """(name, default, meaning) of every option, in the order of the record."""
    return [(f.name, f.default, f.metadata["meaning"]) for f in fields(Options)]
