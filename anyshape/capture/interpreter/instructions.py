"""The instructions of a code object, in the form that handlers have.

In: a code object. Out: its instructions without those that do nothing, and a map from offsets to
indices. What one version of CPython writes as several instructions, and others as one, is made
alike by the tables of `REWRITES`.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping
from types import CodeType, MappingProxyType
from typing import Any

from anyshape.capture.interpreter.versions import PYTHON

Instruction = tuple[int, str, Any]
"""Offset, name, and raw argument; a jump has the offset that it jumps to."""
Rewrite = Callable[[CodeType, list[Instruction], Instruction], int]
"""Adds an instruction to those before it; gives the index of what now does its work."""

_PRIVATE: Any = dis  # the names of dis that have no stubs

ELIDED = frozenset({"CACHE", "NOP", "RESUME", "PRECALL", "EXTENDED_ARG"})
JUMPS = frozenset(dis.opname[op] for op in dis.hasjrel)


def instructions_of(code: CodeType) -> tuple[list[Instruction], Callable[[int], int]]:
    """The instructions, and a map from any offset to the index of the next one."""
    rewrites = REWRITES.get(PYTHON, {})
    kept: list[Instruction] = []
    index_at: list[int] = []  # by half the offset
    data, high = code.co_code, 0
    for offset in range(0, len(data), 2):
        index_at.append(len(kept))
        op = data[offset]
        if not op:  # CACHE
            continue
        arg: Any = data[offset + 1] | high if op >= dis.HAVE_ARGUMENT else None
        high = arg << 8 if op == dis.EXTENDED_ARG else 0
        name = dis.opname[op]
        if name in ELIDED:
            continue
        if name in JUMPS:
            arg = _jump_target(offset, name, arg)
        rewrite = rewrites.get(name)
        if rewrite is None:
            kept.append((offset, name, arg))
        else:
            index_at[-1] = rewrite(code, kept, (offset, name, arg))
    index_at.append(len(kept))
    return kept, lambda offset: index_at[offset // 2]


def _jump_target(offset: int, name: str, arg: int) -> int:
    """Jumps count from the end of the instruction and its inline caches (bpo-46841)."""
    after = offset + 2 + 2 * cache_count(name)
    return after - 2 * arg if "BACKWARD" in name else after + 2 * arg


def handler_rows(code: CodeType) -> list[Any]:
    """Its table of handlers: `start`, `end`, `target`, `depth` and `lasti` of each row."""
    rows: list[Any] = _PRIVATE._parse_exception_table(code)
    return rows


def cache_count(name: str) -> int:
    """How many units of the code lie behind such an instruction for CPython's own use."""
    caches = _PRIVATE._inline_cache_entries
    return caches[dis.opmap[name]] if isinstance(caches, list) else caches.get(name, 0)


# ---- rewriting -----------------------------------------------------------------------------------
def _as_it_is(code: CodeType, kept: list[Instruction], new: Instruction) -> int:
    kept.append(new)
    return len(kept) - 1


def _call(code: CodeType, kept: list[Instruction], new: Instruction) -> int:
    """KW_NAMES, CALL -> CALL with the names of keywords."""
    offset, name, count = new
    names = code.co_consts[kept.pop()[2]] if kept and kept[-1][1] == "KW_NAMES" else ()
    return _as_it_is(code, kept, (offset, name, (count, names)))


def _call_kw(code: CodeType, kept: list[Instruction], new: Instruction) -> int:
    """LOAD_CONST names, CALL_KW -> CALL with the names of keywords."""
    offset, _, count = new
    names = code.co_consts[kept.pop()[2]]
    return _as_it_is(code, kept, (offset, "CALL", (count, names)))


def _make_function(code: CodeType, kept: list[Instruction], new: Instruction) -> int:
    return _as_it_is(code, kept, (*new[:2], 0))


def _set_function_attribute(code: CodeType, kept: list[Instruction], new: Instruction) -> int:
    """MAKE_FUNCTION, SET_FUNCTION_ATTRIBUTE ... -> MAKE_FUNCTION that says which there are."""
    offset, name, flags = kept.pop()
    return _as_it_is(code, kept, (offset, name, flags | new[2]))


def _shifted(bits: int) -> Rewrite:
    """The argument has other things in its lowest bits."""

    def rewrite(code: CodeType, kept: list[Instruction], new: Instruction) -> int:
        return _as_it_is(code, kept, (*new[:2], new[2] >> bits))

    return rewrite


def _compare(code: CodeType, kept: list[Instruction], new: Instruction) -> int:
    """COMPARE_OP that makes a bool -> COMPARE_OP, TO_BOOL."""
    offset, name, arg = new
    index = _as_it_is(code, kept, (offset, name, arg >> 5))
    if arg & 16:
        kept.append((offset, "TO_BOOL", None))
    return index


def _of_truth(code: CodeType, kept: list[Instruction], new: Instruction) -> int:
    """TO_BOOL and what is done with the bool -> that alone, which asks for the truth itself."""
    if kept and kept[-1][1] == "TO_BOOL":
        new = (kept.pop()[0], *new[1:])
    return _as_it_is(code, kept, new)


def _then_null(code: CodeType, kept: list[Instruction], new: Instruction) -> int:
    """A load with NULL behind it -> the load, PUSH_NULL."""
    offset, name, arg = new
    index = _as_it_is(code, kept, (offset, name, arg & ~1))
    if arg & 1:
        kept.append((offset, "PUSH_NULL", None))
    return index


def _pair(first: str, second: str) -> Rewrite:
    """An instruction of two locals -> two of one."""

    def rewrite(code: CodeType, kept: list[Instruction], new: Instruction) -> int:
        offset, _, arg = new
        kept += [(offset, first, arg >> 4), (offset, second, arg & 15)]
        return len(kept) - 2

    return rewrite


REWRITES: Mapping[tuple[int, int], Mapping[str, Rewrite]] = MappingProxyType(
    {
        (3, 11): {"CALL": _call},
        (3, 12): {"CALL": _call, "COMPARE_OP": _shifted(4)},
        (3, 13): {
            "CALL": _call,
            "CALL_KW": _call_kw,
            "COMPARE_OP": _compare,
            "LOAD_FAST_LOAD_FAST": _pair("LOAD_FAST", "LOAD_FAST"),
            "LOAD_GLOBAL": _then_null,
            "LOAD_SUPER_ATTR": _then_null,
            "MAKE_FUNCTION": _make_function,
            "POP_JUMP_IF_FALSE": _of_truth,
            "POP_JUMP_IF_TRUE": _of_truth,
            "SET_FUNCTION_ATTRIBUTE": _set_function_attribute,
            "STORE_FAST_LOAD_FAST": _pair("STORE_FAST", "LOAD_FAST"),
            "STORE_FAST_STORE_FAST": _pair("STORE_FAST", "STORE_FAST"),
            "UNARY_NOT": _of_truth,
        },
    }
)
