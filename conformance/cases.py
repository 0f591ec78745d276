"""The calls that the database makes of an operator, in structures; and further calls at other
sizes.

In: an entry of `op_db` and a dtype. Out: `Structure`s, each a list of calls that differ in sizes
and values only. Derived calls replace every occurrence of one size by another, 0, 1 and 2 among
them.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.testing._internal import common_methods_invocations

ENTRIES = tuple(common_methods_invocations.op_db)
DTYPES = (torch.float32, torch.int64, torch.bool, torch.bfloat16)
SIZES = (0, 1, 2, 7)  # what a size becomes in derived calls
MOST_ELEMENTS = 20_000
STRUCTURES, DERIVED = 6, 6  # the most structures of an entry, and derived calls of a structure
NOT_DERIVED = ("_segment_reduce", "nn.functional.embedding_bag")
"""Entries of which eager kills the process at sizes that do not go together."""


def _as_it_is(operator: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return operator(*args, **kwargs)


# The database seeds random operators inside of what it calls; the checker seeds each call itself.
common_methods_invocations.wrapper_set_seed = _as_it_is


@dataclass(frozen=True, slots=True)
class Example:
    """One call: positional and keyword arguments."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Structure:
    """Calls of one tree of arguments: same ranks, dtypes, orders of strides and constants."""

    key: str
    examples: list[Example] = field(default_factory=list)


def name_of(entry: Any) -> str:
    """The entry's name with its variant: 96 entries share a name with another."""
    variant = entry.variant_test_name
    return f"{entry.name}.{variant}" if variant else str(entry.name)


def structures(
    entry: Any, dtype: torch.dtype, most: int, derived: int, device: str = "cpu"
) -> list[Structure]:
    """At most `most` structures of an entry, spread over those that the database has, each with
    its own calls (at most 4) and at most `derived` further ones."""
    if dtype not in entry.supported_dtypes(device):
        return []
    found: dict[str, Structure] = {}
    torch.manual_seed(0)
    random.seed(0)
    for sample in itertools.islice(entry.sample_inputs(device, dtype, requires_grad=False), 400):
        example = Example((sample.input, *sample.args), dict(sample.kwargs))
        if not all(map(_is_plain, tensors_of(example))):
            continue
        key = structure_of((example.args, sorted(example.kwargs.items())))
        structure = found.setdefault(key, Structure(key))
        if len(structure.examples) < 4:
            structure.examples.append(example)
    step = max(len(found) / most, 1)
    chosen = [
        s for i, s in enumerate(found.values()) if int(i / step) != int((i - 1) / step) or not i
    ]
    for structure in chosen[:most] if entry.name not in NOT_DERIVED else ():
        more = itertools.islice(_derived(structure.examples[0]), derived)
        if device == "cpu":
            structure.examples.extend(more)
        else:
            structure.examples.extend(e for e in more if _runs_on_the_cpu(entry.op, e, device))
    return chosen[:most]


def _runs_on_the_cpu(operator: Callable[..., Any], example: Example, device: str) -> bool:
    """Whether the CPU takes these sizes. An index that is out of range leaves a GPU of no use to
    the process."""

    def there(value: Any) -> Any:
        return "cpu" if isinstance(value, (str, torch.device)) and str(value) == device else value

    copy = mapped(lambda t: t.cpu(), example)
    try:
        operator(*map(there, copy.args), **{k: there(v) for k, v in copy.kwargs.items()})
    except Exception:
        return False
    return True


def _is_plain(t: Tensor) -> bool:
    return (
        type(t) is Tensor and t.layout is torch.strided and not t.is_quantized and not t.is_conj()
    )


def tensors_of(value: Any) -> Iterator[Tensor]:
    """The tensors in a tree of arguments."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Example):
        yield from tensors_of((value.args, value.kwargs))
    elif isinstance(value, dict):
        yield from tensors_of(list(value.values()))
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_of(item)


def mapped(f: Callable[[Tensor], Any], value: Any) -> Any:
    """The same tree with each tensor replaced."""
    if isinstance(value, Tensor):
        return f(value)
    if isinstance(value, Example):
        return Example(mapped(f, value.args), mapped(f, value.kwargs))
    if isinstance(value, dict):
        return {k: mapped(f, v) for k, v in value.items()}
    if type(value) in (list, tuple):
        return type(value)(mapped(f, v) for v in value)
    return value


def structure_of(value: Any) -> str:
    """Text that two calls share where they differ in sizes and values only."""
    if isinstance(value, Tensor):
        order = "" if value.is_contiguous() else str(_order(value))
        return f"{str(value.dtype)[6:]}{value.dim()}{order}"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(structure_of, value))})"
    if callable(value):
        return getattr(value, "__name__", "callable")
    return repr(value)


def _order(t: Tensor) -> tuple[Any, ...]:
    """The dimensions by stride, and which of them repeat or leave gaps."""
    dense = t.numel() == math.prod((n - 1) * s for n, s in zip(t.shape, t.stride())) + 1
    order = sorted(range(t.dim()), key=lambda d: (t.stride(d), -d))
    return (*order, dense, *(s == 0 for s in t.stride()))


def copied(t: Tensor) -> Tensor:
    """A deep copy that keeps strides."""
    if not t.numel():
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device)
    extent = sum((n - 1) * s for n, s in zip(t.shape, t.stride())) + 1
    return t.as_strided((extent,), (1,)).clone().as_strided(t.shape, t.stride())


def _derived(example: Example) -> Iterator[Example]:
    """The call with every occurrence of one size replaced, in all its tensors."""
    tensors = list(tensors_of(example))
    if not all(t.is_contiguous() for t in tensors):
        return
    sizes = sorted({n for t in tensors for n in t.shape}, reverse=True)
    for new in SIZES:
        for old in sizes:
            if new == old:
                continue
            shapes = [[new if n == old else n for n in t.shape] for t in tensors]
            if max(map(math.prod, shapes), default=0) <= MOST_ELEMENTS:
                yield mapped(lambda t, old=old, new=new: _resized(t, old, new), example)


def _resized(t: Tensor, old: int, new: int) -> Tensor:
    """A tensor of the new size that holds the old one's values, over and over."""
    shape = [new if n == old else n for n in t.shape]
    if list(t.shape) == shape:
        return t
    count = math.prod(shape)
    flat = t.reshape(-1) if t.numel() else torch.ones(1, dtype=t.dtype, device=t.device)
    return flat.repeat(-(-count // flat.numel()) if count else 1)[:count].clone().reshape(shape)
