"""Decides relations: ranges and residues first, then elimination over the linear facts that matter.

`quick` looks at intervals, congruences and excluded values. `decide` also looks at the form of the
relation (`by_form.py`), and proves it by refuting its opposite: the facts around its symbols, and
what is true of every division, minimum, maximum, broadcast and product among them, are linear
constraints over monomials, given to `linear.refute`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from anyshape.symbolic.atoms import Atom, Monomial, Symbol, age, opaque, product_of
from anyshape.symbolic.by_form import by_form
from anyshape.symbolic.conditions import AnyOf, Condition, Relation
from anyshape.symbolic.expr import Dim, Expr, floordiv, mod, symbols_of
from anyshape.symbolic.knowledge import MONOMIALS, KnownFacts, linear
from anyshape.symbolic.linear import PATIENCE, Constraint, Steps, refute
from anyshape.symbolic.models import undecided
from anyshape.symbolic.ranges import bounds_of, congruence_of
from anyshape.symbolic.render import unknowns
from anyshape.symbolic.simplify import cleared, relation_simplified, simplified

FEW = 8  # facts; with more, what is true of the operations in a relation is tried without them
OWN = 512  # steps of that
LINKS = 16  # facts taken for one symbol
NEARBY = 48  # facts looked at for one proof
MENTIONED = 256  # symbols in them, each as often as a fact has it
SPLITS = 5  # case distinctions in one proof


def quick(facts: KnownFacts, relation: Relation | bool) -> bool | None:
    """The answer from ranges, residues and excluded values alone."""
    if isinstance(relation, bool):
        return relation
    form, bound = relation.form, relation.bound
    lo, hi = bounds_of(facts, form)
    match relation.kind:
        case "ge":
            if lo is not None and lo >= bound:
                return True
            return False if hi is not None and hi < bound else None
        case "le":
            if hi is not None and hi <= bound:
                return True
            return False if lo is not None and lo > bound else None
    same = _quick_equal(facts, form, bound, lo, hi)
    return same if same is None or relation.kind == "eq" else not same


def _quick_equal(
    facts: KnownFacts, form: Expr, bound: int, lo: int | None, hi: int | None
) -> bool | None:
    if lo is not None and lo == hi == bound:
        return True
    if (lo is not None and lo > bound) or (hi is not None and hi < bound):
        return False
    if bound in facts.holes_of(form):
        return False
    if form.symbol is not None and facts.congruence_at(form) is None:
        return None
    modulus, residue = congruence_of(facts, form)
    if modulus != 1 and (residue - bound) % modulus if modulus else residue != bound:
        facts.use_all(form)
        return False
    return None


def decide(facts: KnownFacts, relation: Relation) -> bool | None:
    """True or False if the facts decide, else None."""
    atom = relation.form.atom
    if atom.__class__ is Symbol and facts.alone(atom):
        return _of_one_symbol(facts, relation, atom)
    if not linear(relation.form):
        found = quick(facts, relation)
        if found is not None:
            return found
    now = relation_simplified(facts, relation)
    if isinstance(now, bool):
        return now
    if now is not relation:
        found = facts.remembered(now)
        if found is not None:
            return found
    found = quick(facts, now)
    if found is None:
        found = by_form(facts, now)
    if found is None and now.form.depth:
        found = _without_quotients(facts, now)
    if found is None:
        core = core_of(facts, now.form)
        if core is not None and len(core) > FEW and now.form.depth:
            found = _by_itself(facts, now)
        if found is None and core is not None and not undecided(facts, now, core):
            found = _by_elimination(facts, now, core)
    return found


def _without_quotients(facts: KnownFacts, relation: Relation) -> bool | None:
    """The answer of the same relation without quotients that leave no rest, as far as it shows."""
    plain = cleared(facts, relation)
    if plain is None or isinstance(plain, bool):
        return plain
    found = facts.remembered(plain)
    if found is None:
        found = quick(facts, plain)
    return by_form(facts, plain) if found is None else found


def _of_one_symbol(facts: KnownFacts, relation: Relation, symbol: Symbol) -> bool | None:
    """The answer for a symbol that nothing ties to others: the most frequent question, by far."""
    form, bound, kind = relation.form, relation.bound, relation.kind
    stated = facts.ranges.get(form)
    if stated is None:
        lo, hi = None if symbol.signed else 0, None
    else:
        lo, hi, why = stated
        facts.use(why)
    if kind == "ge":
        return True if lo is not None and lo >= bound else _below(hi, bound)
    if kind == "le":
        return True if hi is not None and hi <= bound else _below(bound, lo)
    same = _quick_equal(facts, form, bound, lo, hi)
    return same if same is None or kind == "eq" else not same


def _below(a: int | None, b: int | None) -> bool | None:
    """False where a < b is certain."""
    return False if a is not None and b is not None and a < b else None


def core_of(facts: KnownFacts, form: Expr) -> dict[Expr | AnyOf, None] | None:
    """The facts that could decide more of the form than ranges do; None if ranges say it all.

    A fact that hangs on one symbol, where the symbol stands alone in a term, has told that symbol's
    range all it knows when it was learned; so have those that hang on such a fact. Alternatives of
    which one says what a symbol of their own is say nothing of others.
    """
    if len(form.terms) > MONOMIALS:
        return None
    plain = linear(form)
    if not facts.linked(form):
        return None if plain else {}
    if facts.trees.independent(form.symbols):
        return None if plain else {}
    found = _nearby(facts, _outside(form))
    _drop_hanging(facts, found, _outside(form))
    return found if found or not plain else None


def _nearby(facts: KnownFacts, symbols: frozenset[Symbol]) -> dict[Expr | AnyOf, None]:
    """Facts found from these symbols and, in turn, from the symbols of those facts."""
    found: dict[Expr | AnyOf, None] = {}
    waiting = sorted(symbols, key=age)
    seen = set(waiting)
    mentioned = 0
    for symbol in waiting:  # grows while it is read
        for fact in facts.links_at(symbol, LINKS):
            if mentioned > MENTIONED:
                return found
            if fact in found or len(fact.symbols) > MONOMIALS or _restated(facts, fact):
                continue
            found[fact] = None
            mentioned += len(fact.symbols)
            for other in sorted(_outside(fact) - seen, key=age):
                seen.add(other)
                waiting.append(other)
        if len(found) > NEARBY:
            break
    return found


def _outside(fact: Expr | AnyOf) -> frozenset[Symbol]:
    """Its symbols, without those that are only inside an operation that is not looked into."""
    if isinstance(fact, AnyOf):
        return fact.symbols
    return frozenset([atom for atom in unknowns(fact) if isinstance(atom, Symbol)])


def _drop_hanging(
    facts: KnownFacts, found: dict[Expr | AnyOf, None], symbols: frozenset[Symbol]
) -> None:
    """Leaves out what hangs on one symbol, and then what hung on that."""
    uses = Counter(symbols)
    about: dict[Symbol, list[Expr | AnyOf]] = {}
    for fact in found:
        uses.update(fact.symbols)
        for symbol in fact.symbols:
            about.setdefault(symbol, []).append(fact)
    waiting = [*found]
    for fact in waiting:  # grows while it is read
        if fact in found and _hangs(facts, fact, uses):
            del found[fact]
            uses.subtract(fact.symbols)
            for symbol in sorted(fact.symbols, key=age):
                if uses[symbol] == 1:
                    waiting += about[symbol]


def _restated(facts: KnownFacts, fact: Expr | AnyOf) -> bool:
    """Whether an equality replaced a symbol of the fact, which was then said again without it."""
    return not facts.values.lacks(fact.symbols)


def _hangs(facts: KnownFacts, fact: Expr | AnyOf, uses: Counter[Symbol]) -> bool:
    """Whether the fact shares one symbol at most, and that as a plain term."""
    if isinstance(fact, AnyOf):
        return any(_gives_its_own(facts, part, uses) for part in fact.parts)
    shared = [symbol for symbol in fact.symbols if uses[symbol] > 1]
    if len(shared) > 1 or len(fact.terms) == 1:
        return False
    return all(
        monomial == symbol.unit or all(symbol not in atom.symbols for atom in monomial)
        for symbol in shared
        for monomial in fact.terms
    )


def _gives_its_own(facts: KnownFacts, part: Condition, uses: Counter[Symbol]) -> bool:
    """Whether the part is ``n == form``, where no other fact has ``n``, and it may be whatever the
    form is: then whatever others are, there is an ``n`` with which the part holds."""
    if not isinstance(part, Relation) or part.kind != "eq":
        return False
    excess = part.excess()
    for monomial, c in part.form.terms.items():
        symbol = monomial[0]
        if len(monomial) > 1 or abs(c) != 1 or not isinstance(symbol, Symbol) or uses[symbol] > 1:
            continue
        value = symbol.expr - c * excess
        if symbol not in symbols_of(value) and _may_be(facts, symbol, value):
            return True
    return False


def _may_be(facts: KnownFacts, symbol: Symbol, value: Dim) -> bool:
    """Does nothing that is known of the symbol alone refuse any such value?"""
    form = symbol.expr
    if facts.congruence_at(form) is not None or facts.holes_of(form):
        return False
    lo, hi = bounds_of(facts, form)
    if lo is None and hi is None:
        return True
    least, most = bounds_of(facts, value)
    return (lo is None or (least is not None and least >= lo)) and (
        hi is None or (most is not None and most <= hi)
    )


def _by_elimination(
    facts: KnownFacts, relation: Relation, core: dict[Expr | AnyOf, None]
) -> bool | None:
    steps = facts.allowance
    if steps is None or steps.left <= 0:
        return None
    system = System(facts, steps)
    system.reach(relation.form, core)
    return _by_refutation(system, relation)


def _by_itself(facts: KnownFacts, relation: Relation) -> bool | None:
    """What is true of the operations in the relation alone: x >= min(x, y). It has steps of its
    own, as what it needs does not grow with what is known."""
    system = System(facts, Steps(OWN))
    system.constraint(relation.form, 0)
    for monomial in tuple(system.waiting):
        system.about(monomial)
    found = _by_refutation(system, relation)
    facts.space.work.steps += OWN - system.steps.left
    return found


def _by_refutation(system: System, relation: Relation) -> bool | None:
    excess = relation.excess()
    if relation.kind in ("ge", "le"):
        if system.refutes(("ge", -excess - 1)):
            return True
        return False if system.refutes(("ge", excess)) else None
    same: bool | None = None
    if system.refutes(("eq", excess)):
        same = False
    elif system.refutes(("ge", excess - 1)) and system.refutes(("ge", -excess - 1)):
        same = True
    return same if same is None or relation.kind == "eq" else not same


Claim = tuple[str, Dim]
"""("eq", e): e == 0; ("ge", e): e >= 0."""

Why = tuple[int, ...]


class System:
    """Linear constraints over monomials: the facts that matter to an expression."""

    def __init__(self, facts: KnownFacts, steps: Steps) -> None:
        self.facts = facts
        self.columns: dict[object, int] = {}
        self.reached: set[object] = set()
        self.equations: list[Constraint] = []
        self.inequalities: list[Constraint] = []
        self.sources: list[Why] = []
        self.splits: list[tuple[list[list[Claim]], Why]] = []
        self.waiting: list[Monomial] = []
        self.steps = steps

    def refutes(self, *claims: Claim) -> bool:
        """Whether these claims contradict the facts; tells the facts which ones were used."""
        why = self._refuted(self.equations, self.inequalities, claims, self.splits[:SPLITS])
        if why is None:
            return False
        for position, source in enumerate(self.sources):
            if why >> position & 1:
                self.facts.use(source)
        return True

    def _refuted(
        self,
        equations: list[Constraint],
        inequalities: list[Constraint],
        claims: Sequence[Claim],
        splits: Sequence[tuple[list[list[Claim]], Why]],
        *,
        is_whole: bool = True,
    ) -> int | None:
        """The bits of facts that contradict the claims in every case; ``is_whole``: before any
        distinction is made."""
        equations, inequalities = list(equations), list(inequalities)
        for kind, expr in claims:
            (equations if kind == "eq" else inequalities).append(self.constraint(expr, 0))
        before = self.steps.left
        why = refute(equations, inequalities, self.steps)
        given_up = before - self.steps.left >= min(before, PATIENCE)
        if why is not None or not splits or given_up:  # its cases would be as long
            return why
        if is_whole and len(splits) > 1 and self._has_case(equations, inequalities, splits):
            return None
        (alternatives, source), *others = splits
        why = self.bit(source)
        for alternative in alternatives:
            part = self._refuted(equations, inequalities, alternative, others, is_whole=False)
            if part is None:
                return None
            why |= part
        return why

    def _has_case(
        self,
        equations: list[Constraint],
        inequalities: list[Constraint],
        splits: Sequence[tuple[list[list[Claim]], Why]],
    ) -> bool:
        """Is the first case of all distinctions together not refuted, by a search that ended? Most
        questions have no proof, and this shows it in one search instead of one for each
        distinction."""
        claims = [claim for (first, *_), _ in splits for claim in first]
        before = self.steps.left
        refuted = self._refuted(equations, inequalities, claims, ())
        return refuted is None and before - self.steps.left < min(before, PATIENCE)

    def constraint(self, expr: Dim, why: int) -> Constraint:
        """The constraint of an expression; new monomials become columns."""
        if isinstance(expr, int):
            return Constraint({}, expr, why)
        terms: dict[int, int] = {}
        for monomial, c in expr.terms.items():
            column = self.columns.get(monomial)
            if column is None:
                column = self.columns[monomial] = len(self.columns)
                self.waiting.append(monomial)
            terms[column] = c
        return Constraint(terms, expr.constant, why)

    def bit(self, source: Why) -> int:
        """A bit that stands for these facts in a proof; 0 for what is true anyway."""
        if not source:
            return 0
        self.sources.append(source)
        return 1 << (len(self.sources) - 1)

    def claim(self, kind: str, expr: Dim, source: Why = ()) -> None:
        """Adds a constraint that is known to hold."""
        constraints = self.equations if kind == "eq" else self.inequalities
        constraints.append(self.constraint(expr, self.bit(source)))

    def between(self, expr: Dim, lo: int | None, hi: int | None, source: Why = ()) -> None:
        """Adds lo <= expr <= hi."""
        if lo is not None and lo == hi:
            self.claim("eq", expr - lo, source)
            return
        if lo is not None:
            self.claim("ge", expr - lo, source)
        if hi is not None:
            self.claim("ge", hi - expr, source)

    def reach(self, form: Expr, core: dict[Expr | AnyOf, None]) -> None:
        """Adds the facts, and what is true of every monomial that they or the form mention."""
        self.constraint(form, 0)
        for symbol in sorted(form.symbols, key=age):
            self._holes(symbol.expr)
        for fact in core:
            if len(self.columns) < MONOMIALS:
                self._fact(fact)
        while self.waiting and len(self.columns) < MONOMIALS:
            self.about(self.waiting.pop(0))

    def about(self, monomial: Monomial) -> None:
        """Adds what is true of a monomial."""
        space = monomial[0].space
        expr = space.term(monomial)
        lo, hi, source = self.facts.range_with_source(expr)
        if len(monomial) > 1:
            bounds = bounds_of(self.facts, expr)
            self.between(expr, *bounds, self.facts.sources_about(expr))
            self._product(monomial)
            return
        atom = monomial[0]
        self.between(expr, lo, hi, source)
        value = self.facts.value_of(atom)
        if value is not None:
            self.claim("eq", expr - value, self.facts.sources_about(expr))
        if isinstance(atom, Symbol):
            if not atom.signed and (lo is None or lo < 0):
                self.claim("ge", expr)
        elif opaque(atom):
            return
        elif atom.word in ("//", "%"):
            self._division(atom)
        elif atom.word == "broadcast":
            self._broadcast(atom)
        else:
            self._extremum(atom, 1 if atom.word == "max" else -1)
        own = self.facts.congruence_with_source(expr)
        if own is not None:
            self._congruent(expr, *own)

    def _congruent(self, expr: Expr, modulus: int, residue: int, source: Why) -> None:
        """expr == modulus * k + residue, k a column of its own."""
        constraint = self.constraint(expr - residue, self.bit(source))
        key = (Atom, expr)
        column = self.columns.setdefault(key, len(self.columns))
        self.equations.append(constraint._replace(terms={**constraint.terms, column: -modulus}))

    def _division(self, atom: Atom) -> None:
        """a == b*(a // b) + a % b, 0 <= a % b < b."""
        a, b = atom.args
        lo, _ = bounds_of(self.facts, b)
        source = self.facts.sources_about(b)
        if lo is None or lo < 1 or (a, b) in self.reached:
            return
        self.reached.add((a, b))
        quotient, remainder = floordiv(a, b), mod(a, b)
        self.claim("eq", a - b * quotient - remainder, source)
        self.claim("ge", remainder, source)
        self.claim("ge", b - 1 - remainder, source)
        lo, hi = bounds_of(self.facts, quotient)
        self.between(quotient, lo, hi, self.facts.sources_about(quotient))
        known = simplified(self.facts, remainder)
        if known is not remainder:
            self.claim("eq", remainder - known, self.facts.sources_about(remainder))

    def _extremum(self, atom: Atom, sign: int) -> None:
        for arg in atom.args:
            self.claim("ge", sign * (atom.expr - arg))
        self.splits.append(([[("eq", atom.expr - arg)] for arg in atom.args], ()))

    def _broadcast(self, atom: Atom) -> None:
        """It is one of the operands, and each operand is 1 or it."""
        lo, hi = bounds_of(self.facts, atom.expr)
        self.between(atom.expr, lo, hi, self.facts.sources_about(atom.expr))
        for arg in atom.args:
            self.constraint(arg, 0)
            self.splits.append(([[("eq", atom.expr - arg)], [("eq", arg - 1)]], ()))
        self.splits.append(([[("eq", atom.expr - arg)] for arg in atom.args], ()))

    def _product(self, monomial: Monomial) -> None:
        """x*y against x and y: (x - lo)*(y - lo) >= 0 and other corners; facts times y."""
        if len(monomial) == 2 and monomial[0] is monomial[1]:  # no integer lies between 0 and 1
            square = monomial[0].space.term(monomial)
            self.claim("ge", square - monomial[0].expr)
            self.claim("ge", square + monomial[0].expr)
        for position, atom in enumerate(monomial):
            if position and atom is monomial[position - 1]:
                continue
            x = atom.expr
            rest = monomial[:position] + monomial[position + 1 :]
            y = x.space.term(rest)
            low_x, high_x = bounds_of(self.facts, x)
            low_y, high_y = bounds_of(self.facts, y)
            source = self.facts.sources_about(x) + self.facts.sources_about(y)
            above_x = [] if low_x is None else [x - low_x]
            above_y = [] if low_y is None else [y - low_y]
            below_x = [] if high_x is None else [high_x - x]
            below_y = [] if high_y is None else [high_y - y]
            for left in above_x + below_x:
                for right in above_y + below_y:
                    self.claim("ge", left * right, source)
            if low_y is not None and low_y >= 0:
                self._multiplied(monomial, x, y, source)

    def _multiplied(self, monomial: Monomial, x: Expr, y: Expr, source: Why) -> None:
        """The linear facts about x times y, where y is not negative."""
        for form in self.facts.links_of(x, 4):
            if x.atom is None or x.atom.unit not in form.terms or (form, y) in self.reached:
                continue
            self.reached.add((form, y))
            if not any(product_of(m, mono) in self.columns for m in form.terms for mono in y.terms):
                continue
            lo, hi, why = self.facts.range_with_source(form)
            if lo is not None:
                self.claim("ge", (form - lo) * y, why + source)
            if hi is not None:
                self.claim("ge", (hi - form) * y, why + source)

    def _fact(self, fact: Expr | AnyOf) -> None:
        if isinstance(fact, AnyOf):
            self._alternatives(fact)
            return
        self.constraint(fact, 0)
        if fact.atom is None:  # what is known of an atom is added when its column is
            lo, hi, source = self.facts.range_with_source(fact)
            self.between(fact, lo, hi, source)
            own = self.facts.congruence_with_source(fact)
            if own is not None:
                self._congruent(fact, *own)
        self._holes(fact)

    def _holes(self, form: Expr) -> None:
        if ("holes", form) in self.reached:
            return
        self.reached.add(("holes", form))
        for hole in self.facts.holes_of(form):
            independent = [[("ge", form - hole - 1)], [("ge", hole - form - 1)]]
            self.constraint(form, 0)
            self.splits.append((independent, self.facts.sources_about(form)))

    def _alternatives(self, fact: AnyOf) -> None:
        alternatives = [claims for part in fact.parts for claims in _cases(part)]
        if all(alternatives):
            for alternative in alternatives:
                for _, expr in alternative:
                    self.constraint(expr, 0)
            self.splits.append((alternatives, self.facts.sources_of(fact)))


def _cases(condition: Condition) -> list[list[Claim]]:
    """Cases of which one holds when the condition does, each with claims that then hold."""
    if isinstance(condition, Relation):
        if condition.kind == "ne":
            excess = condition.excess()
            return [[("ge", excess - 1)], [("ge", -excess - 1)]]
        return [[("eq" if condition.kind == "eq" else "ge", condition.excess())]]
    if isinstance(condition, AnyOf):
        return [case for part in condition.parts for case in _cases(part)]
    single = [cases[0] for part in condition.parts if len(cases := _cases(part)) == 1]
    return [[claim for case in single for claim in case]]
