"""One row for every opcode of CPython 3.11, 3.12 and 3.13: its versions and its handler.

`OPCODES` is the table that the tests go through; `OPCODE_HANDLERS` and `PREPARE` are what decoding
needs on this Python. A row without handler is either elided or rewritten when code is decoded
(`instructions.py`) or makes a code object unsupported: it is then called natively as a whole.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Mapping
from types import CodeType, MappingProxyType
from typing import Any

from anyshape.capture.interpreter import (
    control_opcodes,
    exception_opcodes,
    intrinsic_opcodes,
    name_opcodes,
    operators,
    value_opcodes,
)
from anyshape.capture.interpreter.frame import Handler
from anyshape.capture.interpreter.instructions import ELIDED
from anyshape.capture.interpreter.versions import PYTHON
from anyshape.nouns import frozen

V311 = frozenset({(3, 11)})
V312 = frozenset({(3, 12)})
V313 = frozenset({(3, 13)})
ALL = V311 | V312 | V313
UNTIL_312 = V311 | V312
SINCE_312 = V312 | V313


@frozen
class Opcode:
    """A row; one without handler says `why_not`."""

    name: str
    handler: Handler | None
    versions: frozenset[tuple[int, int]] = ALL
    why_not: str = ""


def _row(name: str, handler: Any, versions: Any = ALL) -> Opcode:
    return Opcode(name, handler, versions)


def _without(name: str, why_not: str, versions: Any = ALL) -> Opcode:
    return Opcode(name, None, versions, why_not)


_V, _N, _C, _E, _I = (
    value_opcodes,
    name_opcodes,
    control_opcodes,
    exception_opcodes,
    intrinsic_opcodes,
)
_ASYNC = "coroutines run natively"

OPCODES: tuple[Opcode, ...] = (
    # the stack
    _row("POP_TOP", _V.pop_top),
    _row("PUSH_NULL", _V.push_null),
    _row("COPY", _V.copy),
    _row("SWAP", _V.swap),
    _row("LOAD_CONST", _V.load_const),
    # locals and cells
    _row("LOAD_FAST", _N.load_fast),
    _row("LOAD_FAST_CHECK", _N.load_fast, SINCE_312),
    _row("LOAD_FAST_AND_CLEAR", _N.load_fast_and_clear, SINCE_312),
    _row("STORE_FAST", _N.store_fast),
    _row("DELETE_FAST", _N.delete_fast),
    _row("MAKE_CELL", _N.make_cell),
    _row("COPY_FREE_VARS", _N.copy_free_vars),
    _row("LOAD_CLOSURE", _N.load_closure, UNTIL_312),
    _row("LOAD_DEREF", _N.load_deref),
    _row("STORE_DEREF", _N.store_deref),
    _row("DELETE_DEREF", _N.delete_deref),
    _row("LOAD_CLASSDEREF", _N.load_classderef, V311),
    _row("LOAD_FROM_DICT_OR_DEREF", _N.load_from_dict_or_deref, SINCE_312),
    # names
    _row("LOAD_GLOBAL", _N.load_global),
    _row("STORE_GLOBAL", _N.store_global),
    _row("DELETE_GLOBAL", _N.delete_global),
    _row("LOAD_NAME", _N.load_name),
    _row("STORE_NAME", _N.store_name),
    _row("DELETE_NAME", _N.delete_name),
    _row("LOAD_LOCALS", _N.load_locals, SINCE_312),
    _row("LOAD_FROM_DICT_OR_GLOBALS", _N.load_from_dict_or_globals, SINCE_312),
    _row("SETUP_ANNOTATIONS", _N.setup_annotations),
    # attributes and items
    _row("LOAD_ATTR", _V.load_attr, V311),
    _row("LOAD_ATTR", _V.load_attr_or_method, V312),
    _row("LOAD_ATTR", _V.load_attr_or_callee, V313),
    _row("LOAD_METHOD", _V.load_method, V311),
    _row("LOAD_SUPER_ATTR", _V.load_super_attr, SINCE_312),
    _row("STORE_ATTR", _V.store_attr),
    _row("DELETE_ATTR", _V.delete_attr),
    _row("BINARY_SUBSCR", _V.binary_subscr),
    _row("STORE_SUBSCR", _V.store_subscr),
    _row("DELETE_SUBSCR", _V.delete_subscr),
    _row("BINARY_SLICE", _V.binary_slice, SINCE_312),
    _row("STORE_SLICE", _V.store_slice, SINCE_312),
    # operators
    _row("BINARY_OP", _V.binary_op),
    _row("UNARY_NEGATIVE", _V.unary_negative),
    _row("UNARY_POSITIVE", _V.unary_positive, V311),
    _row("UNARY_INVERT", _V.unary_invert),
    _row("UNARY_NOT", _V.unary_not),
    _row("COMPARE_OP", _V.compare_op),
    _row("IS_OP", _V.is_op),
    _row("CONTAINS_OP", _V.contains_op),
    # containers
    _row("BUILD_TUPLE", _V.build_tuple),
    _row("BUILD_LIST", _V.build_list),
    _row("BUILD_SET", _V.build_set),
    _row("BUILD_MAP", _V.build_map),
    _row("BUILD_CONST_KEY_MAP", _V.build_const_key_map),
    _row("BUILD_STRING", _V.build_string),
    _row("BUILD_SLICE", _V.build_slice),
    _row("LIST_TO_TUPLE", _V.list_to_tuple, V311),
    _row("LIST_APPEND", _V.list_append),
    _row("SET_ADD", _V.set_add),
    _row("MAP_ADD", _V.map_add),
    _row("LIST_EXTEND", _V.list_extend),
    _row("SET_UPDATE", _V.set_update),
    _row("DICT_UPDATE", _V.dict_update),
    _row("DICT_MERGE", _V.dict_merge),
    _row("UNPACK_SEQUENCE", _V.unpack_sequence),
    _row("UNPACK_EX", _V.unpack_ex),
    _row("FORMAT_VALUE", _V.format_value, UNTIL_312),
    _row("CONVERT_VALUE", _V.convert_value, V313),
    _row("FORMAT_SIMPLE", _V.format_simple, V313),
    _row("FORMAT_WITH_SPEC", _V.format_with_spec, V313),
    _row("GET_LEN", _V.get_len),
    _row("LOAD_ASSERTION_ERROR", _V.load_assertion_error),
    # jumps
    _row("JUMP_FORWARD", _C.jump),
    _row("JUMP_BACKWARD", _C.jump_back),
    _row("JUMP_BACKWARD_NO_INTERRUPT", _C.jump),
    _row("POP_JUMP_IF_TRUE", _C.pop_jump_if_true, SINCE_312),
    _row("POP_JUMP_IF_FALSE", _C.pop_jump_if_false, SINCE_312),
    _row("POP_JUMP_IF_NONE", _C.pop_jump_if_none, SINCE_312),
    _row("POP_JUMP_IF_NOT_NONE", _C.pop_jump_if_not_none, SINCE_312),
    _row("POP_JUMP_FORWARD_IF_TRUE", _C.pop_jump_if_true, V311),
    _row("POP_JUMP_FORWARD_IF_FALSE", _C.pop_jump_if_false, V311),
    _row("POP_JUMP_FORWARD_IF_NONE", _C.pop_jump_if_none, V311),
    _row("POP_JUMP_FORWARD_IF_NOT_NONE", _C.pop_jump_if_not_none, V311),
    _row("POP_JUMP_BACKWARD_IF_TRUE", _C.turning(_C.pop_jump_if_true), V311),
    _row("POP_JUMP_BACKWARD_IF_FALSE", _C.turning(_C.pop_jump_if_false), V311),
    _row("POP_JUMP_BACKWARD_IF_NONE", _C.turning(_C.pop_jump_if_none), V311),
    _row("POP_JUMP_BACKWARD_IF_NOT_NONE", _C.turning(_C.pop_jump_if_not_none), V311),
    _row("JUMP_IF_TRUE_OR_POP", _C.jump_if_true_or_pop, V311),
    _row("JUMP_IF_FALSE_OR_POP", _C.jump_if_false_or_pop, V311),
    # iteration and generators
    _row("GET_ITER", _C.get_iter),
    _row("GET_YIELD_FROM_ITER", _C.get_yield_from_iter),
    _row("FOR_ITER", _C.for_iter),
    _row("END_FOR", _C.end_for, V312),
    _row("END_FOR", _V.pop_top, V313),  # and a POP_TOP behind it
    _row("RETURN_GENERATOR", _C.return_generator),
    _row("YIELD_VALUE", _C.yield_value),
    _row("SEND", _C.send),
    _row("END_SEND", _C.end_send, SINCE_312),
    _row("CLEANUP_THROW", _C.cleanup_throw, SINCE_312),
    # calls and functions
    _row("CALL", _C.call),
    _row("CALL_FUNCTION_EX", _C.call_function_ex),
    _row("RETURN_VALUE", _C.return_value),
    _row("RETURN_CONST", _C.return_const, SINCE_312),
    _row("MAKE_FUNCTION", _C.make_function),
    _row("LOAD_BUILD_CLASS", _C.load_build_class),
    _row("CALL_INTRINSIC_1", _I.call_intrinsic_1, SINCE_312),
    _row("CALL_INTRINSIC_2", _I.call_intrinsic_2, SINCE_312),
    # exceptions and with
    _row("RAISE_VARARGS", _E.raise_varargs),
    _row("RERAISE", _E.reraise),
    _row("PUSH_EXC_INFO", _E.push_exc_info),
    _row("POP_EXCEPT", _E.pop_except),
    _row("CHECK_EXC_MATCH", _E.check_exc_match),
    _row("CHECK_EG_MATCH", _E.check_eg_match),
    _row("PREP_RERAISE_STAR", _E.prep_reraise_star, V311),
    _row("BEFORE_WITH", _E.before_with),
    _row("WITH_EXCEPT_START", _E.with_except_start),
    # import, match, interactive
    _row("IMPORT_NAME", _C.import_name),
    _row("IMPORT_FROM", _C.import_from),
    _row("IMPORT_STAR", _C.import_star, V311),
    _row("MATCH_MAPPING", _C.match_mapping),
    _row("MATCH_SEQUENCE", _C.match_sequence),
    _row("MATCH_KEYS", _C.match_keys),
    _row("MATCH_CLASS", _C.match_class),
    _row("PRINT_EXPR", _C.print_expr, V311),
    # elided when code is decoded
    *(_without(name, "elided") for name in sorted(ELIDED - {"PRECALL"})),
    _without("PRECALL", "elided", V311),
    # rewritten when code is decoded
    _without("KW_NAMES", "its CALL has them", UNTIL_312),
    _without("CALL_KW", "CALL", V313),
    _without("SET_FUNCTION_ATTRIBUTE", "MAKE_FUNCTION does it", V313),
    _without("TO_BOOL", "the jump or the `not` behind it does it", V313),
    _without("LOAD_FAST_LOAD_FAST", "two LOAD_FAST", V313),
    _without("STORE_FAST_LOAD_FAST", "STORE_FAST and LOAD_FAST", V313),
    _without("STORE_FAST_STORE_FAST", "two STORE_FAST", V313),
    # never in a code object
    _without("INTERPRETER_EXIT", "only in CPython's own entry frame", SINCE_312),
    _without("RESERVED", "reserved", SINCE_312),
    _without("ENTER_EXECUTOR", "only in code that CPython's second tier runs", V313),
    _without("EXIT_INIT_CHECK", "only in CPython's own frame around `__init__`", V313),
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
    return dis.cmp_op[arg]


def _operator(code: CodeType, arg: int) -> operators.Operator:
    sign = dis._nb_ops[arg][1]  # type: ignore[attr-defined] # private to dis
    return operators.INPLACE[sign[:-1]] if sign.endswith("=") else operators.BINARY[sign]


def _delegation(code: CodeType, arg: int) -> control_opcodes.Delegation:
    return control_opcodes.Delegation(arg)


_NAMED = (
    "STORE_GLOBAL DELETE_GLOBAL LOAD_NAME STORE_NAME DELETE_NAME LOAD_METHOD STORE_ATTR "
    "DELETE_ATTR LOAD_FROM_DICT_OR_GLOBALS IMPORT_NAME IMPORT_FROM"
).split()

PREPARE: Mapping[str, Prepare] = MappingProxyType(
    {
        **dict.fromkeys(_NAMED, _name),
        "LOAD_CONST": _constant,
        "RETURN_CONST": _constant,
        "LOAD_GLOBAL": _name_and_flag,
        "LOAD_ATTR": _name if PYTHON in V311 else _name_and_flag,
        "LOAD_SUPER_ATTR": _super_name,
        "COMPARE_OP": _comparison,
        "BINARY_OP": _operator,
        "SEND": _delegation,
        "CALL_INTRINSIC_1": intrinsic_opcodes.prepare_1,
        "CALL_INTRINSIC_2": intrinsic_opcodes.prepare_2,
    }
)
