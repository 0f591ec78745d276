"""Random programs on tensors, as Python source, that eager torch runs at every size asked for.

A program grows line by line. Each line is a template filled with names already bound; it is kept
if eager runs it in every environment, one for each assignment of sizes. Values are small whole
numbers, so that most results are exact in any order of summation; a name that no longer is exact
is never compared, rounded or written elsewhere.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

SIZES: tuple[Mapping[str, int], ...] = tuple(
    {"a": a, "b": b} for a, b in ((3, 4), (1, 1), (5, 1), (0, 3), (1, 6), (4, 4), (17, 9))
)
DTYPES = ("float32",) * 8 + ("int64", "int64", "bool", "int32", "float64", "uint8", "int8", "int16")
SHAPES = ("a b", "a b", "a b", "b a", "a", "b", "a 1", "a b 2", "2 a b", "a 4", "")
LAYOUTS = ("plain", "plain", "plain", "transposed", "stepped", "offset", "expanded")


class Chooser(Protocol):
    """Where the choices come from: a seeded generator, or hypothesis."""

    def choose(self, options: Sequence[Any]) -> Any:
        """One of the options."""


@dataclass(frozen=True, slots=True)
class Input:
    """A tensor argument. ``view_of``: an expression over earlier arguments that it is instead."""

    name: str
    shape: tuple[str, ...]
    dtype: str
    layouts: tuple[str, ...]
    view_of: str = ""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """Arguments, and the lines of a function's body."""

    inputs: tuple[Input, ...]
    lines: tuple[str, ...]
    result: str

    @property
    def source(self) -> str:
        """The function as text."""
        body = "\n".join(self.lines)
        text = f"{body}\nreturn {self.result}".strip("\n")
        return f"def program({', '.join(i.name for i in self.inputs)}):\n" + "".join(
            f"    {line}\n" for line in text.split("\n")
        )

    def arguments(self, case: int) -> list[Tensor]:
        """Fresh arguments for one assignment of sizes: always the same."""
        made: dict[str, Tensor] = {}
        for number, entry in enumerate(self.inputs):
            if entry.view_of:
                made[entry.name] = eval(entry.view_of, dict(made))
            else:
                shape = [SIZES[case].get(n) if n.isalpha() else int(n) for n in entry.shape]
                seed = 1000 * case + number
                layout = entry.layouts[case % len(entry.layouts)]
                made[entry.name] = tensor(shape, entry.dtype, layout, seed)
        return list(made.values())


def tensor(shape: Sequence[Any], dtype: str, layout: str, seed: int) -> Tensor:
    """Small whole numbers in one of the layouts."""
    generator = torch.Generator().manual_seed(seed)

    def fill(size: Sequence[int]) -> Tensor:
        low = 0 if dtype in ("bool", "uint8") else -4
        high = 2 if dtype == "bool" else 5
        return torch.randint(low, high, tuple(size), generator=generator).to(getattr(torch, dtype))

    if not shape:
        return fill(())
    if layout == "transposed":
        return fill(shape[::-1]).permute(*range(len(shape))[::-1])
    if layout == "stepped":
        return fill([*shape[:-1], 2 * shape[-1]])[..., ::2]
    if layout == "offset":
        return fill([shape[0] + 2, *shape[1:]])[2:]
    if layout == "expanded":
        return fill([1, *shape[1:]]).expand(shape)
    return fill(shape)


def function_of(source: str) -> Callable[..., Any]:
    """The function that a text defines, with a code object that names its lines."""
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(source, "<program>", "exec"), namespace)
    return namespace["program"]


# --- templates: {v} any tensor, {w} another, {e} an exact one, {n} a fresh name, {i} a small number,
# {d} a dimension, {s} a size; the second entry says whether the result may be inexact ---

