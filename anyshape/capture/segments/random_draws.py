"""Draws of `random.Random` while recording.

In: calls of its methods. Out: what they give of the state that the generator has: the program has
seeded it, or each call is guarded to begin with it. A generator from outside is left as it is, and
set to where its twin has come to at the end of the segment. Where one begins with another state
than before, its methods run natively from then on; so they do where the system seeds it. Its
methods in Python are interpreted.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Mapping
from types import FunctionType
from typing import Any

from anyshape.capture.guards.guard_failures import state_behind
from anyshape.capture.heap import random_states
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.descriptions import name_of
from anyshape.capture.heap.quiet_classes import mro_of, namespace_of
from anyshape.capture.heap.random_states import BY_CHANCE, KIND, STATE
from anyshape.capture.heap.values import NULL
from anyshape.capture.recording.domain import RecordingDomain
from anyshape.capture.segments.owned_objects import Args, Handler, given

LONGEST = 1_000
"""Elements of what is shuffled or chosen from; longer ones are left to CPython, as interpreting the
loop over them would take its time."""


def _twin(domain: RecordingDomain, rng: Any) -> Any:
    """What is drawn from instead of a generator; None where each call has other numbers."""
    heap = domain.machine.heap
    known = random_states.twin_of(heap.slots, rng)
    if known is not None or heap.is_created(rng):
        return known
    source = domain.readable_source(rng, "attr")
    if source is None or state_behind(source.text) in domain.widen:
        return None
    state = random_states.state_of(rng)
    domain.recorder.guard(source, "draws", state)
    twin = random_states.with_state(random.Random, state)
    heap.set_written(rng, STATE, twin)
    return twin


def _write(domain: RecordingDomain, rng: Any, twin: Any) -> None:
    """The generator will be left in the state of its twin."""
    heap = domain.machine.heap
    if twin is not rng and not heap.is_created(twin):
        heap.create(twin)
        heap.set_written(twin, STATE, twin)
        heap.log(random_states.put, rng, (twin,))


def _refuse(domain: RecordingDomain, fn: Any) -> None:
    """Inside a fork both sides would draw; what runs at another time draws something else then."""
    heap = domain.machine.heap
    if heap.journal is not None or heap.watcher is not None:
        raise broken("unknown-call", name_of(fn))


def _drawn(fn: Any) -> Handler:
    def handler(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
        rng, rest = _generator_and_rest(domain, fn, args)
        twin = _twin(domain, rng)
        if twin is None:
            raise broken("unknown-call", name_of(fn))
        result = fn(twin, *rest, **kwargs)
        if fn is not random_states.state_of:
            _write(domain, rng, twin)
        return result

    return handler


def _seeded(fn: Any) -> Handler:
    """`seed` or `setstate`: the state before is of no interest."""

    def handler(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
        rng, rest = _generator_and_rest(domain, fn, args)
        heap = domain.machine.heap
        inside = heap.is_created(rng)
        by_chance = fn is random_states.seed and rest in ([], [None])
        if by_chance and not inside:
            raise broken("unknown-call", name_of(fn))
        known = random_states.twin_of(heap.slots, rng)
        twin = rng if inside else known
        if twin is None:
            twin = random_states.with_state(random.Random, None)
        fn(twin, *rest, **kwargs)
        if inside or known is None:
            heap.set_written(rng, STATE, BY_CHANCE if by_chance else twin)
        _write(domain, rng, twin)

    return handler


def _generator_and_rest(domain: RecordingDomain, fn: Any, args: Args) -> tuple[Any, list[Any]]:
    if not args or not issubclass(type(args[0]), KIND):
        fn(*args)  # C's own refusal
    _refuse(domain, fn)
    return args[0], [given(domain, fn, arg) for arg in args[1:]]


def _in_python(fn: Any) -> Callable[..., Any]:
    """A method of `random.Random`: interpreted where it may draw, else left to CPython as a
    whole."""
    if fn.__name__ in WITHOUT_DRAWS:
        return lambda domain, args, kwargs: NotImplemented

    def handler(domain: RecordingDomain, args: Args, kwargs: dict[str, Any]) -> Any:
        if not args or not issubclass(type(args[0]), KIND):
            return NotImplemented
        rng = args[0]
        left = issubclass(type(rng), random.SystemRandom) or _are_long(args[1:])
        if left or not _follows(domain, fn, args, kwargs):
            raise broken("unknown-call", name_of(fn))
        classes = OF_NUMBERS.get(fn.__name__)
        if classes and not kwargs and classes.issuperset(map(type, args[1:])):
            return _computed(domain, fn, rng, args[1:])
        return NotImplemented

    return handler


def _follows(domain: RecordingDomain, fn: Any, args: Args, kwargs: dict[str, Any]) -> bool:
    """Whether the state behind the draws is known, or is about to be."""
    heap, rng = domain.machine.heap, args[0]
    if heap.journal is not None or heap.watcher is not None:
        return False
    if fn.__name__ in SEEDING:
        return heap.is_created(rng) or not _seeds_by_chance(args, kwargs)
    return _draws_by_itself(rng) or _twin(domain, rng) is not None


def _computed(domain: RecordingDomain, fn: Any, rng: Any, numbers: Args) -> Any:
    """What CPython computes of numbers and draws; NotImplemented where code of the program might
    run, or something is raised, whose traceback shows the frames."""
    twin, machine = _twin(domain, rng), domain.machine
    if type(rng) is not random.Random or any(
        machine.lookup(random.Random, name) is not found
        or machine.heap.instance_attribute(rng, vars(rng), name) is not NULL
        for name, found in CALLED.items()
    ):
        return NotImplemented
    before = random_states.state_of(twin)
    try:
        result = fn(twin, *numbers)
    except Exception:
        KIND.setstate(twin, before)
        return NotImplemented
    _write(domain, rng, twin)
    return result


def _seeds_by_chance(args: Args, kwargs: dict[str, Any]) -> bool:
    return [*args[1:2], *[kwargs[name] for name in ("a", "x") if name in kwargs]] in ([], [None])


def _draws_by_itself(rng: Any) -> bool:
    """Whether its class has draws of its own, which are interpreted."""
    return any(
        type(namespace_of(base).get(name)) is FunctionType
        for base in mro_of(type(rng))
        for name in ("random", "getrandbits")
    )


def _are_long(values: Args) -> bool:
    return any(
        issubclass(type(value), (list, tuple, range, str)) and len(value) > LONGEST
        for value in values
    )


OF_NUMBERS: Mapping[str, frozenset[type]] = {
    **dict.fromkeys(
        ("_randbelow", "_randbelow_with_getrandbits", "randrange", "randint", "randbytes"),
        frozenset({int}),
    ),
    **dict.fromkeys(
        ("uniform", "triangular", "normalvariate", "lognormvariate", "expovariate")
        + ("vonmisesvariate", "gammavariate", "betavariate", "paretovariate", "weibullvariate"),
        frozenset({int, float}),
    ),
}
"""Methods that read nothing but draws and numbers of these classes, and write nothing."""
CALLED: Mapping[str, Any] = {
    name: inspect.getattr_static(random.Random, name)
    for name in (
        "random",
        "getrandbits",
        "_randbelow",
        "randrange",
        "normalvariate",
        "gammavariate",
    )
}
"""What these call of each other."""
SEEDING = frozenset({"__init__", "seed"})
WITHOUT_DRAWS = frozenset(
    {"setstate", "__setstate__", "__reduce__", "__init_subclass__", "getstate", "__getstate__"}
)
METHODS = tuple(fn for fn in vars(random.Random).values() if type(fn) is FunctionType)
FUNCTIONS: Mapping[Any, Callable[..., Any]] = {fn: _in_python(fn) for fn in METHODS}
HANDLERS: Mapping[Any, Handler] = {
    **{fn: _drawn(fn) for fn in (KIND.random, KIND.getrandbits, KIND.getstate)},
    **{fn: _seeded(fn) for fn in (KIND.seed, KIND.setstate)},
}
