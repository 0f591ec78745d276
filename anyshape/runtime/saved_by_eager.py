"""What eager's gradient formula of an operator reads: eager is asked.

In: a node, and which of its arguments and results are written after it. Out: whether torch's
``backward`` refuses to go on. Or: which of its arguments eager keeps themselves, and no views of
them. Tensors have no memory, so that asking costs next to nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

import torch

from anyshape.interrupts import is_interrupt
from anyshape.ir.graph import Graph, Node, ScalarType, TensorType, Value
from anyshape.ir.parts import part_of
from anyshape.nouns import frozen, replace
from anyshape.ops import OPS
from anyshape.runtime.eager_function import eager_function
from anyshape.symbolic import Dim, Expr, Symbol, evaluate
from anyshape.torch_names import torch_dtype

Tensor = torch.Tensor
UNKNOWN_SIZE = 2


MODIFIED = "modified by an inplace operation"


def reads_what_is_written(
    graph: Graph, node: Node, written: Set[Value], *, unknown: bool = True
) -> bool:
    """``unknown`` is the answer where nobody can say: if True, eager torch runs the graph."""
    part = _alone(graph, node)
    values = [entry.value for entry in part.inputs]
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
            leaves = [_like(graph, value) for value in values]
            wanted = [t for t in leaves if isinstance(t, Tensor) and t.requires_grad]
            tensors = [_made_of(t) if isinstance(t, Tensor) else t for t in leaves]
            made = eager_function(part)(*tensors)
            for value, tensor in zip((*values, *node.outputs), (*tensors, *made), strict=True):
                if value in written:
                    tensor.detach().zero_()  # which counts as a write, as any other
            torch.autograd.grad(
                [t for t in made if t.requires_grad],
                wanted,
                [torch.empty_like(t) for t in made if t.requires_grad],
                allow_unused=True,
            )
    except Exception as error:
        if is_interrupt(error):
            raise
        return unknown or MODIFIED in str(error)
    return False


@frozen
class Kept:
    """Of what a node reads and makes, what eager's formulas keep. ``themselves``: they find
    whatever ``x.data = new`` puts there. ``checked``: they refuse what was written since."""

    themselves: frozenset[Value]
    checked: frozenset[Value]


def kept_by_formula(graph: Graph, node: Node) -> Kept:
    """All tensors that it reads and makes where nobody can say."""
    part = _alone(graph, node)
    values = [entry.value for entry in part.inputs]
    tensors = frozenset(v for v in node.inputs() if isinstance(v.type, TensorType))
    made_here = frozenset(v for v in node.outputs if isinstance(v.type, TensorType))
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
            given = [_like(graph, value) for value in values]
            if node.op in OPS and OPS[node.op].mutates:
                given = [_made_of(t) if isinstance(t, Tensor) else t for t in given]
            made = eager_function(part)(*given)
            marks = {}
            for position, (value, tensor) in enumerate(zip(values, given, strict=True)):
                if value in tensors and isinstance(tensor, Tensor):
                    mark = (1,) * MORE_DIMENSIONS + (position + 1,)
                    tensor.data = tensor.new_empty(mark)
                    marks[mark] = value
            themselves = frozenset(marks[s] for s in map(_shape, saved_behind(made)) if s in marks)
            read = ((v, t) for v, t in zip(values, given, strict=True) if v in tensors)
            pairs = [*read, *zip(node.outputs, made, strict=True)]
            if any(formula.name() in HIDING for formula in _formulas(made)):
                asked = (v for v, t in pairs if isinstance(t, Tensor))
                refused = (v for v in asked if reads_what_is_written(graph, node, {v}))
                return Kept(themselves, frozenset(refused))
            return Kept(themselves, frozenset(_refusing(pairs, made)))
    except Exception as error:
        if is_interrupt(error):
            raise
        return Kept(tensors, tensors | made_here)


def _refusing(pairs: Iterable[tuple[Value, object]], made: tuple[object, ...]) -> Iterator[Value]:
    """Those behind whose writes a formula of these results refuses what it keeps."""
    left = [*_kept_names(made)]
    for value, tensor in pairs:
        if isinstance(tensor, Tensor) and left:
            torch.autograd.graph.increment_version(tensor)
            legible = [one for one in left if _is_legible(*one)]
            if len(legible) < len(left):
                yield value
            left = legible


def _is_legible(formula: object, name: str) -> bool:
    try:
        getattr(formula, name)
    except RuntimeError as error:
        if MODIFIED in str(error):
            return False
        raise
    return True


def requires_as_marked(graph: Graph, node: Node) -> bool:
    """Do the results require gradients in eager torch where their types say so? False where nobody
    can say."""
    part = _alone(graph, node)
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
            made = eager_function(part)(*[_like(graph, entry.value) for entry in part.inputs])
            kinds = [value.type for value in node.outputs]
            return all(
                tensor.requires_grad == kind.requires_grad
                for tensor, kind in zip(made, kinds, strict=True)
                if isinstance(kind, TensorType)
            )
    except Exception as error:
        if is_interrupt(error):
            raise
        return False


def keeps_nothing(graph: Graph) -> bool:
    """Is there nothing that eager's formulas keep, so that its graph can be gone through again?
    False where nobody can say."""
    inputs = tuple([replace(entry, kind="argument") for entry in graph.inputs])
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.random.fork_rng(devices=[]):
            given = [_like(graph, entry.value) for entry in inputs]
            made = eager_function(replace(graph, inputs=inputs))(*given)
            return next(saved_behind(made), None) is None
    except Exception as error:
        if is_interrupt(error):
            raise
        return False


HIDING = frozenset({"torch::autograd::CopySlices"})
"""Formulas that show nobody what they keep: of a write to a view."""
MORE_DIMENSIONS = 16
"""Than a tensor of a program has: what replaced an argument's data."""