PURE = """
-{v} | {v}.abs() | torch.relu({v}) | {v}.clamp(-8, 8) | {v}.clone() | torch.square({v}).clamp(-8, 8)
{v} + {w} | {v} - {w} | ({v} * {w}).clamp(-8, 8) | torch.maximum({v}, {w}) | torch.minimum({v}, {w})
{v} + {i} | {i} - {v} | ({v} * {i}).clamp(-8, 8) | {v} + {s} | ({v} * 1.0).clamp(-8, 8) | {v} + True
torch.where({e} > {i}, {v}, {w}) | torch.where({e} != 0, {v}, {i}) | {v}.masked_fill({e} > 0, {i})
{e} > {w} | {e} == {e2} | {e} <= {i} | {e} // 2 | {e} % 3 | {e}.logical_not() | ({e} > 0) & ({e2} < 2)
{e}.sign() | {e}.floor() | {e} ^ {e2} | ~{e} | {e} << 1 | {e} & 3 | {e}.bool() | {e}.fmod(3)
{e}.to(torch.int64) | {e}.to(torch.float64) | {e}.to(torch.int32) | {e}.to(torch.int8) | {v}.float()
{e}.to(torch.int16) | {e}.abs().to(torch.uint8) | {e}.to({v}.dtype) | {e}.type_as({w}) | {e}.half().float()
{v}.sum() | {v}.sum({d}) | {v}.sum({d}, keepdim=True) | {v}.amax({d}) | {v}.amin({d}, keepdim=True)
{e}.any({d}) | {e}.all() | {e}.argmax({d}) | {e}.argmin() | {e}.max({d})[0] | {e}.min({d})[1] | {e}.count_nonzero()
{v}.cumsum({d}) | {e}.clamp(-1, 1).prod({d}) | {e}.sort({d}).values | {e}.sum({d}, dtype=torch.float64)
{e}.sort({d}, stable=True)[1] | {e}.cummax({d})[0] | {v}.max() | {v}.diff(dim={d}) | {e}.any() | {e}.aminmax()[1]
{v}.flip({d}) | {v}.roll(1, {d}) | {v}.repeat(2, 1) | {v}.repeat_interleave(2, {d}) | torch.tril({v}) | {v}.triu(1)
torch.cat([{v}, {w}]) | torch.cat([{v}, {v}], -1) | torch.cat([{v}, {w}], {d}) | torch.stack([{v}, {v}], {d}) | torch.cat([{v}.flatten(), {w}.flatten()])
torch.nn.functional.pad({v}, (1, 2)) | torch.nn.functional.pad({v}, (1, 0), value=2) | {v}.new_zeros({s}) | {v}.new_ones({v}.shape)
torch.zeros_like({v}) | torch.full(({s}, 2), {i}) | torch.arange({s}) | torch.ones({s}, {s}) | torch.zeros({v}.shape, dtype={w}.dtype)
torch.arange({s}, 0, -1) | torch.eye({s}) | torch.tensor([{s}, {i}]) | torch.empty_like({v}).fill_({i}) | torch.full_like({v}, {i})
{v}[{e}.bool()] | {v}[{e} > 0] | torch.nonzero({e}) | {v}.masked_select({e} > 0) | {v}[torch.arange({s}) % 1]
{v}.index_select({d}, torch.arange({v}.shape[{d}]).flip(0)) | {v}[torch.arange({v}.shape[0]).flip(0)] | {v}[:, torch.tensor([0])]
{v}.gather({d}, torch.zeros_like({v}, dtype=torch.int64)) | {v}.take(torch.arange({v}.numel()).flip(0)) | {v}[[0, -1]]
{v}.scatter({d}, torch.zeros_like({v}, dtype=torch.int64), {i}) | {v}.index_add(0, torch.arange({v}.shape[0]).flip(0), {v})
torch.addcmul({v}, {w}, {w}).clamp(-8, 8) | {v}.lerp({w}, 1.0) | ({v}.clamp(-2, 2) @ {w}.clamp(-2, 2)).clamp(-8, 8)
{e}.to(torch.uint8) * 100 + 60 | -{e}.to(torch.uint8) | {e}.to(torch.int8) * 50 | {e}.bool() + {e2}.bool() | {e}.bool() * 3 | {e}.to(torch.int8).abs() << 5
{e}.to(torch.uint8).sum(dtype=torch.uint8) | ({e}.to(torch.int8) * 60).cumsum({d}, dtype=torch.int8) | {e}.to(torch.int8).prod({d}, dtype=torch.int8) | {e}.to(torch.uint8) // 2 - 1 | {e}.bool().sum({d}) | {e}.bool().cumsum({d})
({v} / 0).isinf() | ({v} / 0).isnan().sum({d}) | ({v} / 0 * 0).nan_to_num(2) | ({v} / 0).amax({d}).isnan() | ({v} / 0).argmax() | ({v} / 0).sort({d})[1] | ({v} / 0).clamp(-3, 3).nan_to_num(1)
torch.maximum({v} / 0, {w}).isnan() | torch.where({e} > 0, float("nan"), 1.0).min({d})[1] | torch.fmax(torch.where({e} > 0, float("nan"), 1.0), {w}) | (torch.where({e} > 0, float("inf"), 1.0) > {w}) | ({v} / 0).sign().nan_to_num(3)
torch.where({e} > 0, float("nan"), 1.0).cummax({d})[1] | torch.where({e} > 0, float("nan"), 1.0).bool() | (torch.where({e} > 0, float("nan"), 1.0) != 1).any({d}) | {v}.to(torch.bfloat16).float() | ({e}.half() / 3 * 3).round()
{v}.flatten().scatter_add(0, torch.arange({v}.numel()) // 2, {v}.flatten()) | {v}.flatten().scatter_reduce(0, torch.arange({v}.numel()) // 3, {v}.flatten(), "amax") | {v}.index_add(0, torch.zeros({v}.shape[0], dtype=torch.int64), {v}).clamp(-8, 8)
torch.zeros(9, dtype={v}.dtype).index_add(0, {e}.abs().flatten().to(torch.int64) % 9, {e}.flatten().to({v}.dtype)).clamp(-8, 8) | torch.bincount({e}.abs().flatten().to(torch.int64), minlength=3) | {e}.unique() | {e}.flatten().unique(return_counts=True)[1]
torch.zeros(5, dtype={v}.dtype).index_put(({e}.abs().flatten().to(torch.int64) % 5,), {e}.flatten().to({v}.dtype), accumulate=True).clamp(-8, 8) | {v}.repeat_interleave({e}.abs().flatten()[: {v}.shape[0]].to(torch.int64)[:1].sum() % 3, 0)
{v}.flatten()[: int({e}.abs().sum()) % 7] | {v}.flatten().tensor_split([int({e}.count_nonzero()) % 3])[0] | torch.zeros(int({e}.bool().sum()), {s}) | {v}.flatten().split([int({e}.bool().sum()) % 2, {v}.numel() - int({e}.bool().sum()) % 2])[1]
{v}.index_fill({d}, torch.tensor([0]), {i}) | torch.outer({v}.flatten(), {v}.flatten()).clamp(-8, 8) | {v}.flatten().dot({v}.flatten()).clamp(-8, 8)
"""

