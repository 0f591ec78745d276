"""What torch says in warnings, where a row or a stand-in does its work.

    F.mse_loss(x, y)    # "Using a target size (torch.Size([3, 1])) that is different ..."

In: a call. Out: its warnings as effects of the segment, of the program's own lines. No table says
which calls warn, and of what. Python functions whose code can reach ``warnings.warn`` are asked,
with tensors without memory; where the answer differs at other sizes, each call asks again at its
own. Operators of C++ have said it when they were asked what they refuse, at the example sizes;
where a size decides, its row says which (``ops/refusals.py: WARNED``).
"""

from __future__ import annotations

import functools
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from anyshape.capture.guards.execution_modes import snapshot
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import Break, SizeValue
from anyshape.capture.python.builtin_objects import visible_frame
from anyshape.capture.python.recorded_warnings import recorded
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.recording.recorder import Recorder
from anyshape.capture.segments import warned
from anyshape.capture.tensors import tensor_methods
from anyshape.capture.tensors.meta import number_at, value_at
from anyshape.capture.tensors.outs import all_or_nothing
from anyshape.capture.tensors.refused_by_eager import Asking, RefusedByEager, warnings_of_eager
from anyshape.capture.tensors.tensor_ops import to_arg
from anyshape.errors import warn_outside
from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import Arg, TensorType, values_in
from anyshape.ops.context import OpError
from anyshape.quiet_functions import may_warn
from anyshape.symbolic import Dim, Expr, Symbol, gt

LEVELS = 8
"""How many callers a warning can be about."""
MOST_SYMBOLS = 6
"""With more of them, each one alone is not tried at other sizes."""


class Said(NamedTuple):
    """A warning: of the caller so many frames out, or of a line of torch's."""

    category: type[Warning]
    text: str
    level: int | None
    file: str
    line: int


