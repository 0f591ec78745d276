"""What users declare about shapes: names for sizes, which bind across arguments and results.

In: `shapes={"x": "batch time 64", "return": "batch 2*time"}` and `assumptions=["time <= 4096"]`.
Out: a `Declaration`, and for one way of calling a `BoundDeclaration`: `values` tests the arguments
and says what is wrong, `front` is the same test as one straight-line function. The declared sizes
stay expressions over the declaration's own symbols; capture restates them in its space. The only
thing that this module knows of a tensor is its `.shape`. docs/how-to-declare-sizes.md is for users.
"""

from __future__ import annotations

import ast
import inspect
import re
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NoReturn

from anyshape.errors import AnyshapeError
from anyshape.known_builtins import generated
from anyshape.nouns import frozen, replace
from anyshape.options import near
from anyshape.symbolic import (
    Condition,
    Dim,
    Space,
    Symbol,
    evaluate,
    parse_condition,
    parse_dim,
    solvable,
    symbols_of,
    to_python,
)

RETURN = "return"
ANYTHING = "_"
LEADING = "..."
NAME = re.compile(r"[A-Za-z]\w*\Z", re.ASCII)
Step = str | int


# ---- what is declared ----------------------------------------------------------------------------
@frozen
class Path:
    """Where in the arguments or in the result: a root name and what is read from it."""

    root: str
    steps: tuple[Step, ...]
    text: str

    def read(self, value: Any) -> Any:
        """What lies there; None where a step meets None."""
        for step in self.steps:
            if value is None:
                return None
            value = value[step] if _is_item(value, step) else getattr(value, str(step))
        return value


def _is_item(value: Any, step: Step) -> bool:
    return isinstance(step, int) or isinstance(value, Mapping)


@frozen
class Pattern:
    """The declared sizes of one tensor: `(dimension, size)`, dimensions from the end where any
    number may lead. `rule` is what the user wrote."""

    path: Path
    rule: str
    rank: int
    exact: bool
    sizes: tuple[tuple[int, Dim], ...]


@frozen
class Assumption:
    """A condition on declared sizes, as the user wrote it and as a condition."""

    rule: str
    condition: Condition | bool


@dataclass(frozen=True)
class Declaration:
    """All that one `compile` call declares. Equal texts are equal declarations; it pickles as its
    texts."""

    texts: tuple[tuple[str, Any], ...]
    stated: tuple[str, ...]
    space: Space = field(default_factory=Space, compare=False, repr=False)

    def __reduce__(self) -> tuple[Any, ...]:
        return Declaration, (self.texts, self.stated)

    @cached_property
    def arguments(self) -> tuple[Pattern, ...]:
        """What is declared of the arguments, in the user's order."""
        return tuple(p for p in self._patterns if p.path.root != RETURN)

    @cached_property
    def returned(self) -> tuple[Pattern, ...]:
        """What is declared of the result."""
        return tuple(p for p in self._patterns if p.path.root == RETURN)

    @cached_property
    def assumptions(self) -> tuple[Assumption, ...]:
        """The conditions, in the user's order."""
        known = {s for p in self.arguments for _, dim in p.sizes for s in symbols_of(dim)}
        return tuple(Assumption(text, self._condition(text, known)) for text in self.stated)

    @cached_property
    def _patterns(self) -> tuple[Pattern, ...]:
        return tuple(_pattern(self, path, sizes) for path, sizes in self.texts)

    def name(self, text: str) -> Dim:
        """The size of that name, new when it is first heard of."""
        if not NAME.match(text):
            raise ValueError(f"{text!r} is not a name: letters, digits and _, a letter first")
        known = self.space.named(text)
        return self.space.symbol(text, policy="unbacked") if known is None else known

    def _condition(self, text: str, known: set[Symbol]) -> Condition | bool:
        def named(name: str) -> Dim | None:
            found = self.space.named(name)
            return found if found is not None and found.symbol in known else None

        try:
            return parse_condition(text, named)
        except ValueError as error:
            _refuse(f"assumption {text!r}", f"{error}", "name only sizes that shapes= names")


