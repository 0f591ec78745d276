"""What was worked out of arguments of such types before: equal layers ask the same of each row.

In: a question, its arguments, and how it is answered. Out: the answer. Only the types of tensors,
numbers, and what the context knows may decide it; where it has learned and made nothing new, the
same question has the same answer until facts about its symbols grow.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from typing import Any

from anyshape.ir.graph import Arg, ScalarType, TensorType, Value
from anyshape.ir.scalars import names_of
from anyshape.ops.context import TypeContext
from anyshape.ops.table import OpDef
from anyshape.symbolic import Expr, Symbol

AS_THEY_ARE = frozenset({int, str, Expr, type(None)})


def type_by_rule(
    cx: TypeContext, row: OpDef, args: tuple[Arg, ...], kwargs: Mapping[str, Arg]
) -> Any:
    """What the row's own rule says of arguments of these types."""
    rule = row.type
    assert rule is not None
    return answered(cx, row.name, args, kwargs, lambda: rule(cx, *args, **kwargs))


def answered(
    cx: TypeContext,
    question: Hashable,
    args: tuple[Arg, ...],
    kwargs: Mapping[str, Arg],
    work: Callable[[], Any],
) -> Any:
    """The answer for arguments of these types, worked out unless it is known."""
    facts = cx.facts
    key = question, _form(args), *kwargs, _form((*kwargs.values(),)), cx.policy
    try:
        found = cx.types.get(key)
    except TypeError:  # something among them has no hash
        return work()
    if found is not None and found[0] is facts:
        _, version, answer = found
        if version == facts.version:
            return answer
        if facts.unchanged(frozenset(_symbols((*args, *kwargs.values()))), version):
            cx.types[key] = facts, facts.version, answer
            return answer
    before = facts.version, len(cx.space)
    answer = work()
    if before == (facts.version, len(cx.space)) and (
        answer.__class__ is TensorType or not _is_new(answer)
    ):
        cx.types[key] = facts, facts.version, answer
    return answer


def _is_new(answer: object) -> bool:
    """Is there a number in it that a node reads? Each node's is another one."""
    if isinstance(answer, tuple):
        return any(map(_is_new, answer))
    return isinstance(answer, ScalarType)


def _symbols(arg: object) -> Iterator[Symbol]:
    """The symbols that a rule sees in an argument."""
    if isinstance(arg, Value):
        arg = arg.type
    if isinstance(arg, TensorType):
        arg = (*arg.shape, *arg.strides)
    if isinstance(arg, ScalarType):
        arg = arg.expr
    if isinstance(arg, slice):
        arg = (arg.start, arg.stop, arg.step)
    if isinstance(arg, tuple):
        for item in arg:
            yield from _symbols(item)
    else:
        yield from (name for name in names_of(arg) if isinstance(name, Symbol))  # type: ignore[arg-type]


def _form(arg: Any) -> Hashable:
    """What of an argument a rule can see; 1, 1.0 and True are different."""
    kind = arg.__class__
    if kind is Value:
        return arg.type
    if kind is tuple:
        return tuple(
            [
                a.type if a.__class__ is Value else a if a.__class__ in AS_THEY_ARE else _form(a)
                for a in arg
            ]
        )
    if kind is slice:
        return slice, _form(arg.start), _form(arg.stop), _form(arg.step)
    return arg if kind in AS_THEY_ARE else (kind, arg)
