"""What is called and cannot be hashed (functions of ctypes, objects that compare by value), and what
asks a machine for its devices: answered as natively, or at a graph break, never by a mistake of ours.
"""

from __future__ import annotations

import ctypes
import functools
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import Tensor

import anyshape

LIBRARY = ctypes.CDLL(None)
strlen = LIBRARY.strlen


@ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_int)
def one_more(number: int) -> int:
    return number + 1


class ByValue:
    """Compares by value, so that it has no hash."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByValue)

    def __call__(self, x: Any) -> Any:
        return x + 1


by_value = ByValue()


def refused(x: Tensor) -> Tensor:
    try:
        return x + strlen(5.5)
    except ctypes.ArgumentError:
        return x - 1


def devices(x: Tensor) -> tuple[Tensor, int]:
    """As `torch.cuda` asks the driver."""
    count, handle = ctypes.c_int(-1), ctypes.c_void_p()
    if LIBRARY.abs(0) != 0:
        return x, -1
    LIBRARY.memset(ctypes.byref(count), 0, ctypes.sizeof(count))
    return x + count.value, count.value + (handle.value or 0)


# fmt: off
CALLS: dict[str, Callable[[Tensor], Any]] = {
    "a function of ctypes": lambda x: x + strlen(b"abc"),
    "in a loop": lambda x: [x + strlen(b"a" * k) for k in range(1, 3)],
    "by map": lambda x: [x + v for v in map(strlen, [b"a", b"bc"])],
    "a callback": lambda x: x + one_more(3),
    "of a size": lambda x: x + one_more(x.shape[0]),
    "looked up": lambda x: x + getattr(LIBRARY, "abs")(-4),
    "a number of C": lambda x: x + ctypes.c_int(x.shape[0]).value,
    "that raises": refused,
    "devices": devices,
    "an object": lambda x: by_value(x),
    "an object by map": lambda x: list(map(by_value, [x, x])),
    "an object, partially": lambda x: functools.partial(by_value)(x),
    "an object as a key": lambda x: x + max([1, 2], key=by_value),
    "reduced": lambda x: functools.reduce(lambda a, b: a + strlen(b), [b"a", b"bc"], x),
}
# fmt: on


@torch.no_grad()
@pytest.mark.parametrize("name", CALLS)
def test_what_has_no_hash_is_called_natively(name: str) -> None:
    program = CALLS[name]
    fast = anyshape.compile(program)
    for size in (3, 4):
        x = torch.ones(size)
        torch.testing.assert_close(fast(x), program(x), rtol=0, atol=0)
    assert fast.stats().internal_errors == 0


MODULES = (torch.cuda, torch.xpu, torch.mps, torch.mtia, torch.accelerator, torch.cpu)
CHANGES = ("set_", "reset_", "_lazy", "init", "empty_", "manual_", "seed", "_set")
"""Functions that change what the next test sees."""
BACKENDS = [getattr(torch.backends, name) for name in dir(torch.backends)]


def queries() -> Iterator[tuple[str, Callable[..., Any]]]:
    """The functions of torch that ask for devices, from the listings of their modules."""
    backends = (m for m in BACKENDS if inspect.ismodule(m) and "torch.backends" in m.__name__)
    for module in (*MODULES, *backends):
        for name, value in sorted(vars(module).items()):
            public = not name.startswith("_") or module is torch.cuda
            public = public and not name.startswith(CHANGES)
            if public and inspect.isroutine(value) and not inspect.isclass(value):
                yield f"{module.__name__}.{name}", value


@torch.no_grad()
@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("module", (*MODULES, torch.backends), ids=lambda m: m.__name__)
def test_what_asks_for_devices(module: ModuleType) -> None:
    asked = [(name, fn) for name, fn in queries() if name.startswith(f"{module.__name__}.")]
    assert asked
    for name, fn in asked:

        def program(x: Tensor, fn: Callable[..., Any] = fn) -> tuple[Tensor, str]:
            try:
                made = fn()
            except Exception as error:
                made = type(error)
            return x + 1, type(made).__name__

        fast = anyshape.compile(program, options={"max_variants": 64})
        assert fast(torch.ones(3))[1] == program(torch.ones(3))[1], name
        assert fast.stats().internal_errors == 0
