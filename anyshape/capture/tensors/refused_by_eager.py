"""What eager refuses.

In: the calls of a capture. Out: nothing, or the places of calls whose arguments eager refuses. No
table says which dtypes, ranks and sizes those are: eager torch is asked, with tensors of zeros and
ones at the example sizes. What it refuses becomes a graph break, so that eager itself raises.

A call whose results nobody reads leaves no trace in the code that is made, so each of them is asked
for; to break in vain costs time and nothing else. Of the others those are that become code of ours,
as a library refuses by itself, and they are refused for their form alone: the values of zeros and
ones say nothing of the program's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from anyshape.capture.recording.called import Called
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.tensors.meta import value_at
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import HOST, Arg, Location, Node, ScalarType, TensorType, Value, values_in
from anyshape.ops import OPS
from anyshape.ops.context import OpError, Undecided
from anyshape.ops.gradients.backward import GRADIENTS
from anyshape.ops.table import Extern, OpDef
from anyshape.symbolic import Expr, Symbol, symbols_of
from anyshape.torch_names import resolve

MOST_ELEMENTS = 1 << 20
MOST_ELEMENTS_READ = 1 << 12
"""Elements of a tensor about which eager is asked; of calls that are read there are many."""
UNKNOWN_SIZE = 2


class RefusedByEager(BaseException):
    """These calls raise in eager."""

    def __init__(self, calls: frozenset[Location]) -> None:
        super().__init__(calls)
        self.calls = calls


def ask_eager(recorder: Recorder, outputs: Sequence[Arg]) -> None:
    """Raises ``RefusedByEager``."""
    with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(devices=[]):
        found = _refused(recorder, outputs)
    if found - recorder.refused:
        raise RefusedByEager(frozenset(found))


def _refused(recorder: Recorder, outputs: Sequence[Arg]) -> set[Location]:
    nodes = recorder.builder.nodes
    read = _read(nodes, outputs)
    made = {value for node in nodes for value in node.outputs}
    answers: dict[object, bool] = {}
    found: set[Location] = set()
    for call in recorder.calls:
        if call.location is None or call.name == GRADIENTS:  # which wants what led to its tensors
            continue
        if _is_unread(frozenset(values_in(call.made)), made, read):
            refused = _is_refused(recorder, call, MOST_ELEMENTS)
        else:
            refused = call.happens and _is_refused_as_read(recorder, call, answers)
        if refused:
            found.add(call.location)
    return found


def _is_refused_as_read(recorder: Recorder, call: Called, answers: dict[object, bool]) -> bool:
    """The answer, remembered by the form of the arguments: most calls of a model are alike."""
    key = call.name, _form(call.args), _form(tuple(call.kwargs.items()))
    refused = answers.get(key)
    if refused is None:
        refused = _is_code_of_ours(recorder, call)
        refused = refused and _is_refused(recorder, call, MOST_ELEMENTS_READ)
        answers[key] = refused
    return refused


def _is_code_of_ours(recorder: Recorder, call: Called) -> bool:
    """Does no library do it, on the host?"""
    row = _row_of(call)
    values = list(values_in((*call.args, *call.kwargs.values())))
    tensors = [v.type for v in values if isinstance(v.type, TensorType)]
    return (
        (row.lower is not None or row.expand is not None)
        and not isinstance(row.lower, Extern)
        and all(kind.device == HOST for kind in tensors)
        and _has_example_sizes(recorder, call)
    )


def _has_example_sizes(recorder: Recorder, call: Called) -> bool:
    """Does data decide none of the sizes? What eager refuses at others says nothing."""
    return all(symbol in recorder.cx.hints for symbol in _symbols((call.args, call.kwargs)))


def _row_of(call: Called) -> OpDef:
    row = OPS[call.name]
    if row.overload is None:
        return row
    positional, keywords = row.signature.split(call.args, call.kwargs)
    return OPS[row.overload(*positional, **keywords) or row.name]


def _symbols(arg: Any) -> set[Symbol]:
    """Those of the sizes of tensors and of the numbers among arguments."""
    match arg:
        case Value(type=TensorType(shape=shape, strides=strides)):
            return _symbols((*shape, *strides))
        case Value(type=ScalarType(expr=expr)):
            return _symbols(expr)
        case Mapping():
            return _symbols(tuple(arg.values()))
        case tuple() | list() | slice():
            parts = (arg.start, arg.stop, arg.step) if isinstance(arg, slice) else arg
            return set().union(*map(_symbols, parts))
        case Expr():
            return set(symbols_of(arg))
    return set()


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
    """What the outputs are made of, and what is read by nodes that stay whoever reads them."""
    read = set(values_in(tuple(outputs)))
    for node in reversed(nodes):
        row = OPS.get(node.op)
        stays = row is None or row.mutates or row.resource is not None
        if stays or not read.isdisjoint(node.outputs):
            read.update(node.outputs)
            read.update(node.inputs())
    return read


def _is_refused(recorder: Recorder, call: Called, most: int) -> bool:
    """Does torch's function refuse the arguments, as the program gives them and as nodes have
    them?"""
    row = _row_of(call)
    if row.mutates or row.random:
        return False
    positional, keywords = row.signature.split(call.args, call.kwargs)
    forms: list[tuple[Sequence[Any], Mapping[str, Any]]] = [(positional, keywords)]
    if row.normalize is not None:
        try:
            forms.append(row.normalize(recorder.cx, *positional, **keywords))
        except (OpError, Undecided):  # it has been once, and wants to guard on something now
            return False
    function = resolve(OPS[call.name].torch)
    return all(
        _raises(recorder, function, *form, whole, most) for form in forms for whole in (0, 1)
    )


def _raises(
    recorder: Recorder,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    whole: int,
    most: int,
) -> bool:
    def asked(device: str) -> Exception | None:
        given, named = _asked(recorder, args, kwargs, whole, most, device)
        if isinstance(named.get("memory_format"), str):
            named["memory_format"] = getattr(torch, named["memory_format"])
        return _error(function, given, named)

    try:
        error = asked("cpu")
        if error is None or isinstance(error, TypeError):  # it takes other arguments than its row
            return False
        if isinstance(error, IndexError) and "Dimension" not in str(error):
            return most == MOST_ELEMENTS  # an index is tested in each call
        return most == MOST_ELEMENTS or _names_dtype(error) or _says_form(asked("meta"))
    except OpError:
        return False


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


def _asked(
    recorder: Recorder,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    whole: int,
    most: int,
    device: str,
) -> tuple[list[Any], dict[str, Any]]:
    """The arguments with one number for whole numbers, an index or a divisor, and 1 for others;
    without what is given None at the end or by name: defaults, which torch may not take."""

    def made(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        elements = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))
        if elements > most:
            raise OpError("too large to ask")
        element = 1 if dtype.is_floating_point or dtype.is_complex else whole
        return torch.full((max(elements, 0),), element, dtype=dtype, device=device).as_strided(
            shape, strides
        )

    sizes = defaultdict(lambda: UNKNOWN_SIZE, recorder.cx.hints)
    found = [value_at(recorder.cx, arg, sizes, made) for arg in args]
    while found and found[-1] is None:
        found.pop()
    named = {k: value_at(recorder.cx, v, sizes, made) for k, v in kwargs.items() if v is not None}
    return found, named
