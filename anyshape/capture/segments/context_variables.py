"""Variables of `contextvars` that the program reads and sets while recording.

In: calls of `get`, `set` and `reset` of a variable that is the same one in each call. Out: what
lies in the thread's context, read again in each call, or what the segment has set there; the writes
themselves come at the end of the segment. A token is C's own, of a context that nobody else has;
where it is handed on, it is the one that the write at the end has given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextvars import ContextVar, Token
from threading import get_ident
from typing import Any

from anyshape.capture.guards.counters import UNSET, ContextValue
from anyshape.capture.heap.breaks import broken
from anyshape.capture.recording.domain import RecordingDomain

Args = tuple[Any, ...]


def _known(domain: RecordingDomain, args: Args, kwargs: dict[str, Any], name: str) -> Any:
    """The variable, if it is one that each call asks; else a break. Torch's configuration lies in
    such variables, too: how it refuses what is wrong would be interpreted without end."""
    module = domain.machine.current().globals.get("__name__")
    if type(module) is str and module.partition(".")[0] == "torch":
        raise broken("unknown-call", f"ContextVar.{name}")
    fits = args and type(args[0]) is ContextVar and len(args) in (1, 2) and not kwargs
    if not fits or domain.machine.heap.is_created(args[0]):
        raise broken("unknown-call", f"ContextVar.{name}")
    if not domain.recorder.is_the_same(args[0]):
        raise broken("unknown-call", f"ContextVar.{name} of what may be another one in each call")
    return args[0]


def _get(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
    variable = _known(domain, args, kwargs, "get")
    is_set = id(variable) in domain.variables.set
    value = domain.variables.context[variable] if is_set else _read(domain, variable)
    if value is not UNSET:
        return value
    if len(args) == 2:
        return args[1]
    default = _default_of(variable)
    if default is UNSET:
        raise LookupError(variable)
    return domain.see(domain.recorder.sources.const(default, f"{variable.name}'s default"), default)


def _default_of(variable: ContextVar[Any]) -> Any:
    """What a variable that is not set gives, for good."""
    try:
        return variable.get()
    except LookupError:
        return UNSET


def _read(domain: RecordingDomain, variable: ContextVar[Any]) -> Any:
    """What lies in the thread's context."""
    found = variable.get(UNSET)
    sources = domain.recorder.sources
    base = sources.of(_value_of(domain, variable))
    assert base is not None
    source = sources.child(base, "call", ())
    if found is UNSET:
        domain.recorder.guard(source, "is", UNSET)
        return UNSET
    return domain.see(source, found)


class Setting:
    """A `set` whose token the program uses, done again in each run: `is_reset` and `escapes` say
    what for. The token is kept, for each thread, until it is used for the last time. `is_first`:
    what was there before lies outside, and is not read."""

    __slots__ = ("escapes", "is_first", "is_reset", "tokens", "variable")

    def __init__(self, variable: ContextVar[Any], is_first: bool) -> None:
        self.variable = variable
        self.is_first = is_first
        self.is_reset = self.escapes = False
        self.tokens: dict[int, list[Token[Any]]] = {}

    def set(self, value: Any) -> None:
        token = self.variable.set(value)
        if self.is_reset or self.escapes:
            self.tokens.setdefault(get_ident(), []).append(token)

    def reset(self) -> None:
        tokens = self.tokens[get_ident()]
        self.variable.reset(tokens[-1] if self.escapes else tokens.pop())

    def token(self) -> Token[Any]:
        """What is handed on."""
        return self.tokens[get_ident()].pop()


def _value_of(domain: RecordingDomain, variable: ContextVar[Any]) -> ContextValue:
    asked = domain.variables.readings.setdefault(id(variable), ContextValue(variable))
    domain.recorder.sources.const(asked, f"the value of {variable.name}")
    return asked


def _set(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
    variable = _known(domain, args, kwargs, "set")
    heap, frame, known = domain.machine.heap, domain.machine.current(), domain.variables
    if len(args) != 2 or heap.journal is not None:
        raise broken("unknown-call", "ContextVar.set")
    value, is_first = args[1], id(variable) not in known.set
    known.set[id(variable)] = variable
    if frame.code.opcodes[frame.index][0] == "POP_TOP":
        heap.log(ContextValue.set, _value_of(domain, variable), (value,))
        known.context.run(variable.set, value)
        return None
    setting = Setting(variable, is_first)
    domain.recorder.sources.const(setting, f"a write to {variable.name}")
    heap.log(Setting.set, setting, (value,))
    token = heap.create(known.context.run(variable.set, value))
    known.tokens[id(token)] = setting
    return token


def _reset(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> None:
    """What C refuses is left to it: the text of the error shows where the token lies."""
    heap, known = domain.machine.heap, domain.variables
    setting = known.tokens.get(id(args[1])) if len(args) == 2 and not kwargs else None
    fits = setting is not None and setting.variable is args[0] and not setting.is_reset
    if setting is None or not fits or heap.journal is not None:
        raise broken("unknown-call", "ContextVar.reset")
    known.context.run(ContextVar.reset, *args)
    known.set.pop(id(args[0]), None)
    if not setting.is_first:
        known.set[id(args[0])] = args[0]
    setting.is_reset = True
    heap.log(Setting.reset, setting, ())


def refuse_unread(domain: RecordingDomain, obj: Any, name: str) -> None:
    """Reading what was there before the segment has set it."""
    setting = domain.variables.tokens.get(id(obj)) if name == "old_value" else None
    if setting is not None and setting.is_first:
        raise broken("unknown-call", "Token.old_value")


HANDLERS: Mapping[Any, Callable[..., Any]] = {
    ContextVar.get: _get,
    ContextVar.set: _set,
    ContextVar.reset: _reset,
}