VIEWS = """
{v}[0] | {v}[-1] | {v}[:, 0] | {v}[1:] | {v}[:-1] | {v}[::2] | {v}[..., 1:] | {v}[..., None] | {v}[None] | {v}[:, ::2]
{v}.t() | {v}.transpose(0, -1) | {v}.permute(1, 0) | {v}.permute(2, 0, 1) | {v}.mT | {v}.T | {v}.movedim(0, -1) | {v}.swapaxes(0, 1)
{v}.unsqueeze({d}) | {v}.squeeze() | {v}.squeeze({d}) | {v}.reshape(-1) | {v}.view(-1) | {v}.flatten() | {v}.ravel() | {v}.contiguous()
{v}.reshape({v}.shape) | {v}.view({v}.shape[0], -1) | {v}.reshape(-1, {v}.shape[0]) | {v}.unflatten(0, (1, -1)) | {v}.t().contiguous()
{v}.expand(2, *{v}.shape) | {v}.expand_as({w}) | {v}.expand({v}.shape) | {v}.broadcast_to({w}.shape) | {v}[:1].expand({v}.shape)
{v}.narrow(0, 0, 1) | {v}.select({d}, 0) | {v}.chunk(2)[0] | {v}.chunk(2, -1)[-1] | {v}.split(2)[-1] | {v}.unbind()[0] | {v}.tensor_split(2)[1]
{v}.diagonal() | {v}.detach() | {v}.view_as({v}) | {v}.to({v}.dtype) | {v}[:{s}] | {v}[-{s}:] | {v}[: {v}.shape[0] // 2] | {v}[{s} // 2 :]
{v}.unfold(0, 1, 1) | {v}.as_strided((1,), (1,)) | {v}[...] | {v}[:] | torch.ops.aten.alias({v}) | torch.broadcast_tensors({v}, {w})[0] | torch.atleast_2d({v})
{v}.view(torch.int32) | {v}.transpose(0, 1).reshape(-1) | {v}.T.contiguous().T | torch.dropout({v}, 0.5, False) | {v}.reshape({s}, -1)
"""

