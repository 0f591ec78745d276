"""Numbers that are computed when the function is called, and have a name of their own from there.

An int computed through floats is a symbol, as sizes are. A float of many operations is an input of
the graph, as one that is handed in: `lr = lr * a + lr * b` in a loop would double with each turn,
as numbers are trees.
"""

from __future__ import annotations

from itertools import islice

from anyshape.capture.guards.guard_code import ComputedBinding
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import ScalarValue
from anyshape.capture.recording.recorder import Recorder
from anyshape.ir.graph import ScalarType, Value
from anyshape.ir.scalars import Scalar, ScalarInput, names_of, parts_of
from anyshape.symbolic import Expr, Policy

FEW = 32
"""A number of so many operations and operands is written out where it is used."""


def bound_symbol(recorder: Recorder, scalar: Scalar) -> Expr:
    """A fresh symbol that stands for an int computed through floats."""
    known = recorder.bound.get(scalar)
    if known is not None:
        return known
    policies = {getattr(name, "policy", "") for name in names_of(scalar)}
    policy: Policy = "unbacked" if "unbacked" in policies else "backed"
    known = recorder.space.fresh("i", policy=policy, signed=True)
    assert known.symbol is not None
    recorder.bound[scalar] = known
    value = recorder.scalar_hint(scalar)
    if value is None:
        raise broken("size-needed", what="an int computed from data")
    recorder.hints[known.symbol] = value
    source = recorder.sources.local(known.symbol.name, f"int of {scalar.op}")
    recorder.bindings.append(ComputedBinding(known.symbol, scalar))
    recorder.number_input(known, source, "computed")
    return known


def float_of(recorder: Recorder, scalar: Scalar) -> ScalarValue:
    """The float, written out where it is used if it has few operations, or is computed on a side
    that is not taken; else an input that is computed when the function is called, or the result of
    a node where data decides it."""
    if recorder.is_dropped or len([*islice(parts_of(scalar), FEW + 1)]) <= FEW:
        return ScalarValue(scalar, float)
    value = recorder.scalar_hint(scalar) if recorder.is_known(scalar) else None
    if value is None:
        made: ScalarValue = recorder.wrap(recorder.call("number", scalar.op, scalar.args))
        return made
    known = recorder.named.get(scalar)
    if known is None:
        known = recorder.named[scalar] = _input_of(recorder, scalar, value)
    return ScalarValue(known, float)


def _input_of(recorder: Recorder, scalar: Scalar, value: float) -> ScalarInput:
    known = ScalarInput(recorder.space.free_name("f"), "float")
    recorder.scalar_hints[known] = value
    recorder.bindings.append(ComputedBinding(known, scalar))
    source = recorder.sources.local(known.name, f"float of {scalar.op}")
    recorder.handed_in(Value(known.name, ScalarType("float", known)), source)
    return known
