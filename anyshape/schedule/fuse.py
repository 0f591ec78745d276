"""Which nodes share a kernel.

In: a graph of core rows. Out: ``Group``s, each with the loop variables, the values it stores and
the ones it computes on the way, and a *position* in the program. Nodes are taken from the last to
the first. A group grows from a node that must be computed towards its producers; a producer joins
where its elements are read cell by cell, or reduction by reduction, and where no cycle arises:
every group keeps its position between what it reads and who reads it. Each refusal has a reason.
Read on: ``lower.py`` says what an element is, ``build.py`` makes the kernel.
"""

from __future__ import annotations

import heapq
from dataclasses import field
from fractions import Fraction

from anyshape.costs import COSTS
from anyshape.ir.graph import Node, TensorType, Value, row_major
from anyshape.nouns import mutable, replace
from anyshape.ops.layout import numel
from anyshape.ops.table import Pointwise, Reduce, Scan
from anyshape.schedule.analysis import Analysis, Order
from anyshape.schedule.draft import Cell, Draft
from anyshape.schedule.groups import ExtraReduction, Group, LoopNest, Part, Refusal, Shared, Stored
from anyshape.schedule.indices import (
    Index,
    Refine,
    Sizes,
    covers,
    covers_all,
    dot,
)
from anyshape.schedule.inplace import assigns
from anyshape.schedule.loop_nests import first_nest
from anyshape.schedule.lower import (
    Lowering,
    arguments,
    is_short_scan,
    kept_index,
    reduced_dims,
    rule_of,
    scanned_dim,
    view_index,
)
from anyshape.schedule.scatter import copied, update_shape, updated
from anyshape.symbolic import Dim, Expr, Symbol, substitute

MOST_ABOVE = 16
"""Nodes that a sibling is made of."""
MOST_SPLITS = 32
"""How often the loop variables of a kernel are split, before those that it began with are kept."""
CONDITIONAL = frozenset({"pad", "cat"})


def grow(found: Analysis, position: int, part: Part = "whole") -> Group:
    """The group whose last node is the one at ``position``; marks what it takes as scheduled.

    A scatter is two groups: ``copy`` makes the result from the operand, ``update`` writes into it.
    """
    node = found.nodes[position]
    found.stand_at(position)
    if part == "update":
        nest = LoopNest(
            tuple((size,) for size in found.sizes.shape(update_shape(found.ops[node.op], node)))
        )
    else:
        nest = first_nest(found, node)
    settled = replace(found.sizes, refines=False)
    group = _grown(found, position, nest, part, found.sizes)
    group = group or _grown(found, position, nest, part, settled)
    if group is None:
        raise RuntimeError(f"{node.output.name} finds no loop variables")
    return group


def _grown(
    found: Analysis, position: int, nest: LoopNest, part: Part, sizes: Sizes
) -> Group | None:
    """None where each split asks for another one: of sizes of which ``a * b * c == a`` is known,
    the first is split into all three, one of which is as long as itself."""
    for _ in range(MOST_SPLITS):
        attempt = _Attempt(found, position, nest, part, sizes)
        try:
            return attempt.run()
        except Refine as wish:
            number = list(attempt.extents).index(wish.axis)
            nest = nest.refined(number, wish.extents)
        except ExtraReduction as wish:
            nest = LoopNest(nest.dims, tuple((extent,) for extent in wish.extents))
    return None


def concatenated_parts(node: Node) -> int:
    """How many tensors the node joins; 0 where it is no join."""
    return len(node.args[0]) if node.op == "cat" and isinstance(node.args[0], tuple) else 0


PARTS = {"copy": copied, "update": updated}


