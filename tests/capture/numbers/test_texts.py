"""Texts with sizes in them, for a warning, a print, a log record or a message: formed in each call,
without a break and without a specialization for each size.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from anyshape.errors import PerformanceWarning

LOG = logging.getLogger(__name__)


def warned(x: Tensor) -> Tensor:
    warnings.warn(f"long: {x.shape}, {tuple(x.shape)}", stacklevel=1)
    return x * 2


def printed(x: Tensor) -> Tensor:
    print(f"shape {x.shape}", list(x.shape), f"{list(x.shape)}", sep="|")
    return x * 2


def logged(x: Tensor) -> Tensor:
    LOG.warning("shape %s", x.shape)
    return x * 2


def shown_before_a_write(x: Tensor) -> Any:
    sizes = list(x.shape)
    text = f"{sizes}"
    sizes.append(3)
    return x + 1, text, sizes


def refused(x: Tensor) -> Tensor:
    torch._check(x.shape[0] < 10, lambda: f"too long: {x.shape}")
    return x - 1


def caught(x: Tensor) -> Any:
    try:
        if x.shape[0] >= 0:
            raise ValueError(f"shape {x.shape}")
    except ValueError as error:
        return x - 1, str(error)
    return x


def compared(x: Tensor) -> Tensor:
    return x if f"{x.shape}" == "torch.Size([3])" else x * 2


def measured(x: Tensor) -> Tensor:
    return x * len(f"{tuple(x.shape)}")


def kept(x: Tensor) -> Any:
    return {f"{x.shape}": x + 1}


def sliced(x: Tensor) -> Any:
    return x + 1, f"{x.shape}"[:12], f"{x.shape}".split()


def refused_by_some(x: Tensor) -> Any:
    return x + 1, "%c" % (x.shape[0] - 1)


def of_a_class(x: Tensor) -> Any:
    class Shown:
        def __str__(self) -> str:
            return f"rows {x.shape[0]}"

    return x + 1, f"{Shown()}", "{}".format(Shown()), "%s" % Shown()


def shown_in_a_table(x: Tensor) -> Any:
    rows = {"rows": x.shape[0], "all": [x.numel(), f"{x.shape[0]}"]}
    text = "{} of %d" % x.shape[0] + f"{rows}" + "%s" % rows
    rows["rows"] = 0
    return x + 1, text, rows


WITHOUT_A_BREAK: dict[str, Callable[[Tensor], Any]] = {
    "percent": lambda x: (x + 1, "%d|%5s|%r" % (x.shape[0], x.numel(), tuple(x.shape))),
    "percent of a shape": lambda x: (x + 1, "(%d)" % x.shape, "%.2f" % (x.shape[0] / 2)),
    "percent of names": lambda x: (x + 1, "%(n)03d" % {"n": x.shape[0]}),
    "format": lambda x: (x + 1, "{} {0}".replace("{0}", "{n:>5}").format(x.shape, n=x.shape[0])),
    "format by places": lambda x: (x + 1, "{1:{w}}{0[0]}".format(x.shape, x.numel(), w=6)),
    "format of a mapping": lambda x: (x + 1, "{n}".format_map({"n": x.shape[0]})),
    "conversions": lambda x: (x + 1, f"{x.shape[0]!r:>5}{x.shape[0]!s:<4}", format(x.numel(), "x")),
    "padded": lambda x: (x + 1, str(x.shape[0]).ljust(5) + str(x.shape[0]).zfill(3).center(7, "*")),
    "other bases": lambda x: (x + 1, hex(x.shape[0]), bin(x.shape[0]), oct(x.numel()), ascii(3)),
    "upper case": lambda x: (x + 1, f"a-{x.shape[0]}".upper().replace("-", "_").strip("A")),
    "repeated": lambda x: (x + 1, f"{x.shape[0]}," * 2, "ab" * x.shape[0]),
    "called by name": lambda x: (x + 1, x.shape[0].__str__(), x.shape[0].__format__("3d")),
    "a table": shown_in_a_table,
    "a shape": lambda x: (x + 1, f"{x.shape}", str(x.shape), repr(x.shape), f"{x.shape!r}"),
    "a tuple of sizes": lambda x: (x + 1, f"<{(*x.shape, 'a', 1.5, None)}>"),
    "a list of sizes": lambda x: (x + 1, f"{list(x.shape)}"),
    "texts are joined": lambda x: (x + 1, "a" + f"{x.shape}" + "b", ", ".join([f"{x.shape}", "c"])),
    "a text in a container": lambda x: {"shape": [f"{x.shape}"], "x": x + 1},
    "a warning": warned,
    "a print": printed,
    "a log record": logged,
    "a list shown before it is written": shown_before_a_write,
}
UNBACKED: dict[str, Callable[[Tensor], Any]] = {
    "a size": lambda x: (x + 1, f"{x.shape[0]}, {x.shape[0] * 2:04d}", str(x.shape[0])),
    "a number of data": lambda x: (x + 1, f"{x.sum().item():.3f} {int(x.sum().item())}"),
    "a check": refused,
}
WITH_A_BREAK: dict[str, Callable[[Tensor], Any]] = {
    "caught": caught,
    "compared": compared,
    "measured": measured,
    "a key": kept,
    "sliced": sliced,
    "refused by some": refused_by_some,
    "of a class": of_a_class,
}
CASES = [
    *((name, unbacked, 0) for name in WITHOUT_A_BREAK for unbacked in (False, True)),
    *((name, True, 0) for name in UNBACKED),
    *((name, unbacked, None) for name in WITH_A_BREAK for unbacked in (False, True)),
]


def outcome(program: Callable[[Tensor], Any], x: Tensor) -> tuple[str, ...]:
    """What it returns or raises, prints and warns of."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", PerformanceWarning)
        try:
            made = str(program(x))
        except Exception as error:
            made = f"{type(error).__name__}: {error}"
    return made, out.getvalue(), *(str(warning.message) for warning in seen)


