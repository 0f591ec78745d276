"""Every form of indexing, from tables: parts of an index, their places, what is done there.

A statement reads or writes one tensor ``{y}`` by one index. A program is some statements, each on
an argument of its own, so that one compile tests several.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

SIZES = {
    1: ((3,), (1,), (0,), (4,)),
    2: ((3, 3), (2, 4), (1, 1), (0, 3), (3, 0), (4, 4), (1, 3)),
    3: ((3, 3, 3), (2, 3, 4), (1, 1, 1), (0, 2, 2), (2, 2, 0), (4, 4, 4), (3, 1, 3)),
}
"""The sizes of ``y``, by its rank: squares and cubes first."""

BASIC = {":": 1, "1:": 1, "::2": 1, "-2:": 1, ":-1": 1, "0": 1, "-1": 1, "None": 0, "...": 0}
NUMBERS = {"k": 1, "k - 1": 1}
TRUTHS = {"True": 0, "False": 0, "q": 0}
POSITIONS = {"i": 1, "j": 1, "e": 1, "x": 1, "i.int()": 1, "torch.arange({y}.shape[{d}])": 1}
LISTS = {"[0, -1]": 1}
MASKS = {
    "h{d}{r}": "h{d}{r}",  # handed in
    "({y}.sum({others}) > 0)": "({y} > 0)",
    "({y}[{zeros}] != 0)": "({y} != 0)",
    "h{d}{r}.to(torch.uint8)": "h{d}{r}.byte()",
}
"""Masks of ``r`` dimensions at dimension ``d``, and what they are over all dimensions."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of an index, and how many dimensions it stands for."""

    text: str
    dims: int
    tensor: bool = False

    def at(self, d: int, rank: int) -> str:
        """The text at dimension ``d`` of a tensor of so many dimensions."""
        own = range(d, d + self.dims)
        others = tuple(n for n in range(rank) if n not in own)
        text = self.text if others else MASKS.get(self.text, self.text)
        zeros = ", ".join(":" if n in own else "0" for n in range(rank))
        return text.format(y="{y}", d=d, r=self.dims, others=others, zeros=zeros)


def parts(rank: int) -> tuple[Part, ...]:
    """All parts of an index of a tensor of so many dimensions."""
    others = (BASIC, NUMBERS, TRUTHS, LISTS)
    plain = [Part(t, n, t == "q") for table in others for t, n in table.items()]
    positions = [Part(t, n, tensor=True) for t, n in POSITIONS.items()]
    masks = [Part(t, r, tensor=True) for r in range(1, rank + 1) for t in MASKS]
    return (*plain, *positions, *masks)


ACTIONS = {
    "read": "{r} = {y}[{K}]",
    "number": "{y}[{K}] = 5",
    "float": "{y}[{K}] = 2.5",
    "scalar tensor": "{y}[{K}] = {s}",
    "scalar made inside": "{y}[{K}] = {y}.amax()",
    "one element": "{y}[{K}] = {s}.reshape(1)",
    "full": "{y}[{K}] = {y}[{K}] + {y}[{K}]",
    "one column": "{y}[{K}] = {y}[{K}][..., :1] + {s}",
    "add": "{y}[{K}] += 1",
    "add tensor": "{y}[{K}] += {s}",
    "written through": "{y}[{K}].mul_(2)",
    "into a copy": "{r} = {y}.clone(); {r}[{K}] = 3",
    "into a transposed copy": "{r} = {y}.mT.clone(memory_format=torch.contiguous_format).mT; {r}[{K}] = {s}",
    "into a view": "{y}.view_as({y})[{K}] = {s}",
}
ON_TENSORS = {
    "put": "{y}.index_put_(({K},), {s})",
    "accumulate": "{y}.index_put_(({K},), {s}, accumulate=True)",
    "accumulate all": "{y}.index_put_(({K},), {y}[{K}] + {s}, accumulate=True)",
    "put elsewhere": "{r} = torch.index_put({y}, ({K},), {s}.reshape(1))",
    "put all elsewhere": "{r} = torch.index_put({y}, ({K},), {y}[{K}] + {s})",
}
"""Where the index holds tensors and nothing else."""
ALL_ACTIONS = {**ACTIONS, **ON_TENSORS}
DTYPES = ("float32", "int64", "float64", "bfloat16", "bool", "int32", "float32")


