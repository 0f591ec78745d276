"""One row, one operator: everything the compiler knows of it.

``op(...)`` makes an ``OpDef`` and puts it into the table under construction; ``OPS`` is frozen when
``anyshape.ops`` has been imported. A row names torch functions as dotted text, so that the table
needs no torch. Read on: ``context.py`` for what a type rule may ask, ``build.py`` for how rows make
nodes.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, Literal, TypeAlias

from anyshape.ir.graph import Arg, Node, TensorType, Value
from anyshape.nouns import frozen, replace
from anyshape.symbolic import Condition, Dim

TypeRule: TypeAlias = Callable[..., "TensorType | tuple[TensorType, ...]"]
Compute = Literal["result", "promoted", "own"]
Combine = Literal["sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "moment"]


class Required(Enum):
    """The default of a parameter that has none."""

    REQUIRED = "required"


REQUIRED: Final = Required.REQUIRED


@frozen
class Parameter:
    """One parameter of a row. ``default`` is ``REQUIRED`` where there is none."""

    name: str
    default: Arg | Required
    keyword_only: bool = False


def _parts(text: str) -> Iterator[str]:
    """What stands between the commas that are in no brackets."""
    part = ""
    for piece in text.split(","):
        part += piece
        if sum(map(part.count, "([")) == sum(map(part.count, ")]")):
            yield part.strip()
            part = ""
        else:
            part += ","


@functools.cache
def _literal(text: str) -> Arg:
    value: Arg = ast.literal_eval(text)
    return value


@frozen
class Signature:
    """The parameters of a row, in order; it binds calls as Python does."""

    parameters: tuple[Parameter, ...]
    names: tuple[str, ...] = ()  # of the positional parameters
    keywords: tuple[str, ...] = ()  # the keyword-only parameters
    defaults: Mapping[str, Arg] = field(default_factory=dict)  # of keyword-only parameters

    @classmethod
    @functools.cache
    def parse(cls, text: str) -> Signature:
        """``Signature.parse("x, y, *, alpha=1")``; defaults are Python literals."""
        positional: list[Parameter] = []
        by_name: list[Parameter] = []
        found = positional
        for part in _parts(text):
            if part == "*":
                found = by_name
            elif part not in ("/", ""):  # nothing stands behind a last comma
                name, _, default = map(str.strip, part.partition("="))
                if not name.isidentifier():
                    raise ValueError(f"no parameter of a row: {part!r}")
                value = _literal(default) if default else REQUIRED
                found.append(Parameter(name, value, keyword_only=found is by_name))
        return cls(
            (*positional, *by_name),
            tuple(one.name for one in positional),
            tuple(one.name for one in by_name),
            {one.name: one.default for one in by_name if not isinstance(one.default, Required)},
        )

    def without(self, name: str) -> Signature:
        """The same but for a positional parameter, which may not be there."""
        return replace(
            self,
            parameters=tuple(p for p in self.parameters if p.name != name),
            names=tuple(own for own in self.names if own != name),
        )

    def split(
        self, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]
    ) -> tuple[tuple[Arg, ...], dict[str, Arg]]:
        """All positional arguments and all keyword-only ones, defaults filled in."""
        complete = len(args) == len(self.names) and len(self.defaults) == len(self.keywords)
        if complete and not kwargs:
            return args, dict(self.defaults)
        bound = self.bind(args, kwargs)
        return tuple(bound[name] for name in self.names), {k: bound[k] for k in self.keywords}

    def bind(self, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]) -> dict[str, Arg]:
        """Every parameter with its argument or default; raises ``TypeError`` as a call would."""
        bound: dict[str, Arg] = {}
        rest = dict(kwargs)
        for index, parameter in enumerate(self.parameters):
            if index < len(args) and not parameter.keyword_only:
                if parameter.name in rest:
                    raise TypeError(f"got multiple values for argument {parameter.name!r}")
                bound[parameter.name] = args[index]
            elif parameter.name in rest:
                bound[parameter.name] = rest.pop(parameter.name)
            elif parameter.default is REQUIRED:
                raise TypeError(f"missing argument {parameter.name!r}")
            else:
                bound[parameter.name] = parameter.default
        limit = sum(not parameter.keyword_only for parameter in self.parameters)
        if rest or len(args) > limit:
            raise TypeError(f"unexpected arguments {sorted(rest) or args[limit:]}")
        return bound


# How the scheduler sees a core row. A row with none of these and no expansion is an extern.


@frozen
class Pointwise:
    """``body(b, *args, **kwargs)`` computes one element from the elements at the same (broadcast)
    position.

    ``b`` has one method for each scalar operator (``anyshape.ir.loops.SCALAR_OPS``). ``args`` and
    ``kwargs`` are the node's, each tensor replaced by its element; numbers, ``None`` and text stay
    as they are (a symbolic number may come as an element too). The tensor operands arrive cast to
    ``compute``: ``"result"`` the result's dtype, ``"promoted"`` the operands' promoted dtype
    (comparisons), ``"own"`` each its own (casts); those at the positions ``own`` (conditions)
    always keep their own. Below float32, floats are computed in float32 and rounded once at the
    end.
    """

    body: Callable[..., Any]
    compute: Compute = "result"
    own: tuple[int, ...] = ()


@frozen
class View:
    """``index(cx, out_index, x_type, *args)``: where the element at ``out_index`` lies."""

    index: Callable[..., tuple[Any, ...]]


@frozen
class Reduce:
    """An associative combine over ``dims``, ``keepdim``: row parameters ``(x, dims, keepdim)``.
    A moment is handed what was found of it: ``(x, dims, keepdim, mean, squares, *, order, part)``.
    """

    combine: Combine


class Form(Enum):
    """How an element of a structural row is found; the scheduler has one rule for each."""

    CAT = "cat"
    PAD = "pad"
    FULL = "full"
    ARANGE = "arange"
    INDEX_SELECT = "index_select"
    GATHER = "gather"
    INDEX = "index"


@frozen
class Structural:
    """A core row whose elements are others' or numbers, chosen by position."""

    form: Form

    @property
    def reads_memory(self) -> bool:
        """Whether elements of tensors are among them."""
        return self.form not in (Form.FULL, Form.ARANGE)


