"""What torch says in warnings, a compiled function says: at each call, by the user's filters, of the
line that eager says it of. Each program is called with several sizes beside eager."""

from __future__ import annotations

import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import anyshape
from anyshape.capture.python.recorded_warnings import recorded
from anyshape.errors import PerformanceWarning
from anyshape.quiet_functions import may_warn, quiet

PROGRAMS: dict[str, Callable[[torch.Tensor], Any]] = {
    "softmax without dim": lambda x: F.softmax(x),
    "log_softmax without dim": lambda x: F.log_softmax(x),
    "softmin without dim": lambda x: F.softmin(x),
    "a module without dim": lambda x: torch.nn.Softmax()(x),
    "mse_loss of another size": lambda x: F.mse_loss(x, x[:, :1]),
    "l1_loss of another size, perhaps": lambda x: F.l1_loss(x, x[:1]),
    "huber_loss of another size, perhaps": lambda x: F.huber_loss(x, x[:1]),
    "smooth_l1_loss of another size": lambda x: F.smooth_l1_loss(x, x[:, :1]),
    "kl_div": lambda x: F.kl_div(x, x.softmax(1)),
    "dropout2d of two dimensions": lambda x: F.dropout2d(x, 0.5, False),
    "size_average": lambda x: F.mse_loss(x, x * 2, size_average=False),
    "reduce": lambda x: F.l1_loss(x, x * 2, reduce=False),
    "size_average of a loss of C": lambda x: F.poisson_nll_loss(x, x * 2, size_average=True),
    "size_average by number": lambda x: F.binary_cross_entropy_with_logits(
        x, x.sigmoid(), size_average=True
    ),
    "grid_sample": lambda x: F.grid_sample(x[None, None], torch.zeros(1, 2, 2, 2)),
    "upsample": lambda x: F.upsample(x[None, None], scale_factor=2),
    "gumbel_softmax with eps": lambda x: F.gumbel_softmax(x, eps=1e-9).shape,
    "two, one of Python and one of C": lambda x: F.softmax(x) + x[:, :1].std(1)[:, None],
    "std of one": lambda x: x[:, :1].std(1),
    "var of one row": lambda x: x[:1].var(0),
    "std of a column that may be one": lambda x: x.std(0) + x.std(0, correction=2),
    "var of all": lambda x: x[:, 0].var(),
    "std_mean of what is left": lambda x: torch.std_mean(x[1:], 0, correction=0),
    "var_mean of columns of nothing": lambda x: torch.var_mean(x[:-1], 1),
    "var of one row, told": lambda x: x[:1].std(0, unbiased=False) * x.var(0, unbiased=True),
    "var of what data selects": lambda x: x[x > 3].var(),
    "an index of uint8": lambda x: x[(x > 1).to(torch.uint8)],
    "none": lambda x: F.softmax(x, 1) + F.mse_loss(x, x),
}
SIZES = (3, 5, 1, 3, 2)


def _told(fn: Callable[..., Any], action: Any, sizes: tuple[int, ...]) -> list[Any]:
    """After each call, what was told since the last one, and how the call ended."""
    found: list[Any] = []
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter(action)
        warnings.simplefilter("ignore", PerformanceWarning)
        for size in sizes:
            del told[:]
            try:
                fn(torch.arange(4.0 * size).reshape(size, 4))
            except Warning as warning:
                found.append((type(warning), str(warning)))
            found.append([(w.category, str(w.message), w.filename, w.lineno) for w in told])
    return found