def declare(
    shapes: Mapping[str, Any] | None, assumptions: Iterable[str] | None
) -> Declaration | None:
    """The declaration that a user wrote; None where nothing is declared. E310 if it makes none."""
    if not shapes and not assumptions:
        return None
    stated = [assumptions] if isinstance(assumptions, str) else list(assumptions or ())
    texts = []
    for path, sizes in (shapes or {}).items():
        if not isinstance(sizes, str):
            sizes, bounds = _from_dims(path, sizes)
            stated += [bound for bound in bounds if bound not in stated]
        texts.append((path, sizes))
    declaration = Declaration(tuple(texts), tuple(stated))
    plan(declaration.arguments, whole=True)
    assert declaration.assumptions is not None
    _refuse_unreadable(declaration)
    return declaration


def _refuse_unreadable(declaration: Declaration) -> None:
    """A result's sizes must be testable when the arguments' are known."""
    known = {s for p in declaration.arguments for _, dim in p.sizes for s in symbols_of(dim)}
    plan(declaration.returned, known, whole=True)


def _refuse(what: str, why: str, hint: str) -> NoReturn:
    raise AnyshapeError("E310", what=f"cannot read {what}", why=why, hint=hint)


def _path(text: str) -> Path:
    returned = text == RETURN or text.startswith((RETURN + ".", RETURN + "["))
    spelled = "_" + text if returned else text
    try:
        node: ast.expr = ast.parse(spelled, mode="eval").body
    except (SyntaxError, ValueError):
        node = ast.Constant(None)
    steps: list[Step] = []
    while True:
        match node:
            case ast.Attribute(value=base, attr=name):
                steps.append(name)
            case ast.Subscript(value=base, slice=ast.Constant(value=str() | int() as key)):
                steps.append(key)
            case ast.Name(id=root):
                return Path(RETURN if returned else root, tuple(reversed(steps)), text)
            case _:
                hint = "write the name of a parameter, or 'return', and from there .name and [0]"
                _refuse(f"shapes[{text!r}]", "this is no place in the arguments", hint)
        node = base


def _pattern(declaration: Declaration, path: str, sizes: Any) -> Pattern:
    rule = sizes if isinstance(sizes, str) else _spelled(sizes)
    try:
        if not isinstance(sizes, str):
            rank = 1 + max((d if d >= 0 else -d - 1 for d, _ in sizes), default=-1)
            found = [(d, parse_dim(text, declaration.name)) for d, text in sizes]
            return Pattern(_path(path), rule, rank, False, tuple(found))
        parts = sizes.split()
        leading = parts[:1] == [LEADING]
        parts = parts[leading:]
        first = -len(parts) if leading else 0
        found = [
            (first + i, parse_dim(part, declaration.name))
            for i, part in enumerate(parts)
            if part != ANYTHING
        ]
        return Pattern(_path(path), rule, len(parts), not leading, tuple(found))
    except ValueError as error:
        hint = "sizes stand between spaces: a name, a number, an expression without spaces, _ or,"
        _refuse(f"shapes[{path!r}] = {rule!r}", str(error), f"{hint} before them all, ...")


def _spelled(sizes: Iterable[tuple[int, str]]) -> str:
    return "{" + ", ".join(f"{dim}: {text}" for dim, text in sizes) + "}"