@pytest.mark.parametrize(("name", "unbacked", "breaks"), CASES)
def test_texts_are_formed_in_each_call(
    name: str, unbacked: bool, breaks: int | None, caplog: pytest.LogCaptureFixture
) -> None:
    program = {**WITHOUT_A_BREAK, **UNBACKED, **WITH_A_BREAK}[name]
    fast = anyshape.compile(program)
    for n in (3, 17, 1, 0, 2):
        x = torch.arange(float(n))
        if unbacked:
            anyshape.mark_unbacked(x, 0)
        records = []
        for run in (fast, program):
            caplog.clear()
            records.append((outcome(run, x), caplog.messages.copy()))
        assert records[0] == records[1]
    if breaks is not None:
        assert (fast.stats().graph_breaks, fast.stats().specializations) == (breaks, 1)


class Steps:
    def __init__(self) -> None:
        self.count = 0


@pytest.mark.parametrize(
    "text",
    [
        lambda steps, x: f"step {steps.count}: {tuple(x.shape)} {x.shape[0]:>3d} {x.dtype}",
        lambda steps, x: f"{x.shape[0] / 2:.2f} {x.shape[0]=} {x.numel():,}|{steps.count:04d}",
        lambda steps, x: " ".join([f"{steps.count}", str(x.shape[1:])]) + "!",
    ],
)
def test_a_progress_line_makes_no_specialization_for_each_step(
    text: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    def step(x: Tensor, steps: Steps) -> Tensor:
        steps.count += 1
        print(text(steps, x))
        return x * 2

    fast, mine, theirs = anyshape.compile(step), Steps(), Steps()
    for size in (3, 4, 1, 7, 0, 9, 11, 12):
        x = torch.ones(size, 2)
        step(x, theirs)
        expected = capsys.readouterr().out
        fast(x, mine)
        assert capsys.readouterr().out == expected
    assert fast.stats().specializations == 1  # a counter is symbolic from the first call on
    assert fast.stats().graph_breaks == 0


REFUSED: list[Callable[[Tensor], str]] = [
    lambda x: f"{x.shape:>10}",
    lambda x: f"{(x.shape[0], 1):>10}",
    lambda x: f"{[x.shape[0]]:>10}",
    lambda x: format({1: x.shape[0]}, "5"),
    lambda x: f"{x.shape[0]:zz}",
    lambda x: f"{x.shape[0]:.3d}",
    lambda x: f"{x.shape[0] / 2:d}",
    lambda x: f"{str(x.shape[0]):d}",
    lambda x: f"{x.shape[0] * 10**6:c}",
]


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_a_format_that_is_refused_is_refused_where_it_stands(number: int, fullgraph: bool) -> None:
    form = REFUSED[number]

    def program(x: Tensor) -> Any:
        try:
            return x + 1, form(x)
        except (TypeError, ValueError, OverflowError) as error:
            return x, type(error), str(error)

    fast = anyshape.compile(program, fullgraph=fullgraph)
    for rows in (3, 5):
        assert fast(torch.ones(rows))[1:] == program(torch.ones(rows))[1:]