@frozen
class Scan:
    """The running combination along ``dim``: row parameters ``(x, dim, *, dtype)``."""

    combine: Literal["sum", "prod"]


WriteMode = Literal["set", "sum", "prod", "max", "min"]


@frozen
class Scatter:
    """A copy of the first operand, then writes in order at positions that data decides; later ones
    win, as in a loop.

    ``targets``: row parameters ``(x, dim, index, source)`` with a position for each element of the
    source (``elements``) or for each of its rows along ``dim`` (``rows``), or ``(x, indices,
    values)`` (``indices``). ``mode(node)``: how a written element is combined with what is there;
    None where the node cannot be done as writes in order.
    """

    targets: Literal["elements", "rows", "indices"]
    mode: Callable[[Node], WriteMode | None]


@frozen
class Extern:
    """Done by a library; ``function`` is the dotted function.

    ``memory``: nothing else refers to the memory of the result, so that the program may write there
    once the result is dead (``new``); the result is all of it (``whole``); or nobody says.
    """

    function: str
    memory: Literal["new", "whole"] | None = None


@frozen
class Assigns:
    """Copies into its first argument, an input of the graph, by a dotted function of torch's;
    ``counted``: autograd counts the write."""

    function: str
    counted: bool


@frozen
class Checks:
    """A condition on sizes, tested on the host: where it is false, the segment has not happened."""


@frozen
class Asserts:
    """Fails where its one argument is true: on the host, or, ``deferred``, on the device, which
    tells at a later call."""

    deferred: bool


@frozen
class Regions:
    """What the node's regions say."""


# What a row may tell of integers.

Range: TypeAlias = tuple[Dim, Dim]  # least and greatest, both inclusive
RangeOf: TypeAlias = Callable[[Arg], "Range | None"]


@frozen
class Ratio:
    """A float near ``numerator / denominator``, as which it rounds up and down to integers:
    ``roundings`` of numbers that are at most ``largest / denominator`` have made it."""

    numerator: Dim
    denominator: int
    roundings: int = 0
    largest: tuple[Dim, ...] = ()  # the numerators of all that was rounded


Content: TypeAlias = Dim | Condition | bool | Ratio
Operands: TypeAlias = Sequence[Dim | Ratio | None]
Keywords: TypeAlias = Mapping[str, Any]
Holds: TypeAlias = Callable[[Condition | bool], bool]
ContentRule: TypeAlias = Callable[[Holds, Operands, Keywords], Content | None]
RangeRule: TypeAlias = Callable[[RangeOf, Node, int], "Range | None"]


@frozen
class DataIndex:
    """``value`` must lie in ``0 <= i < size``, or from ``-size`` where negative ones count back."""

    value: Value
    size: Dim
    negative: bool