@dataclass(frozen=True, slots=True)
class Statement:
    """One access to one tensor; ``number`` is that of the tensor among the arguments."""

    rank: int
    key: str
    action: str
    dtype: str
    of: str  # the dtype of the tensor that is assigned

    def line(self, number: int) -> str:
        names = {"y": f"y{number}", "r": f"r{number}", "s": f"s{number}"}
        return ALL_ACTIONS[self.action].format(**names, K=self.key.format(**names))

    @property
    def has_result(self) -> bool:
        return "{r}" in ALL_ACTIONS[self.action]


def keys(rank: int, longest: int) -> Iterator[tuple[str, bool]]:
    """Each index of so many parts at most, and whether it holds tensors alone."""
    for count in range(1, longest + 1):
        for chosen in itertools.product(parts(rank), repeat=count):
            if sum(p.dims for p in chosen) <= rank and sum(p.text == "..." for p in chosen) < 2:
                yield key_of(chosen, rank), all(p.tensor for p in chosen)


def key_of(chosen: Sequence[Part], rank: int) -> str:
    missing = rank - sum(p.dims for p in chosen)
    d, texts = 0, []
    for part in chosen:
        texts.append(part.at(d, rank))
        d += missing if part.text == "..." else part.dims
    return ", ".join(texts)


def statements(rank: int, longest: int, first: int = 0) -> Iterator[Statement]:
    """Each index, with the next action and dtype in turn."""
    for n, (key, tensors) in enumerate(keys(rank, longest), first):
        actions = (*ALL_ACTIONS,) if tensors else (*ACTIONS,)
        dtype = DTYPES[n // 3 % len(DTYPES)]
        of = "int64" if n % 11 == 0 else dtype
        yield Statement(rank, key, actions[n % len(actions)], dtype, of)


@dataclass(frozen=True, slots=True)
class Program:
    """Statements over one rank, as one function."""

    statements: tuple[Statement, ...]

    @property
    def rank(self) -> int:
        return self.statements[0].rank

    @property
    def source(self) -> str:
        lines = [f"def program({', '.join(self.made(0))}):"]
        lines += (f"    {s.line(n)}" for n, s in enumerate(self.statements))
        results = "".join(f"r{n}, " for n, s in enumerate(self.statements) if s.has_result)
        return "\n".join((*lines, f"    return ({results})", ""))

    def arguments(self, case: int) -> list[Tensor]:
        """Fresh arguments of one size: always the same."""
        return list(self.made(case).values())

    def made(self, case: int) -> dict[str, Tensor]:
        generator = torch.Generator().manual_seed(case)
        shape = SIZES[self.rank][case]

        def fill(size: Sequence[int], dtype: str, low: int = -4, high: int = 5) -> Tensor:
            low, high = (0, 2) if dtype == "bool" else (low, high)
            return torch.randint(low, high, tuple(size), generator=generator).to(
                getattr(torch, dtype)
            )

        made: dict[str, Tensor] = {}
        for n, statement in enumerate(self.statements):
            made[f"y{n}"] = fill(shape, statement.dtype)
            made[f"s{n}"] = fill((), statement.of, 6, 9)
        for d in range(self.rank):
            for r in range(1, self.rank - d + 1):
                made[f"h{d}{r}"] = fill(shape[d : d + r], "bool")
        return made | {
            "i": torch.tensor([0, -1]),
            "j": torch.tensor([[-1], [0]]),
            "e": torch.tensor([], dtype=torch.int64),
            "k": torch.tensor(-1),
            "q": torch.tensor(case % 2 == 0),
            "x": torch.tensor([case % 3]),
        }
