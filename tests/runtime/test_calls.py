"""C functions are built-in functions of Python: what they take, refuse and give back."""

import ctypes
import threading

import pytest

from anyshape.ir.code import NativeFunction
from anyshape.options import Options
from anyshape.targets.cpu.build import Builder

FUNCTIONS = {
    "store": NativeFunction(
        "void store(double *x, long i, double v) { x[i] = v; }", ("pointer", "int64", "double")
    ),
    "is_odd": NativeFunction(
        "long is_odd(long n) { return n & 1; }", ("int64",), returns_status=True
    ),
    "nothing": NativeFunction("void nothing(void) { }", ()),
    "wait_for": NativeFunction(
        "void wait_for(volatile long *flag) { while (!*flag) ; }", ("pointer",)
    ),
    "many": NativeFunction(
        f"void many(double *x, {', '.join(f'long i{n}, double d{n}' for n in range(12))}) {{ "
        + " ".join(f"x[i{n}] = d{n};" for n in range(12))
        + " }",
        ("pointer", *("int64", "double") * 12),
    ),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    options = Options(cache_dir=str(tmp_path_factory.mktemp("cache")))
    return Builder.create(options).functions(FUNCTIONS)


def test_numbers_reach_the_function_and_a_status_comes_back(made):
    numbers = (ctypes.c_double * 2)()
    assert made["store"](ctypes.addressof(numbers), 1, 2.5) is None
    assert made["store"](ctypes.addressof(numbers), 0, 3) is None
    assert list(numbers) == [3.0, 2.5]
    assert (made["is_odd"](7), made["is_odd"](-2), made["is_odd"](True)) == (1, 0, 1)
    assert made["nothing"]() is None


def test_as_many_arguments_as_there_are(made):
    numbers = (ctypes.c_double * 12)()
    pairs = [value for n in range(12) for value in (11 - n, n / 2)]
    made["many"](ctypes.addressof(numbers), *pairs)
    assert list(numbers) == [(11 - n) / 2 for n in range(12)]


@pytest.mark.parametrize("given", [(), (1, 2), (1.5,), ("1",), (None,)])
def test_what_is_no_number_is_refused(made, given):
    with pytest.raises(TypeError):
        made["is_odd"](*given)


def test_other_threads_run_meanwhile(made):
    flag = (ctypes.c_long * 1)()
    waiting = threading.Thread(target=made["wait_for"], args=(ctypes.addressof(flag),))
    waiting.start()
    flag[0] = 1  # never reached if the call held Python's lock
    waiting.join(timeout=20)
    assert not waiting.is_alive()