def _shape(tensor: Tensor) -> tuple[int, ...]:
    return tuple(tensor.shape)


def saved_behind(made: tuple[object, ...]) -> Iterator[Tensor]:
    """What the formulas behind these results keep, and have not let go of."""
    for formula, name in _kept_names(made):
        try:
            kept = getattr(formula, name)
        except RuntimeError:  # it was gone through, or written since
            continue
        several = kept if isinstance(kept, (tuple, list)) else (kept,)
        yield from (one for one in several if isinstance(one, Tensor))


def _kept_names(made: tuple[object, ...]) -> Iterator[tuple[object, str]]:
    """The formulas behind these results, each with the names of what it keeps."""
    for formula in _formulas(made):
        yield from ((formula, name) for name in dir(formula) if name.startswith("_saved_"))


def _formulas(made: tuple[object, ...]) -> Iterator[torch.autograd.graph.Node]:
    waiting = [out.grad_fn for out in made if isinstance(out, Tensor)]
    seen = set()
    while waiting:
        formula = waiting.pop()
        if formula is not None and formula not in seen:
            seen.add(formula)
            waiting.extend(behind for behind, _ in formula.next_functions)
            yield formula


def _alone(graph: Graph, node: Node) -> Graph:
    """The node as a graph; what it reads are arguments."""
    part = part_of(graph, (node,), node.outputs)
    return replace(part, inputs=tuple([replace(entry, kind="argument") for entry in part.inputs]))


def _made_of(leaf: Tensor) -> Tensor:
    """A tensor like the leaf that is none, so that it may be written in place; where a copy lies
    otherwise, a view of memory with gaps, or of the leaf, where elements share an address."""
    copy = leaf.clone()
    if copy.stride() == leaf.stride():
        return copy
    if any(size > 1 and stride == 0 for size, stride in zip(leaf.shape, leaf.stride())):
        return leaf.view_as(leaf)
    memory = torch.empty_like(leaf).as_strided(leaf.shape, leaf.stride())
    return memory.copy_(leaf)


def _like(graph: Graph, value: Value) -> object:
    """A result of the type, at the example sizes; numbers are 1."""
    kind = value.type
    sizes = dict(graph.hints)
    if isinstance(kind, ScalarType):
        return _size(kind.expr, sizes) if isinstance(kind.expr, Expr) else 1
    assert isinstance(kind, TensorType)
    shape, strides = ([_size(dim, sizes) for dim in dims] for dims in (kind.shape, kind.strides))
    made = torch.empty_strided(shape, strides, dtype=torch_dtype(kind.dtype), device="meta")
    return made.requires_grad_(kind.requires_grad)


def _size(dim: Dim, sizes: dict[Symbol, int]) -> int:
    if not isinstance(dim, Expr):
        return dim
    known = {symbol: sizes.get(symbol, UNKNOWN_SIZE) for symbol in dim.symbols}
    return int(evaluate(dim, known))
