"""What eager refuses.

In: the calls of a capture. Out: nothing, or the lines of calls whose arguments eager refuses, and
what it warns of in C++. No table says which dtypes, ranks and sizes those are: eager torch is
asked, with tensors of zeros and ones at the example sizes. What it refuses becomes a graph break,
so that eager itself raises.

A call whose results nobody reads leaves no trace in the code that is made, so each of them is asked
for; to break in vain costs time and nothing else. Of the others those are that become code of ours,
as a library refuses by itself, and they are refused for their form alone: the values of zeros and
ones say nothing of the program's. What is empty has no elements to refuse, but the code made of it
serves other sizes: so eager is asked of the dtypes at larger ones, too.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache, partial
from typing import Any, Literal, NamedTuple, TypeAlias

import torch

from anyshape.capture.guards.execution_modes import snapshot
from anyshape.capture.python.recorded_warnings import recorded
from anyshape.capture.recording.called import Called
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.tensors.meta import number_at, value_at
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import HOST, Arg, Location, Node, TensorType, Value, values_in
from anyshape.nouns import mutable
from anyshape.ops import OPS
from anyshape.ops.context import OpError, Undecided
from anyshape.ops.gradients.backward import GRADIENTS
from anyshape.ops.refusals import WARNED
from anyshape.ops.table import Extern, OpDef
from anyshape.symbolic import Dim, Expr, le
from anyshape.torch_names import resolve

MOST_ELEMENTS = 1 << 20
MOST_ELEMENTS_READ = 1 << 12
"""Elements of a tensor about which eager is asked; of calls that are read there are many."""
UNKNOWN_SIZE = 2


class Answer(NamedTuple):
    """Whether eager refuses a call, and else the classes and texts of its warnings."""

    refused: bool
    said: Warnings = ()


Warnings: TypeAlias = tuple[tuple[type[Warning], str], ...]
TAKEN = Answer(refused=False)


class RefusedByEager(BaseException):
    """These calls raise in eager."""

    def __init__(self, calls: frozenset[Location]) -> None:
        super().__init__(calls)
        self.calls = calls


def warnings_of_eager(asking: Asking) -> Iterator[tuple[Called, Warnings, Expr | None]]:
    """The calls of which eager warns, of those that become code of ours: always, or where a size is
    not positive."""
    for call in asking.recorder.calls:
        if call.location is not None and call.name != GRADIENTS and call.happens:
            size = asking.warned_below(call)
            said = asking.as_read(call).said if size is None else asking.said_of_nothing(call)
            if said:
                yield call, said, size


def ask_eager(asking: Asking, outputs: Sequence[Arg]) -> None:
    """Raises ``RefusedByEager``."""
    found = _refused(asking, outputs)
    if found - asking.recorder.refused:
        raise RefusedByEager(frozenset(found))


def _refused(asking: Asking, outputs: Sequence[Arg]) -> set[Location]:
    nodes = asking.recorder.builder.nodes
    read = _read(nodes, outputs)
    made = {value for node in nodes for value in node.outputs}
    found: set[Location] = set()
    for call in asking.recorder.calls:
        if call.location is None or call.name == GRADIENTS:  # which wants what led to its tensors
            continue
        if _is_unread(frozenset(values_in(call.made)), made, read):
            refused = asking.asked(_row_of(call), call, MOST_ELEMENTS).refused
        else:
            refused = call.happens and asking.as_read(call).refused
        if refused:
            found.add(call.location)
    return found


def _is_code_of_ours(row: OpDef, call: Called) -> bool:
    """Does no library do it, nor what is written, on the host?"""
    values = values_in((*call.args, *call.kwargs.values()))
    made = row if row.functional is None else OPS[row.functional]
    return (
        (made.lower is not None or made.expand is not None)
        and not isinstance(made.lower, Extern)
        and all(v.type.device == HOST for v in values if isinstance(v.type, TensorType))
    )


def _row_of(call: Called) -> OpDef:
    row = OPS[call.name]
    if row.overload is None:
        return row
    positional, keywords = row.signature.split(call.args, call.kwargs)
    return OPS[row.overload(*positional, **keywords) or row.name]


def _form(arg: Any) -> object:
    if isinstance(arg, Value):
        return arg.type
    if isinstance(arg, (tuple, list)):
        return tuple([_form(item) for item in arg])
    if isinstance(arg, slice):
        return slice, _form((arg.start, arg.stop, arg.step))
    if isinstance(arg, Expr):  # its text may be far longer than what it is made of
        return arg
    return type(arg), repr(arg)


def _is_unread(values: frozenset[Value], made: set[Value], read: set[Value]) -> bool:
    return bool(values) and made.issuperset(values) and read.isdisjoint(values)


def _read(nodes: Sequence[Node], outputs: Sequence[Arg]) -> set[Value]:
    """What the outputs are made of, and what is read by nodes that stay whoever reads them: those
    that write in place do where somebody else has the memory, or reads it."""
    owner = _owners(nodes)
    made = {value for node in nodes for value in node.outputs}
    read = set(values_in(tuple(outputs)))
    memory = {owner.get(value, value) for value in read}
    for node in reversed(nodes):
        row = OPS.get(node.op)
        stays = row is None or row.resource is not None
        if row is not None and row.mutates:
            written = {owner.get(value, value) for value in node.read[:1]}
            stays = stays or not written <= made - memory
        if stays or not read.isdisjoint(node.outputs):
            read.update(node.outputs, node.inputs())
            memory.update(owner.get(value, value) for value in (*node.outputs, *node.inputs()))
    return read


def _owners(nodes: Sequence[Node]) -> dict[Value, Value]:
    """What lies in the memory of another value, and that value."""
    owner: dict[Value, Value] = {}
    for node in nodes:
        row = OPS.get(node.op)
        if row is not None and node.read and (row.alias != "none" or row.mutates):
            first = owner.get(node.read[0], node.read[0])
            owner.update((value, first) for value in node.outputs if value is not first)
    return owner


@mutable(eq=False)
class Asking:
    """The questions of one capture, under the modes that hold throughout. Calls of a model are
    alike: answers are remembered by the form of the arguments, and what sizes are."""

    recorder: Recorder
    modes: tuple[Any, ...] = field(default_factory=snapshot)
    answers: dict[object, Answer] = field(default_factory=dict)
    of_calls: dict[Called, Answer] = field(default_factory=dict)
    sizes: dict[Expr, int] = field(default_factory=dict)
    tensors: dict[tuple[TensorType, int], _Like] = field(default_factory=dict)

    def as_read(self, call: Called) -> Answer:
        """What torch says to what becomes code of ours."""
        if call not in self.of_calls:
            self.of_calls[call] = self._as_read(call)
        return self.of_calls[call]

    def _as_read(self, call: Called) -> Answer:
        key = call.name, _form(call.args), _form(tuple(call.kwargs.items()))
        answer = self.answers.get(key)
        if answer is None:
            row, answer = _row_of(call), TAKEN
            if _is_code_of_ours(row, call):
                answer = self.asked(row, call, MOST_ELEMENTS_READ)
            self.answers[key] = answer
        return answer

    def warned_below(self, call: Called) -> Expr | None:
        """The size that says whether eager warns; None where it always does, or never."""
        rule, cx = WARNED.get(call.name), self.recorder.cx
        if rule is None:
            return None
        row = OPS[call.name]
        positional, keywords = row.signature.split(call.args, call.kwargs)
        assert row.normalize is not None
        try:
            normal, named = row.normalize(cx, *positional, **keywords)
            size = cx.facts.simplify(rule(*normal, **named))
        except (OpError, Undecided, TypeError):  # a correction that is no number
            return None
        return size if isinstance(size, Expr) and cx.known(le(size, 0)) is None else None

    def said_of_nothing(self, call: Called) -> Warnings:
        """What eager warns of where sizes are 0."""
        row = OPS[call.name]
        positional, keywords = row.signature.split(call.args, call.kwargs)
        none = defaultdict[Any, int](int)
        try:
            given, named = _examples(
                lambda dim: max(number_at(dim, none), 0), positional, keywords, MOST_ELEMENTS_READ
            )
            return _take(resolve(row.torch), given, named, "form", self.modes)
        except (OpError, _Refused):
            return ()

    def asked(self, row: OpDef, call: Called, most: int) -> Answer:
        """Does torch's function refuse the arguments, as the program gives them and as nodes have
        them?"""
        if row.random:
            return TAKEN
        positional, keywords = row.signature.split(call.args, call.kwargs)
        function = resolve(OPS[call.name].torch)
        answer = self._answer(function, positional, keywords, most)
        if not answer.refused or row.normalize is None:
            return answer
        try:
            normal = row.normalize(self.recorder.cx, *positional, **keywords)
        except (OpError, Undecided):  # it has been once, and wants to guard on something now
            return TAKEN
        return self._answer(function, *normal, most)

    def _answer(
        self,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        most: int,
    ) -> Answer:
        said: Warnings = ()
        unread = most == MOST_ELEMENTS
        try:
            number = partial(self._number, unread=unread)
            given, named = _examples(number, args, kwargs, most, self.tensors)
            said = _take(function, given, named, "any" if unread else "form", self.modes)
            if any(map(_is_empty, (*given, *(arg for _, arg in named)))):
                given, named = _examples(self._number_above_one, args, kwargs, most)
                _take(function, given, named, "dtypes", self.modes)
        except OpError:
            pass
        except _Refused:
            return Answer(refused=True)
        return Answer(refused=False, said=said)

    def _number_above_one(self, dim: Dim) -> int:
        """What a size is where none is below two."""
        if not isinstance(dim, Expr):
            return dim
        cx = self.recorder.cx
        known = cx.facts.simplify(dim)
        return number_at(known, defaultdict(lambda: 2, {s: max(n, 2) for s, n in cx.hints.items()}))

    def _number(self, dim: Dim, *, unread: bool) -> int:
        """What a size is in this call, or what the program has tested it to be where it goes on."""
        if not isinstance(dim, Expr):
            return dim
        known = self.sizes.get(dim)
        if known is not None:
            return known
        cx = self.recorder.cx
        if dim.symbols <= cx.hints.keys():
            found = self.sizes[dim] = number_at(cx.facts.simplify(dim), cx.hints)
            return found
        if not unread:
            raise OpError("data decides a size")
        return number_at(cx.facts.simplify(dim), defaultdict(lambda: UNKNOWN_SIZE, cx.hints))


class _Refused(Exception):
    """Torch refuses the arguments."""


@lru_cache(maxsize=4096)
def _take(
    function: Callable[..., Any],
    args: tuple[Example, ...],
    kwargs: tuple[tuple[str, Example], ...],
    reasons: Literal["any", "form", "dtypes"],
    modes: tuple[Any, ...],
) -> Warnings:
    """What torch warns of. Raises ``_Refused``, whatever whole numbers are, for these reasons
    alone. What torch takes under these modes it takes again, so that is remembered; what it refuses
    is asked again, as memory may have run out."""

    def asked(whole: int, device: str) -> tuple[Exception | None, Warnings]:
        given = [_made(arg, whole, device) for arg in args]
        named = {name: _made(arg, whole, device) for name, arg in kwargs}
        with recorded() as said:
            error = _error(function, given, named)
        return error, tuple([(message.category, str(message.message)) for message in said])

    with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(devices=[]):
        for whole in (0, 1):
            found, said = asked(whole, "cpu")
            if found is None or isinstance(found, TypeError):  # it takes others than its row
                return _said_each_time(said, asked(whole, "cpu")[1]) if said else ()
            if isinstance(found, IndexError) and "Dimension" not in str(found):
                if reasons != "any":  # an index is tested in each call
                    return ()
            elif reasons != "any" and not _names_dtype(found):
                if reasons == "dtypes" or not _says_form(asked(whole, "meta")[0]):
                    return ()
    raise _Refused


def _said_each_time(first: Warnings, second: Warnings) -> Warnings:
    """What a call warns of when it comes again. What torch says once in a process it has said now,
    so the program is told now."""
    for category, text in first:
        if (category, text) not in second:
            warnings.warn(text, category, stacklevel=1)
    return second


OF_DTYPES = "not implemented for", "dtype", "scalar type", "result type", "bool tensor"


def _names_dtype(error: Exception) -> bool:
    return any(words in str(error) for words in OF_DTYPES)


def _says_form(error: Exception | None) -> bool:
    """Is it raised where elements have no values: for the dtypes, ranks and sizes alone?"""
    unknown = "backend", "meta tensor", "on meta"  # it has no kernel, or asks for values
    return error is not None and not any(words in str(error) for words in unknown)


def _error(
    function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Exception | None:
    try:
        function(*args, **kwargs)
    except REFUSALS as error:
        if is_interrupt(error):
            raise
        return error
    return None


REFUSALS = RuntimeError, TypeError, ValueError, LookupError
"""What torch raises; anything else is a mistake of ours."""


class _Like(NamedTuple):
    """A tensor at the example sizes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