def _from_dims(path: str, dims: Any) -> tuple[tuple[tuple[int, str], ...], list[str]]:
    """`{0: Dim("b", max=64), 1: "time"}`: sizes by dimension, and the bounds that Dims state."""
    if not isinstance(dims, Mapping) or not all(type(d) is int for d in dims):
        why = f"{dims!r} is neither a string nor a dictionary by dimension"
        _refuse(f"shapes[{path!r}]", why, "write 'batch time', or {0: 'batch', 1: 'time'}")
    texts: list[tuple[int, str]] = []
    bounds: list[str] = []
    for dim, size in dims.items():
        text, stated = _from_dim(path, dim, size)
        if text != ANYTHING:
            texts.append((dim, text))
        bounds += stated
    return tuple(texts), bounds


def _from_dim(path: str, dim: int, size: Any) -> tuple[str, list[str]]:
    if size is None:
        return ANYTHING, []
    if isinstance(size, int | str):
        return str(size), []
    root = getattr(size, "root", size)
    kind = getattr(getattr(size, "type", None), "name", "")
    if kind == "AUTO":
        return ANYTHING, []
    if kind == "DYNAMIC":
        name = re.sub(r"\W+", "_", f"{path}_size_{dim}".replace("-", "m"))
    else:
        name = getattr(root, "__name__", "")
    if not NAME.match(name):
        why = f"dimension {dim} is {size!r}"
        _refuse(f"shapes[{path!r}]", why, "write a name, a number, or torch.export.Dim('name')")
    bounds = [
        f"{name} {sign} {bound}"
        for sign, bound in ((">=", getattr(root, "min", None)), ("<=", getattr(root, "max", None)))
        if type(bound) is int and (sign, bound) != (">=", 0)
    ]
    return (name if root is size else str(size.__name__).replace(" ", "")), bounds


# ---- how sizes are worked out --------------------------------------------------------------------
@frozen
class Solve:
    """`size = slope*symbol + rest`, in which only the symbol is still unknown."""

    pattern: Pattern
    dim: int
    symbol: Symbol
    slope: int
    rest: Dim


@frozen
class Compare:
    """`size` must be this expression over what is known."""

    pattern: Pattern
    dim: int
    size: Dim


def plan(
    patterns: Sequence[Pattern], known: Iterable[Symbol] = (), *, whole: bool = False
) -> list[Solve | Compare]:
    """The order in which sizes give the names, and which are tested.

    A size gives a name where it holds no other unknown one, times a constant; plain names come
    first. E310 where sizes are left that give nothing; not `whole`: some arguments are missing.
    """
    found = set(known)
    steps: list[Solve | Compare] = []
    waiting = [(p, dim, size) for p in patterns for dim, size in p.sizes]
    while waiting:
        later, plain = [], False
        for pattern, dim, size in sorted(waiting, key=lambda row: not _is_plain(row[2], found)):
            step = solvable(size, found)
            if not symbols_of(size) - found:
                steps.append(Compare(pattern, dim, size))
            elif step is not None and (_is_plain(size, found) or not plain):
                plain = plain or step[1:] == (1, 0)
                found.add(step[0])
                steps.append(Solve(pattern, dim, *step))
            else:
                later.append((pattern, dim, size))
        if len(later) == len(waiting):
            pattern, dim, size = later[0]
            unknown = ", ".join(sorted(s.name for s in symbols_of(size) - found))
            lack = "" if whole else ", as other declared arguments are missing in this call"
            _refuse(
                f"shapes[{pattern.path.text!r}] = {pattern.rule!r}",
                f"the size {size} does not say what {unknown} is{lack}",
                f"declare an argument that has {unknown} as a size of its own",
            )
        waiting = later
    return steps


def _is_plain(size: Dim, known: set[Symbol]) -> bool:
    step = solvable(size, known)
    return step is not None and step[1:] == (1, 0)


