"""What runs natively while the program handles an exception finds it in `sys.exc_info()`, and what
is raised there has it as its context."""

import asyncio
import logging
import sys
import traceback
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from typing import Any

import pytest
import torch

import anyshape


def run(coroutine: Coroutine[Any, Any, Any]) -> Any:
    """As `contextlib`'s tests run one: the error is raised again with the context that it had."""
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(coroutine)
        task.add_done_callback(lambda future: loop.stop())
        loop.run_forever()
        error = task.exception()
        if error is None:
            return task.result()
        context = error.__context__
        try:
            raise error
        except BaseException:
            error.__context__ = context
            raise error
    finally:
        loop.close()


async def asked() -> Any:
    return sys.exc_info()[1]


async def fails_twice() -> None:
    try:
        raise KeyError
    except KeyError:
        raise IndexError


class Stack(AsyncExitStack):
    """An exit stack for `with`."""

    def __enter__(self) -> Any:
        return run(self.__aenter__())

    def __exit__(self, *details: Any) -> Any:
        return run(self.__aexit__(*details))


def raises(kind: type[BaseException]) -> None:
    raise kind


@torch.compiler.disable
def natively_asked() -> Any:
    return sys.exc_info()[1]


@torch.compiler.disable
def natively_raised(kept: BaseException) -> None:
    try:
        raise KeyError
    except KeyError:
        raise kept


def chain(error: BaseException | None) -> list[str]:
    found = []
    while error is not None:
        found.append(type(error).__name__)
        error = error.__context__
    return found


def ask_in_a_coroutine() -> Any:
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        return chain(run(asked()))


def fail_in_a_coroutine() -> Any:
    try:
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            run(fails_twice())
    except IndexError as error:
        return chain(error)


def leave_a_stack() -> Any:
    try:
        with Stack() as stack:
            stack.callback(raises, IndexError)
            stack.callback(raises, KeyError)
            raise ZeroDivisionError
    except IndexError as error:
        return chain(error)


def ask_natively() -> Any:
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        inner = natively_asked()
    return chain(inner), natively_asked()


def raise_natively() -> Any:
    try:
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            natively_raised(IndexError())
    except IndexError as error:
        return chain(error), [line.name for line in traceback.extract_tb(error.__traceback__)]


def raise_again() -> Any:
    """A `raise` gives an error the context of where it is, whatever it had."""
    kept = IndexError()
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        try:
            natively_raised(kept)
        except IndexError:
            pass
        try:
            raise kept
        except IndexError:
            return chain(kept)


def log_it() -> Any:
    logger, heard = logging.getLogger("handled"), []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.exc_info)  # type: ignore[method-assign]
    logger.addHandler(handler)
    try:
        raise ZeroDivisionError
    except ZeroDivisionError:
        logger.exception("failed")
    finally:
        logger.removeHandler(handler)
    return [info[0] for info in heard]


PROGRAMS: list[Callable[[], Any]] = [
    ask_in_a_coroutine,
    fail_in_a_coroutine,
    leave_a_stack,
    ask_natively,
    raise_natively,
    raise_again,
    log_it,
]


@pytest.mark.parametrize("body", PROGRAMS, ids=lambda body: body.__name__)
def test_what_is_handled_is_seen_by_what_runs_natively(body: Callable[[], Any]) -> None:
    def program(x: torch.Tensor) -> Any:
        y = x + 1
        found = body()
        return y * 2, found

    x = torch.arange(3.0)
    wanted = program(x)[1]
    fast = anyshape.compile(program)
    for _ in range(2):
        found = fast(x)[1]
        assert found == wanted
        assert sys.exc_info() == (None, None, None)
    assert not fast.stats().internal_errors
