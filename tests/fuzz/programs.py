"""Random programs on tensors, as Python source, that eager torch has run at five sizes.

A program grows line by line: a template of `grammar.py`, filled with names already bound. A line
is kept if eager runs it in every call, or, now and then, where it raises in one or two of them:
the program ends there in these calls. Values are small whole numbers, so that most results are
exact in any order of summation; a name that is not is never compared, rounded or converted to
integers, so that no rounding decides what a program does.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch
from torch import Tensor

from tests.fuzz import grammar, inputs
from tests.fuzz.inputs import DEFAULT_SIZES, Input, Sizes

HOLE = re.compile(r"{(\w+?)}")
OWN = re.compile(r"(x|t|n|same)\d*_?")
SEED = 7
"""Of torch's random numbers at the beginning of each call."""
EXACT_BELOW = {
    torch.float32: 2**16,
    torch.float64: 2**16,
    torch.float16: 2**10,
    torch.bfloat16: 2**7,
}
MOST_ELEMENTS = 6000
TRIES = 12
MOST_RAISED = 2
"""Calls in which one statement may raise."""


def seed() -> None:
    """Of this device's numbers alone: ``torch.manual_seed`` notes where it was called from, three
    times, for devices that are not in use; a millisecond."""
    torch.default_generator.manual_seed(SEED)
    if torch.cuda.is_initialized():
        torch.cuda.manual_seed(SEED)


def random_state() -> Tensor:
    """Of the CPU's random numbers, and of those of the GPU that is in use."""
    state = torch.get_rng_state()
    return torch.cat([state, torch.cuda.get_rng_state()]) if torch.cuda.is_initialized() else state


def put_back(state: Tensor) -> None:
    """Sets what ``random_state`` gave."""
    length = len(torch.get_rng_state())
    torch.set_rng_state(state[:length])
    if len(state) > length:
        torch.cuda.set_rng_state(state[length:])


class Chooser(Protocol):
    """Where the choices come from: a seeded generator, or hypothesis."""

    def choose(self, options: Sequence[Any]) -> Any:
        """One of the options."""


@dataclass(frozen=True, slots=True)
class Fuzzed:
    """Arguments, the statements of a function's body, what it returns, and the sizes of its calls,
    in their order."""

    inputs: tuple[Input, ...]
    lines: tuple[str, ...]
    result: str
    sizes: tuple[Sizes, ...] = DEFAULT_SIZES

    @property
    def source(self) -> str:
        """The function as text."""
        body = "\n".join(self.lines)
        text = f"{body}\nreturn {self.result}".strip("\n")
        return f"def program({', '.join(i.name for i in self.inputs)}):\n" + "".join(
            f"    {line}\n" for line in text.split("\n")
        )

    def arguments(self, case: int) -> list[Any]:
        """Fresh arguments for one call: always the same."""
        made: dict[str, Any] = {}
        for number, entry in enumerate(self.inputs):
            made[entry.name] = entry.made(self.sizes[case], case, number, made)
        return list(made.values())

    def __str__(self) -> str:
        """What to paste into a file."""
        entries = "\n".join(f"        {entry!r}," for entry in self.inputs)
        lines = "\n".join(f"        {line!r}," for line in self.lines)
        sizes = "\n".join(f"        {dict(s)!r}," for s in self.sizes)
        return (
            "from tests.fuzz.inputs import Input\nfrom tests.fuzz.oracle import wrong\n"
            "from tests.fuzz.programs import Fuzzed\n\nPROGRAM = Fuzzed(\n"
            f"    (\n{entries}\n    ),\n    (\n{lines}\n    ),\n    {self.result!r},\n"
            f"    (\n{sizes}\n    ),\n)\nprint(PROGRAM.source, *wrong(PROGRAM), sep='\\n')\n"
        )


def function_of(source: str) -> Callable[..., Any]:
    """The function that a text defines, with a code object that names its lines."""
    namespace: dict[str, Any] = {"torch": torch}
    exec(compile(source, "<program>", "exec"), namespace)
    return namespace["program"]


def tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors of a result, however nested."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (tuple, list)):
        for part in value:
            yield from tensors_in(part)
    elif isinstance(value, dict):
        yield from tensors_in(list(value.values()))


def _shape(t: Tensor, rank: int, **sizes: int) -> bool:
    return t.dim() == rank and all(t.shape[int(d[1:])] == n for d, n in sizes.items())