# ---- one way of calling --------------------------------------------------------------------------
@frozen
class Parameters:
    """The names that a signature gives its arguments."""

    positional: tuple[str, ...]
    star: str = ""  # *args
    others: tuple[str, ...] = ()  # by keyword only
    open: bool = True  # more may come by keyword

    @classmethod
    def of(cls, signature: inspect.Signature) -> Parameters:
        """Those of a signature."""
        kinds: dict[Any, list[str]] = {}
        for parameter in signature.parameters.values():
            kinds.setdefault(parameter.kind, []).append(parameter.name)
        first = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        return cls(
            tuple(name for kind in first for name in kinds.get(kind, ())),
            "".join(kinds.get(inspect.Parameter.VAR_POSITIONAL, ())),
            tuple(kinds.get(inspect.Parameter.KEYWORD_ONLY, ())),
            inspect.Parameter.VAR_KEYWORD in kinds,
        )

    @classmethod
    def of_code(cls, code: types.CodeType) -> Parameters:
        """Those of a plain function with this code."""
        names, first, flags = code.co_varnames, code.co_argcount, code.co_flags
        last = first + code.co_kwonlyargcount
        star = names[last] if flags & inspect.CO_VARARGS else ""
        return cls(names[:first], star, names[first:last], bool(flags & inspect.CO_VARKEYWORDS))

    def check(self, declaration: Declaration) -> None:
        """E310 for a declared argument that no call can have."""
        known = (*self.positional, *self.others, *((self.star,) if self.star else ()))
        for pattern in declaration.arguments:
            root = pattern.path.root
            if root not in known and not self.open:
                where, why = pattern.path.text, f"the function has no parameter {root!r}"
                _refuse(f"shapes[{where!r}]", why, near(root, known))

    def bind(
        self, declaration: Declaration, positional: int, keywords: Sequence[str]
    ) -> BoundDeclaration:
        """The declaration for calls with so many positional and with these keyword arguments."""
        slots = {name: i for i, name in enumerate(self.positional[:positional])}
        slots |= {name: positional + i for i, name in enumerate(keywords)}
        found = []
        for pattern in declaration.arguments:
            path, slot = pattern.path, slots.get(pattern.path.root)
            if path.root == self.star and path.steps and isinstance(path.steps[0], int):
                slot = len(self.positional) + path.steps[0]
                slot = slot if slot < positional else None
                path = replace(path, steps=path.steps[1:])
            if slot is not None:
                found.append((slot, replace(pattern, path=path)))
        return BoundDeclaration(declaration, tuple(found))


@dataclass(frozen=True)
class BoundDeclaration:
    """A declaration for calls with certain positional and keyword arguments: each pattern, and the
    slot that its root is handed in at."""

    declaration: Declaration
    patterns: tuple[tuple[int, Pattern], ...]

    def present(self, slots: Sequence[Any]) -> tuple[tuple[int, Pattern], ...]:
        """The patterns of arguments that are there and not None."""
        return tuple((slot, p) for slot, p in self.patterns if _read(p, slots[slot]) is not None)

    def is_absent(self, number: int, slots: Sequence[Any]) -> bool:
        """Whether None is handed in where the pattern of this number is declared."""
        slot, pattern = self.patterns[number]
        return pattern.path.read(slots[slot]) is None

    def values(self, slots: Sequence[Any]) -> dict[Symbol, int]:
        """The sizes of all names; E311 to E314 where the arguments break the declaration."""
        present = self.present(slots)
        shapes = {p: _shape(p, _read(p, slots[slot])) for slot, p in present}
        values = _worked_out(plan([p for _, p in present]), shapes, {}, "E311")
        for assumption in self.declaration.assumptions:
            _assume(assumption, values)
        return {symbol: value for symbol, (value, _) in values.items()}

    def front(self, slots: Sequence[Any]) -> Callable[[Sequence[Any]], bool]:
        """The test for calls in which the same arguments are there as in this one: True where
        `values` raises nothing; False where it raises, or where others are there."""
        return _Front(self, slots).compile()


def _read(pattern: Pattern, value: Any) -> Any:
    try:
        return pattern.path.read(value)
    except (LookupError, AttributeError, TypeError) as error:
        why = f"{type(error).__name__}: {error}; "
        raise AnyshapeError(
            "E313", argument=pattern.path.text, kind="not there", rule=pattern.rule, because=why
        ) from None


