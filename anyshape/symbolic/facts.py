"""What is known about sizes: a growing knowledge base with three answers, True, False and None.

In: conditions assumed, each with its reason. Out: `known` relations, `simplify`, `bounds`, `divisor`. True and False hold for ever and are
remembered for ever; "unknown" is asked again when facts grew. `fork` shares everything and costs nothing. The work is done in
`decide.py`, `simplify.py`, `ranges.py` and `linear.py`; this file keeps the facts and draws the consequences of a new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from math import gcd
from typing import Any, TypeAlias

from anyshape.symbolic.atoms import Atom, Symbol
from anyshape.symbolic.conditions import AllOf, AnyOf, Condition, Relation, any_of, eq, ge, le, ne
from anyshape.symbolic.decide import decide, quick
from anyshape.symbolic.expr import Dim, Expr, Space
from anyshape.symbolic.layered import Layered
from anyshape.symbolic.ranges import (
    Bounds,
    Congruence,
    bounds_of,
    canonical,
    congruence_of,
    highest,
    intersect,
    lowest,
)
from anyshape.symbolic.simplify import (
    common_factor,
    condition_simplified,
    divide,
    not_zero,
    simplified,
)

Why: TypeAlias = tuple[int, ...]
"""Numbers of the facts that something was derived from."""

Chain: TypeAlias = tuple[Any, "Chain"] | None
"""A list that shares its tail, the newest first."""


ALTERNATIVES = 6  # conditions assumed together to decide a conjunction or disjunction


class Contradiction(ValueError):
    """A condition was assumed that the facts refute; `condition` and the `reasons` of those facts."""

    def __init__(
        self, condition: Condition | bool, reasons: list[object], numbers: Why = ()
    ) -> None:
        because = ", ".join(str(reason) for reason in reasons)
        super().__init__(
            f"{condition} contradicts what is known" + (f": {because}" if because else "")
        )
        self.condition = condition
        self.reasons = reasons
        self.numbers = numbers


class Facts:
    """Facts about the symbols of a space. They only grow."""

    __slots__ = (
        "_alternatives",
        "_answers",
        "_congruences",
        "_entries",
        "_holes",
        "_links",
        "_number",
        "_ranges",
        "_recalled",
        "_used",
        "_values",
        "space",
        "version",
    )

    def __init__(self, space: Space, parent: Facts | None = None) -> None:
        self.space = space
        self._used: dict[int, None] | None = None
        if parent is None:
            self.version = 2
            self._number = 0
            self._entries: Chain = None
            self._answers: Layered[Condition, bool | int] = Layered()
            self._ranges: Layered[Expr, tuple[int | None, int | None, Why]] = Layered()
            self._values: Layered[Atom, tuple[Dim, Why]] = Layered()
            self._congruences: Layered[Expr, tuple[int, int, Why]] = Layered()
            self._holes: Layered[Expr, tuple[tuple[int, Why], ...]] = Layered()
            self._links: Layered[Symbol, Chain] = Layered()
            self._alternatives: Layered[AnyOf, Why] = Layered()
            self._recalled: Layered[object, tuple[int, Any]] = Layered()
            return
        self.version = parent.version
        self._number = parent._number
        self._entries = parent._entries
        self._answers = parent._answers.fork()
        self._ranges = parent._ranges.fork()
        self._values = parent._values.fork()
        self._congruences = parent._congruences.fork()
        self._holes = parent._holes.fork()
        self._links = parent._links.fork()
        self._alternatives = parent._alternatives.fork()
        self._recalled = parent._recalled.fork()

    # --- the public face

    def fork(self) -> Facts:
        """A child that knows all this and may learn more without changing its parent."""
        return Facts(self.space, self)

    def all(self) -> list[tuple[Condition, object]]:
        """Every fact that was assumed, the oldest first, with its reason."""
        entries = []
        chain = self._entries
        while chain is not None:
            entry, chain = chain
            entries.append(entry)
        return entries[::-1]

    def assume(self, condition: Condition | bool, reason: object = None) -> None:
        """Learns a condition; Contradiction if the facts refute it."""
        answer = self.known(condition)
        if answer is True:
            return
        if answer is False:
            why = self._trace(lambda: self._decide(condition))
            raise Contradiction(condition, self._reasons(why), why)
        number = self._number
        self._number += 1
        self._entries = ((condition, reason), self._entries)
        self.version += 1
        self._answers[condition] = True
        try:
            self._learn(condition, (number,))
        except _Refuted as refuted:
            raise Contradiction(condition, self._reasons(refuted.why), refuted.why) from None

    def known(self, condition: Condition | bool) -> bool | None:
        """True or False if the facts decide, else None."""
        if condition is True or condition is False:
            return condition
        found = self._answers.get(condition)
        if found is True or found is False:
            return found
        if found == self.version:
            return None
        answer = self._decide(condition)
        self._answers[condition] = self.version if answer is None else answer
        return answer

    def why(self, condition: Condition | bool) -> list[object]:
        """The reasons of the facts that decide the condition; empty if it is unknown or always so."""
        return self._reasons(self._trace(lambda: self._decide(condition)))

    def simplify(self, dim: Dim) -> Dim:
        """The same value in a simpler form under these facts."""
        return simplified(self, dim)

    def bounds(self, dim: Dim) -> Bounds:
        """The least and greatest value, None where unbounded."""
        return bounds_of(self, simplified(self, dim))

    def divisor(self, dim: Dim) -> int:
        """The largest known divisor; for 0, which everything divides, 2**62."""
        return gcd(*congruence_of(self, simplified(self, dim))) or 1 << 62

    def quick(self, condition: Relation | bool) -> bool | None:
        """As `known`, without elimination."""
        if isinstance(condition, bool):
            return condition
        found = self._answers.get(condition)
        if found is True or found is False:
            return found
        return quick(self, condition)

    # --- what the reasoning modules read

    def recall(self, key: object) -> Any:
        """What was remembered under these facts; nothing while reasons are being traced."""
        if self._used is not None:
            return None
        found = self._recalled.get(key)
        return found[1] if found is not None and found[0] == self.version else None

    def remember(self, key: object, value: object) -> None:
        """Keeps a derived value until facts grow."""
        if self._used is None:
            self._recalled[key] = (self.version, value)

    def remembered(self, condition: Condition) -> bool | None:
        """An answer that holds for ever."""
        found = self._answers.get(condition)
        return found if self._used is None and (found is True or found is False) else None

    def value_of(self, atom: Atom) -> Dim | None:
        """What an equality says that the atom is."""
        found = self._values.get(atom)
        return None if found is None else found[0]

    def range_of(self, form: Expr) -> Bounds:
        """The stated range of exactly this form."""
        found = self._ranges.get(form)
        if found is None:
            return (None, None)
        if self._used is not None:
            self.use(found[2])
        return found[0], found[1]

    def range_with_source(self, form: Expr) -> tuple[int | None, int | None, Why]:
        """The stated range of exactly this form, and the facts that say so."""
        return self._ranges.get(form) or (None, None, ())

    def congruence_at(self, form: Expr) -> Congruence | None:
        """The stated residue of exactly this form."""
        found = self._congruences.get(form)
        if found is None:
            return None
        self.use(found[2])
        return found[0], found[1]

    def congruence_with_source(self, form: Expr) -> tuple[int, int, Why] | None:
        """The stated residue of exactly this form, and the facts that say so."""
        return self._congruences.get(form)

    def holes_of(self, form: Expr) -> list[int]:
        """Values that the form is known not to have."""
        holes = self._holes.get(form) or ()
        if self._used is not None:
            for _, why in holes:
                self.use(why)
        return [hole for hole, _ in holes]

    def linked(self, expr: Expr) -> bool:
        """Whether facts about more than one symbol could say something of this expression."""
        if not self._links:
            return False
        get = self._links.get
        return any(get(symbol) is not None for symbol in expr.symbols)

    def links_at(self, symbol: Symbol, limit: int) -> Iterator[Expr | AnyOf]:
        """Facts that mention the symbol beside others, the newest first."""
        chain = self._links.get(symbol)
        while chain is not None and limit:
            fact, chain = chain
            if not isinstance(fact, Relation):
                limit -= 1
                yield fact

    def links_of(self, expr: Expr, limit: int) -> list[Expr]:
        """Linear facts that mention symbols of the expression."""
        if not self._links:
            return []
        found: dict[Expr, None] = {}
        for monomial in expr.terms:
            for atom in monomial:
                for symbol in (atom,) if not atom.word else sorted(atom.symbols, key=_age):
                    for fact in self.links_at(symbol, limit):
                        if isinstance(fact, Expr):
                            found[fact] = None
        return list(found)[:limit]

    def use(self, why: Why) -> None:
        """Notes facts that a derivation used."""
        if self._used is not None:
            self._used.update(dict.fromkeys(why))

    def use_all(self, expr: Dim) -> None:
        """Notes every fact behind what is known of the expression."""
        if self._used is not None:
            self.use(self._sources(expr))

    def use_value(self, atom: Atom) -> None:
        """Notes the equality that gave the atom its value."""
        if self._used is not None:
            found = self._values.get(atom)
            self.use(found[1] if found is not None else ())

    def sources_about(self, expr: Dim) -> Why:
        """The facts behind what is known of the expression, when reasons are being traced."""
        if self._used is None or isinstance(expr, int):
            return ()
        return self._sources(expr)

    def sources_of(self, fact: AnyOf) -> Why:
        """The facts behind alternatives."""
        return self._alternatives.get(fact) or ()

    # --- deciding

    def _decide(self, condition: Condition | bool) -> bool | None:
        if isinstance(condition, bool):
            return condition
        if isinstance(condition, Relation):
            return decide(self, condition)
        answers = [
            self._decide(part) if self._used is not None else self.known(part)
            for part in condition.parts
        ]
        if isinstance(condition, AllOf):
            if False in answers:
                return False
            if None not in answers:
                return True
            return False if self._impossible(condition.parts) else None
        stated = self._alternatives.get(condition)
        if stated is not None:
            self.use(stated)
            return True
        if True in answers:
            return True
        if None not in answers:
            return False
        return True if self._impossible([~part for part in condition.parts]) else None

    def _impossible(self, conditions: Sequence[Condition | bool]) -> bool:
        """Whether the conditions, one assumed after the other, contradict the facts."""
        if len(conditions) > ALTERNATIVES:
            return False
        child = self.fork()
        try:
            for condition in conditions:
                child.assume(condition)
        except Contradiction as contradiction:
            self.use(tuple(n for n in contradiction.numbers if n < self._number))
            return True
        return False

    def _trace(self, derive: Callable[[], object]) -> Why:
        """The numbers of the facts that a derivation uses."""
        saved, self._used = self._used, {}
        try:
            derive()
            return tuple(self._used)
        finally:
            self._used = saved

    def _sources(self, dim: Dim) -> Why:
        def derive() -> None:
            now = simplified(self, dim)
            bounds_of(self, now)
            congruence_of(self, now)
            if not isinstance(now, int):
                self.holes_of(now)

        return self._trace(derive)

    def _reasons(self, numbers: Why) -> list[object]:
        entries = self.all()
        chosen = (entries[number] for number in sorted(set(numbers)) if number < len(entries))
        reasons = [condition if reason is None else reason for condition, reason in chosen]
        return list(dict.fromkeys(reasons)) if all(map(_hashable, reasons)) else reasons

    # --- learning

    def _learn(self, condition: Condition | bool, why: Why) -> None:
        if isinstance(condition, bool):
            if not condition:
                raise _Refuted(why)
        elif isinstance(condition, AllOf):
            for part in condition.parts:
                self._learn(part, why)
        elif isinstance(condition, AnyOf):
            self._learn_alternatives(condition, why)
        else:
            now = condition_simplified(self, condition)
            if now is not condition:
                why += self._trace(lambda: condition_simplified(self, condition))
            if isinstance(now, bool):
                self._learn(now, why)
            else:
                self._learn_relation(now, why)

    def _learn_alternatives(self, condition: AnyOf, why: Why) -> None:
        possible: list[Condition] = []
        for part in condition.parts:
            answer = self.known(part)
            if answer is True:
                return
            if answer is None:
                possible.append(part)
            else:
                why += self._trace(lambda part=part: self._decide(part))
        fact = any_of(*possible)
        if not isinstance(fact, AnyOf):
            self._learn(fact, why)
            return
        self._alternatives[fact] = why
        self._answers[fact] = True
        for symbol in sorted(fact.symbols, key=_age):
            self._links[symbol] = (fact, self._links.get(symbol))

    def _learn_relation(self, relation: Relation, why: Why) -> None:
        form, bound = relation.form, relation.bound
        self._answers[relation] = True
        match relation.kind:
            case "ge":
                self._narrow(form, bound, None, why)
            case "le":
                self._narrow(form, None, bound, why)
            case "ne":
                self._link(form)
                self._holes[form] = (*(self._holes.get(form) or ()), (bound, why))
                self.version += 1
                self._narrow(form, None, None, why)
            case "eq":
                self._equate(form, bound, why)

    def _narrow(self, form: Expr, lo: int | None, hi: int | None, why: Why) -> None:
        """Makes the range of a form smaller, then what follows for others."""
        old_lo, old_hi, old_why = self._ranges.get(form) or (None, None, ())
        new_lo, new_hi = self._tight(form, highest(lo, old_lo), lowest(hi, old_hi))
        if (new_lo, new_hi) == (old_lo, old_hi):
            return
        both = why if old_lo is old_hi is None else tuple(dict.fromkeys(old_why + why))
        if new_lo is not None and new_hi is not None and new_lo > new_hi:
            raise _Refuted(both)
        self._link(form)
        self._ranges[form] = (new_lo, new_hi, both)
        self.version += 1
        if new_lo is not None and new_lo == new_hi:
            self._solve(form, new_lo, both)
        elif new_lo is not None and new_lo >= 1 and form.atom is None:
            self._factors_positive(form, both)

    def _tight(self, form: Expr, lo: int | None, hi: int | None) -> Bounds:
        """Moves bounds inward past excluded values and to the known residue; a size is at least 0."""
        atom = form.atom
        if isinstance(atom, Symbol) and not atom.signed:
            lo = highest(lo, 0)
        congruence = self._congruences.get(form)
        if congruence is not None and congruence[0]:
            modulus, residue, _ = congruence
            lo = None if lo is None else lo + (residue - lo) % modulus
            hi = None if hi is None else hi - (hi - residue) % modulus
        holes = self._holes.get(form)
        if holes:
            excluded = {hole for hole, _ in holes}
            while lo in excluded:
                lo += 1
            while hi in excluded:
                hi -= 1
        return lo, hi

    def _factors_positive(self, form: Expr, why: Why) -> None:
        """x*y >= 1 with neither negative: both are at least 1."""
        if len(form.terms) != 1:
            return
        (monomial,) = form.terms
        if not any(self._negative(atom) for atom in monomial):
            for atom in dict.fromkeys(monomial):
                self._learn(ge(atom.expr, 1), why + self.sources_about(atom.expr))

    def _negative(self, atom: Atom) -> bool:
        """Whether the atom may be negative, as far as is known."""
        lo = bounds_of(self, atom.expr)[0]
        return lo is None or lo < 0

    def _link(self, form: Expr) -> None:
        """Makes a form about more than one symbol findable from each of its symbols."""
        if form.symbol is not None:
            return
        if any(table.get(form) for table in (self._ranges, self._holes, self._congruences)):
            return
        for symbol in sorted(form.symbols, key=_age):
            self._links[symbol] = (form, self._links.get(symbol))

    def _equate(self, form: Expr, bound: int, why: Why) -> None:
        factors = common_factor(form) if bound == 0 and form.atom is None else ()
        nonzero = [atom for atom in factors if not_zero(self, atom.expr)]
        if nonzero:
            shared = form.space.from_terms({tuple(nonzero): 1}, 0)
            for atom in nonzero:
                why += self._trace(lambda atom=atom: not_zero(self, atom.expr))
            self._learn(eq(divide(form, shared)[0], 0), why)
            return
        self._narrow(form, bound, bound, why)

    def _solve(self, form: Expr, bound: int, why: Why) -> None:
        """Replaces an atom by its value everywhere, if the equation form == bound gives it one."""
        target = _target(form)
        if target is None:
            self._residues(form, bound, why)
            return
        excess = form - bound
        coefficient = form.terms[target.unit]
        value = target.expr - coefficient * excess
        self._values[target] = (value, why)
        self.version += 1
        if target.word:
            for symbol in sorted(target.symbols, key=_age):
                self._links[symbol] = (eq(target.expr, value), self._links.get(symbol))
        elif not target.signed:
            self._learn(ge(value, 0), why)
        self._moved(target.expr, value, why)
        for condition in implied(target, value):
            self._learn(condition, why)
        if target.word == "%" and isinstance(value, int) and isinstance(target.args[1], int):
            self._congruent(target.args[0], target.args[1], value, why)
        for symbol in sorted(target.symbols, key=_age):
            chain = self._links.get(symbol)
            while chain is not None:
                fact, chain = chain
                self._renewed(fact, target, why)

    def _moved(self, old: Expr, new: Dim, why: Why) -> None:
        """What was known of the old form holds of the new one."""
        lo, hi, more = self._ranges.get(old) or (None, None, ())
        if lo is not None:
            self._learn(ge(new, lo), why + more)
        if hi is not None:
            self._learn(le(new, hi), why + more)
        for hole, more in self._holes.get(old) or ():
            self._learn(ne(new, hole), why + more)
        congruence = self._congruences.get(old)
        if congruence is not None:
            self._congruent(new, congruence[0], congruence[1], why + congruence[2])

    def _renewed(self, fact: Expr | AnyOf | Relation, target: Atom, why: Why) -> None:
        """Says a fact again in terms of a new equality."""
        if isinstance(fact, Expr):
            if target.word and not mentions(fact, target):
                return
            new = simplified(self, fact)
            if new is not fact:
                self._moved(fact, new, why)
        elif isinstance(fact, AnyOf):
            parts = [
                condition_simplified(self, part) if isinstance(part, Relation) else part
                for part in fact.parts
            ]
            new = any_of(*parts)
            if new is not fact:
                self._learn(new, why + self.sources_of(fact))
        elif fact.form.atom is not target:
            new = condition_simplified(self, fact)
            if new is not fact:
                self._learn(new, why)

    def _residues(self, form: Expr, bound: int, why: Why) -> None:
        """a*x + g*y == bound: x has a residue modulo g when a has an inverse there."""
        for monomial, c in form.terms.items():
            others = gcd(*(k for m, k in form.terms.items() if m is not monomial))
            if others > 1 and gcd(c, others) == 1:
                x = form.space.from_terms({monomial: 1}, 0)
                self._congruent(x, others, bound * pow(c, -1, others), why)

    def _congruent(self, dim: Dim, modulus: int, residue: int, why: Why) -> None:
        """Learns dim == residue modulo modulus."""
        if isinstance(dim, int):
            if (dim - residue) % modulus if modulus else dim != residue:
                raise _Refuted(why)
            return
        form, scale = canonical(dim)
        residue -= dim.constant
        common = gcd(scale, modulus)
        if residue % common:
            raise _Refuted(why)
        modulus //= common
        residue = residue // common * pow(scale // common, -1, modulus) if modulus > 1 else 0
        old = self._congruences.get(form)
        new: Congruence | None = (modulus, residue % modulus) if modulus else (0, residue)
        if old is not None:
            new = intersect(new, old[:2])
            why = tuple(dict.fromkeys(old[2] + why))
        if new is None:
            raise _Refuted(why)
        if (old is None and new[0] != 1) or (old is not None and new != old[:2]):
            self._link(form)
            self._congruences[form] = (*new, why)
            self.version += 1
            self._narrow(form, None, None, why)


class _Refuted(Exception):
    """A consequence of a new fact is false; `why` numbers the facts that it follows from."""

    def __init__(self, why: Why) -> None:
        super().__init__(why)
        self.why = why


def _age(atom: Atom) -> int:
    return atom.index


def _hashable(reason: object) -> bool:
    return type(reason).__hash__ is not None


def mentions(dim: Dim, atom: Atom) -> bool:
    """Whether the atom occurs in the dim, however deep."""
    return not isinstance(dim, int) and any(
        other is atom or any(mentions(arg, atom) for arg in other.args)
        for monomial in dim.terms
        for other in monomial
    )


def _target(form: Expr) -> Atom | None:
    """The atom that form == constant is best solved for: data's before arguments', young before old."""
    best: Atom | None = None
    for monomial, c in form.terms.items():
        atom = monomial[0]
        if len(monomial) != 1 or abs(c) != 1 or (best is not None and _rank(atom) < _rank(best)):
            continue
        others = (m for m in form.terms if m is not monomial)
        if not any(
            other is atom or any(mentions(arg, atom) for arg in other.args)
            for m in others
            for other in m
        ):
            best = atom
    return best


def _rank(atom: Atom) -> tuple[bool, bool, bool, int]:
    if not isinstance(atom, Symbol):
        return (False, False, False, atom.index)
    return (True, atom.knowledge == "midrun", atom.policy == "unbacked", atom.index)


def implied(atom: Atom, value: Dim) -> Iterator[Condition | bool]:
    """What atom == value says beyond itself."""
    match atom.word:
        case "%" if isinstance(atom.args[1], int):
            yield ge(value, 0)
            yield le(value, atom.args[1] - 1)
        case "//" if isinstance(atom.args[1], int):
            yield ge(atom.args[0], atom.args[1] * value)
            yield le(atom.args[0], atom.args[1] * value + atom.args[1] - 1)
        case "min":
            yield from (ge(arg, value) for arg in atom.args)
        case "max":
            yield from (le(arg, value) for arg in atom.args)
