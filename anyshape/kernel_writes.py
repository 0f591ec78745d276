"""Which parameters a Triton kernel of the program's may write through, by its source.

In: the Python function of a kernel. Out: the names of parameters that may reach the address of a
store or an atomic operation, or a call that is not known to write nothing; None where that cannot
be said. The order of statements is not looked at: a name may be made of all that is ever assigned
to it.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Iterator, Set
from typing import Any

LANGUAGE = "triton.language"
READERS = frozenset({"load"})
"""What they give is no address of a parameter's memory."""
WRITERS = frozenset(
    {
        *("store", "atomic_add", "atomic_max", "atomic_min", "atomic_and", "atomic_or"),
        *("atomic_xor", "atomic_xchg", "atomic_cas"),
    }
)
"""Functions that write where their first argument says."""
PURE = frozenset(
    {
        *("arange", "program_id", "num_programs", "zeros", "zeros_like", "full", "cdiv", "cast"),
        *("dot", "sum", "max", "min", "argmax", "argmin", "cumsum", "cumprod", "sort", "flip"),
        *("exp", "exp2", "log", "log2", "sqrt", "sqrt_rn", "rsqrt", "abs", "sin", "cos", "erf"),
        *("sigmoid", "softmax", "floor", "ceil", "fma", "where", "maximum", "minimum", "clamp"),
        *("multiple_of", "max_contiguous", "max_constancy", "assume", "constexpr", "range"),
        *("static_range", "static_assert", "static_print", "broadcast", "broadcast_to", "reshape"),
        *("view", "trans", "permute", "expand_dims", "join", "split", "interleave", "ravel"),
        *("make_block_ptr", "advance", "rand", "randn", "randint", "div_rn", "xor_sum"),
    }
)
"""Functions that write nothing; what they give may be an address made of their arguments."""
METHODS = frozenset({"to", "load"})
"""Of pointers and descriptors, that write nothing."""
BUILTINS = frozenset({"range", "min", "max", "int", "float", "bool", "abs"})
POINTER = "pointer"
"""How the first argument of a writer is called."""


def may_write(function: Any, source: str = "") -> Set[str] | None:
    """The parameters that a call of `function`, which a kernel was made of, may write through.
    `source`: its text, where it was kept; its file may have changed since."""
    try:
        tree = ast.parse(textwrap.dedent(source or inspect.getsource(function))).body[0]
    except (OSError, TypeError, SyntaxError, IndexError):
        return None
    if not isinstance(tree, ast.FunctionDef) or any(map(_is_hard, tree.body)):
        return None
    names = function.__globals__
    languages = {n for n, value in names.items() if getattr(value, "__name__", "") == LANGUAGE}
    given = tree.args
    parameters = {a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    made_of = {name: {name} for name in parameters}
    return _Writes(languages, BUILTINS - names.keys(), made_of).of(tree)


def _is_hard(statement: ast.AST) -> bool:
    """Is there a scope of its own in it?"""
    scopes = (ast.FunctionDef, ast.Lambda, ast.ClassDef, ast.Global, ast.Nonlocal, ast.Import)
    scopes += (ast.ImportFrom, ast.comprehension, ast.Yield, ast.Starred)  # type: ignore[assignment]
    return any(isinstance(node, scopes) for node in ast.walk(statement))


class _Writes:
    """`languages` and `builtins`: what these are called, where no local is called so; `made_of`:
    the parameters that a local may be made of."""

    def __init__(
        self, languages: Set[str], builtins: Set[str], made_of: dict[str, set[str]]
    ) -> None:
        self.languages, self.builtins, self.made_of = languages, builtins, made_of

    def of(self, tree: ast.FunctionDef) -> Set[str]:
        nodes = [node for statement in tree.body for node in ast.walk(statement)]
        assigned = [pair for node in nodes for pair in _assignments(node)]
        calls = [node for node in nodes if isinstance(node, ast.Call)]
        written: set[str] = set()
        before = -1
        while before != (now := sum(map(len, self.made_of.values()))):
            before = now
            for target, value in assigned:
                for node in ast.walk(target):
                    if isinstance(node, ast.Name):
                        self.made_of.setdefault(node.id, set()).update(self._parameters(value))
        self.languages, self.builtins = (
            known - self.made_of.keys() for known in (self.languages, self.builtins)
        )
        for target, value in assigned:
            if any(isinstance(n, (ast.Attribute, ast.Subscript)) for n in ast.walk(target)):
                written |= self._parameters(value) | self._parameters(target)
        for call in calls:
            written |= self._written_by(call)
        return written

    def _parameters(self, expression: ast.AST) -> set[str]:
        """Those that a value may be an address of."""
        if isinstance(expression, ast.Call) and self._function(expression) in READERS:
            return set()
        own = self.made_of.get(expression.id, set()) if isinstance(expression, ast.Name) else set()
        return own.union(*map(self._parameters, ast.iter_child_nodes(expression)))

    def _function(self, call: ast.Call) -> str | None:
        """The name of a function of Triton's language."""
        of = call.func
        named = isinstance(of, ast.Attribute) and isinstance(of.value, ast.Name)
        return of.attr if named and of.value.id in self.languages else None  # type: ignore[attr-defined]

    def _written_by(self, call: ast.Call) -> set[str]:
        name = self._function(call)
        if name in PURE or name in READERS:
            return set()
        if name in WRITERS:
            keywords = [k.value for k in call.keywords if k.arg in (POINTER, None)]
            return set().union(*map(self._parameters, (*call.args[:1], *keywords)))
        of = call.func
        is_pure = isinstance(of, ast.Name) and of.id in self.builtins
        if isinstance(of, ast.Attribute) and name is None:
            is_pure = of.attr in METHODS and bool(self._parameters(of.value))  # no module's
        return set() if is_pure else self._parameters(call)


def _assignments(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Pairs of what is assigned to and what is assigned."""
    match node:
        case ast.Assign(targets=targets, value=value):
            yield from ((target, value) for target in targets)
        case ast.AugAssign(target=target, value=value) | ast.NamedExpr(target=target, value=value):
            yield target, value
        case ast.AnnAssign(target=target, value=ast.AST() as value):
            yield target, value
        case ast.For(target=target, iter=value):
            yield target, value
        case ast.withitem(context_expr=value, optional_vars=ast.AST() as target):
            yield target, value
