"""What eager refuses for the dtype, the rank or the size of an argument, the compiled program
refuses too, whether somebody reads the result or not.

The cases are torch's own samples, one argument of which is made unfit: of each operator one that
eager refuses.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape
from tests.ops.test_op_db import CASES, IDS, samples

UNFIT: dict[str, Callable[[Tensor], Tensor]] = {
    "int64": lambda t: t.to(torch.int64),
    "bool": lambda t: t.bool(),
    "complex64": lambda t: t.to(torch.complex64),
    "float64": lambda t: t.double(),
    "one dimension more": lambda t: t.unsqueeze(0),
    "one dimension fewer": lambda t: t.select(0, 0),
    "one dimension": lambda t: t.flatten(),
    "none": lambda t: t.flatten()[0],
}
MOST_SAMPLES = 2
BY_VALUES = {
    "cholesky", "histogram", "index_add", "index_copy", "index_select", "linalg.cholesky",
    "linalg.inv", "linalg.ldl_solve", "linalg.lu_factor", "squeeze_copy",
}  # fmt: skip
"""Whether eager takes the arguments is decided by numbers in them: these may break in vain."""


def _unfit(entry: Any) -> Iterator[tuple[Any, ...]]:
    """Arguments, by position and by name, that eager refuses."""
    for args, kwargs in samples(entry, torch.float32, MOST_SAMPLES):
        tensors = [i for i, arg in enumerate(args) if isinstance(arg, Tensor)]
        for position, made in itertools.product(tensors, UNFIT.values()):
            try:
                changed = (*args[:position], made(args[position].detach()), *args[position + 1 :])
            except (IndexError, RuntimeError):  # there is no such dimension
                continue
            try:
                entry.op(*_copies(changed), **kwargs)
            except Exception as error:
                yield changed, kwargs, type(error)


def _copies(args: tuple[Any, ...]) -> list[Any]:
    return [arg.clone() if isinstance(arg, Tensor) else arg for arg in args]


@pytest.mark.parametrize("entry", CASES, ids=IDS)
def test_what_eager_refuses_is_refused(entry: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        refused = list(_unfit(entry))
        if not refused:
            pytest.skip("eager takes all of these")
        for number, read in enumerate((False, True)):
            args, kwargs, error = refused[(len(entry.name) + number) % len(refused)]

            def program(*given: Any) -> Any:
                made = entry.op(*given, **kwargs)
                return made if read else 1

            fast = anyshape.compile(program)
            with pytest.raises(error):
                fast(*_copies(args))
            assert not fast.stats().internal_errors


@pytest.mark.parametrize(
    "entry", [c for c in CASES if c.name not in BY_VALUES], ids=lambda e: e.name
)
def test_what_eager_takes_is_no_graph_break_unread(entry: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for args, kwargs in samples(entry, torch.float32, 1):
            read, unread = (_program(entry, kwargs, reads) for reads in (True, False))
            for program in (read, unread):
                program(*_copies(args))
            assert unread.stats().graph_breaks <= read.stats().graph_breaks


def _program(entry: Any, kwargs: dict[str, Any], reads: bool) -> Any:
    def program(*given: Any) -> Any:
        made = entry.op(*given, **kwargs)
        return made if reads else 1

    return anyshape.compile(program)


IN_PLACE = [entry for entry in CASES if entry.inplace_variant is not None]


@pytest.mark.parametrize("entry", IN_PLACE, ids=lambda e: f"{e.name}.{e.variant_test_name}")
def test_what_eager_refuses_in_place_is_refused_though_nobody_reads_it(entry: Any) -> None:
    for dtype in (torch.float32, torch.int64, torch.bool, torch.complex64):

        def program(x: Tensor, *rest: Any, **kwargs: Any) -> int:
            entry.inplace_variant(x * 1, *rest, **kwargs)
            return 1

        for args, kwargs in samples(entry, torch.float32, 1):
            given = [a.to(dtype) if isinstance(a, Tensor) else a for a in args]
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                theirs, ours = (
                    _raised(run, _copies(tuple(given)), kwargs)
                    for run in (program, anyshape.compile(program))
                )
            assert ours == theirs, dtype


def _raised(run: Callable[..., Any], args: list[Any], kwargs: dict[str, Any]) -> Any:
    try:
        run(*args, **kwargs)
    except Exception as error:
        return type(error)
    return None
