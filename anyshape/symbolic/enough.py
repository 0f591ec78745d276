"""What decides a relation without some of its symbols.

In: facts, a relation that they do not decide, and which symbols may be asked about. Out:
conditions on these alone, each with the truth that the relation has wherever it holds:
``s + u >= 1`` holds where ``s >= 1`` does, if ``u`` is never negative.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from anyshape.symbolic.atoms import Symbol
from anyshape.symbolic.conditions import Condition, Kind, Relation, ge, le
from anyshape.symbolic.facts import Facts

# The truth of a relation of each kind where its form is large enough, and where it is small enough.
ABOVE: Mapping[Kind, bool] = {"ge": True, "le": False, "eq": False, "ne": True}
BELOW: Mapping[Kind, bool] = {"ge": False, "le": True, "eq": False, "ne": True}
# Where the bound itself is large, or small, enough.
INCLUSIVE: frozenset[tuple[Kind, bool]] = frozenset({("ge", True), ("le", False)})


def enough(
    facts: Facts, relation: Relation, allowed: Callable[[Symbol], bool]
) -> Iterator[tuple[Condition | bool, bool]]:
    """Conditions on allowed symbols with the truth of the relation where they hold. None of them
    need hold; a bool is a condition without symbols."""
    kind, form, bound = relation.kind, relation.form, relation.bound
    above = facts.upper(-form, allowed)  # the form is at least -above
    if above is not None:
        yield ge(-above, bound if (kind, True) in INCLUSIVE else bound + 1), ABOVE[kind]
    below = facts.upper(form, allowed)
    if below is not None:
        yield le(below, bound if (kind, False) in INCLUSIVE else bound - 1), BELOW[kind]
