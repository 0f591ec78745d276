"""Torch's modes are tested by one C function from some call on: it says what Python says, of each
mode, and a call under another mode is as eager."""

import time
import types
import weakref
from contextlib import contextmanager

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

import anyshape
from anyshape.capture.guards.execution_modes import NOTHING, reads_of, snapshot
from anyshape.dispatch import mode_guards, native_guards
from anyshape.dispatch.mode_guards import ASKED_BY_PYTHON
from anyshape.errors import AnyshapeError
from anyshape.options import Options
from anyshape.targets.cpu.build import Building


@contextmanager
def set_to(setter, value, back):
    setter(value)
    try:
        yield
    finally:
        setter(back)


C = torch._C
CHANGES = {
    "no grad": torch.no_grad,
    "inference": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "default dtype": lambda: set_to(torch.set_default_dtype, torch.float64, torch.float32),
    "default device": lambda: torch.device("meta"),
    "deterministic": lambda: set_to(torch.use_deterministic_algorithms, True, False),
    "precision": lambda: set_to(torch.set_float32_matmul_precision, "medium", "highest"),
    "function mode": TorchFunctionMode,
    "dispatch mode": TorchDispatchMode,
    "saved tensors": lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: x, lambda x: x),
    "forward gradients": forward_ad.dual_level,
    "anomalies": lambda: torch.autograd.set_detect_anomaly(True),
    "flash": lambda: set_to(C._set_sdp_use_flash, False, True),
    "mem efficient": lambda: set_to(C._set_sdp_use_mem_efficient, False, True),
    "math": lambda: set_to(C._set_sdp_use_math, False, True),
    "cudnn": lambda: set_to(C._set_sdp_use_cudnn, False, True),
    "overrideable": lambda: set_to(C._set_sdp_use_overrideable, False, True),
}


def is_by_c(entry):
    return isinstance(entry.__globals__["modes_hold"], types.BuiltinFunctionType)


def entry_of(fast):
    (point,) = fast._lazy.machinery.points.values()
    return point.specializations[0].entry


def asked_by_c(fast, *arguments):
    """The entry, called until C is asked: its library may have to be built first."""
    until = time.monotonic() + 60
    while not is_by_c(entry_of(fast)):
        assert time.monotonic() < until
        fast(*arguments)
        time.sleep(0.001)
    return entry_of(fast)


def test_c_is_asked_from_some_call_on():
    fast, x = anyshape.compile(lambda x: x + 1), torch.ones(3)
    fast(x)
    assert not is_by_c(entry_of(fast))
    assert asked_by_c(fast, x)([x])[0] is x
    fast(x)
    assert torch.equal(fast(x), x + 1)


@pytest.mark.parametrize("name", CHANGES)
def test_a_mode_that_changed_is_seen_by_c_and_by_python(name):
    fast, x = anyshape.compile(lambda x: x * 2), torch.ones(3)
    fast(x)
    entry = asked_by_c(fast, x)
    before = snapshot()
    assert entry([x]) is not None
    with CHANGES[name]():
        assert snapshot() != before
        assert entry([x]) is None
    assert snapshot() == before
    assert entry([x]) is not None


def test_tracing_is_seen():
    fast, seen = anyshape.compile(lambda x: x * 2), []
    x = torch.ones(3)
    fast(x)
    entry = asked_by_c(fast, x)

    def traced(x):
        seen.append(entry.__globals__["modes_hold"](entry.__globals__["mode_reads"]))
        return x + 1

    torch.jit.trace(traced, (x,), check_trace=False)
    assert seen == [False]


def test_reads_say_what_a_snapshot_says():
    """Of every field but the default device, which a function mode gives."""
    reads = reads_of(snapshot())
    assert len(reads) == len(snapshot()) - 1
    for function, argument, given in reads:
        assert function(*(() if argument is NOTHING else (argument,))) == given


@pytest.mark.parametrize("name", ["autocast", "function mode", "default device", "saved tensors"])
def test_where_a_snapshot_says_more_python_is_asked(name):
    with CHANGES[name]():
        assert reads_of(snapshot()) is None


def test_calls_under_other_modes_are_as_eager():
    def program(x, linear):
        made = linear(x) + torch.ones(2)
        return made, made.dtype, made.requires_grad, torch.is_grad_enabled()

    linear, x = nn.Linear(3, 2), torch.ones(4, 3)
    fast = anyshape.compile(program)
    fast(x, linear)
    asked_by_c(fast, x, linear)
    for name in ("no grad", "autocast", "deterministic", "no grad", "inference"):
        with CHANGES[name]():
            for got, expected in zip(fast(x, linear), program(x, linear), strict=True):
                if isinstance(got, torch.Tensor):
                    torch.testing.assert_close(got, expected)
                    assert got.is_inference() == expected.is_inference()
                else:
                    assert got == expected, name
        assert fast(x, linear)[2]


def test_without_a_c_compiler_python_goes_on(monkeypatch):
    def none(options):
        raise AnyshapeError("E601", tried="cc")

    monkeypatch.setattr(mode_guards, "are_built", none)
    fast, x = anyshape.compile(lambda x: x - 1), torch.ones(3)
    for _ in range(3 * ASKED_BY_PYTHON):
        fast(x)
    assert not is_by_c(entry_of(fast))
    assert torch.equal(fast(x), x - 1)


def test_while_the_compiler_is_at_work_it_is_not_asked_for_again(monkeypatch):
    class Builder:
        """Whose compiler takes long."""

        def __init__(self):
            self.part, self.started = Building({}), 0

        def start(self, wanted):
            self.started += 1
            return [self.part]

    builder, options = Builder(), Options(cc="a slow one")
    monkeypatch.setattr(native_guards, "_builder", lambda options: builder)
    assert not native_guards.are_being_built(options)
    assert not native_guards.are_built(options)
    assert native_guards.are_being_built(options)
    entry = types.FunctionType((lambda: None).__code__, {})
    test = mode_guards.ModeTest(snapshot(), snapshot, options, weakref.ref(entry))
    for _ in range(3 * ASKED_BY_PYTHON):
        assert test.hold(None)
    assert builder.started == 1
    builder.part.done.set_result(b"")
    assert not native_guards.are_being_built(options)
    assert native_guards.are_built(options)