def _shape(pattern: Pattern, value: Any, code: str = "E312") -> tuple[int, ...]:
    sizes = getattr(value, "shape", None)
    if not isinstance(sizes, tuple):
        kind = f"a {type(value).__name__}"
        raise AnyshapeError(
            "E313",
            argument=pattern.path.text,
            kind=kind,
            rule=pattern.rule,
            because="it has no shape; ",
        )
    if len(sizes) < pattern.rank or pattern.exact and len(sizes) != pattern.rank:
        expected = f"{pattern.rank}" if pattern.exact else f"{pattern.rank} or more"
        raise AnyshapeError(
            code, argument=pattern.path.text, rank=len(sizes), expected=expected, rule=pattern.rule
        )
    return sizes


Found = dict[Symbol, tuple[int, str]]  # the value of a name, and what gave it


def _worked_out(
    steps: Iterable[Solve | Compare],
    shapes: Mapping[Pattern, tuple[int, ...]],
    known: Found,
    code: str,
) -> Found:
    """The value of each name; an error of this code at the first size that does not fit."""
    values = dict(known)
    numbers = {symbol: value for symbol, (value, _) in values.items()}
    for step in steps:
        size = shapes[step.pattern][step.dim]
        wrong = _step(step, size, numbers, shapes)
        if wrong is not None:
            raise _size_error(code, step, shapes[step.pattern], wrong, values)
        if isinstance(step, Solve):
            text = f"dimension {step.dim % len(shapes[step.pattern])} of {step.pattern.path.text}"
            values[step.symbol] = numbers[step.symbol], text
    return values


def _size_error(
    code: str, step: Solve | Compare, shape: tuple[int, ...], wrong: str, values: Found
) -> AnyshapeError:
    size = step.size if isinstance(step, Compare) else _whole(step)
    origins = [
        f"{s.name} is {values[s][0]}, {values[s][1]}"
        for s in sorted(symbols_of(size), key=lambda s: s.name)
        if s in values
    ]
    return AnyshapeError(
        code,
        argument=step.pattern.path.text,
        dim=step.dim % len(shape),
        value=shape[step.dim],
        size=size,
        rule=step.pattern.rule,
        because="".join(f"{reason}; " for reason in (wrong, *origins) if reason),
    )


def _whole(step: Solve) -> Dim:
    return step.slope * step.symbol.expr + step.rest


def _step(
    step: Solve | Compare,
    size: int,
    numbers: dict[Symbol, int],
    shapes: Mapping[Pattern, tuple[int, ...]],
) -> str | None:
    """Does one step, and says what is wrong with the size if something is."""
    try:
        if isinstance(step, Compare):
            value = evaluate(step.size, numbers)
            plain = isinstance(step.size, int) or step.size.symbol is not None
            return None if value == size else "" if plain else f"{step.size} is {value}"
        value, left = divmod(size - evaluate(step.rest, numbers), step.slope)
    except (ZeroDivisionError, ValueError) as error:
        return str(error)
    if left:
        return f"no whole number {step.symbol.name} makes {_whole(step)} equal {size}"
    if value < 0:
        return f"{step.symbol.name} would be {value}"
    numbers[step.symbol] = value
    return None


def _assume(assumption: Assumption, values: Found) -> None:
    condition = assumption.condition
    symbols = () if isinstance(condition, bool) else condition.symbols
    if any(s not in values for s in symbols):
        return  # of an argument that is missing
    try:
        if evaluate(condition, {s: values[s][0] for s in symbols}):
            return
        why = ""
    except (ZeroDivisionError, ValueError) as error:
        why = f"{error}; "
    why += "; ".join(
        f"{s.name} is {values[s][0]}, {values[s][1]}" for s in sorted(symbols, key=lambda s: s.name)
    )
    raise AnyshapeError("E314", rule=assumption.rule, why=why)


