"""What a few functions of the standard library mean here; all else of it is Python code that is
interpreted, or C code that is called.

The functions of `itertools` are C and lazy. Where they would run code of the virtual program they
are replaced by interpreted generators: in a recording machine always when a function or an iterable
is the program's, in a concrete one never needed.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import itertools
import sys
from collections.abc import Callable
from types import FunctionType
from typing import Any

from anyshape.capture.heap.iterators import TELLING
from anyshape.capture.heap.nested_containers import elements_of
from anyshape.capture.heap.quiet_classes import class_entry
from anyshape.capture.heap.values import PROXIES, Call, SizeValue
from anyshape.capture.interpreter import protocol, search_polyfills, sort_polyfills
from anyshape.capture.interpreter.attributes import C_FUNCTIONS
from anyshape.capture.interpreter.domain import Interpreter
from anyshape.capture.python import (
    compared_containers,
    instances,
    iterator_positions,
    itertools_polyfills,
    jsons,
    pickles,
    program_times,
    texts_of_parts,
)
from anyshape.capture.python.builtins import Handler


def _lazy(function: Any, polyfill: Callable[..., Any]) -> Handler:
    """C code for containers of constants, the polyfill for what is the program's, or for an
    iterator that cannot be made anew where it stands."""

    def handler(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if machine.recording and (
            function not in TELLING
            or any(_is_programs(machine, arg) for arg in (*args, *kwargs.values()))
        ):
            first, last = ITERATED[function.__name__]
            shown = [() if first <= i < last else stand_in(arg) for i, arg in enumerate(args)]
            function(*shown, **{name: stand_in(arg, name) for name, arg in kwargs.items()})
            if function is itertools.islice and any(map(_is_asked, args[1:])):
                return Call(itertools_polyfills.islice_by_methods, args)
            return Call(polyfill, args, kwargs)
        return machine.native(function, args, kwargs)

    return handler


def stand_in(arg: Any, name: str = "") -> Any:
    """What C code is shown to say whether it takes such arguments: nothing to iterate over, and a
    number where the program would be asked for one."""
    if name in NAMES:
        return ()
    return 1 if type(arg) in PROXIES or _is_number_by_method(arg) else arg


def _is_number_by_method(arg: Any) -> bool:
    return type(class_entry(type(arg), "__index__")) is FunctionType


def _is_asked(bound: Any) -> bool:
    """Whether `islice` may not get a number of it as it is."""
    return type(bound) in PROXIES - {SizeValue} or _is_number_by_method(bound)


ITERATED: dict[str, tuple[int, int]] = {
    **dict.fromkeys(("chain", "product"), (0, sys.maxsize)),
    **dict.fromkeys(("cycle", "pairwise", "accumulate", "islice", "groupby"), (0, 1)),
    **dict.fromkeys(("starmap", "takewhile", "dropwhile", "filterfalse"), (1, 2)),
    **dict.fromkeys(("compress",), (0, 2)),
    **dict.fromkeys(("zip_longest",), (0, sys.maxsize)),
}
"""From which to which argument C code iterates; all but `chain` ask for an iterator at once."""
NAMES = frozenset({"iterable", "data", "selectors"})  # of such arguments


def _is_programs(machine: Interpreter, arg: Any, depth: int = 2) -> bool:
    """Whether C code that iterated over it, called it, or asked what lies in it (`compress` whether
    it is true, `accumulate` for a sum) might meet a proxy or the program's code: it does not for C
    functions and for containers of constants."""
    if type(arg) in protocol.CONTAINERS:
        parts = elements_of(machine.heap.mirror(arg))
        return depth == 0 or any(_is_programs(machine, part, depth - 1) for part in parts)
    return type(arg) not in protocol.PLAIN and type(arg) not in C_FUNCTIONS


def _chain_from_iterable(machine: Interpreter, fn: Any, args: tuple[Any, ...], kwargs: Any) -> Any:
    if machine.recording:
        return Call(itertools_polyfills.chain_from_iterable, args, kwargs)
    return machine.native(fn, args, kwargs)


def _cmp_to_key(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Its keys are C objects that call the program's function."""
    if machine.recording:
        return Call(sort_polyfills.cmp_to_key, args, kwargs)
    return machine.native(functools.cmp_to_key, args, kwargs)


def _bisected(function: Any, polyfill: Callable[..., Any]) -> Handler:
    """The program's elements are compared by its own code; C refuses what does not fit."""

    def handler(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        limits = (*args[2:], *(kwargs[name] for name in ("lo", "hi") if name in kwargs))
        fits = args and issubclass(type(args[0]), (list, tuple)) and kwargs.keys() <= BISECTED
        if not machine.recording or not fits or any(type(n) is not int for n in limits):
            return machine.native(function, args, kwargs)
        return Call(polyfill, args, kwargs)

    return handler


def _sifted(name: str, count: int) -> Handler:
    """C compares elements in the middle of its writes: those of constants, or in a large list."""
    function, polyfill = getattr(heapq, name), getattr(sort_polyfills, name)

    def handler(machine: Interpreter, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        fits = machine.recording and len(args) == count and type(args[0]) is list and not kwargs
        size = list.__len__(machine.heap.mirror(args[0])) if fits else 0
        if not fits or (size > sort_polyfills.LARGE_HEAP and name == "heapify"):
            return machine.native(function, args, kwargs)
        if size > FEW_ELEMENTS and name != "heapify":
            return Call(polyfill, args)
        if any(_is_programs(machine, arg) for arg in args):
            return Call(polyfill, args)
        return machine.native(function, args, kwargs)

    return handler


FEW_ELEMENTS = 32
"""To look what all of more elements are takes longer than to compare those that C would compare."""
SIFTED = {"heappush": 2, "heappop": 1, "heapify": 1, "heapreplace": 2, "heappushpop": 2}
BISECTED = frozenset({"x", "lo", "hi", "key"})
BISECT = ("bisect_left", "bisect_right", "insort_left", "insort_right")
_ITERTOOLS = (
    "chain islice accumulate starmap takewhile dropwhile filterfalse compress pairwise cycle "
    "product zip_longest groupby"
).split()

STDLIB: dict[Any, Handler] = {
    **{
        getattr(itertools, name): _lazy(
            getattr(itertools, name), getattr(itertools_polyfills, name)
        )
        for name in _ITERTOOLS
    },
    functools.cmp_to_key: _cmp_to_key,
    **{
        getattr(bisect, name): _bisected(getattr(bisect, name), getattr(search_polyfills, name))
        for name in BISECT
    },
    **{getattr(heapq, name): _sifted(name, count) for name, count in SIFTED.items()},
    **program_times.HANDLERS,
    **pickles.HANDLERS,
    **jsons.HANDLERS,
    **iterator_positions.HANDLERS,
    **compared_containers.HANDLERS,
    str.format: texts_of_parts.format_text,
    print: texts_of_parts.print_values,
    **instances.INSTANCE_HANDLERS,
}
STDLIB_CLASS_METHODS: dict[Any, Any] = {(itertools.chain, "from_iterable"): _chain_from_iterable}
