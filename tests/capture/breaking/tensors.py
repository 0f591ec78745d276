"""Tensors that live across graph breaks: views, in-place writes, gradients, random numbers."""

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
from torch.testing._internal.common_utils import freeze_rng_state

from tests.capture.breaking.harness import native, program


@program()
def data_ptr(x):
    y = x.view(-1)
    return y + 1, y.data_ptr() == x.data_ptr(), x.storage_offset()


@program()
def numpy_interop(x):
    a = x.numpy()
    b = a * 2
    t = torch.from_numpy(b)
    return t + x, b.shape, np.asarray([1, 2, 3]).sum() + x.sum()


class Sq(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 2 * x * g * 3


@program()
def custom_function(x):
    return Sq.apply(x + 1) * 2


@program(grad=True)
def custom_function_grad(x):
    y = Sq.apply(x).sum()
    y.backward()
    return y.detach(), x.grad


@program()
def inplace_input(x):
    x.add_(1)
    native(x)
    x[0] = 5
    x.mul_(2)
    return x


@program()
def inplace_then_views(x):
    v = x[1:]
    v.zero_()
    native(x)
    w = x.t()
    w[0] = 7
    return v, w, x.view(-1)[:3]


@program()
def list_of_tensors_mutated(x):
    l = [x.clone(), x + 1]
    for t in l:
        t.add_(1)
    l[0][0] = 9
    native(l[1])
    for i in range(len(l)):
        l[i] = l[i] * 2
    l.reverse()
    return l


@program()
def cat_in_break(x):
    parts = [x, x + 1]
    np.zeros(2)
    y = torch.cat(parts)
    z = torch.stack([p for p in parts])
    return y, z


@program()
def list_arg_to_native(x):
    parts = [x * 2, x + 1]
    d = {"a": x * 3, "b": [x]}
    k = np.stack([p.numpy() for p in parts])
    s = hold(parts, d=d)
    return torch.from_numpy(k), s


@torch.compiler.disable
def hold(parts, d):
    return torch.cat(parts) + d["a"].sum() + torch.stack(d["b"]).sum()


@program()
def ops_packet(x):
    op = torch.ops.aten.relu
    o2 = torch.ops.aten.add.Tensor
    native(x)
    return op(x), o2(x, x), torch.ops.aten.mul(x, 2)


@program()
def tensor_repr(x):
    return str(x + 1), repr(x.sum()), f"{(x * 2).sum():.3f}"


@program()
def nonzero_item(x):
    i = (x > 0).nonzero()
    n = i.shape[0]
    native(x)
    return i, n, x.flatten().tolist(), x.max().item()


@program()
def assign_slices(x):
    y = torch.zeros_like(x)
    y[..., ::2] = x[..., ::2]
    native(y)
    y[x > 0] = -1
    y[:, 0] += 3
    return y


@program()
def tuple_outputs_shared(x):
    y = x * 2
    native(x)
    return y, y, [y], {"k": y}, x, x


@program()
def input_output_alias(x):
    y = x.view(-1)
    z = x
    native(x)
    y.add_(1)
    return y, z, x[:1]


@program()
def param_update(x):
    p = nn.Parameter(torch.ones(2))
    with torch.no_grad():
        p.add_(x.sum())
    native(x)
    return p.detach() + 1


@program()
def out_kw(x):
    o = torch.empty(0)
    b = torch.empty_like(x)
    torch.add(x, 1, out=b)
    native(b)
    torch.mul(b, 2, out=b)
    return b


@program(grad=True)
def backward_inside(x):
    y = (x * x).sum()
    (g,) = torch.autograd.grad(y, x)
    native(g)
    return g * 2


@program(grad=True)
def hook_tensor(x):
    log = []
    y = x * 2
    y.register_hook(lambda g: log.append("h"))
    y.sum().backward()
    return x.grad, log


@program()
def rng(x):
    torch.manual_seed(5)
    a = torch.rand(3)
    native(x)
    b = F.dropout(x, 0.5, True)
    g = torch.Generator().manual_seed(3)
    c = torch.randn(2, generator=g)
    return a, b, c


@program()
def printed_before_it_is_written(x):
    y = x.clone()
    print(y)
    y.add_(1)
    print("second", y)
    y.mul_(2)
    return y


@program()
def printed_in_containers(x):
    y = x * 2
    found = [y, 1]
    print(found, {"a": y}, (y,))
    found.append(2)
    y[...] = 0
    print(found)
    return y


@program(grad=True)
def printed_with_its_gradient(x):
    y = x * 2
    print(y)
    y.mul_(2)
    print(y.detach())
    return y


LSTM = nn.LSTM(4, 3)


@program()
def flat_weights_behind_weak_references(x):
    return LSTM(x.reshape(-1, 1, 1).expand(-1, 2, 4)[:5])[0] if x.numel() else x


COMPILED_BY_TORCH = torch.compile(lambda x: x * 3, backend="eager")


@program()
def compiled_by_torch_inside(x):
    return COMPILED_BY_TORCH(x) + 1


@program()
def random_state_kept_by_methods_of_c(x):
    with freeze_rng_state():
        y = x * 2 + torch.rand(1)
    return y, torch.rand(2)


@program()
def autocast_around_a_break(x):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        y = x @ x.t()
        native(x)
        z = y @ x
    native(x)
    return y, z, x @ x.t()


@program()
def inference_around_a_break(x):
    with torch.inference_mode():
        y = x * 2
        native(y)
        y.add_(1)
    return y + 1, y.is_inference()
