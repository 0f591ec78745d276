"""Generators that live across graph breaks, and are closed where the program drops them."""

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


def gen_rows(x):
    for i in range(3):
        y = x * i
        native(y)
        yield y + 1


@program()
def generator_break_inside(x):
    t = x
    for y in gen_rows(x):
        t = t + y
    return t


@program()
def generator_sum(x):
    return sum(gen_rows(x)), list(gen_rows(x * 2)), max(native(g) for g in gen_rows(x))


def gen_send():
    total = 0
    while True:
        got = yield total
        if got is None:
            return total
        native(got)
        total = total + got


@program()
def generator_send(x):
    g = gen_send()
    next(g)
    a = g.send(x)
    b = g.send(x * 2)
    native(b)
    try:
        g.send(None)
    except StopIteration as s:
        return a, b, s.value


def outer(x):
    r = yield from gen_ret(x)
    native(r)
    yield r * 2


def gen_ret(x):
    yield x
    native(x)
    yield x + 1
    return x + 5


@program()
def yield_from(x):
    out = []
    for y in outer(x):
        out.append(y)
        native(y)
    return out


@program()
def gen_close(x):
    log = []

    def g():
        try:
            for i in range(5):
                native(x)
                yield x * i
        finally:
            log.append("closed")

    it = g()
    next(it)
    native(x)
    a = next(it)
    it.close()
    for y in g():
        if native(y) >= 0 or True:
            break
    return a, y, log


@program()
def gen_returned(x):
    y = x * 2
    return (y * i for i in range(3))


@program()
def gen_stored(x):
    g = gen_rows(x)
    first = next(g)
    native(first)
    box = [g]
    native(x)
    return first, [*box[0]]


@program()
def any_all_gen(x):
    return (
        any(native(x * i) > 1 for i in range(4)),
        all(v is not None for v in gen_rows(x)),
        dict((i, v) for i, v in enumerate(gen_rows(x))),
        tuple(gen_rows(x)),
        torch.cat(list(gen_rows(x))),
    )


@program()
def zip_gens(x):
    return [a + b for a, b in zip(gen_rows(x), gen_rows(x + 1))]


@program()
def closed_by_break(x):
    log = []

    def g():
        try:
            for i in range(5):
                yield x * i
        finally:
            log.append("closed")
            log.append(native(x))

    for y in g():
        if native(y) >= 0 or True:
            break
    log.append("after")
    return y, log


@program()
def closed_by_an_exception(x):
    log = []

    def g():
        try:
            for i in range(5):
                native(x)
                yield x * i
        except GeneratorExit:
            log.append("exit")
            raise
        finally:
            log.append("closed")

    try:
        for y in g():
            native(x)
            raise ValueError
    except ValueError:
        log.append("caught")
    log.append("after")
    return y, log


@program()
def closed_by_assignment(x):
    log = []

    def g():
        try:
            yield x
            yield x + 1
        finally:
            log.append("closed")

    it = g()
    next(it)
    native(x)
    it = None
    log.append("a")
    it = g()
    next(it)
    native(x)
    del it
    log.append("b")

    def inner():
        it = g()
        next(it)
        native(x)
        return 1

    inner()
    log.append("c")
    return log, x


@program()
def closed_without_a_break(x):
    log = []

    def g():
        try:
            yield x
            yield x + 1
        finally:
            log.append("closed")

    it = g()
    next(it)
    it = None
    log.append("a")
    it = g()
    next(it)
    del it
    log.append("b")

    def inner():
        it = g()
        next(it)
        return 1

    inner()
    log.append("c")
    for v in g():
        break
    log.append("d")
    for v in g():
        for w in g():
            log.append("w")
            break
        log.append("e")
        break

    def f():
        for v in g():
            return v

    f()
    log.append("f")
    try:
        for v in g():
            raise KeyError
    except KeyError:
        log.append("k")
    return log, x


@program()
def closed_with_breaks_inside(x):
    log = []

    def g():
        try:
            native(x)
            yield x
            yield x + 1
        finally:
            native(x)
            log.append("closed")

    for v in g():
        break
    log.append("d")
    for v in g():
        for w in g():
            log.append("w")
            break
        log.append("e")
        break

    def f():
        for v in g():
            return v

    f()
    log.append("f")
    try:
        for v in g():
            raise KeyError
    except KeyError:
        log.append("k")
    return log, x


@program()
def closed_with_a_mode(x):
    log = []

    def g():
        with torch.enable_grad():
            yield torch.is_grad_enabled()
            yield 2

    for v in g():
        native(x)
        log.append(v)
        break
    log.append(torch.is_grad_enabled())
    return log, x