WRITES = """
{v}.add_({i}) | {v}.add_({w}) | {v}.mul_(2).clamp_(-8, 8) | {v}.sub_({w}) | {v}.clamp_(-3, 3) | {v}.neg_() | {v}.abs_() | {v}.zero_() | {v}.fill_({i})
{v} += {i} | {v} += {w} | {v} -= {w} | {v} *= -1 | {v}.copy_({w}) | {v}.copy_({w}.clone()) | {v}[0] = {w} | {v}[-1] = {i} | {v}[0] += {i}
{v}[:, 0] = {i} | {v}[..., :1] = {w} | {v}[1:] += {i} | {v}[:-1] = {i} | {v}[::2] *= -1 | {v}[:, ::2] = {w} | {v}[:] = {w} | {v}[...] = {i}
{v}.t()[0] = {i} | {v}.t().add_({w}.t()) | {v}.view(-1)[0] = {i} | {v}.reshape(-1).add_({i}) | {v}.unsqueeze(0).sub_({i}) | {v}.flatten()[1:] = {i}
{v}.diagonal().fill_({i}) | {v}.select(0, 0).copy_({w}) | {v}.transpose(0, -1)[0].neg_() | {v}.squeeze().add_({i}) | {v}.chunk(2)[0].zero_()
{v}[{e} > 0] = {i} | {v}.masked_fill_({e} > 1, {i}) | {v}[{e} > 0] += {i} | {v}.index_fill_(0, torch.tensor([0]), {i}) | {v}[torch.tensor([0])] = {w}
{v}.index_add_(0, torch.arange({v}.shape[0]).flip(0), {v}.clone()) | {v}.scatter_({d}, torch.zeros_like({v}, dtype=torch.int64), {i}) | {v}[[0]] = {i}
{v}.index_copy_(0, torch.arange({v}.shape[0]).flip(0), {v}.clone()) | {v}.index_put_((torch.tensor([0, 0]),), torch.ones((), dtype={v}.dtype), accumulate=True)
torch.add({v}, {i}, out={v}) | torch.neg({w}, out={v}) | {v}.logical_not_() | {v}.unsqueeze_(0) | {v}.t_() | {v}.squeeze_(0) | {v}.transpose_(0, -1)
{v}[{s} // 2 :] = {i} | {v}[: {s}].add_({i}) | {v}.where({e} > 0, {w}).add_({i}) | {v}.detach().add_({i}) | {v}.expand({v}.shape).add_({i})
{v}[1:] += {v}[:-1].clone() | {v}[1:] = {v}[:-1].clone() | {v}.unfold(0, 1, 1).add_({i}) | {v}.view(-1)[::2] = {v}.view(-1)[0].clone() | {v}.flatten()[:2].zero_() | {v}.T[:1].add_({i}) | {v}[..., None].mul_(-1) | {v}.view(-1, 1)[0] = {i}
{v}.scatter_add_(0, torch.zeros_like({v}, dtype=torch.int64)[:1], {v}.clone()).clamp_(-8, 8) | {v}.scatter_reduce_({d}, torch.zeros_like({v}, dtype=torch.int64), {v}.clone(), "amin") | {v}.view(-1).index_put_((torch.arange({v}.numel()) % 2,), {v}.flatten().clone(), accumulate=True).clamp_(-8, 8)
{v}.select(-1, 0).copy_({v}.select(-1, -1).clone()) | {v}.index_reduce_(0, torch.zeros({v}.shape[0], dtype=torch.int64), {v}.clone(), "amax") | {v}.sort(0)[0].add_({i}) | {v}.masked_fill_({v} != {v}, {i}) | {v}.bool().logical_not_() | {v}.fill_({e}.max().to({v}.dtype))
{v}.triu_() | {v}.cumsum_(0).clamp_(-8, 8) | {v}.sign_() | {v}.bitwise_not_() | {v}.swapaxes(0, 1)[0] = {w} | {v}.view_as({v}).add_({i}) | {v}.masked_scatter_({e} > 0, {v}.clone())
"""