class _Of(NamedTuple):
    """A value and its class, as 1, 1.0 and True are equal; the parts of a tuple or a slice."""

    kind: type
    value: Any


Example: TypeAlias = _Like | _Of
"""An argument at the example sizes, hashable."""


def _examples(
    number: Callable[[Dim], int],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    most: int,
    tensors: dict[tuple[TensorType, int], _Like] | None = None,
) -> tuple[tuple[Example, ...], tuple[tuple[str, Example], ...]]:
    """The arguments without what is given None at the end or by name: defaults, which torch may
    not take. Raises ``OpError`` for those that have no value yet, or are too large: of calls that
    are read also where data decides a size, as what eager refuses at another one says nothing.
    ``tensors``: those that were made before, by their type and ``most``."""

    def like(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> _Like:
        if _length(shape, strides) > most:
            raise OpError("too large to ask")
        return _Like(tuple(shape), tuple(strides), dtype)

    def at(arg: Any) -> Any:
        if tensors is None or not isinstance(arg, Value) or not isinstance(arg.type, TensorType):
            return value_at(arg, number, like)
        key = arg.type, most
        if key not in tensors:
            tensors[key] = value_at(arg, number, like)
        return tensors[key]

    found = list(map(at, args))
    while found and found[-1] is None:
        found.pop()
    named = [(k, at(v)) for k, v in kwargs.items() if v is not None]
    return tuple(map(_example, found)), tuple([(k, _example(v)) for k, v in named])


def _example(arg: Any) -> Example:
    if isinstance(arg, _Like):
        return arg
    if isinstance(arg, slice):
        parts = arg.start, arg.stop, arg.step
        if any(isinstance(part, Expr) for part in parts):
            raise OpError("a slice whose ends have no value yet")
        return _Of(slice, tuple(map(_example, parts)))
    if isinstance(arg, tuple):
        return _Of(tuple, tuple(map(_example, arg)))
    return _Of(type(arg), arg)


def _made(example: Example, whole: int, device: str) -> Any:
    """The argument with one number for whole numbers, an index or a divisor, and 1 for others."""
    match example:
        case _Like(shape, strides, dtype):
            element = 1 if dtype.is_floating_point or dtype.is_complex else whole
            length = _length(shape, strides)
            row = torch.full((max(length, 0),), element, dtype=dtype, device=device)
            return row.as_strided(shape, strides)
        case _Of(kind, parts) if kind is tuple:
            return tuple([_made(part, whole, device) for part in parts])
        case _Of(kind, parts) if kind is slice:
            return slice(*[_made(part, whole, device) for part in parts])
    return example.value


def _is_empty(example: Example) -> bool:
    if isinstance(example, _Of):
        return example.kind is tuple and any(map(_is_empty, example.value))
    return 0 in example.shape


def _length(shape: Sequence[int], strides: Sequence[int]) -> int:
    """How many elements the tensor's memory has."""
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
