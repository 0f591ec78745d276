"""Control flow with graph breaks in its middle: loops, exceptions, with-blocks, modes of torch."""

from __future__ import annotations

import collections
import contextlib
import copy
import dataclasses
import enum
import functools
import heapq
import itertools
import logging
import operator
import random
import time
import warnings
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from tests.capture.breaking.harness import native, program


@program()
def try_finally(x):
    log = []
    try:
        y = x * 2
        log.append("a")
        s = native(y)
        log.append(s)
        if s > 0:
            return y + 1, log
    finally:
        log.append("f")
        print("finally", len(log))
    return y - 1, log


@program()
def print_in_loop(x):
    for i in range(3):
        print("turn", i, x.shape)
        x = x + native(x)
        print("sum", round(native(x), 3))
    return x


class CM:
    def __init__(self, log):
        self.log = log

    def __enter__(self):
        self.log.append("in")
        return 5

    def __exit__(self, *e):
        self.log.append(("out", e[0].__name__ if e[0] else None))
        return e[0] is ValueError


@program()
def context_managers(x):
    log = []
    with CM(log) as k:
        y = x * k
        native(y)
        with CM(log):
            raise ValueError("a")
    native(y)
    return y, log


@contextlib.contextmanager
def cmgen(log, t):
    log.append("enter")
    try:
        native(t)
        yield t * 2
        log.append("ok")
    except KeyError:
        log.append("key")
    finally:
        log.append("exit")


@program()
def contextmanager_generator(x):
    log = []
    with cmgen(log, x) as y:
        z = y + 1
        native(z)
    with cmgen(log, z) as y:
        native(y)
        raise KeyError("k")
    return z, y, log


def fact(x, n):
    if n == 0:
        return x
    native(x)
    return fact(x + n, n - 1) * 2


@program()
def recursion(x):
    return fact(x, 4)


@program()
def early_return_data(x):
    if x.sum() > 1e6:
        return x
    if x.mean() > 0:
        return x * 2, "pos"
    return "neg", x - 1


@program()
def while_item(x):
    n = 0
    while x.sum().item() < 100 and n < 10:
        x = x.abs() * 2 + 1
        n += 1
    return x, n


@program()
def exception_in_break(x):
    try:
        [][native(x) and 3]
    except (IndexError, TypeError) as e:
        msg = type(e).__name__
    else:
        msg = "none"
    return x + 1, msg


@program()
def nested_try(x):
    log = []
    for i in range(3):
        try:
            try:
                native(x)
                if i == 1:
                    continue
                if i == 2:
                    raise RuntimeError("x")
                log.append(i)
            finally:
                log.append(("f", i))
        except RuntimeError as e:
            log.append(str(e))
    return x, log


@program()
def comprehension_breaks(x):
    return [native(x * i) for i in range(3)], {i: x * i for i in range(2) if native(x) or True}


@program()
def star_unpack(x):
    a, *b, c = [x, x + 1, x + 2, x + 3]
    native(a)
    (d, e), f = (a, c), b
    return d, e, f


@program()
def walrus_assert(x):
    assert (n := x.shape[0]) >= 0
    native(x)
    try:
        assert native(x) > 1e9, f"bad {n}"
    except AssertionError as e:
        return x * n, str(e)


@program()
def match_(x):
    r = []
    for v in [1, (x, 2), {"k": x}, Pt(x, 3), "z"]:
        match v:
            case int():
                r.append("int")
            case Pt(x=a, y=b):
                r.append(a * b)
            case (a, b):
                r.append(a * b)
            case {"k": a}:
                native(a)
                r.append(a)
            case _:
                r.append("other")
    return r


@program()
def no_grad_blocks(x):
    with torch.no_grad():
        a = torch.is_grad_enabled()
        native(x)
        b = torch.is_grad_enabled()
        with torch.enable_grad():
            native(x)
            c = torch.is_grad_enabled()
    return a, b, c, torch.is_grad_enabled(), x + 1


@torch.no_grad()
def dec(x):
    native(x)
    return x * 2, torch.is_grad_enabled()


@program(grad=True)
def no_grad_decorator(x):
    y, g = dec(x)
    z = x * 3
    return y.detach(), g, y.requires_grad, z.requires_grad, torch.is_grad_enabled()


@program()
def autocast_inside(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        native(y.float())
        z = y @ x
    w = x @ x.t()
    return y, z, w, torch.is_autocast_enabled("cpu")


@program()
def inference_inside(x):
    with torch.inference_mode():
        y = x * 2
        native(y)
        q = y.is_inference()
    return y + 1, q, torch.is_inference_mode_enabled()


@program()
def default_dtype_inside(x):
    old = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    a = torch.ones(3)
    native(x)
    b = torch.zeros(x.shape[0])
    torch.set_default_dtype(old)
    return a, b, torch.ones(2)


@program()
def set_grad_enabled_fn(x):
    prev = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    native(x)
    r = torch.is_grad_enabled()
    torch.set_grad_enabled(prev)
    return r, x + 1


@program()
def del_and_unbound(x):
    y = x + 1
    native(y)
    del y
    try:
        y
    except UnboundLocalError as e:
        return str(e)[:40], x


@program()
def exc_chain(x):
    try:
        try:
            raise ValueError("a")
        except ValueError as e:
            native(x)
            raise KeyError("b") from e
    except KeyError as k:
        return x, type(k.__cause__).__name__, str(k.__cause__)


@program()
def bool_tensor_logic(x):
    r = []
    for row in x.flatten()[:3]:
        r.append("p" if row > 0 else "n")
    return r, x.any() and 1, bool((x > 0).all()), not x.sum()


@program()
def format_locals(x):
    a = 1
    native(x)
    return sorted(locals()), x
