"""Where facts are kept, each with its sources.

Everything is layered, so that a fork shares it. A fact about several symbols is found from each
of them, with one exception that keeps cost linear: a fact that ties a symbol nobody knows
anything else about to a well-known one (u <= s) is found from u only, until u has a second such
fact.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TypeAlias

from anyshape.symbolic.atoms import Atom, Symbol, age
from anyshape.symbolic.conditions import AnyOf, Condition, Relation
from anyshape.symbolic.expr import Dim, Expr, Space
from anyshape.symbolic.layered import Layered
from anyshape.symbolic.linear import Steps
from anyshape.symbolic.trees import Trees

Why: TypeAlias = tuple[int, ...]
"""Numbers of the facts that something was derived from."""

Chain: TypeAlias = tuple[Any, "Chain | None", int]
"""A list that shares its tail, the newest first, with its length."""

Range: TypeAlias = tuple[int | None, int | None, Why]

MONOMIALS = 48  # in one system: facts with more symbols are looked at for no proof
MANY = 64  # symbols that are looked at to see whether an old answer still holds

UNKNOWN: Range = (None, None, ())


class Refuted(Exception):
    """A consequence of a new fact is false; `why` numbers the facts that it follows from."""

    def __init__(self, why: Why) -> None:
        super().__init__(why)
        self.why = why


class Knowledge:
    """The tables behind `Facts`; `version` grows with every change to them."""

    __slots__ = (
        "allowance",
        "alternatives",
        "anchors",
        "answers",
        "asking",
        "budget",
        "changed",
        "congruences",
        "entries",
        "floor",
        "followers",
        "holes",
        "intervals",
        "in_long",
        "links",
        "long",
        "mentions",
        "moved",
        "moves",
        "open",
        "plain",
        "ranges",
        "recalled",
        "sizes",
        "solved",
        "space",
        "traced",
        "trees",
        "used",
        "values",
        "version",
    )

    def __init__(self, space: Space, parent: Knowledge | None = None) -> None:
        self.space = space
        self.used: dict[int, None] | None = None
        self.allowance: Steps | None = None  # of the question that is being answered
        self.budget = 0
        self.asking = False
        self.open: set[Atom] = set()  # operations whose values are being simplified
        # Large and small sizes with which the search for some that satisfy facts begins: no answer
        # depends on them.
        self.sizes: tuple[dict[Atom, int], dict[Atom, int]] = (
            ({}, {}) if parent is None else parent.sizes
        )
        # Long sums that no equality changes, true until another atom gets a value.
        self.solved: object = object() if parent is None else parent.solved
        self.plain: dict[Expr, tuple[object, bool]] = {} if parent is None else parent.plain
        self.version: int = 2 if parent is None else parent.version
        self.entries: Chain | None = None if parent is None else parent.entries
        self.answers: Layered[Condition, bool | int] = (
            Layered() if parent is None else parent.answers.fork()
        )
        self.ranges: Layered[Expr, Range] = Layered() if parent is None else parent.ranges.fork()
        self.values: Layered[Atom, tuple[Dim, Why]] = (
            Layered() if parent is None else parent.values.fork()
        )
        self.congruences: Layered[Expr, tuple[int, int, Why]] = (
            Layered() if parent is None else parent.congruences.fork()
        )
        self.holes: Layered[Expr, tuple[tuple[int, Why], ...]] = (
            Layered() if parent is None else parent.holes.fork()
        )
        self.links: Layered[Symbol, Chain] = Layered() if parent is None else parent.links.fork()
        self.mentions: Layered[Symbol, Chain] = (
            Layered() if parent is None else parent.mentions.fork()
        )
        self.alternatives: Layered[AnyOf, Why] = (
            Layered() if parent is None else parent.alternatives.fork()
        )
        self.recalled: Layered[object, tuple[int, bool, Any]] = (
            Layered() if parent is None else parent.recalled.fork()
        )
        # What was worked out while reasons were traced, with the version and the facts behind it.
        self.traced: dict[object, tuple[int, Any, Why]] = {}
        # From which symbols a fact is found; the version at which what is found from a symbol last
        # changed, and from any symbol; from which others the facts of a symbol are found.
        self.anchors: Layered[Expr | AnyOf, tuple[Symbol, ...]] = (
            Layered() if parent is None else parent.anchors.fork()
        )
        self.changed: Layered[Symbol, int] = Layered() if parent is None else parent.changed.fork()
        self.floor: int = 0 if parent is None else parent.floor
        self.followers: Layered[Symbol, Chain] = (
            Layered() if parent is None else parent.followers.fork()
        )
        # Facts about more than MANY symbols, and these symbols: not noted at each of them, so that
        # facts about partial sums cost one look at their terms.
        self.long: Chain | None = None if parent is None else parent.long
        self.in_long: Layered[Symbol, bool] = Layered() if parent is None else parent.in_long.fork()
        self.trees: Trees = Trees() if parent is None else parent.trees.fork()
        # The symbols whose own ranges changed, one after the other, and how many changes there are.
        self.moved: Layered[int, Symbol] = Layered() if parent is None else parent.moved.fork()
        self.moves: int = 0 if parent is None else parent.moves
        # Of long sums of symbols: the bounds of their terms, after so many of these changes.
        self.intervals: Layered[Expr, tuple[int, int | None, int | None]] = (
            Layered() if parent is None else parent.intervals.fork()
        )

    def recall(self, key: object, about: Dim | Atom) -> Any:
        """What was remembered of this, if no facts about it are new."""
        if self.used is not None:
            return self._recall_traced(key, about)
        found = self.recalled.get(key)
        if found is None:
            return None
        version, hasty, value = found
        if version == self.version:
            return value
        if hasty or isinstance(about, int) or not self.unchanged(about.symbols, version):
            return None
        self.recalled[key] = (self.version, False, value)
        return value

    def _recall_traced(self, key: object, about: Dim | Atom | Condition) -> Any:
        """The same while reasons are being traced: notes the facts behind it."""
        found = self.traced.get((key, self.asking))
        if found is None:
            return None
        version, value, why = found
        if version != self.version and (
            self.asking or isinstance(about, int) or not self.unchanged(about.symbols, version)
        ):
            return None
        self.use(why)
        return value

    def derive(self, key: object, work: Callable[[], Any]) -> Any:
        """Works a value out and keeps it until facts about it grow; what is worked out inside
        another question, in less depth, until any do."""
        outer = self.used
        if outer is None:
            value = work()
            self.recalled[key] = (self.version, self.asking, value)
            return value
        self.used = {}
        try:
            value = work()
            self.traced[key, self.asking] = self.version, value, tuple(self.used)
            return value
        finally:
            outer.update(self.used)
            self.used = outer

    def unchanged(self, symbols: frozenset[Symbol], version: int) -> bool:
        """Whether all that is found from these symbols is as old as that version."""
        if version < self.floor or len(symbols) > MANY:
            return False
        get = self.changed.get
        return all((get(symbol) or 0) <= version for symbol in symbols)

    def change(self, form: Expr | AnyOf) -> None:
        """Notes that more is known of a form: what was found from its anchors, and from symbols
        whose facts lead there, is asked again."""
        self.version += 1
        symbols = self.anchors.get(form)
        if symbols is None:
            symbols = tuple(sorted(form.symbols, key=age))
        waiting = list(symbols)
        while waiting:
            symbol = waiting.pop()
            if self.changed.get(symbol) == self.version:
                continue
            self.changed[symbol] = self.version
            chain = self.followers.get(symbol)
            if chain is not None and chain[2] > MANY:
                self.floor = self.version
                return
            while chain is not None:
                follower, chain, _ = chain
                waiting.append(follower)
            if self.in_long.get(symbol) and not self._follow_long(symbol, waiting):
                self.floor = self.version
                return

    def _follow_long(self, symbol: Symbol, waiting: list[Symbol]) -> bool:
        """Adds the symbols from which long facts about this one are found, if they are few."""
        assert self.long is not None
        if self.long[2] > MANY:
            return False
        found: dict[Symbol, None] = {}
        for fact in self.long_facts(symbol):
            found.update(dict.fromkeys(self.anchors.get(fact) or ()))
        waiting += found
        return len(found) <= MANY

    def long_facts(self, symbol: Symbol) -> Iterator[Any]:
        """Facts about this and many other symbols, the newest first."""
        chain = self.long
        while chain is not None:
            fact, chain, _ = chain
            if symbol in fact.symbols:
                yield fact

    def remembered(self, condition: Condition) -> bool | None:
        """An answer that holds for ever."""
        found = self.answers.get(condition)
        return found if self.used is None and (found is True or found is False) else None

    def value_of(self, atom: Atom) -> Dim | None:
        """What an equality says that the atom is."""
        found = self.values.get(atom)
        return None if found is None else found[0]

    def range_of(self, form: Expr) -> tuple[int | None, int | None]:
        """The stated range of exactly this form."""
        found = self.ranges.get(form)
        if found is None:
            return (None, None)
        if self.used is not None:
            self.use(found[2])
        return found[0], found[1]

    def range_with_source(self, form: Expr) -> Range:
        """The stated range of exactly this form, and the facts that say so."""
        return self.ranges.get(form) or UNKNOWN

    def congruence_at(self, form: Expr) -> tuple[int, int] | None:
        """The stated residue of exactly this form."""
        found = self.congruences.get(form)
        if found is None:
            return None
        self.use(found[2])
        return found[0], found[1]

    def congruence_with_source(self, form: Expr) -> tuple[int, int, Why] | None:
        """The stated residue of exactly this form, and the facts that say so."""
        return self.congruences.get(form)

    def holes_of(self, form: Expr) -> list[int]:
        """Values that the form is known not to have."""
        holes = self.holes.get(form)
        if holes is None:
            return []
        if self.used is not None:
            for _, why in holes:
                self.use(why)
        return [hole for hole, _ in holes]

    def sources_of(self, fact: AnyOf) -> Why:
        """The facts behind alternatives."""
        return self.alternatives.get(fact) or ()

    def use(self, why: Why) -> None:
        """Notes facts that a derivation used."""
        if self.used is not None:
            self.used.update(dict.fromkeys(why))

    def use_value(self, atom: Atom) -> None:
        """Notes the equality that gave the atom its value."""
        if self.used is not None:
            found = self.values.get(atom)
            self.use(found[1] if found is not None else ())

    # --- finding facts from symbols

    def linked(self, expr: Expr) -> bool:
        """Whether facts about more than one symbol could say something of this expression."""
        if isinstance(expr.atom, Symbol):
            return self.links.get(expr.atom) is not None
        return bool(self.links) and not self.links.lacks(expr.symbols)

    def alone(self, symbol: Symbol) -> bool:
        """Whether nothing but its own range, residue and excluded values is known of a symbol."""
        return self.links.get(symbol) is None and self.values.get(symbol) is None

    def links_at(self, symbol: Symbol, limit: int) -> Iterator[Expr | AnyOf]:
        """Facts that tie the symbol to others, the newest first."""
        chain = self.links.get(symbol)
        while chain is not None and limit:
            fact, chain, _ = chain
            limit -= 1
            yield fact

    def facts_at(self, symbol: Symbol) -> Iterator[Expr | AnyOf | Relation]:
        """All facts about the symbol and others, the newest first, but for long ones
        (``in_long``)."""
        chain = self.mentions.get(symbol)
        while chain is not None:
            fact, chain, _ = chain
            yield fact

    def links_of(self, expr: Expr, limit: int) -> list[Expr]:
        """Linear facts that tie symbols of the expression to others."""
        if not self.links:
            return []
        found: dict[Expr, None] = {}
        for symbol in symbols_in_order(expr):
            for fact in self.links_at(symbol, limit):
                if isinstance(fact, Expr):
                    found[fact] = None
        return list(found)[:limit]

    def note_move(self, symbol: Symbol) -> None:
        """The symbol's own range has changed."""
        self.moved[self.moves] = symbol
        self.moves += 1

    def moved_since(self, moves: int, symbols: frozenset[Symbol]) -> bool:
        """Has the range of any of these changed after so many changes?"""
        if self.moves - moves > MANY:
            return True
        return any(self.moved.get(number) in symbols for number in range(moves, self.moves))

    def mention(self, fact: Expr | AnyOf | Relation) -> None:
        """Makes a fact findable for saying it again when one of its symbols gets a value."""
        symbols = fact.symbols
        if len(symbols) > MANY:
            self.long = (fact, self.long, 1 if self.long is None else self.long[2] + 1)
            self.in_long.update(dict.fromkeys(self.in_long.missing(symbols), True))
            return
        for symbol in sorted(symbols, key=age):
            chain = self.mentions.get(symbol)
            self.mentions[symbol] = (fact, chain, 1 if chain is None else chain[2] + 1)

    def link(self, fact: Expr | AnyOf) -> None:
        """Makes a fact findable from its symbols, or from those nothing else is known of."""
        self.mention(fact)
        symbols = sorted(fact.symbols, key=age)
        if len(symbols) <= MONOMIALS:
            plain = isinstance(fact, Expr) and linear(fact) and len(fact.terms) > 1
            self.trees.tie(symbols, plain=plain)
        new = sorted(self.links.missing(fact.symbols), key=age)
        if new and len(new) < len(symbols) and isinstance(fact, Expr) and _alone_in(fact, new):
            symbols = new
        self.anchors[fact] = tuple(symbols)
        for symbol in symbols:
            chain = self.links.get(symbol)
            if chain is not None and chain[2] == 1:
                self._widen(chain[0])
        self._add_links(symbols, fact)

    def _add_links(self, symbols: Sequence[Symbol], fact: Expr | AnyOf) -> None:
        """Makes the fact findable from these; what is found from them follows its symbols."""
        for symbol in symbols:
            chain = self.links.get(symbol)
            self.links[symbol] = (fact, chain, 1 if chain is None else chain[2] + 1)
        for other in sorted(fact.symbols, key=age) if len(fact.symbols) <= MANY else ():
            followers = self.followers.get(other)
            for symbol in symbols:
                if other is not symbol:
                    count = 0 if followers is None else followers[2]
                    followers = self.followers[other] = (symbol, followers, count + 1)

    def _widen(self, fact: Expr | AnyOf) -> None:
        """Links the only fact of a symbol to its other symbols too."""
        anchors = self.anchors.get(fact) or ()
        others = sorted(fact.symbols.difference(anchors), key=age)
        if others:
            self.anchors[fact] = (*anchors, *others)
            self._add_links(others, fact)
            self.change(fact)