WANTED: dict[str, Callable[[Tensor], bool]] = {
    "v": lambda t: True,
    "w": lambda t: True,
    "e": lambda t: True,
    "e2": lambda t: True,
    "ef": lambda t: t.is_floating_point(),
    "m": lambda t: t.dim() >= 2,
    "f": lambda t: t.is_floating_point(),
    "f2": lambda t: t.is_floating_point(),
    "z": lambda t: t.is_complex(),
    "q": lambda t: t.dtype is torch.int64,
    "k": lambda t: t.dtype is torch.bool,
    "L": lambda t: t.is_floating_point() and t.dim() >= 2 and t.shape[-1] == 4,
    "W": lambda t: t.is_floating_point() and tuple(t.shape) == (4, 4),
    "B": lambda t: t.is_floating_point() and tuple(t.shape) == (4,),
    "C": lambda t: t.is_floating_point() and _shape(t, 4, d1=4),
    "K": lambda t: (
        t.is_floating_point() and _shape(t, 4, d0=4, d1=4) and t.shape[2] == t.shape[3] < 4
    ),
    "C1": lambda t: t.is_floating_point() and _shape(t, 3, d1=4),
    "K1": lambda t: t.is_floating_point() and _shape(t, 3, d0=4, d1=4),
    "H": lambda t: t.is_floating_point() and _shape(t, 4, d1=2, d3=4),
    "P": lambda t: t.dim() == 3,
    "R": lambda t: t.dim() == 3,
}
"""What a name in a template may stand for."""
EXACT_ONLY = frozenset({"e", "e2", "ef", "q", "k"})
"""Those of which whole numbers are wanted."""


class Missing(Exception):
    """No name of the program is what the template wants."""