INEXACT = """
{v}.float().mean({d}) | {v}.float().softmax({d}) | {v}.tanh() | {v}.exp() | {v}.float().var({d}) | {v} / 3 | {v} * 0.1 | torch.sigmoid({v})
{v}.float().logsumexp({d}) | torch.nn.functional.layer_norm({v}.float(), {v}.shape[-1:]) | torch.nn.functional.gelu({v}.float()) | {v}.float().std() | {v}.mean() | {v}.float().norm()
"""

# Whole statements: {n} is bound by each of them.
BLOCKS = """
if {s} > {t}:
    {n} = {v} + {i}
else:
    {n} = {v} - {i}
---
{n} = {v}.clone()
if {s} == {t}:
    {n} += {i}
---
if {s} > 1:
    {v}.add_({i})
{n} = {v} * 2
---
if {s} == 0:
    {n} = {v}
elif {s} == 1:
    {n} = {v} + 1
else:
    {n} = {v} - 1
---
{n} = {v}
for k in range(3):
    {n} = {n} + k
    {v}.add_(1)
---
{n} = 0
for row in {v}:
    {n} = {n} + row
---
{n} = {v} + 0
for k in range({s}):
    {n}[0] += k
---
if {e}.sum() > 0:
    {v} += {i}
{n} = {v} + {i}
---
{n} = {v}.view_as({v})
if float({e}.sum()) > 1:
    {n}.add_({i})
---
{n} = {v} + int({e}.count_nonzero())
---
{n} = {v} * min({s}, {t}) + max({s}, 2)
---
try:
    {n} = {v} + {w}
except RuntimeError:
    {n} = {v} + 1
---
try:
    {n} = {v}[{i}]
    {n} = {n} + 1
except IndexError:
    {n} = {v}.clone()
---
{n} = [{v}, {w}, {v}][{s} % 3] + {i}
---
{n} = sum([t.sum() for t in {v}.unbind()], {v}.sum())
---
{n} = [{v}[k] for k in range({v}.shape[0])][-1]
---
def inner(t, by={i}):
    t.add_(by)
    return t[0]
{n} = inner({v})
---
{n} = (lambda t: t.t() if t.shape[0] == t.shape[1] else t)({v})
---
{n} = {v}.reshape(-1) if {v}.is_contiguous() else {v} * 2
---
{n} = torch.zeros({e}.clamp(0, 3).sum().item() % 5) + {i}
---
{n} = torch.tensor({e}.flatten()[:2].tolist())
---
{n}, {n}_ = {v}.split([1, {v}.shape[0] - 1])
{n}_ *= -1
---
{n} = {v} + 0
for k in {e}.flatten()[:3].tolist():
    {n} = {n} + k
---
{n} = {v} + 0
for k in {e}.flatten()[:3].to(torch.int64).tolist():
    if k > 0:
        {n} = {n} * 2 - k
{n} = {n}.clamp(-8, 8)
---
{n} = {v}.flatten()
{n}_ = {e}.flatten()[:2].abs().to(torch.int64).tolist()
{n} = torch.cat([{n}[:k] for k in [*{n}_, 1]])
---
{n} = {v}.clone()
while {n}.abs().sum() > 4:
    {n} = torch.div({n}, 2, rounding_mode="trunc")
---
{n} = 0
while {n} * {n} < {s}:
    {n} += 1
{n} = {v} + {n}
---
{n} = {v}
if {e}.any():
    {n} = {n}[..., :1]
{n} = {n} + {i}
---
{n} = {v}, {w}
{n} = ({n}[0] if {n}[0].numel() > {n}[1].numel() else {n}[1]).abs()
"""


def _cells(text: str) -> tuple[str, ...]:
    return tuple(cell.strip() for line in text.strip().split("\n") for cell in line.split(" | "))


PURES, VIEWINGS, WRITINGS, INEXACTS = map(_cells, (PURE, VIEWS, WRITES, INEXACT))
COMPOUNDS = tuple(block.strip("\n") for block in BLOCKS.split("---\n"))
KINDS = ("pure",) * 5 + ("view",) * 5 + ("write",) * 5 + ("block",) * 2 + ("inexact",)
TEMPLATES = {
    "pure": PURES,
    "view": VIEWINGS,
    "write": WRITINGS,
    "inexact": INEXACTS,
    "block": COMPOUNDS,
}


