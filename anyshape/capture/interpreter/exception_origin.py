"""Whose exception is it: the program's own, or a mistake of ours?

In: an exception that came out of an instruction while recording. Out: yes or no, by the innermost
line of its traceback. The interpreter raises what the program is to see by `raise`, or by doing
on the program's own objects what the program asked for, in few modules; an exception from any
other line of ours must not reach the program's handlers.
"""

from __future__ import annotations

from anyshape.capture.heap.raised_state import cause_of, context_of
from anyshape.capture.heap.values import ProxyLeak
from anyshape.interrupts import RAISES, innermost, instruction_of

OURS = __name__.partition(".")[0] + "."
ASKED_FOR = frozenset({"CALL", "PRECALL", "CALL_FUNCTION_EX", "CALL_KW", "BINARY_SUBSCR"})
"""Instructions by which we do natively what the program asked for."""
NATIVE_WORK = frozenset(
    f"{OURS}capture.{module}"
    for module in (
        *("heap.iterators", "heap.journal", "heap.nested_containers", "heap.shadow_heap"),
        *("heap.undo", "heap.unread_writes"),
        *("interpreter.attributes", "interpreter.class_polyfills", "interpreter.domain"),
        *("interpreter.iteration_polyfills", "interpreter.mapping_polyfills"),
        *("interpreter.search_polyfills", "interpreter.sort_polyfills", "interpreter.polyfills"),
        "interpreter.name_opcodes",
        *("interpreter.protocol", "interpreter.value_opcodes"),
        *("python.builtin_iteration", "python.builtin_objects", "python.builtins"),
        "python.compiled_text",
        *("python.instances", "python.itertools_polyfills", "python.stdlib"),
        *("segments.callables", "segments.number_attributes", "segments.symbolic_domain"),
        "sizes.numbers",
        *("tensors.tensor_ops", "tensors.torchmap"),
    )
)
"""The modules that do so by other than unpacked calls."""


def leak_behind(error: BaseException) -> ProxyLeak | None:
    """What native code met of ours, where C has made an error of its own of it, as it does of what
    a `__set_name__` raises."""
    pending, seen = [error], set()
    while pending:
        link = pending.pop()
        if type(link) is ProxyLeak:
            return link
        seen.add(id(link))
        chained = (cause_of(link), context_of(link))
        pending += [other for other in chained if other is not None and id(other) not in seen]
    return None


def is_ours(error: BaseException) -> bool:
    """Whether a line of the compiler failed by itself."""
    last = innermost(error)
    if (
        last is None
        or not issubclass(type(error), Exception)
        or issubclass(type(error), MemoryError)
    ):
        return False
    module = last.tb_frame.f_globals.get("__name__", "")
    if not module.startswith(OURS):
        return False
    instruction = instruction_of(last)
    if instruction in RAISES:
        return issubclass(type(error), AssertionError) and not module.endswith(".exception_opcodes")
    if instruction == "CALL_FUNCTION_EX":
        return False
    return instruction not in ASKED_FOR or module not in NATIVE_WORK