def linear(expr: Expr) -> bool:
    """Whether every term is a symbol times a constant."""
    return not expr.depth and max(map(len, expr.terms)) == 1


def _alone_in(fact: Expr, symbols: Iterable[Symbol]) -> bool:
    """Whether each of the symbols stands in the fact as a term of its own, and nowhere else."""
    plain = {m[0] for m in fact.terms if len(m) == 1 and not m[0].word}
    others = [atom for m in fact.terms if len(m) > 1 or m[0].word for atom in m]
    return plain.issuperset(symbols) and not any(
        symbol in atom.symbols for atom in others for symbol in symbols
    )


def symbols_in_order(expr: Expr) -> list[Symbol]:
    """The symbols of an expression, in the same order in every run."""
    if isinstance(expr.atom, Symbol):
        return [expr.atom]
    return sorted(expr.symbols, key=age)


class KnownFacts(Knowledge, ABC):
    """Knowledge, and what the reasoning modules may ask of it: `Facts` has the answers."""

    __slots__ = ()

    @abstractmethod
    def known(self, condition: Condition | bool) -> bool | None:
        """True or False if the facts decide, else None."""

    @abstractmethod
    def quick(self, condition: Relation | bool) -> bool | None:
        """As `known`, without elimination."""

    @abstractmethod
    def ask(self, condition: Relation | bool) -> bool | None:
        """As `known`; inside another question, without elimination."""

    @abstractmethod
    def decide(self, condition: Condition | bool) -> bool | None:
        """As `known`, worked out anew."""

    @abstractmethod
    def trace(self, derive: Callable[[], object]) -> Why:
        """The numbers of the facts that a derivation uses."""

    @abstractmethod
    def sources_about(self, dim: Dim) -> Why:
        """The facts behind what is known of the expression, when reasons are being traced."""

    @abstractmethod
    def use_all(self, dim: Dim) -> None:
        """Notes every fact behind what is known of the expression."""