@dataclass(slots=True)
class Growing:
    """A program under construction, and what eager has made of it so far in each call.

    ``ended``: the calls in which a line raised; ``rounded``: names that are not exact."""

    chooser: Chooser
    base: Fuzzed
    may_raise: bool
    lines: list[str] = field(default_factory=list)
    rounded: set[str] = field(default_factory=set)
    environments: list[dict[str, Any]] = field(default_factory=list)
    random_states: dict[int, Tensor] = field(default_factory=dict)
    ended: set[int] = field(default_factory=set)
    fresh: int = 0

    def restart(self, cases: Sequence[int]) -> None:
        """Runs all lines anew in these calls."""
        text = compile("\n".join(self.lines), "<program>", "exec")
        while len(self.environments) < len(self.base.sizes):
            self.environments.append({})
        for case in cases:
            arguments = zip((i.name for i in self.base.inputs), self.base.arguments(case))
            self.environments[case] = {"torch": torch, **dict(arguments)}
            seed()
            self.random_states[case] = torch.get_rng_state()
            if case not in self.ended:
                self.run(text, case)

    def run(self, code: Any, case: int) -> None:
        """Runs statements in one call, with the random numbers that the program draws there."""
        torch.set_rng_state(self.random_states[case])
        try:
            exec(code, self.environments[case])
        finally:
            self.random_states[case] = torch.get_rng_state()

    def live(self) -> list[int]:
        """The calls that no line has ended."""
        return [case for case in range(len(self.base.sizes)) if case not in self.ended]

    def names(self, wanted: Callable[[Tensor], bool] = lambda t: True) -> list[str]:
        """What is such a tensor in every call."""
        live = [self.environments[case] for case in self.live()]
        return [
            name
            for name in live[0]
            if OWN.fullmatch(name)
            and all(isinstance(e.get(name), Tensor) and wanted(e[name]) for e in live)
        ]

    def pick(self, names: Sequence[str]) -> str:
        """One of the names, the newest more often."""
        if not names:
            raise Missing
        return self.chooser.choose([*names, *names[-3:], *names[-3:]])

    def size(self) -> str:
        """An expression of a size."""
        numbers = [i.name for i in self.base.inputs if i.dtype == "int"]
        if numbers and self.chooser.choose((True, False, False)):
            return self.chooser.choose(numbers)
        name = self.pick(self.names())
        rank = min(self.environments[case][name].dim() for case in self.live())
        return f"{name}.shape[{self.chooser.choose(range(rank))}]" if rank else f"{name}.numel()"

    def fill(self, template: str, exact: bool, bound: dict[str, str]) -> str:
        """The template with names, and with parts drawn anew."""

        def filled(hole: re.Match[str]) -> str:
            key = hole[1]
            if key in bound:
                return bound[key]
            if key == "s":
                return self.size()
            if key == "t":
                return self.chooser.choose((self.size(), "1", "2", "4"))
            if key in grammar.PARTS:
                return self.fill(self.chooser.choose(grammar.PARTS[key]), exact, bound)
            names = self.names((lambda _: True) if key == "x" else WANTED[key])
            if key == "x":
                names = [name for name in names if name.startswith("x")]
            if exact or key in EXACT_ONLY:
                names = [name for name in names if name not in self.rounded]
            first = bound.get("v") or bound.get("f")
            if key == "e" and first in names and self.chooser.choose((True, True, False)):
                bound[key] = first  # a mask of what it indexes
            else:
                bound[key] = self.pick(names)
            return bound[key]

        return HOLE.sub(filled, template)

    def step(self) -> bool:
        """Tries to add a statement; whether it did."""
        family = self.chooser.choose(FAMILIES)
        if family.startswith("raising") and not self.may_raise:
            return False
        table = grammar.EXPRESSIONS if family in grammar.EXPRESSIONS else grammar.STATEMENTS
        return self.tries(family, self.chooser.choose(table[family]))

    def tries(self, family: str, template: str) -> bool:
        """The same with a given template."""
        # What jumps may read exact names only; views, writes and libraries take any.
        exact = family not in grammar.SMOOTH
        name = f"t{self.fresh}"
        bound = {"n": name}
        try:
            text = self.fill(template, exact, bound)
        except Missing:
            return False
        line = f"{name} = {text}" if family in grammar.EXPRESSIONS else text
        used = {value for key, value in bound.items() if key != "n"}
        rounded = family in grammar.ROUNDED or bool(used & self.rounded)
        if not self.accepts(line, rounded):
            return False
        self.lines.append(line)
        self.fresh += 1
        return True

    def accepts(self, line: str, rounded: bool) -> bool:
        """Whether eager runs the line, everywhere or almost."""
        try:
            code = compile(line, "<program>", "exec")
        except SyntaxError:
            return False
        before = [_versions(environment) for environment in self.environments]
        raised: list[int] = []
        run: list[int] = []
        live = self.live()
        for case in live:
            run.append(case)
            try:
                self.run(code, case)
            except RAISED:
                raised.append(case)
                if not self.may_raise or len(raised) > MOST_RAISED:
                    self.restart(run)
                    return False
        if len(raised) == len(live) or self.too_large(live):
            self.restart(run)
            return False
        ended = set(self.ended)
        self.ended |= set(raised)
        try:
            for case in self.live():
                after = _versions(self.environments[case])
                made = {
                    name for name, version in after.items() if before[case].get(name) != version
                }
                self.note_rounding(self.environments[case], made if rounded else set())
        except RuntimeError:  # eager torch has made a tensor that nobody can read
            self.ended = ended
            self.restart(run)
            return False
        return True

    def too_large(self, live: Sequence[int]) -> bool:
        """Whether something grew past what is quick to compare."""
        return any(
            t.numel() > MOST_ELEMENTS
            for case in live
            for name, value in self.environments[case].items()
            if OWN.fullmatch(name)
            for t in tensors_in(value)
        )

    def note_rounding(self, environment: dict[str, Any], made: set[str]) -> None:
        """Learns which names are not exact, and what lies in the same memory as these."""
        own = {name: value for name, value in environment.items() if OWN.fullmatch(name)}
        self.rounded |= {name for name in made if _can_round(own[name])}
        self.rounded |= {n for n, v in own.items() if not all(map(exact_tensor, tensors_in(v)))}
        memory = {_memory(t) for n in self.rounded if n in own for t in tensors_in(own[n])} - {0}
        self.rounded |= {
            n for n, v in own.items() if any(_memory(t) in memory for t in tensors_in(v))
        }

    def finish(self) -> Fuzzed:
        """The program, which returns some of its names."""
        live = [self.environments[case] for case in self.live()]
        names = [name for name in live[0] if OWN.fullmatch(name) and all(name in e for e in live)]
        count = self.chooser.choose((1, 2, 3, 4, 8))
        chosen = list(dict.fromkeys(self.pick(names) for _ in range(count)))
        chosen += chosen[: self.chooser.choose((0, 0, 0, 1))]
        if self.chooser.choose((True, False)):
            chosen.append(self.size())
        text = ", ".join(chosen)
        form = self.chooser.choose(("{},", "{},", "{},", "[{}]", "dict(r=[{}])", "({}), None"))
        return replace(self.base, lines=tuple(self.lines), result=form.format(text))