Vjp: TypeAlias = "Mapping[str, Callable[..., Any]] | Literal['expansion', 'region']"
"""A gradient rule for each parameter that has one (``gradients/``), or that of the expansion."""

Resource: TypeAlias = Literal["arguments", "generator", "errors", "unknown"]
"""What nodes touch besides values: tensors of the caller, a device's generator, what says that the
segment has not happened, or anything, where no row says. Nodes that touch the same one keep their
order."""

Lowering: TypeAlias = (
    "Pointwise | View | Reduce | Structural | Scan | Scatter | Extern | Assigns | Checks | Asserts"
    " | Regions"
)


@frozen
class CausalMask:
    """The positions of attention's mask, and of the flag that means the mask of which key ``j`` is
    seen by query ``i`` where ``j <= i``; that of the query, which the key follows."""

    mask: int
    flag: int
    query: int = 0


@frozen
class OneByOne:
    """From which position on torch takes the items of one parameter one by one, as in
    ``zeros(2, 3)``: every callable of the row, its method alone, or only where there are several.
    """

    position: int
    by: Literal["any", "method", "several"] = "any"

    def given(self, args: tuple[Any, ...], *, is_method: bool) -> tuple[Any, ...]:
        """The arguments with those items in one tuple: ``(x, 2, 3)`` is ``(x, (2, 3))``."""
        may = {"any": True, "method": is_method, "several": len(args) > 1}[self.by]
        here = self.position
        if may and len(args) > here and not isinstance(args[here], (tuple, list)):
            return (*args[:here], tuple(args[here:]))
        return args


@frozen
class OpDef:
    """A row of the table. See ``op`` for the fields."""

    name: str
    signature: Signature
    torch: str
    spellings: tuple[str, ...] = ()
    type: TypeRule | None = None
    expand: Callable[..., Any] | None = None
    lower: Lowering | None = None
    normalize: Callable[..., tuple[tuple[Arg, ...], Mapping[str, Arg]]] | None = None
    overload: Callable[..., str | None] | None = None
    inline: bool = False
    mutates: tuple[str, ...] = ()
    functional: str | None = None
    alias: Literal["none", "view", "maybe"] = "none"
    views_where: Callable[[Any, Node], bool] | None = None
    copies_where: Callable[[Any, Node], bool] | None = None
    new_view: bool = False
    by_layout: bool = False
    image_order: str | None = None
    keeps_elements: bool = False
    costly: bool = False
    wide_numbers: frozenset[int | str] = frozenset()
    number_first: str | None = None
    divisor: int | None = None
    data_indices: Callable[[Node], Iterator[DataIndex]] | None = None
    range: RangeRule | None = None
    write_back: Callable[..., Value] | None = None
    part: Callable[..., Any] | None = None
    differentiable: bool = True
    constant_results: frozenset[int] = frozenset()
    vjp: Vjp | None = None
    by_value: tuple[str, ...] = ()
    of_numbers: bool = False
    reads_number: bool = False
    counted: bool = False
    random: bool = False
    raises: bool = False
    refuses: Callable[..., Any] | None = None
    guessed: bool = False
    copies_storage: bool = False
    one_by_one: OneByOne | None = None
    scatters: bool = False
    holds: ContentRule | None = None
    causal: CausalMask | None = None
    aten: str | Callable[..., str] | None = None

    @property
    def resource(self) -> Resource | None:
        """What the operator touches besides its arguments and results."""
        match self.lower:
            case Assigns():
                return "arguments"
            case Checks() | Asserts():
                return "errors"
        if self.guessed:
            return "unknown"
        return "generator" if self.random else None


def assignment(row: OpDef | None) -> Assigns | None:
    """How the row assigns to an input of the graph; None where it does not."""
    return row.lower if row is not None and isinstance(row.lower, Assigns) else None


def is_done_by_library(row: OpDef) -> bool:
    """Is the row done by a library, which tests its arguments itself and may refuse them, whatever
    the type rule has said?"""
    return row.lower is None or isinstance(row.lower, Extern)


_rows: dict[str, OpDef] = {}
OPS: Mapping[str, OpDef] = MappingProxyType(_rows)

_spellings: dict[str, str] = {}
SPELLINGS: Mapping[str, str] = MappingProxyType(_spellings)
"""Dotted name of a callable (``torch.nn.functional.gelu``, ``operator.add``) -> name of its row."""