class _Meta(NamedTuple):
    """A tensor as a question has it, hashable."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: torch.dtype


def call_torch(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """`tensor_methods.call_torch`, and what eager says of the call."""
    if not (tensor_methods.is_known(fn) and may_warn(fn)):
        return tensor_methods.call_torch(domain, fn, args, kwargs)
    question = _question(domain, fn, args, kwargs)
    answers = [] if question is None else list(_answers(domain, question))
    if any(answers) and domain.recorder.depth:
        raise broken("fork", "a warning of torch's")
    if not any(answers):
        return tensor_methods.call_torch(domain, fn, args, kwargs)
    _refuse(domain, answers[:1])
    with all_or_nothing(domain, ()):
        made = tensor_methods.call_torch(domain, fn, args, kwargs)
        if made is not NotImplemented:
            _tell(domain, _question(domain, fn, args, kwargs))  # sizes were compared by the call
    return made


def _refuse(domain: RecordingDomain, answers: list[tuple[Said, ...]]) -> None:
    for category in {said.category for answer in answers for said in answer}:
        warned.refuse(domain, category)


def tell_of_calls(domain: RecordingDomain, asking: Asking) -> None:
    """What operators say in C++, at the end of the segment."""
    for call, said, size in warnings_of_eager(asking):
        at = call.location
        assert at is not None
        for category, text in said:
            warn = functools.partial(_warn_at, at.file, at.line, text, category)
            try:
                if domain.relied.asked(warned.are_raised, (category,)):
                    raise RefusedByEager(frozenset((at,)))
                warned.refuse(domain, category)
            except (RefusedByEager, Break):
                if size is None or not _is_sure_to_be_positive(domain.recorder, size):
                    raise
                continue
            if size is None:
                domain.defer(warn, (), {})
            else:
                domain.defer(functools.partial(_warn_below, warn), (SizeValue(size),), {})


def _is_sure_to_be_positive(recorder: Recorder, size: Expr) -> bool:
    """By a guard; of what data decides, nobody knows."""
    return size.symbols <= recorder.cx.hints.keys() and recorder.decide(gt(size, 0))


def _warn_below(warn: Callable[[], None], size: int) -> None:
    if size <= 0:
        warn()


def _warn_at(file: str, line: int, text: str, category: type[Warning]) -> None:
    warned.warn_at((file, line, _names_of(file)), text, category)


# ---- what they say -------------------------------------------------------------------------------
class _Question(NamedTuple):
    """A call with sizes in it."""

    fn: Any
    args: tuple[Arg, ...]
    kwargs: tuple[tuple[str, Arg], ...]
    sizes: tuple[tuple[Symbol, Dim], ...]
    """Each symbol in the arguments, by those that nothing is known to be equal to."""

    def symbols(self) -> list[Symbol]:
        found: dict[Symbol, None] = {}
        for _, dim in self.sizes:
            if isinstance(dim, Expr):
                found.update(dict.fromkeys(sorted(dim.symbols, key=str)))
        return list(found)

    def answer(self, sizes: Mapping[Symbol, int]) -> tuple[Said, ...]:
        """At these sizes; nothing where the program has excluded them."""
        try:
            of = {symbol: number_at(dim, sizes) for symbol, dim in self.sizes}
            number = functools.partial(number_at, sizes=of)
            args = tuple([value_at(arg, number, _meta) for arg in self.args])
            named = tuple([(k, value_at(v, number, _meta)) for k, v in self.kwargs])
            return _said(self.fn, _typed(args), _typed(named), snapshot())
        except (OpError, KeyError):
            return ()


def _question(
    domain: RecordingDomain, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Question | None:
    try:
        given = tuple([_arg(domain, arg) for arg in args])
        named = tuple([(name, _arg(domain, arg)) for name, arg in kwargs.items()])
    except Break:  # it is refused for its arguments, and runs natively
        return None
    found: dict[Symbol, None] = {}
    for expr in _sizes_in((given, tuple([value for _, value in named]))):
        found.update(dict.fromkeys(sorted(expr.symbols, key=str)))
    simplify = domain.recorder.cx.facts.simplify
    return _Question(fn, given, named, tuple([(s, simplify(s.expr)) for s in found]))


def _arg(domain: RecordingDomain, value: Any) -> Any:
    return to_arg(domain, domain.seen(value))


def _sizes_in(arg: Any) -> Iterator[Expr]:
    for value in values_in(arg):
        if isinstance(value.type, TensorType):
            yield from (d for d in (*value.type.shape, *value.type.strides) if isinstance(d, Expr))
    pending = [arg]
    while pending:
        part = pending.pop()
        if isinstance(part, Expr):
            yield part
        elif isinstance(part, tuple):
            pending.extend(part)


def _meta(shape: Any, strides: Any, dtype: torch.dtype) -> _Meta:
    return _Meta(tuple(shape), tuple(strides), dtype)


def _typed(arg: Any) -> Any:
    """As 1, 1.0 and True are equal: with the class of each."""
    if type(arg) is tuple:
        return tuple, tuple([_typed(part) for part in arg])
    return type(arg), arg


def _untyped(arg: tuple[Any, Any]) -> Any:
    kind, value = arg
    if kind is tuple:
        return tuple([_untyped(part) for part in value])
    if kind is _Meta:
        return torch.empty_strided(value.shape, value.strides, dtype=value.dtype, device="meta")
    return value


class _OperatorReached(Exception):
    """Python's part of a function of torch has been run."""