@mutable(eq=False)
class _Attempt:
    """One try to grow a group over a given nest."""

    found: Analysis
    position: int
    nest: LoopNest
    part: Part
    sizes: Sizes
    extents: dict[Symbol, Dim] = field(default_factory=dict)
    uses: dict[Value, dict[Index, None]] = field(default_factory=dict)
    whole: set[Value] = field(default_factory=set)
    members: set[int] = field(default_factory=set)
    inlined: set[Value] = field(default_factory=set)
    stored: list[Stored] = field(default_factory=list)
    refusals: list[Refusal] = field(default_factory=list)
    heap: list[int] = field(default_factory=list)
    loaded: set[Value] = field(default_factory=set)
    reduction_axes: tuple[Expr, ...] = ()
    reading_whole: bool = False
    parts: int = 0
    conditions: dict[Value, int] = field(default_factory=dict)  # on the way to its elements
    depth: int = 0
    low: Order = -1
    high: Order = field(init=False)
    lowering: Lowering = field(init=False)

    def run(self) -> Group:
        found = self.found
        node = found.nodes[self.position]
        for number, extent in enumerate(self.nest.extents):
            symbol = found.symbols.axis(number).symbol
            assert symbol is not None
            self.extents[symbol] = extent
        draft = Draft(found.symbols)
        self.lowering = Lowering(found.ops, found.cx, self.sizes, draft, self.extents, self._record)
        self._seed(node)
        self._grow()
        while self._take_siblings(node):
            self._grow()
        made = self._finish(node)
        del self.lowering  # it reads by this object: no cycle is left for the collector
        return made

    def _grow(self) -> None:
        while self.heap:
            self._consider(-heapq.heappop(self.heap))

    def _take_siblings(self, node: Node) -> bool:
        """Takes in what is made, element by element, of what this kernel loads and of nothing else:
        it is loaded once."""
        found, shape = self.found, self.found.sizes.shape(node.output.shape)
        if self.part != "whole" or self.reduction_axes or node.output in found.homes:
            return False
        taken = False
        for position in sorted({r for v in self.loaded for r in found.readers.get(v, ())}):
            if self._is_sibling(position, shape):
                value = found.nodes[position].output
                index = self.nest.index(found.symbols)
                self.members.add(position)
                self.inlined.add(value)
                self.stored.append(Stored(value, index, "cell"))
                self._expand(found.nodes[position], index)
                taken = True
        return taken

    def _is_sibling(self, position: int, shape: tuple[Dim, ...]) -> bool:
        """May it be stored here, and does something that is no kernel need it? Notes between what
        in the program the kernel has to run then."""
        found = self.found
        if (
            not self._is_free(position)
            or found.sizes.shape(found.nodes[position].output.shape) != shape
        ):
            return False
        readers = found.readers[found.nodes[position].output]
        if all(0 <= r < found.end and found.kinds[r] != "step" for r in readers):
            return False
        loaded = {found.producer.get(value) for value in self.loaded}
        low, waiting, above = self.low, [position], 0
        while waiting:
            current = waiting.pop()
            above += 1
            low = max(low, found.low_of(current))
            if any(
                v not in found.producer and v not in self.loaded
                for v in found.nodes[current].inputs()
            ):
                return False
            for source in found.sources[current] - loaded - self.members:
                if not self._is_free(source) or above > MOST_ABOVE:
                    return False
                waiting.append(source)
        high = min(self.high, *map(found.order_of, readers))
        late = self.position >= found.backward
        full = COSTS.why_kernel_is_full(len(self.inlined) + above, self.parts, 0)
        if low >= high or full is not None or late is not (high > found.backward):
            return False
        self.low, self.high = low, high
        return True

    def _is_free(self, position: int) -> bool:
        """Is it elementwise work that no kernel does so far?"""
        found = self.found
        if not 0 <= position < found.end or found.kinds[position] != "kernel":
            return False
        node = found.nodes[position]
        own = found.scheduled[position] or position in self.members or position in found.copies
        return (
            not own
            and isinstance(found.ops[node.op].lower, Pointwise)
            and node.op not in CONDITIONAL
            and node.output not in found.homes
        )

    @property
    def _reader(self) -> int:
        return ~self.position if self.part == "update" else self.position

    def _seed(self, node: Node) -> None:
        found = self.found
        index = self.nest.index(found.symbols)
        own, extra = index[: len(self.nest.dims)], index[len(self.nest.dims) :]
        row = found.ops[node.op]
        if extra:
            self.reduction_axes = tuple(
                found.symbols.axis(n)
                for n in range(sum(map(len, self.nest.dims)), len(self.nest.extents))
            )
        if isinstance(row.lower, Reduce):
            own = self._with_kept_ones(node, own)
        elif isinstance(row.lower, Scan) and not is_short_scan(self.lowering, node):
            self.reduction_axes = self._scanned(node, own)
        self.lowering.reduction_axes = self.reduction_axes
        self.members.add(self._reader)
        readers = found.readers[node.output]
        if self.position in found.copies:  # kernels look through to its base
            readers = {r for r in readers if r >= len(found.kinds) or found.kinds[r] == "step"}
        self.high = min(map(found.order_of, readers), default=found.end)
        self.stored.append(Stored(node.output, own, "fiber" if extra else "cell"))
        self._expand(node, own)

    def _with_kept_ones(self, node: Node, own: Index) -> Index:
        dims, keepdim = reduced_dims(self.lowering, node)
        if not keepdim:
            return own
        rest = iter(own)
        return tuple(0 if d in dims else next(rest) for d in range(len(node.output.shape)))

    def _scanned(self, node: Node, own: Index) -> tuple[Expr, ...]:
        scanned = own[scanned_dim(self.lowering, node)]
        axes = scanned.symbols if isinstance(scanned, Expr) else ()
        return tuple(symbol.expr for symbol in self.extents if symbol in axes)

    def _expand(self, node: Node, index: Index) -> None:
        rule = rule_of(self.found.ops[node.op]) or PARTS[self.part]
        self.lowering.mask = None
        position = self.found.producer[node.output]
        self.low = max(self.low, self.found.tested_at(position), self.found.barriers[position])
        self.parts += concatenated_parts(node)
        self.depth = self.conditions.get(node.output, 0) + (node.op in CONDITIONAL)
        rule(self.lowering, node, index)

    def _record(self, value: Value, index: Index, *, whole: bool = False) -> Cell:
        """Notes that the kernel reads an element; stands in for it with a dummy."""
        found = self.found
        position = found.producer.get(value)
        while position is not None and found.kinds[position] == "view":
            value, index = view_index(self.lowering, found.nodes[position], index)
            position = found.producer.get(value)
        if position is not None:
            if found.kinds[position] == "kernel" and not found.scheduled[position]:
                self._use(value, index, position, whole)
            else:
                self.low = max(self.low, found.order[position])
                self.loaded.add(value)
        else:
            self.loaded.add(value)
        return self.lowering.draft.load(value.name, dot(index, row_major(value.shape)), value.dtype)

    def _use(self, value: Value, index: Index, position: int, whole: bool) -> None:
        uses = self.uses.get(value)
        if uses is None:
            uses = self.uses[value] = {}
            heapq.heappush(self.heap, -position)
        uses[index] = None
        self.conditions[value] = max(self.depth, self.conditions.get(value, 0))
        if whole or self.reading_whole:
            self.whole.add(value)

    def _consider(self, position: int) -> None:
        """Takes the producer in, or leaves it to be loaded."""
        found = self.found
        node = found.nodes[position]
        value = node.output
        indices = tuple(self.uses[value])
        axes, high = self.reduction_axes, self.high
        reason = self._refusal(position, node, indices)
        if reason:
            self.reduction_axes, self.high = axes, high
            self.refusals.append(Refusal(value, found.nodes[self.position].output, reason))
            self.low = max(self.low, found.order[position])
            return
        self.lowering.reduction_axes = self.reduction_axes
        self.inlined.add(value)
        self.reading_whole = value in self.whole
        for index in indices:
            self._expand(node, index)
        self.reading_whole = False

    def _refusal(self, position: int, node: Node, indices: tuple[Index, ...]) -> str | None:
        """None if the producer may join; what joining means for axes and indices is then noted."""
        found = self.found
        if node.output in self.whole and not self._cheap_anywhere(node):
            return "it is read at indices that data decides"
        parts = self.parts + concatenated_parts(node) * len(indices)
        joins = self.conditions[node.output] + 1 if node.op in CONDITIONAL else 0
        full = COSTS.why_kernel_is_full(len(self.inlined) + 1, parts, joins)
        if full is not None:
            return full
        lowering = found.ops[node.op].lower
        if isinstance(lowering, Reduce | Scan):
            if self.part == "update":
                return "writes in order have no reductions"
            if self._updates() and found.readers[node.output] - self.members:
                return "an argument is updated by a kernel that reads its gradient from memory"
            reason = self._reduction_refusal(node, indices)
            if reason:
                return reason
        low = found.low_of(position)
        outside = found.readers[node.output] - self.members
        if not outside:
            if max(self.low, low) >= self.high:
                return "it reads what is computed after this kernel"
            reason = self._waste(position, indices)
            if reason is None:
                self.members.add(position)
            return reason
        return self._share(position, node, indices, outside, low)

    def _cheap_anywhere(self, node: Node) -> bool:
        """May the element be computed at a position that data decides? Elementwise work that costs
        little.
        """
        if self._reduces(node):
            return True  # its own row decides
        row, position = self.found.ops[node.op], self.found.producer[node.output]
        cheap = not row.costly or self.found.over_reductions[position]
        return isinstance(row.lower, Pointwise) and cheap

    def _is_made_of_two(self, position: int) -> bool:
        """Is an element made, at little cost, of one of each of two that are in memory, as of a
        tensor and what a reduction made of it?"""
        found, node = self.found, self.found.nodes[position]
        row, sources = found.ops[node.op], found.sources[position]
        kept = sum(found.producer.get(v) is None for v in set(node.inputs()))
        kept += sum(found.weights[s] >= 100 for s in sources)
        made = sum(found.weights[s] for s in sources if found.weights[s] < 100)
        return isinstance(row.lower, Pointwise) and not row.costly and kept <= 2 and made <= 2

    def _reduces(self, node: Node) -> bool:
        return isinstance(self.found.ops[node.op].lower, Reduce)

    def _share(
        self, position: int, node: Node, indices: tuple[Index, ...], outside: set[int], low: Order
    ) -> str | None:
        """The producer has readers outside: compute here what they make of it, store it here too,
        or compute it twice if that is cheap.
        """
        found = self.found
        early = max(self.low, low)
        small = found.weights[position] <= 3 and early < self.high
        cheap = small and (self._cheap(position, indices) or self._reads_less(position, indices))
        if cheap and not found.weights[position]:
            return None  # it reads nothing
        stored = None if self.part != "whole" else self._identity(node, indices)
        if stored is None and self.part == "whole" and self._opens_reduction(position, indices):
            stored = self._identity(node, indices)
        shared = None if stored is None else self._shared(stored, outside)
        fits = shared is not None and max(early, shared.low) < min(self.high, shared.high)
        if shared is not None and self.position >= found.backward > shared.high:
            fits = False  # all that this kernel makes would be kept from there on
        if shared is None or not fits or stored in shared.stored:
            if cheap:
                return None
            if node.output in self.whole and not self._reduces(node):
                if small or (early < self.high and self._is_made_of_two(position)):
                    return None  # an element for each index costs less than keeping all of them
                return "others read it too, and this kernel at indices that data decides"
        if shared is None:
            return "others read it too, and this kernel does not run over all of it"
        if not fits:
            return "others need it before this kernel can run"
        self.low, self.high = max(self.low, shared.low), min(self.high, shared.high)
        self.stored += shared.stored
        self.inlined |= {found.nodes[reader].output for reader in shared.fused}
        self.members |= {position, *shared.fused}
        return None

    def _shared(self, stored: Stored, outside: set[int]) -> Shared:
        """What is stored of a value for its readers outside: the value, and instead of it what a
        reader computes of it alone, element by element."""
        found = self.found
        fused = [r for r in sorted(outside) if self._follows(r, stored.value)]
        left = outside.difference(fused)
        made = [found.nodes[r].output for r in fused]
        parts = [self._shared(replace(stored, value=v), found.readers[v]) for v in made]
        tested = (max(found.tested_at(r), found.barriers[r]) for r in fused)
        return Shared(
            ((stored,) if left else ()) + tuple(s for part in parts for s in part.stored),
            frozenset(fused).union(*(part.fused for part in parts)),
            max((*tested, *(part.low for part in parts)), default=-1),
            min((*map(found.order_of, left), *(part.high for part in parts)), default=found.end),
        )

    def _follows(self, reader: int, value: Value) -> bool:
        """Does the reader, which no kernel computes so far, compute from this value alone, element
        by element?"""
        found = self.found
        if not 0 <= reader < found.end or found.kinds[reader] != "kernel":
            return False
        node = found.nodes[reader]
        row, made = found.ops[node.op], node.output
        own = found.scheduled[reader] or reader in found.copies or made in self.uses
        if own or not isinstance(row.lower, Pointwise) or {*node.inputs()} != {value}:
            return False
        shapes = (found.sizes.shape(each.shape) for each in (made, value))
        return made not in found.homes and next(shapes) == next(shapes)

    def _updates(self) -> bool:
        """Is all that it computes assigned to arguments? Such kernels are alike, whatever they
        read, so that one list of launches does them all."""
        nodes, readers = self.found.nodes, self.found.readers[self.stored[0].value]
        return all(r < len(nodes) and assigns(self.found, nodes[r]) for r in readers)

    def _cheap(self, position: int, indices: tuple[Index, ...]) -> bool:
        sources = self.found.sources[position]
        generated = all(self.found.weights[s] < 100 for s in sources) and not any(
            self.found.producer.get(v) is None for v in self.found.nodes[position].inputs()
        )
        return generated and len(indices) <= 2

    def _reads_less(self, position: int, indices: tuple[Index, ...]) -> bool:
        """Is it made of one tensor, which is in memory anyway and narrower? To read that costs less
        than to read what is stored of it, and it need not be stored."""
        found = self.found
        node = found.nodes[position]
        inputs = tuple(node.inputs())
        if len(inputs) != 1 or not isinstance(inputs[0].type, TensorType) or len(indices) > 2:
            return False
        (source,) = inputs
        shapes = (found.sizes.shape(each.shape) for each in (source, node.output))
        if next(shapes) != next(shapes) or source.dtype.size_bytes >= node.output.dtype.size_bytes:
            return False
        return all(
            found.kinds[s] == "step" or self.position >= found.backward > s
            for s in found.sources[position]
        )

    def _identity(self, node: Node, indices: tuple[Index, ...]) -> Stored | None:
        """How to store the value here: once for each cell, or once for each reduction."""
        shape = self.found.sizes.shape(node.output.shape)
        wide = {a for a, extent in self.extents.items() if not self.found.sizes.is_one(extent)}
        reduced = {axis.symbol for axis in self.reduction_axes} & wide
        for index in indices:
            axes = covers_all(self.found.sizes, self.extents, index, shape)
            if axes is None:
                continue
            if set(axes) & wide == wide:
                return Stored(node.output, index, "cell")
            if reduced and set(axes) & wide == wide - reduced:
                return Stored(node.output, self._outside_reductions(index), "fiber")
        return None

    def _opens_reduction(self, position: int, indices: tuple[Index, ...]) -> bool:
        """Is it a number of each reduction over what this kernel runs over besides? Then these are
        the reduction axes, before that reduction has joined."""
        found = self.found
        if self.reduction_axes or self.nest.reduction_axes or len(indices) != 1:
            return False
        below = position
        while not self._reduces(found.nodes[below]):
            under = [s for s in found.sources[below] if found.over_reductions[s]]
            if len(under) != 1 or not found.over_reductions[below]:
                return False
            below = under[0]
        if found.scheduled[below] or self.position >= found.backward > below:
            return False
        dims, _ = reduced_dims(self.lowering, found.nodes[below])
        base = arguments(self.lowering, found.nodes[below])[0]
        assert isinstance(base, Value)
        shape = found.sizes.shape(base.shape)
        named = {s for i in indices[0] if isinstance(i, Expr) for s in i.symbols}
        left = [axis for axis in self.extents if axis not in named]
        lengths = (tuple(shape[d] for d in dims), tuple(self.extents[axis] for axis in left))
        if not left or not found.sizes.same(*(found.sizes.simplify(numel(n)) for n in lengths)):
            return False
        self.reduction_axes = tuple(axis.expr for axis in left)
        return True

    def _outside_reductions(self, index: Index) -> Index:
        """The index outside the loops of reductions, of which it may name those that turn once."""
        first: dict[Symbol, Dim] = {
            r.symbol: 0 for r in self.reduction_axes if r.symbol is not None
        }
        return tuple(substitute(i, first) for i in index)

    def _waste(self, position: int, indices: tuple[Index, ...]) -> str | None:
        """Would computing it here repeat costly work?"""
        if len(indices) > 4:
            return "it is read at many indices"
        if self.found.slow_numbers[position] and not all(map(self._is_one, self.extents.values())):
            return "it would be computed again in each thread"
        if not self.found.ops[self.found.nodes[position].op].costly:
            return None
        if self.found.over_reductions[position] and not self.reduction_axes:
            return None  # what it is broadcast to will be the reduction axes
        reduced = {axis.symbol for axis in self.reduction_axes}
        for index in indices:
            used = {s for i in index if isinstance(i, Expr) for s in i.symbols}
            missing = [a for a, e in self.extents.items() if a not in used and e != 1]
            if used and not reduced.issuperset(missing) and self.found.sources[position]:
                return "it would be computed again for each position it is broadcast to"
        return "it is read at several indices" if len(indices) > 2 else None

    def _is_one(self, extent: Dim) -> bool:
        return self.found.sizes.is_one(extent)

    def _reduction_refusal(self, node: Node, indices: tuple[Index, ...]) -> str | None:
        """A reduction joins where it runs over exactly the reduction axes of this kernel."""
        if len(indices) != 1:
            return "a reduction is read at several indices"
        if isinstance(self.found.ops[node.op].lower, Scan):
            return self._scan_refusal(node, indices[0])
        sizes = self.found.sizes
        dims, _ = reduced_dims(self.lowering, node)
        base = arguments(self.lowering, node)[0]
        assert isinstance(base, Value)
        shape = sizes.shape(base.shape)
        kept = tuple(s for d, s in enumerate(shape) if d not in dims)
        inner = tuple(s for d, s in enumerate(shape) if d in dims)
        read = kept_index(self.lowering, node, indices[0])
        if covers_all(sizes, self.extents, read, kept) is None:
            return "the result of a reduction is not read once for each of its own"
        named = {s for i in read if isinstance(i, Expr) for s in i.symbols}  # of one element too
        left = [axis for axis in self.extents if axis not in named]
        wide = {axis for axis in left if self.extents[axis] != 1}
        if not wide and not self.reduction_axes and not self.nest.reduction_axes:
            raise ExtraReduction(inner or (1,))
        reduced = {a.symbol for a in self.reduction_axes if a.symbol is not None}
        if reduced and {symbol for symbol in reduced if self.extents[symbol] != 1} != wide:
            return "it reduces over other axes than this kernel"
        extents = tuple(self.extents[axis] for axis in left)
        if not sizes.same(sizes.simplify(numel(extents)), sizes.simplify(numel(inner))):
            return "it reduces over more or fewer elements"
        if not self.reduction_axes:
            self.reduction_axes = tuple(axis.expr for axis in left)
        return None

    def _scan_refusal(self, node: Node, index: Index) -> str | None:
        shape = self.found.sizes.shape(node.output.shape)
        if is_short_scan(self.lowering, node):
            return None
        dim = scanned_dim(self.lowering, node)
        axes = covers(self.found.sizes, self.extents, index[dim], shape[dim])
        if axes is None or covers_all(self.found.sizes, self.extents, index, shape) is None:
            return "a scan is not read in order"
        reduced = tuple(axis.expr for axis in axes)
        if self.reduction_axes and set(reduced) != set(self.reduction_axes):
            return "it reduces over other axes than this kernel"
        self.reduction_axes = reduced
        return None

    def _finish(self, node: Node) -> Group:
        found = self.found
        order: Order = self.position
        assert self.low < self.high, (
            "a kernel would run before what it reads, or behind its readers"
        )
        if not self.low < order < self.high:
            order = Fraction(self.low + self.high) / 2
        for position in self.members:
            if position >= 0:
                found.scheduled[position] = True
                found.order[position] = order
        for refusal in self.refusals:
            found.readers[refusal.value].add(self._reader)
        for value in self.inlined:
            if found.producer[value] not in self.members:  # computed here, and elsewhere too
                found.readers[value] -= self.members
        return Group(
            node.output,
            self.extents,
            self.reduction_axes,
            tuple(self.stored),
            frozenset(self.inlined),
            tuple(self.refusals),
            self.part,
        )
