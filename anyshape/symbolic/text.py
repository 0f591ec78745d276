"""How an expression is spelled: Python-like text for people; `render.py` has the targets.

Knows an expression only by its terms and an atom only by its `word`, so that `expr.py` can print
itself with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from anyshape.symbolic.atoms import Atom, Monomial, Symbol
    from anyshape.symbolic.expr import Dim

Name = Callable[["Symbol"], str]
Computed = Mapping["Dim", str]
LONG_BITS = 2048
"""Fewer than 640 digits, the least that ``sys.set_int_max_str_digits`` takes."""
NOTHING_COMPUTED: Computed = MappingProxyType({})


def name_of(symbol: Symbol) -> str:
    """The symbol's own name: the default way to print one."""
    return symbol.name


class Printer:
    """Text of an expression; the targets differ only in how an atom is spelled.

    `loose` are the operations whose text needs parentheses inside a product or division.
    """

    loose: tuple[str, ...] = ("//", "%")

    def __init__(self, name: Name = name_of, computed: Computed = NOTHING_COMPUTED) -> None:
        self.name = name
        self.computed = computed

    def dim(self, dim: Dim) -> str:
        """Text of a sum."""
        if isinstance(dim, int):
            return self.number(int(dim))
        if self.computed and dim in self.computed:
            return self.computed[dim]
        text = ""
        for monomial, coefficient in dim.ordered_terms():
            if coefficient == 1 and len(monomial) == 1:
                product, sign = self.atom(monomial[0]), "+"
            else:
                sign = "-" if coefficient < 0 else "+"
                product = self.product(monomial, abs(coefficient), not text and coefficient < 0)
            text = f"{text} {sign} {product}" if text else product
        if dim.constant:
            text += f" {'-' if dim.constant < 0 else '+'} {self.number(abs(dim.constant))}"
        return text

    def number(self, value: int) -> str:
        """Text of a constant; Python refuses to write thousands of digits in decimal."""
        return str(value) if value.bit_length() <= LONG_BITS else hex(value)

    def product(self, monomial: Monomial, coefficient: int, minus: bool = False) -> str:
        """Text of a term; `minus` when it begins with a sign that would bind tighter than //."""
        factors = [self.number(coefficient)] if coefficient != 1 else []
        for position, atom in enumerate(monomial):
            loose = atom.word in self.loose and (position or factors or minus)
            factors.append(f"({self.atom(atom)})" if loose else self.atom(atom))
        return "-" * minus + "*".join(factors)

    def operand(self, dim: Dim) -> str:
        """Text of an operand of * or //, in parentheses where it needs them."""
        text = self.dim(dim)
        if isinstance(dim, int):
            return text if dim >= 0 else f"({text})"
        atom = dim.atom
        return f"({text})" if atom is None or atom.word in self.loose else text

    def atom(self, atom: Atom) -> str:
        """Text of one factor."""
        match atom.word:
            case "":
                return self.name(cast("Symbol", atom))
            case "//":
                return self.floordiv(atom)
            case "%":
                return self.mod(atom)
            case "broadcast":
                return self.broadcast(atom.args)
            case word:
                return self.extremum(word, atom.args)

    def floordiv(self, atom: Atom) -> str:
        """Text of a floor division."""
        return f"{self.operand(atom.args[0])}//{self.operand(atom.args[1])}"

    def mod(self, atom: Atom) -> str:
        """Text of a modulo."""
        return f"{self.operand(atom.args[0])}%{self.operand(atom.args[1])}"

    def extremum(self, word: str, args: tuple[Dim, ...]) -> str:
        """Text of a minimum or maximum."""
        return f"{word}({', '.join(self.dim(arg) for arg in args)})"

    def broadcast(self, args: tuple[Dim, ...]) -> str:
        """Text of a broadcast size."""
        return f"broadcast({', '.join(self.dim(arg) for arg in args)})"


class _Short(Printer):
    """Leaves out what is nested too deep to read."""

    def atom(self, atom: Atom) -> str:
        return "..." if atom.depth > LEGIBLE else super().atom(atom)


LEGIBLE = 24  # operations nested in one another that are spelled out for people
PLAIN = _Short()
