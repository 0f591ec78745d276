"""What is known about sizes: a growing knowledge base with three answers, True, False and None.

In: conditions assumed, each with its reason. Out: `known`, `simplify`, `bounds`, `divisor`,
`why`. True and False hold for ever and are remembered for ever; "unknown" is asked again when
facts about its symbols grew. A fork shares everything. The tables are in `knowledge.py`, what a new
fact implies in `learn.py`, the proofs in `decide.py` and `linear.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from math import gcd

from anyshape.symbolic.atoms import Atom, Symbol, age
from anyshape.symbolic.conditions import AllOf, AnyOf, Condition, Relation
from anyshape.symbolic.decide import decide, quick
from anyshape.symbolic.expr import Dim, Expr, Space
from anyshape.symbolic.extent import upper
from anyshape.symbolic.knowledge import Chain, Knowledge, KnownFacts, Refuted, Why
from anyshape.symbolic.learn import learn
from anyshape.symbolic.linear import Steps
from anyshape.symbolic.ranges import Bounds, bounds_of, congruence_of
from anyshape.symbolic.render import unknowns
from anyshape.symbolic.residues import least
from anyshape.symbolic.simplify import alternatives_simplified, simplified

ALTERNATIVES = 6  # conditions assumed together to decide a conjunction or disjunction
STEPS = 1 << 14  # of search and elimination for one question, and for those that it asks
CONSEQUENCES = 64  # sums whose terms hear of one new fact
BOUND = 512  # steps for a bound from quotients
SHORT = 8  # terms of a sum that is bounded by them
PRECISE = 12  # facts behind an answer that are tried one by one for being needed


class Contradiction(ValueError):
    """A condition was assumed that the facts refute, for `reasons`."""

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


class Facts(KnownFacts):
    """Facts about the symbols of a space. They only grow."""

    __slots__ = ("_assumed", "_ordered", "_sought", "_tied")

    def __init__(self, space: Space, parent: Facts | None = None) -> None:
        super().__init__(space, parent)
        self._assumed: dict[Condition | bool, tuple[int, Facts, int]] = {}
        self._ordered: dict[object, tuple[Facts, ...]] = {}
        # Alternatives of which it is being asked whether they are what is left of others: parts of
        # those may hold these, and be asked for the same without end.
        self._sought: set[AnyOf] = set() if parent is None else parent._sought  # noqa: SLF001
        self._tied: bool = parent is not None and parent._tied  # noqa: SLF001 - of this class

    def fork(self) -> Facts:
        """A child that knows all this and may learn more without changing its parent."""
        return Facts(self.space, self)

    def under(self, condition: Condition | bool) -> Facts | None:
        """A fork that has assumed the condition; the same one, with the answers it has found,
        while neither has learned more. None if these facts refute the condition."""
        version, facts, own = self._assumed.get(condition, (0, self, 0))
        if version != self.version or own != facts.version:
            facts = self.fork()
            try:
                facts.assume(condition)
            except Contradiction:
                return None
            self._assumed[condition] = self.version, facts, facts.version
        return facts

    def supposing(self, conditions: Iterable[Condition | bool]) -> Facts:
        """A fork that has assumed each of the conditions in turn, but for those that the facts and
        the conditions before refute: no more is known of sizes that there are not."""
        facts = self.fork()
        for condition in conditions:
            with suppress(Contradiction):
                facts.assume(condition)
        return facts

    def all(self) -> list[tuple[Condition, object]]:
        """Every fact that was assumed, the oldest first, with its reason."""
        return self._entries_from(0)

    def since(self, older: Facts) -> list[tuple[Condition, object]]:
        """What was assumed after the facts of `older`, which these began with."""
        return self._entries_from(older._count)

    def _entries_from(self, number: int) -> list[tuple[Condition, object]]:
        entries = []
        chain = self.entries
        while chain is not None and chain[2] > number:
            entry, chain, _ = chain
            entries.append(entry)
        return entries[::-1]

    def assume(self, condition: Condition | bool, reason: object = None) -> None:
        """Learns a condition; Contradiction, and nothing is learned, if the facts refute it."""
        before = self.entries
        try:
            self._take(condition, reason)
        except Contradiction:
            if self.entries is not before:  # some of its consequences were drawn already
                self._restore(before)
            raise

    def assume_all(self, facts: Iterable[tuple[Condition, object]]) -> None:
        """Learns conditions, each with its reason."""
        for condition, reason in facts:
            self.assume(condition, reason)

    def say_again(self, facts: Iterable[tuple[Condition, object]]) -> None:
        """Learns what other facts say already: there, nothing of it followed from the rest, so that
        no proof of it is looked for."""
        for condition, reason in facts:
            self._take(condition, reason, again=True)

    def _take(
        self, condition: Condition | bool, reason: object = None, *, again: bool = False
    ) -> None:
        """As `assume`, but a contradiction leaves these facts unusable."""
        if again and isinstance(condition, Relation):
            answer = self.quick(condition)
        else:
            answer = self.known(condition)
        if answer is True:
            return
        if answer is False or isinstance(condition, bool):
            why = self.trace(lambda: self.decide(condition))
            raise Contradiction(condition, self._reasons(why), why)
        number = self._count
        self.entries = ((condition, reason), self.entries, number + 1)
        self.version += 1
        symbols = condition.symbols
        if len(symbols) > 1 and any(symbol.knowledge == "midrun" for symbol in symbols):
            self._tied = True
        self.budget = CONSEQUENCES
        try:
            learn(self, condition, (number,))
        except Refuted as refuted:
            raise Contradiction(condition, self._reasons(refuted.why), refuted.why) from None
        self.answers[condition] = True

    def _restore(self, entries: Chain | None) -> None:
        """Goes back to what these entries say, worked out anew."""
        version = self.version
        self.entries = entries
        stated = self.all()
        Knowledge.__init__(self, self.space)
        self.version = version + 1
        self._tied = False
        for condition, reason in stated:
            self._take(condition, reason)

    def known(self, condition: Condition | bool) -> bool | None:
        """True or False if the facts decide, else None."""
        if isinstance(condition, bool):
            return condition
        if self.used is not None:  # an answer that was remembered names no facts
            return self._traced_answer(condition)
        found = self.answers.get(condition)
        if found is True or found is False:
            return found
        if found is not None and (
            abs(found) == self.version or self.unchanged(condition.symbols, found)
        ):
            return None
        answer = self.decide(condition)
        unknown = -self.version if self.asking else self.version  # asked again when not in haste
        self.answers[condition] = unknown if answer is None else answer
        return answer

    def _traced_answer(self, condition: Condition) -> bool | None:
        """As `known`, noting the facts behind the answer."""
        found = self.answers.get(condition)
        if found == self.version and found is not True:
            return None
        answer = self._recall_traced(condition, condition)
        if answer is None:
            answer = self.derive(condition, partial(self.decide, condition))
        return answer

    def quick(self, condition: Relation | bool) -> bool | None:
        """As `known`, without elimination."""
        if isinstance(condition, bool):
            return condition
        found = self.remembered(condition)
        return quick(self, condition) if found is None else found

    def ask(self, condition: Relation | bool) -> bool | None:
        """As `known`; inside another question, without elimination."""
        if self.asking:
            return self.quick(condition)
        self.asking = True
        try:
            return self.known(condition)
        finally:
            self.asking = False

    def why(self, condition: Condition | bool) -> list[object]:
        """The reasons of the facts that decide the condition; empty if it is unknown or always so.

        A fact assumed without a reason is its own reason.
        """
        answer = self.known(condition)
        if answer is None or isinstance(condition, bool):
            return []
        used = self.trace(lambda: self.decide(condition))
        return self._reasons(self._needed(condition, answer, used))

    def tie_midrun(self) -> bool:
        """Does a fact tie a size that gets its value midrun to another one?"""
        return self._tied

    def in_order(self, ranks: Mapping[Symbol, int]) -> tuple[tuple[int, Facts], ...]:
        """What is known while symbols get their values one after the other: (rank, facts from
        there on), beginning with -1; symbols without a rank have values from the beginning.

        A fact is tested once all its symbols have values, and says nothing of them until then. One
        whose symbols get their values together says nothing of others, and is known always.
        """
        crossing: dict[int, list[tuple[Condition, object]]] = {}
        others = []
        spans: Spans = {}
        for entry in self.all():
            first, last = _span(entry[0], ranks, spans)
            if first == last:
                others.append(entry)
            else:
                crossing.setdefault(last, []).append(entry)
        if not crossing:
            return ((-1, self),)
        learned = [crossing[rank] for rank in sorted(crossing)]
        key = (self.version, *(tuple(map(id, entries)) for entries in learned))
        if key not in self._ordered:
            known = [Facts(self.space)]
            known[0].say_again(others)
            for entries in learned[:-1]:
                known.append(known[-1].fork())
                known[-1].say_again(entries)
            self._ordered[key] = (*known, self)
        return tuple(zip((-1, *sorted(crossing)), self._ordered[key], strict=True))

    def simplify(self, dim: Dim) -> Dim:
        """The same value in a simpler form under these facts."""
        return simplified(self, dim)

    def bounds(self, dim: Dim) -> Bounds:
        """The least and greatest value, None where unbounded."""
        now = simplified(self, dim)
        lo, hi = bounds_of(self, now, 1)
        if isinstance(now, Expr) and now.depth and 1 < len(now.terms) <= SHORT:
            if lo is None:
                lo = least(self, now, Steps(BOUND))
            if hi is None and (below := least(self, -now, Steps(BOUND))) is not None:
                hi = -below
        return lo, hi

    def upper(self, dim: Dim, allowed: Callable[[Symbol], bool]) -> Dim | None:
        """An expression over allowed symbols that is never less than the dim, if one is known."""
        return upper(self, dim, allowed)

    def divisor(self, dim: Dim) -> int:
        """The largest known divisor; for 0, which everything divides, 2**62."""
        return gcd(*congruence_of(self, simplified(self, dim))) or 1 << 62

    # --- for the reasoning modules

    def decide(self, condition: Condition | bool) -> bool | None:
        """As `known`, worked out anew."""
        if isinstance(condition, bool):
            return condition
        if self.allowance is not None:
            return self._decide(condition)
        self.allowance = Steps(STEPS)
        try:
            return self._decide(condition)
        finally:
            self.space.work.steps += STEPS - self.allowance.left
            self.allowance = None

    def _decide(self, condition: Condition) -> bool | None:
        if isinstance(condition, Relation):
            self.space.work.questions += 1
            return decide(self, condition)
        answers = [self.known(part) for part in condition.parts]
        if isinstance(condition, AllOf):
            if False in answers:
                return False
            if None not in answers:
                return True
            return False if self._impossible(condition.parts) else None
        if self._was_stated(condition) or True in answers:
            return True
        if None not in answers:
            return False
        now = alternatives_simplified(self, condition)
        if not isinstance(now, AnyOf):
            return self.known(now)
        if self._was_stated(now) or self._is_left_of_alternatives(now):
            return True
        return True if self._impossible([~part for part in condition.parts]) else None

    def _was_stated(self, condition: AnyOf) -> bool:
        sources = self.alternatives.get(condition)
        if sources is not None:
            self.use(sources)
        return sources is not None

    def _is_left_of_alternatives(self, condition: AnyOf) -> bool:
        """Whether alternatives were stated of which all that do not say this are false by now."""
        if condition in self._sought:
            return False
        self._sought.add(condition)
        try:
            return self._remains(condition)
        finally:
            self._sought.discard(condition)

    def _remains(self, condition: AnyOf) -> bool:
        for fact in self._alternatives_near(condition):
            others = [part for part in fact.parts if not _is_among(part, condition)]
            if len(others) < len(fact.parts) and all(self.known(p) is False for p in others):
                self.use(self.sources_of(fact))
                return True
        return False

    def _alternatives_near(self, condition: AnyOf) -> list[AnyOf]:
        """The newest that tie its symbols."""
        symbols = sorted(condition.symbols, key=age)
        found = dict.fromkeys(f for s in symbols for f in self.links_at(s, ALTERNATIVES))
        return [fact for fact in found if isinstance(fact, AnyOf)]

    def trace(self, derive: Callable[[], object]) -> Why:
        """The numbers of the facts that a derivation uses."""
        saved, self.used = self.used, {}
        try:
            derive()
            return tuple(self.used)
        finally:
            self.used = saved

    def sources_about(self, dim: Dim) -> Why:
        """The facts behind what is known of the expression, when reasons are being traced."""
        if self.used is None or isinstance(dim, int):
            return ()
        return self.trace(lambda: self._look(dim))

    def use_all(self, dim: Dim) -> None:
        """Notes every fact behind what is known of the expression."""
        self.use(self.sources_about(dim))

    def _look(self, dim: Dim) -> None:
        now = simplified(self, dim)
        bounds_of(self, now)
        congruence_of(self, now)
        if not isinstance(now, int):
            self.holes_of(now)

    @property
    def _count(self) -> int:
        return 0 if self.entries is None else self.entries[2]

    def _impossible(self, conditions: Sequence[Condition | bool]) -> bool:
        """Whether the conditions, one assumed after the other, contradict the facts."""
        if len(conditions) > ALTERNATIVES:
            return False
        child = self.fork()
        child.allowance = self.allowance
        try:
            for condition in conditions:
                child._take(condition)  # noqa: SLF001 - of this class
        except Contradiction as contradiction:
            self.use(tuple(n for n in contradiction.numbers if n < self._count))
            return True
        return False

    def _needed(self, condition: Condition, answer: bool, numbers: Why) -> Why:
        """The facts among these without which the answer is not found."""
        needed = sorted(set(numbers))
        if len(needed) > PRECISE:
            return tuple(needed)
        entries = self.all()
        for number in tuple(needed):
            fewer = [n for n in needed if n != number]
            facts = Facts(self.space)
            for n in fewer:
                facts.assume(entries[n][0])
            if facts.known(condition) is answer:
                needed = fewer
        return tuple(needed)

    def _reasons(self, numbers: Why) -> list[object]:
        entries = self.all()
        chosen = (entries[number] for number in sorted(set(numbers)) if number < len(entries))
        reasons: list[object] = []
        for condition, reason in chosen:
            shown = condition if reason is None else reason
            if not any(shown is other or shown == other for other in reasons):
                reasons.append(shown)
        return reasons


def _is_among(part: Condition, either: AnyOf) -> bool:
    """Does the form of this part show that one of the alternatives holds where it does?"""
    return part in either.parts or (isinstance(part, AllOf) and either in part.parts)


Spans = dict[Atom | Expr, tuple[int, int]]
"""The lowest and the highest rank of what is in operations and in long sums."""


def _span(condition: Condition, ranks: Mapping[Symbol, int], spans: Spans) -> tuple[int, int]:
    """The lowest and the highest rank of the symbols in it; ``spans`` has those of what several
    conditions share, so that it is looked at once."""
    form = condition.form if isinstance(condition, Relation) else None
    if form is not None and not form.depth:
        return _span_of_sum(form, ranks, spans)
    inside = condition.symbols if form is None else unknowns(form)
    waiting = [atom for atom in inside if atom.word]
    while waiting:
        operands = [unknowns(arg) for arg in waiting[-1].args if isinstance(arg, Expr)]
        below = frozenset[Atom]().union(*operands)
        missing = [atom for atom in below if atom.word and atom not in spans]
        if missing:
            waiting += missing
        else:
            spans[waiting.pop()] = _span_of(below, ranks, spans)
    return _span_of(inside, ranks, spans)


def _span_of_sum(form: Expr, ranks: Mapping[Symbol, int], spans: Spans) -> tuple[int, int]:
    """Of a sum without operations: what a partial sum adds to the one before is looked at alone."""
    longer = []
    while form not in spans and form.parts is not None and _all_left(form):
        longer.append(form)
        form = form.parts[0]
    found = spans.get(form)
    if found is None:
        found = spans[form] = _span_of(form.symbols, ranks, spans)
    for later in reversed(longer):
        assert later.parts is not None
        low, high = _span_of(later.parts[1].symbols, ranks, spans)
        found = spans[later] = min(found[0], low), max(found[1], high)
    return found


def _all_left(form: Expr) -> bool:
    """Does a sum have all terms of its parts?"""
    assert form.parts is not None
    return all(monomial in form.terms for monomial in form.parts[1].terms)


def _span_of(
    atoms: Iterable[Atom], ranks: Mapping[Symbol, int], spans: Mapping[Atom | Expr, tuple[int, int]]
) -> tuple[int, int]:
    found = [
        (ranks.get(atom, -1),) * 2 if isinstance(atom, Symbol) else spans[atom] for atom in atoms
    ]
    return min([low for low, _ in found], default=-1), max([high for _, high in found], default=-1)