@dataclass(slots=True)
class Growing:
    """A program under construction, and what eager has made of it so far at every size."""

    chooser: Chooser
    inputs: tuple[Input, ...]
    lines: list[str] = field(default_factory=list)
    inexact: set[str] = field(default_factory=set)
    environments: list[dict[str, Any]] = field(default_factory=list)
    fresh: int = 0

    def restart(self) -> None:
        """Runs all lines anew."""
        self.environments = [
            {"torch": torch, **dict(zip((i.name for i in self.inputs), arguments))}
            for arguments in (Fuzzed(self.inputs, (), "").arguments(c) for c in range(len(SIZES)))
        ]
        text = compile("\n".join(self.lines), "<program>", "exec")
        for environment in self.environments:
            exec(text, environment)

    def names(self, exact: bool = False) -> list[str]:
        """What is a tensor at every size."""
        return [
            name
            for name in self.environments[0]
            if all(isinstance(e.get(name), Tensor) for e in self.environments)
            and not (exact and name in self.inexact)
        ]

    def pick(self, names: Sequence[str]) -> str:
        """One of the names, the newest more often."""
        return self.chooser.choose([*names, *names[-3:], *names[-3:]])

    def size(self) -> str:
        """An expression of a size."""
        name = self.pick(self.names())
        rank = min(e[name].dim() for e in self.environments)
        return f"{name}.shape[{self.chooser.choose(range(rank))}]" if rank else f"{name}.numel()"

    def step(self) -> None:
        """Adds one line, if eager runs it at every size and its numbers stay small."""
        kind = self.chooser.choose(KINDS)
        template = self.chooser.choose(TEMPLATES[kind])
        exact = self.names(exact=True)
        if not exact:
            return
        v = self.pick(exact if kind in ("write", "block") else self.names())
        w = self.pick(exact if kind in ("write", "block") else self.names())
        name = f"t{self.fresh}"
        values = {
            "v": v,
            "w": w,
            "e": self.pick(exact),
            "e2": self.pick(exact),
            "n": name,
            "i": self.chooser.choose((0, 1, 2, 3)),
            "d": self.chooser.choose((0, -1, 1)),
            "s": self.size(),
            "t": self.chooser.choose((self.size(), "1", "2", "4")),
        }
        if (
            re.search(r"{(e|e2)}", template)
            and kind == "pure"
            and "{w}" in template
            and w not in exact
        ):
            return
        text = template.format(**values)
        line = f"{name} = {text}" if kind in ("pure", "view", "inexact") else text
        if self.accepts(line):
            self.lines.append(line)
            self.fresh += 1
            if kind == "inexact" or (kind in ("pure", "view") and {v, w} & self.inexact):
                self.inexact.add(name)
        else:
            self.restart()

    def accepts(self, line: str) -> bool:
        """Whether eager runs the line everywhere, with small whole numbers as results."""
        code = compile(line, "<program>", "exec")
        try:
            for environment in self.environments:
                exec(code, environment)
        except Exception:
            return False
        return all(
            small(value)
            for environment in self.environments
            for name, value in environment.items()
            if isinstance(value, Tensor) and name not in self.inexact
        )

    def finish(self) -> Fuzzed:
        """The program, which returns some of its names."""
        names = self.names()
        chosen = [self.pick(names) for _ in range(self.chooser.choose((1, 2, 3)))]
        return Fuzzed(self.inputs, tuple(self.lines), ", ".join([*chosen, self.size()]))


def small(value: Tensor) -> bool:
    """Every order of adding up gives the same."""
    return value.numel() < 5000 and bool((value.double().abs() <= 2**16).all())


def grow(chooser: Chooser, steps: int) -> Fuzzed:
    """A random program of at most that many lines."""
    inputs = [
        Input(
            f"x{k}",
            tuple(chooser.choose(SHAPES).split()),
            chooser.choose(DTYPES),
            tuple(chooser.choose(LAYOUTS) for _ in range(chooser.choose((1, 1, 3)))),
        )
        for k in range(chooser.choose((1, 2, 2, 3)))
    ]
    if chooser.choose((True, False, False, False)):
        view = chooser.choose(("x0", "x0[:1]", "x0.flatten()", "x0[1:]", "x0.view_as(x0)"))
        inputs = [replace(inputs[0], shape=tuple("a b".split())), *inputs[1:]]
        inputs.append(Input("same", (), inputs[0].dtype, ("plain",), view))
    growing = Growing(chooser, tuple(inputs))
    growing.restart()
    for _ in range(steps):
        growing.step()
    return growing.finish()
