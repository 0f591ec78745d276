"""One row for every opcode of CPython 3.11 and 3.12: its versions, its handler, and what it does to the stack.

`OPCODES` is the table that the tests go through; `OPCODE_HANDLERS` and `PREPARE` are what decoding needs on this Python. A row without
handler is either elided when code is decoded or makes a code object unsupported: it is then called natively as a whole.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import CodeType, MappingProxyType
from typing import Any

from anyshape.capture import intrinsic_ops, op_control, op_values, protocol
from anyshape.capture.frame import ELIDED, PYTHON, Handler

BOTH = frozenset({(3, 11), (3, 12)})
V311 = frozenset({(3, 11)})
V312 = frozenset({(3, 12)})
Count = int | Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class Opcode:
    """`pops` and `pushes` say what completing the instruction from outside does to the stack (see `Machine.complete`)."""

    name: str
    handler: Handler | None
    versions: frozenset[tuple[int, int]] = BOTH
    pops: Count = 0
    pushes: int = 0
    why_not: str = ""


def _row(name: str, handler: Any, pops: Count = 0, pushes: int = 0, versions: Any = BOTH) -> Opcode:
    return Opcode(name, handler, versions, pops, pushes)


def _without(name: str, why_not: str, versions: Any = BOTH) -> Opcode:
    return Opcode(name, None, versions, why_not=why_not)


_V, _C, _I = op_values, op_control, intrinsic_ops
_ASYNC = "coroutines run natively"

OPCODES: tuple[Opcode, ...] = (
    # the stack
    _row("POP_TOP", _V.pop_top, 1),
    _row("PUSH_NULL", _V.push_null, 0, 1),
    _row("COPY", _V.copy, 0, 1),
    _row("SWAP", _V.swap),
    _row("LOAD_CONST", _V.load_const, 0, 1),
    # locals and cells
    _row("LOAD_FAST", _V.load_fast, 0, 1),
    _row("LOAD_FAST_CHECK", _V.load_fast, 0, 1, V312),
    _row("LOAD_FAST_AND_CLEAR", _V.load_fast_and_clear, 0, 1, V312),
    _row("STORE_FAST", _V.store_fast, 1),
    _row("DELETE_FAST", _V.delete_fast),
    _row("MAKE_CELL", _V.make_cell),
    _row("COPY_FREE_VARS", _V.copy_free_vars),
    _row("LOAD_CLOSURE", _V.load_closure, 0, 1),
    _row("LOAD_DEREF", _V.load_deref, 0, 1),
    _row("STORE_DEREF", _V.store_deref, 1),
    _row("DELETE_DEREF", _V.delete_deref),
    _row("LOAD_CLASSDEREF", _V.load_classderef, 0, 1, V311),
    _row("LOAD_FROM_DICT_OR_DEREF", _V.load_from_dict_or_deref, 1, 1, V312),
    # names
    _row("LOAD_GLOBAL", _V.load_global, 0, 1),
    _row("STORE_GLOBAL", _V.store_global, 1),
    _row("DELETE_GLOBAL", _V.delete_global),
    _row("LOAD_NAME", _V.load_name, 0, 1),
    _row("STORE_NAME", _V.store_name, 1),
    _row("DELETE_NAME", _V.delete_name),
    _row("LOAD_LOCALS", _V.load_locals, 0, 1, V312),
    _row("LOAD_FROM_DICT_OR_GLOBALS", _V.load_from_dict_or_globals, 1, 1, V312),
    _row("SETUP_ANNOTATIONS", _V.setup_annotations),
    # attributes and items
    _row("LOAD_ATTR", _V.load_attr if PYTHON < (3, 12) else _V.load_attr_or_method, 1, 1),
    _row("LOAD_METHOD", _V.load_method, 1, 2, V311),
    _row("LOAD_SUPER_ATTR", _V.load_super_attr, 3, 1, V312),
    _row("STORE_ATTR", _V.store_attr, 2),
    _row("DELETE_ATTR", _V.delete_attr, 1),
    _row("BINARY_SUBSCR", _V.binary_subscr, 2, 1),
    _row("STORE_SUBSCR", _V.store_subscr, 3),
    _row("DELETE_SUBSCR", _V.delete_subscr, 2),
    _row("BINARY_SLICE", _V.binary_slice, 3, 1, V312),
    _row("STORE_SLICE", _V.store_slice, 4, 0, V312),
    # operators
    _row("BINARY_OP", _V.binary_op, 2, 1),
    _row("UNARY_NEGATIVE", _V.unary_negative, 1, 1),
    _row("UNARY_POSITIVE", _V.unary_positive, 1, 1, V311),
    _row("UNARY_INVERT", _V.unary_invert, 1, 1),
    _row("UNARY_NOT", _V.unary_not, 1, 1),
    _row("COMPARE_OP", _V.compare_op, 2, 1),
    _row("IS_OP", _V.is_op, 2, 1),
    _row("CONTAINS_OP", _V.contains_op, 2, 1),
    # containers
    _row("BUILD_TUPLE", _V.build_tuple, lambda n: n, 1),
    _row("BUILD_LIST", _V.build_list, lambda n: n, 1),
    _row("BUILD_SET", _V.build_set, lambda n: n, 1),
    _row("BUILD_MAP", _V.build_map, lambda n: 2 * n, 1),
    _row("BUILD_CONST_KEY_MAP", _V.build_const_key_map, lambda n: n + 1, 1),
    _row("BUILD_STRING", _V.build_string, lambda n: n, 1),
    _row("BUILD_SLICE", _V.build_slice, lambda n: n, 1),
    _row("LIST_TO_TUPLE", _V.list_to_tuple, 1, 1, V311),
    _row("LIST_APPEND", _V.list_append, 1),
    _row("SET_ADD", _V.set_add, 1),
    _row("MAP_ADD", _V.map_add, 2),
    _row("LIST_EXTEND", _V.list_extend, 1),
    _row("SET_UPDATE", _V.set_update, 1),
    _row("DICT_UPDATE", _V.dict_update, 1),
    _row("DICT_MERGE", _V.dict_merge, 1),
    _row("UNPACK_SEQUENCE", _V.unpack_sequence),
    _row("UNPACK_EX", _V.unpack_ex),
    _row("FORMAT_VALUE", _V.format_value, lambda flags: 2 if flags & 4 else 1, 1),
    _row("GET_LEN", _V.get_len, 0, 1),
    _row("LOAD_ASSERTION_ERROR", _V.load_assertion_error, 0, 1),
    # jumps
    _row("JUMP_FORWARD", _C.jump),
    _row("JUMP_BACKWARD", _C.jump),
    _row("JUMP_BACKWARD_NO_INTERRUPT", _C.jump),
    _row("POP_JUMP_IF_TRUE", _C.pop_jump_if_true, 1, 0, V312),
    _row("POP_JUMP_IF_FALSE", _C.pop_jump_if_false, 1, 0, V312),
    _row("POP_JUMP_IF_NONE", _C.pop_jump_if_none, 1, 0, V312),
    _row("POP_JUMP_IF_NOT_NONE", _C.pop_jump_if_not_none, 1, 0, V312),
    _row("POP_JUMP_FORWARD_IF_TRUE", _C.pop_jump_if_true, 1, 0, V311),
    _row("POP_JUMP_FORWARD_IF_FALSE", _C.pop_jump_if_false, 1, 0, V311),
    _row("POP_JUMP_FORWARD_IF_NONE", _C.pop_jump_if_none, 1, 0, V311),
    _row("POP_JUMP_FORWARD_IF_NOT_NONE", _C.pop_jump_if_not_none, 1, 0, V311),
    _row("POP_JUMP_BACKWARD_IF_TRUE", _C.pop_jump_if_true, 1, 0, V311),
    _row("POP_JUMP_BACKWARD_IF_FALSE", _C.pop_jump_if_false, 1, 0, V311),
    _row("POP_JUMP_BACKWARD_IF_NONE", _C.pop_jump_if_none, 1, 0, V311),
    _row("POP_JUMP_BACKWARD_IF_NOT_NONE", _C.pop_jump_if_not_none, 1, 0, V311),
    _row("JUMP_IF_TRUE_OR_POP", _C.jump_if_true_or_pop, 0, 0, V311),
    _row("JUMP_IF_FALSE_OR_POP", _C.jump_if_false_or_pop, 0, 0, V311),
    # iteration and generators
    _row("GET_ITER", _C.get_iter, 1, 1),
    _row("GET_YIELD_FROM_ITER", _C.get_yield_from_iter, 1, 1),
    _row("FOR_ITER", _C.for_iter, 0, 1),
    _row("END_FOR", _C.end_for, 2, 0, V312),
    _row("RETURN_GENERATOR", _C.return_generator),
    _row("YIELD_VALUE", _C.yield_value),
    _row("SEND", _C.send, 1, 1),
    _row("END_SEND", _C.end_send, 2, 1, V312),
    _row("CLEANUP_THROW", _C.cleanup_throw, 0, 0, V312),
    # calls and functions
    _row("CALL", _C.call, lambda arg: arg[0] + 2, 1),
    _row("CALL_FUNCTION_EX", _C.call_function_ex, lambda flags: 3 + (flags & 1), 1),
    _row("RETURN_VALUE", _C.return_value, 1),
    _row("RETURN_CONST", _C.return_const, 0, 0, V312),
    _row("MAKE_FUNCTION", _C.make_function),
    _row("LOAD_BUILD_CLASS", _C.load_build_class, 0, 1),
    _row("CALL_INTRINSIC_1", _I.call_intrinsic_1, 1, 1, V312),
    _row("CALL_INTRINSIC_2", _I.call_intrinsic_2, 2, 1, V312),
    # exceptions and with
    _row("RAISE_VARARGS", _C.raise_varargs, lambda n: n),
    _row("RERAISE", _C.reraise, 1),
    _row("PUSH_EXC_INFO", _C.push_exc_info),
    _row("POP_EXCEPT", _C.pop_except, 1),
    _row("CHECK_EXC_MATCH", _C.check_exc_match, 1, 1),
    _row("CHECK_EG_MATCH", _C.check_eg_match),
    _row("PREP_RERAISE_STAR", _C.prep_reraise_star, 2, 1, V311),
    _row("BEFORE_WITH", _C.before_with, 1, 2),
    _row("WITH_EXCEPT_START", _C.with_except_start, 0, 1),
    # import, match, interactive
    _row("IMPORT_NAME", _C.import_name, 2, 1),
    _row("IMPORT_FROM", _C.import_from, 0, 1),
    _row("IMPORT_STAR", _C.import_star, 1, 0, V311),
    _row("MATCH_MAPPING", _C.match_mapping, 0, 1),
    _row("MATCH_SEQUENCE", _C.match_sequence, 0, 1),
    _row("MATCH_KEYS", _C.match_keys, 0, 1),
    _row("MATCH_CLASS", _C.match_class, 3, 1),
    _row("PRINT_EXPR", _C.print_expr, 1, 0, V311),
    # elided when code is decoded
    *(_without(name, "elided") for name in sorted(ELIDED - {"PRECALL"})),
    _without("PRECALL", "elided", V311),
    # never in a code object
    _without("INTERPRETER_EXIT", "only in CPython's own entry frame", V312),
    _without("RESERVED", "reserved", V312),
    # a code object with one of these is called natively as a whole
    _without("GET_AWAITABLE", _ASYNC),
    _without("GET_AITER", _ASYNC),
    _without("GET_ANEXT", _ASYNC),
    _without("BEFORE_ASYNC_WITH", _ASYNC),
    _without("END_ASYNC_FOR", _ASYNC),
    _without("ASYNC_GEN_WRAP", _ASYNC, V311),
)

OPCODES_BY_NAME: Mapping[str, Opcode] = MappingProxyType(
    {row.name: row for row in OPCODES if PYTHON in row.versions}
)
OPCODE_HANDLERS: Mapping[str, Handler] = MappingProxyType(
    {row.name: row.handler for row in OPCODES_BY_NAME.values() if row.handler is not None}
)

Prepare = Callable[[CodeType, Any], Any]


def _name(code: CodeType, arg: int) -> str:
    return code.co_names[arg]


def _constant(code: CodeType, arg: int) -> Any:
    return code.co_consts[arg]


def _name_and_flag(code: CodeType, arg: int) -> tuple[str, bool]:
    return code.co_names[arg >> 1], bool(arg & 1)


def _super_name(code: CodeType, arg: int) -> tuple[str, bool, bool]:
    return code.co_names[arg >> 2], bool(arg & 1), bool(arg & 2)


def _comparison(code: CodeType, arg: int) -> str:
    return dis.cmp_op[arg if PYTHON < (3, 12) else arg >> 4]


def _operator(code: CodeType, arg: int) -> protocol.Operator:
    sign = dis._nb_ops[arg][1]  # type: ignore[attr-defined]  # noqa: SLF001
    return protocol.INPLACE[sign[:-1]] if sign.endswith("=") else protocol.BINARY[sign]


def _delegation(code: CodeType, arg: int) -> op_control.Delegation:
    return op_control.Delegation(arg)


_NAMED = (
    "STORE_GLOBAL DELETE_GLOBAL LOAD_NAME STORE_NAME DELETE_NAME LOAD_METHOD STORE_ATTR DELETE_ATTR "
    "LOAD_FROM_DICT_OR_GLOBALS IMPORT_NAME IMPORT_FROM"
).split()

PREPARE: Mapping[str, Prepare] = MappingProxyType(
    {
        **dict.fromkeys(_NAMED, _name),
        "LOAD_CONST": _constant,
        "RETURN_CONST": _constant,
        "LOAD_GLOBAL": _name_and_flag,
        "LOAD_ATTR": _name if PYTHON < (3, 12) else _name_and_flag,
        "LOAD_SUPER_ATTR": _super_name,
        "COMPARE_OP": _comparison,
        "BINARY_OP": _operator,
        "SEND": _delegation,
        "CALL_INTRINSIC_1": intrinsic_ops.prepare_1,
        "CALL_INTRINSIC_2": intrinsic_ops.prepare_2,
    }
)