class _UpToOperators(TorchDispatchMode):
    """Runs views alone: other operators on the meta device may be decompositions in Python, whose
    first one in a process imports for seconds."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """torch asks: to say so, it would import Dynamo."""
        return False

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        if not func.is_view:
            raise _OperatorReached
        return func(*args, **(kwargs or {}))


@functools.lru_cache(maxsize=4096)
def _said(fn: Any, args: Any, named: Any, modes: tuple[Any, ...]) -> tuple[Said, ...]:
    """Of a call with tensors on the meta device. What it is refused for, there or anywhere, it has
    warned before; so it has where it comes to an operator that computes."""
    with torch.inference_mode(False), torch.no_grad(), torch.random.fork_rng(devices=[]):
        given, options = _untyped(args), dict(_untyped(named))
        with recorded() as said, _UpToOperators():
            try:
                CALLERS[-1](CALLERS[:-1], fn, given, options)
            except Exception as error:
                if is_interrupt(error):
                    raise
    return tuple([_with_level(message) for message in said])


def _with_level(message: warnings.WarningMessage) -> Said:
    level = LEVEL_OF.get(message.filename)
    return Said(message.category, str(message.message), level, message.filename, message.lineno)


def _caller(level: int) -> Callable[..., Any]:
    """A frame that is told by its file, so that a warning says which one it is about."""
    names: dict[str, Any] = {"__name__": "torch_warnings"}
    text = (
        "def call(callers, fn, args, kwargs):\n"
        "    return callers[-1](callers[:-1], fn, args, kwargs) if callers else fn(*args, **kwargs)"
    )
    exec(compile(text, f"<caller {level}>", "exec"), names)
    made: Callable[..., Any] = names["call"]
    return made


CALLERS = tuple([_caller(level) for level in range(LEVELS)])
LEVEL_OF = {f"<caller {level}>": level for level in range(LEVELS)}


def _answers(domain: RecordingDomain, question: _Question) -> Iterator[tuple[Said, ...]]:
    """At the sizes of this call, then at others that calls may have."""
    symbols, hints = question.symbols(), domain.recorder.cx.hints
    if not all(symbol in hints for symbol in symbols):  # data decides a size
        return
    example = {symbol: hints[symbol] for symbol in symbols}
    yield question.answer(example)
    if symbols:
        yield question.answer(dict.fromkeys(symbols, 1))
        yield question.answer({symbol: size + 1 for symbol, size in example.items()})
    if 1 < len(symbols) <= MOST_SYMBOLS:
        for symbol, other in ((s, o) for s in symbols for o in (1, example[s] + 1)):
            yield question.answer(example | {symbol: other})


# ---- who is told ---------------------------------------------------------------------------------
def _tell(domain: RecordingDomain, question: _Question | None) -> None:
    answers = [] if question is None else list(_answers(domain, question))
    if question is None or not any(answers):
        return
    _refuse(domain, answers)
    lines = _lines(domain)
    symbols = question.symbols()
    if len(set(answers)) == 1:
        for said in answers[0]:
            domain.defer(functools.partial(_warn, lines, said), (), {})
        return
    sizes = tuple([SizeValue(symbol.expr) for symbol in symbols])
    domain.defer(functools.partial(_ask_again, lines, question, tuple(symbols)), sizes, {})


def _lines(domain: RecordingDomain) -> tuple[warned.Line, ...]:
    """Where the program is: the line of the call, and those of its callers."""
    frames = (visible_frame(domain.machine, level) for level in range(LEVELS))
    return tuple([warned.line_of(frame) for frame in frames if frame is not None])


def _ask_again(
    lines: tuple[warned.Line, ...], question: _Question, symbols: tuple[Symbol, ...], *sizes: int
) -> None:
    for said in question.answer(dict(zip(symbols, sizes, strict=True))):
        _warn(lines, said)


def _warn(lines: tuple[warned.Line, ...], said: Said) -> None:
    if said.level is None:
        _warn_at(said.file, said.line, said.text, said.category)
    elif said.level < len(lines):
        warned.warn_at(lines[said.level], said.text, said.category)
    else:  # of who calls the compiled function
        warn_outside(said.text, said.category, said.level - len(lines))


@functools.lru_cache(maxsize=256)
def _names_of(file: str) -> dict[str, Any]:
    """The globals of the module that lies in this file."""
    modules = (m for m in list(sys.modules.values()) if isinstance(m, types.ModuleType))
    return next((vars(m) for m in modules if vars(m).get("__file__") == file), {})