@pytest.mark.parametrize("action", ["always", "default", "error", "ignore"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_compiled_function_warns_as_eager_does(name: str, action: str) -> None:
    program = PROGRAMS[name]
    fast = anyshape.compile(program)
    wanted = _told(program, action, SIZES)
    assert _told(fast, action, SIZES) == wanted
    if action == "always":
        assert name == "none" or any(wanted)
        assert fast.stats().graph_breaks == 0
    assert fast.stats().internal_errors == 0


def test_a_compiled_function_of_torchs_own_warns_of_its_caller() -> None:
    fast = anyshape.compile(F.kl_div)
    for _ in range(2):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            fast(torch.rand(2, 3), torch.rand(2, 3))
        assert [entry.filename for entry in caught] == [__file__]
    assert fast.stats().specializations == 1


def test_filters_are_those_of_the_call() -> None:
    program = PROGRAMS["two, one of Python and one of C"]
    fast = anyshape.compile(program)
    for action in ("ignore", "always", "error", "ignore", "default", "always"):
        assert _told(fast, action, (3,)) == _told(program, action, (3,))


def test_recording_warnings_resets_nothing() -> None:
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        for text in ("first", "second"):
            warnings.warn("once", stacklevel=1)
            with recorded() as said:
                warnings.warn("inside", stacklevel=1)
                warnings.warn(text, DeprecationWarning, stacklevel=1)
            assert [str(warning.message) for warning in said] == ["inside", text]
    assert [str(warning.message) for warning in told] == ["once"]


def test_threads_that_record_at_once_leave_filters_as_they_were() -> None:
    before, inside = (warnings.filters, vars(warnings)["_showwarnmsg"]), threading.Event()

    def records(text: str) -> list[str]:
        with recorded() as said:
            inside.wait(0.05)
            warnings.warn(text, stacklevel=1)
        return [str(warning.message) for warning in said]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(records, "abcd")) == [["a"], ["b"], ["c"], ["d"]]
    assert (warnings.filters, vars(warnings)["_showwarnmsg"]) == before


def test_functions_that_cannot_warn_are_not_asked() -> None:
    assert [
        fn for fn in (F.relu, F.layer_norm, F.linear, F.dropout, torch.std) if may_warn(fn)
    ] == []
    assert [fn for fn in (F.softmax, F.mse_loss, F.upsample) if not may_warn(fn)] == []


def test_a_quiet_function_does_the_same() -> None:
    x = torch.randn(3, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(quiet(F.softmax)(x), x.softmax(1))
        upsampled = quiet(F.upsample)(x[None, None], scale_factor=2)
        assert torch.equal(upsampled, F.interpolate(x[None, None], scale_factor=2))
    assert quiet(F.relu) is F.relu


def test_asking_imports_nothing() -> None:
    """The first decomposition of torch in a process imports sympy and Dynamo: 1.7 seconds."""
    program = """
import sys, torch, anyshape
import torch.nn.functional as F
fast = anyshape.compile(lambda x, t: F.cross_entropy(x, t) + F.mse_loss(x, x) + F.softmax(x, 0).sum())
fast(torch.ones(8, 10), torch.zeros(8, dtype=torch.int64))
print([name for name in ("sympy", "torch._dynamo", "torch.fx.experimental.symbolic_shapes")
       if name in sys.modules])
"""
    made = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert made.stdout.strip() == "[]"


def _formats(*args: Any, **named: Any) -> str:
    return "formatted\n"


HEARD = {
    "showwarning": (lambda *args, **named: None, __name__),
    "formatwarning": (_formats, __name__),
    "formatwarning of a package": (_formats, pytest.__name__),
}


@pytest.fixture(params=HEARD)
def heard(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Who hears warnings meanwhile."""
    name: str = request.param
    hears, module = HEARD[name]
    monkeypatch.setattr(hears, "__module__", module)
    monkeypatch.setattr(warnings, name.partition(" ")[0], hears)
    return name


def test_sizes_that_a_call_compares_warn_of_nothing(heard: str) -> None:
    """The loss is captured for equal sizes: calls with others never come to its warning."""
    fast = anyshape.compile(lambda x, y: F.smooth_l1_loss(x, y), fullgraph=True)
    for size in (3, 5, 2):
        x, y = torch.randn(size, 2), torch.randn(size, 2)
        torch.testing.assert_close(fast(x, y), F.smooth_l1_loss(x, y))
    assert fast.stats().specializations == 1


@pytest.mark.filterwarnings("ignore:std")
def test_a_size_that_warns_of_nothing_breaks_no_graph(heard: str) -> None:
    """Calls of one row, which the program would hear of, have a specialization of their own."""
    fast = anyshape.compile(lambda x: x.std(0) * 2)
    for size in (3, 5, 2):
        fast(torch.randn(size, 2))
    assert (fast.stats().graph_breaks, fast.stats().specializations) == (0, 1)
    fast(torch.randn(1, 2))
    assert (fast.stats().graph_breaks == 0) is heard.endswith("package")


@pytest.mark.filterwarnings("ignore:Using a target size")
def test_what_the_program_hears_is_told_where_eager_tells_it(heard: str) -> None:
    fast = anyshape.compile(lambda x: F.smooth_l1_loss(x, x[:, :1]) * 2)
    fast(torch.randn(3, 2))
    assert (fast.stats().graph_breaks == 0) is heard.endswith("package")