def check_returned(declaration: Declaration, result: Any, values: Mapping[Symbol, int]) -> None:
    """E313, E315 or E316 where a result breaks what is declared of it."""
    shapes = {p: _shape(p, _read(p, result), "E316") for p in declaration.returned}
    known = {symbol: (value, "by the arguments") for symbol, value in values.items()}
    _worked_out(plan(declaration.returned, known, whole=False), shapes, known, "E315")


# ---- the test as one function --------------------------------------------------------------------
class _Front:
    """Writes `front(slots) -> bool` for one set of arguments that are there."""

    def __init__(self, declared: BoundDeclaration, slots: Sequence[Any]) -> None:
        self.declared = declared
        self.slots = slots
        self.lines: list[str] = []
        self.present = declared.present(slots)
        self.variables: dict[tuple[Pattern, int], str] = {}

    def compile(self) -> Callable[[Sequence[Any]], bool]:
        """See `BoundDeclaration.front`."""
        there = {pattern for _, pattern in self.present}
        for number, (slot, pattern) in enumerate(self.declared.patterns):
            if pattern in there:
                self._unpack(slot, pattern)
            else:
                self.lines.append(f"if not absent({number}, slots): return False")
        steps = plan([pattern for _, pattern in self.present])
        for step in steps:
            self._emit(step)
        known = {step.symbol for step in steps if isinstance(step, Solve)}
        for assumption in self.declared.declaration.assumptions:
            condition = assumption.condition
            if isinstance(condition, bool) or condition.symbols <= known:
                self.lines.append(f"if not ({to_python(condition, _local)}): return False")
        return self._function()

    def _function(self) -> Callable[[Sequence[Any]], bool]:
        caught = "(LookupError, AttributeError, TypeError, ValueError, ZeroDivisionError)"
        body = "".join(f"        {line}\n" for line in (*self.lines, "return True"))
        text = f"def front(slots):\n    try:\n{body}    except {caught}:\n        return False\n"
        scope: dict[str, Any] = {"absent": self.declared.is_absent}
        return generated(text, "<anyshape declared sizes>", scope, "front")

    def _unpack(self, slot: int, pattern: Pattern) -> None:
        """Reads the sizes; a wrong rank is a ValueError or an IndexError."""
        value, text = self.slots[slot], f"slots[{slot}]"
        for step in pattern.path.steps:
            item = _is_item(value, step)
            text += f"[{step!r}]" if item else f".{step}"
            value = value[step] if item else getattr(value, str(step))
        number = len(self.variables)
        names = {dim: f"n{number + i}" for i, (dim, _) in enumerate(pattern.sizes)}
        self.variables |= {(pattern, dim): name for dim, name in names.items()}
        if pattern.exact:
            row = ", ".join(names.get(dim, "_") for dim in range(pattern.rank))
            self.lines.append(f"[{row}] = {text}.shape")
            return
        self.lines.append(f"shape = {text}.shape")
        self.lines.append(f"if len(shape) < {pattern.rank}: return False")
        self.lines += [f"{name} = shape[{dim}]" for dim, name in names.items()]

    def _emit(self, step: Solve | Compare) -> None:
        size = self.variables[step.pattern, step.dim]
        if isinstance(step, Compare):
            self.lines.append(f"if {size} != {to_python(step.size, _local)}: return False")
            return
        name = _local(step.symbol)
        if (step.slope, step.rest) == (1, 0):
            self.lines.append(f"{name} = {size}")
            return
        rest = to_python(step.rest, _local)
        self.lines.append(f"{name}, left = divmod({size} - ({rest}), {step.slope})")
        self.lines.append(f"if left or {name} < 0: return False")


def _local(symbol: Symbol) -> str:
    """A name that no other variable of the function has."""
    return f"d_{symbol.name}"