RAISED = (
    RuntimeError,
    ValueError,
    IndexError,
    TypeError,
    AssertionError,
    NotImplementedError,
    ArithmeticError,
    AttributeError,
)
FAMILIES = tuple(family for family, share in grammar.SHARES.items() for _ in range(share))


def _versions(environment: dict[str, Any]) -> dict[str, Any]:
    """What tells whether a statement wrote to a name, or bound it."""
    return {
        name: (id(value), *(t._version for t in tensors_in(value)))
        for name, value in environment.items()
        if OWN.fullmatch(name)
    }


def _can_round(value: Any) -> bool:
    return any(t.is_floating_point() or t.is_complex() for t in tensors_in(value))


def _memory(t: Tensor) -> int:
    return t.untyped_storage().data_ptr() if t.numel() else 0


def exact_tensor(value: Tensor) -> bool:
    """Whether every order of adding up such numbers gives the same."""
    if value.is_complex():
        value = torch.view_as_real(value.detach().resolve_conj())
    if not value.is_floating_point():
        return True
    wide = value.detach().double()
    wide = wide[wide.isfinite()] * 2
    return bool((wide == wide.floor()).all()) and bool(
        (wide.abs() < 2 * EXACT_BELOW[value.dtype]).all()
    )


def grow(chooser: Chooser, steps: int) -> Fuzzed:
    """A random program of at most that many statements."""
    growing = Growing(chooser, _beginning(chooser), may_raise=chooser.choose((True, False, False)))
    growing.restart(range(len(growing.base.sizes)))
    for _ in range(steps):
        for _ in range(TRIES):
            if growing.step():
                break
    return growing.finish()


def _beginning(chooser: Chooser) -> Fuzzed:
    """The arguments and the sizes."""
    triples = [
        chooser.choose(kind)
        for kind in (inputs.GENERIC, inputs.EQUAL, inputs.WITH_ZERO, inputs.WITH_ONE, inputs.ANY)
    ]
    sizes = []
    while triples:
        sizes.append(dict(zip("abc", triples.pop(chooser.choose(range(len(triples)))))))
    theme = chooser.choose((*inputs.THEMES.values(), *((),) * 10))
    shapes = [*theme] or [
        chooser.choose(inputs.SHAPES) for _ in range(chooser.choose((1, 2, 2, 3)))
    ]
    if theme and chooser.choose((True, False)):
        shapes.append(chooser.choose(inputs.SHAPES))
    common = chooser.choose(("float32", "float32", "float32", "float64", "bfloat16", "float16"))
    made = [
        Input(
            f"x{k}",
            tuple(shape.split()),
            common if k < len(theme) else chooser.choose(inputs.DTYPES),
            tuple(chooser.choose(inputs.LAYOUTS) for _ in range(chooser.choose((1, 1, 3)))),
        )
        for k, shape in enumerate(shapes)
    ]
    if chooser.choose((True, *(False,) * 11)):  # kernels have no gradients: eager runs it
        made = [replace(entry, requires_grad=entry.dtype in FLOATS) for entry in made]
    if chooser.choose((True, False, False, False)):
        views = VIEWS_OF_ARGUMENTS if made[0].shape else VIEWS_OF_ARGUMENTS[-3:]
        made.append(Input("same", (), made[0].dtype, ("plain",), chooser.choose(views)))
    if chooser.choose((True, False, False, False)):
        made.append(Input("n0", (), chooser.choose(("int", "int", "float")), ("plain",)))
    return Fuzzed(tuple(made), (), "", tuple(sizes))


FLOATS = ("float16", "bfloat16", "float32", "float64", "complex64")
VIEWS_OF_ARGUMENTS = (
    *("x0[:1]", "x0[1:]", "x0.flatten()", "x0.mT if x0.dim() > 1 else x0", "x0[..., None]"),
    *("x0", "x0.view_as(x0)", "x0.detach()"),
)