def op(name: str, signature: str, *, torch: str, **rest: Any) -> OpDef:
    """Adds a row and returns it.

    ``torch``: dotted function that computes it, called with exactly the row's parameters (the
    reference). ``spellings``: further dotted callables with the same parameters that capture maps
    to this row. ``type(cx, *args, **kwargs)``: the result's ``TensorType`` (or a tuple of them),
    given argument ``Value``s; without it, the type is that of the expansion.
    ``expand(b, *args, **kwargs)``: the same computation through other rows of the builder ``b``.
    ``lower``: how the scheduler sees a core row. ``mutates``: parameters written in place,
    ``functional`` the row that computes the new value of the first of them. ``normalize(cx, *args,
    **kwargs)`` gives the arguments that the node is to have: dims counted from 0, ``-1`` in shapes
    resolved, defaults spelt out; every other function of the row sees these. ``overload(*args,
    **kwargs)`` names another row of the same parameters that a call with these arguments means
    (``index`` with a mask is ``masked_index``). ``inline``: the row is expanded as soon as it is
    called, so that no graph holds it; ``expand`` may return ``NotImplemented`` where it has none
    for these arguments, which leaves the node to eager torch. ``alias``: the result views the first
    argument always (``view``) or depending on its layout (``maybe``, then ``views_where(cx, node)``
    says when, if it can be said, and ``copies_where`` when it is row-major memory of its own unless
    it is empty; without a copy the result is the argument itself, or, with
    ``new_view``, another object). ``by_layout``: a view that some layouts have, and others not.
    ``image_order``: the parameter, an image or several, in whose order of dimensions the results
    lie, channels innermost or not.
    ``keeps_elements``: a result of its argument's type has its argument's elements.
    ``costly``: an element is cheaper to keep and load than to compute once for
    each reader. ``write_back`` (``write_back.py``) and ``part`` (``parts.py``) say which
    elements of the argument those of the view are. What touches a ``resource`` is never removed or
    merged, and stays in order with others that do.
    ``raises``: eager raises for some data, not only for some sizes, so that a node is kept where
    nobody reads its results. A core row is checked instead (``passes/bounds_checks.py``), a library
    checks by itself; so it does where sizes or options are not as it wants them, ``raises`` or not.
    ``refuses(b, *args, **kwargs)`` gives a tensor (or a tuple of them), true where eager raises and
    the expansion would not.
    ``wide_numbers``: operands, by position or name, whose numbers take part in float32 as they are,
    where ATen rounds others to float16 or bfloat16 as it does tensors.
    ``number_first``: dotted function that computes it where the first operand is a number, as
    torch's own want a tensor first. ``differentiable``: does a result require gradients where
    an argument does? ``constant_results``: the numbers of those that do not, among others that do.
    ``vjp``: by parameter, how the gradient is made of the cotangents of the
    results (``gradients/``); ``"expansion"``: as that of what the row expands to; ``"region"``: the
    node's region makes it. A view without one has that of its ``write_back``: the cotangent,
    written into zeros. ``by_value``: parameters
    whose very value decides what the row means, beside dimensions. ``of_numbers``: does it make a
    tensor of two numbers? ``reads_number``:
    it reads the number in a tensor without dimensions before it writes. ``counted``: the number
    of its results may be what the program takes apart. ``divisor``: the position of what
    integers are divided by. ``data_indices(node)``: its operands that say where to read or write.
    ``range(range_of, node, position)``: within which a result's integers lie, where the
    operands' tell it (``ranges.py``).
    ``guessed``: its types come from samples and are tested at each call.
    ``copies_storage``: the result lies in a copy of its argument's storage, where that lies in it.
    ``holds(known, operands, kwargs)``: the size or the condition that a result without dimensions
    holds, where its operands are sizes or hold some (``ranges.py``).
    ``causal``: which arguments of attention are its mask and the flag that hides later keys.
    ``one_by_one``: torch takes the items of one parameter one by one as well. ``scatters``: eager's
    may write an element before it has read all, as those with ``Scatter`` do. ``aten``:
    ATen's name of the operator, by which autocast knows it, where that is not the row's; or a
    function that gives it for these arguments.
    """
    row = OpDef(name, Signature.parse(signature), torch, **rest)
    add_row(row)
    return row


def add_row(row: OpDef) -> None:
    """Puts a row and its spellings into the tables; both must be new."""
    if row.name in _rows:
        raise ValueError(f"operator {row.name!r} has a row already")
    _rows[row.name] = row
    for spelling in (row.torch, *row.spellings):
        if _spellings.setdefault(spelling, row.name) != row.name:
            raise ValueError(f"{spelling} is {_spellings[spelling]} already, not {row.name}")
