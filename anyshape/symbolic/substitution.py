"""Symbols of an expression replaced by other expressions, and nothing else: no fact is asked."""

from __future__ import annotations

from collections.abc import Mapping

from anyshape.symbolic.atoms import Atom, Symbol
from anyshape.symbolic.expr import BUILDERS, Dim, total


def substitute(dim: Dim, values: Mapping[Symbol, Dim]) -> Dim:
    """The dim with symbols replaced; ZeroDivisionError or ValueError if that makes it undefined."""
    if isinstance(dim, int) or values.keys().isdisjoint(dim.symbols):
        return dim
    parts: list[Dim] = [dim.constant]
    for monomial, c in dim.terms.items():
        product: Dim = c
        for atom in monomial:
            product = _replaced(atom, values) * product
        parts.append(product)
    return total(parts)


def _replaced(atom: Atom, values: Mapping[Symbol, Dim]) -> Dim:
    if isinstance(atom, Symbol):
        return values.get(atom, atom.expr)
    return BUILDERS[atom.word](*(substitute(arg, values) for arg in atom.args))
