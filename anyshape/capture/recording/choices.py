"""Which of two tensors there is, where data decides.

    if norm > 1: x = x / norm
    ->
    chosen = where(norm > 1, x / norm, x)

In: the nodes of a segment and its choices, each a value that stands for one of two tensors. Out:
whether anybody could tell that value from the tensor that eager has there: by writing one of the
three, by their memory, or by their identity. What is handed out is the tensor itself, where the
value could be told from it (`segment_end.py`); what else could be seen is not captured.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import partial
from types import CodeType
from typing import Any, NoReturn

from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.values import TensorValue
from anyshape.ir.graph import Arg, Node, Value, values_in
from anyshape.ir.scalars import Operand
from anyshape.nouns import frozen, mutable
from anyshape.ops import OPS
from anyshape.ops.shared_memory import VIEWS_OF_NEW, base_of, written_in

BranchSite = tuple[CodeType, int]
"""Where a branch is: its code, and the instruction."""


class ChoicesAreSeen(BaseException):
    """A choice would be told from the tensor that eager has there."""

    def __init__(self, branches: frozenset[BranchSite]) -> None:
        self.branches = branches


@frozen(eq=False)
class Choice:
    """``yes`` where the condition holds, else ``no``."""

    condition: Operand
    yes: TensorValue
    no: TensorValue
    branch: BranchSite

    def seen(self) -> NoReturn:
        raise ChoicesAreSeen(frozenset({self.branch}))


@mutable
class Choices:
    """The choices of a capture; those of sides that were given up are among them."""

    made: dict[Value, Choice] = field(default_factory=dict)
    exact: set[Value] = field(default_factory=set)
    """Handed out as the tensor itself."""
    alone: set[Value] = field(default_factory=set)
    """Handed out as new memory, of which nobody else has a part."""
    seen: set[BranchSite] = field(default_factory=set)
    """Branches of what the program compares by identity."""

    def add(self, value: Value, choice: Choice) -> TensorValue:
        self.made[value] = choice
        proxy = TensorValue(value)
        proxy.identified = partial(self._is_seen, choice)
        return proxy

    def _is_seen(self, choice: Choice) -> NoReturn:
        """The program asks for the identity: capture ends, and begins again."""
        self.seen.add(choice.branch)
        raise broken("tensor-branch")

    def refuse_identity(self, *objects: Any) -> None:
        """The program compares what may be one object or two."""
        for obj in objects:
            if type(obj) is TensorValue:
                self.refuse_root(obj.value)

    def refuse_root(self, value: Value) -> None:
        """The program asks how a tensor lies in its memory."""
        if value in self.made:
            self._is_seen(self.made[value])

    def refuse_marks(self, x: TensorValue) -> None:
        """The program writes to the object itself: a flag, an attribute."""
        self.refuse_identity(x)
        for choice in self.made.values():
            if x.value in (choice.yes.value, choice.no.value):
                self._is_seen(choice)

    def handed_out(self, value: Value, nodes: Sequence[Node]) -> Choice | None:
        """The choice of what is handed out, where the tensor itself has to be."""
        choice = self.made.get(value)
        if choice is None:
            return None
        if _Memory(self.made, nodes).is_new(value):
            self.alone.add(value)
            return None
        self.exact.add(value)
        return choice

    def refuse_seen(self, nodes: Sequence[Node], outputs: Iterable[Arg]) -> None:
        """At the end of a segment that hands out the outputs."""
        if not self.made:
            return
        memory = _Memory(self.made, nodes)
        out = [memory.base(value) for value in values_in(tuple(outputs))]
        for value in memory.choices:
            others = {memory.base(part.value) for part in memory.parts(value)}
            touched = memory.is_written(value) or value in out
            if not touched and not memory.parts_written(value):
                continue
            if not memory.is_new(value) or not others.isdisjoint(out) or value in self.exact:
                self.made[value].seen()
        for value in self.alone - set(memory.choices):
            self.made[value].seen()


class _Memory:
    """What lies in whose memory, as far as rows may make views."""

    def __init__(self, made: Mapping[Value, Choice], nodes: Sequence[Node]) -> None:
        self.made = made
        self.nodes = nodes
        self.makers = {value: node for node in nodes for value in node.outputs}
        self.choices = {
            node.output: position
            for position, node in enumerate(nodes)
            if len(node.outputs) == 1 and node.output in made
        }

    def base(self, value: Value) -> Value:
        return base_of(value, self.makers, OPS)

    def parts(self, value: Value) -> Iterator[TensorValue]:
        """What is chosen from, through choices of choices."""
        choice = self.made[value]
        for part in (choice.yes, choice.no):
            yield part
            if part.value in self.made:
                yield from self.parts(part.value)

    def is_written(self, value: Value) -> bool:
        return value in self._written(0)

    def parts_written(self, value: Value) -> bool:
        """Whether a part is written behind the choice."""
        written = self._written(self.choices[value])
        return any(self.base(part.value) in written for part in self.parts(value))

    def _written(self, first: int) -> set[Value]:
        return set(map(self.base, written_in(self.nodes[first:], OPS)))

    def is_new(self, value: Value) -> bool:
        """Whether both parts are new memory that nobody reads behind the choice, as nobody has
        written it."""
        position = self.choices.get(value)
        if position is None:
            return False
        parts = {part.value for part in self.parts(value)}
        if any(not self._is_made(part) for part in parts):
            return False
        written = self._written(0)
        if not parts.isdisjoint(written):
            return False
        behind = self.nodes[position + 1 :]
        return not any(self.base(read) in parts for node in behind for read in node.read)

    def _is_made(self, value: Value) -> bool:
        node = self.makers.get(value)
        row = None if node is None else OPS.get(node.op)
        if node is None or row is None or row.mutates or row.alias != "none":
            return False
        return node.op not in VIEWS_OF_NEW
