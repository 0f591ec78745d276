"""What the trace has made, and how to take back what it has written: while a checkpoint is open, an
undo journal remembers what writes to created objects replaced.

In: objects made, and word of each write in front of it. Out: checkpoints, and what lay there then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from anyshape.capture.heap import undo
from anyshape.capture.heap.breaks import broken
from anyshape.capture.heap.iterators import SETTABLE, can_fork
from anyshape.capture.heap.observer import Observer
from anyshape.capture.heap.past_caches import PastCaches
from anyshape.capture.heap.quiet_classes import bare_name
from anyshape.capture.heap.raised_state import put_back, state_of
from anyshape.capture.heap.values import NULL


class Journal:
    """See the module. `created` is keyed by `id` and keeps its objects alive."""

    __slots__ = (
        *("births", "created", "domain", "iterators", "journal", "marks", "namespaces"),
        *("old_writes", "past_caches"),
    )

    def __init__(self, domain: Observer) -> None:
        self.domain = domain
        self.created: dict[int, Any] = {}
        self.namespaces: dict[int, Any] = {}  # id of a `__dict__` made here -> its object
        self.journal: list[Callable[[], object]] | None = None
        self.marks: list[tuple[int, int]] = []  # positions in the journal and in `births`
        self.births: dict[int, int] = {}
        self.past_caches = PastCaches()
        self.old_writes = 0  # to what had been made before the newest open checkpoint
        self.iterators: dict[int, Any] = {}

    # ---- which objects ---------------------------------------------------------------------------
    def create(self, value: Any) -> Any:
        """Register an object made in this trace."""
        self.created[id(value)] = value
        if self.journal is not None:
            self.births[id(value)] = len(self.births)
        return value

    def is_made_inside(self, value: Any) -> bool:
        """Whether it was made after the newest open checkpoint: a rollback need not mind it."""
        return self.births.get(id(value), -1) >= self.marks[-1][1]

    # ---- forks -----------------------------------------------------------------------------------
    def checkpoint(self, iterators: Iterable[Any] = ()) -> int:
        """``iterators``: iterators that lie on the stack of a frame, and that others hold."""
        if self.journal is None:
            self.journal = []
        self.iterators.update((id(iterator), iterator) for iterator in iterators)
        self.marks.append((len(self.journal), len(self.births)))
        return len(self.journal)

    def rollback(self, mark: int) -> None:
        """Undo everything since `mark`, newest first; the checkpoint stays open."""
        assert self.journal is not None
        while len(self.journal) > mark:
            self.journal.pop()()

    def release(self, mark: int) -> None:
        """Close a checkpoint; with the last one the journal ends."""
        newest = max(index for index, (position, _) in enumerate(self.marks) if position == mark)
        del self.marks[newest]
        if not self.marks:
            self.journal = None
            self.births.clear()
            self.iterators.clear()

    def will_write(self, obj: Any, owner: Any = None) -> None:
        """Called before a real write to a created container, cell or instance dict, that of the
        ``owner``: the journal remembers its state."""
        if self.past_caches.results or self.journal is not None:
            owner = self.namespaces.get(id(obj), obj) if owner is None else owner
            self.past_caches.refuse(owner)
        if self.journal is not None:
            self._journal_write(owner, undo.undo_contents(obj))

    def _journal_write(self, obj: Any, put_back: Callable[[], object]) -> None:
        self.old_writes += not self.is_made_inside(obj)
        self._journal(put_back)

    def will_raise(self, error: BaseException) -> None:
        if self.journal is not None:
            self.journal.append(partial(put_back, error, state_of(error)))

    def advance(self, iterator: Any, *, shared: bool) -> Any:
        """`next(iterator, NULL)` of a native iterator, such that a rollback can undo it.

        One that is not `shared` lies on a stack: checkpoints copy it, unless others hold it."""
        if self.domain.records:
            self.domain.will_advance(iterator)
        if self.journal is not None:
            if type(iterator) in SETTABLE:
                if not iterator.__length_hint__():
                    return NULL  # an exhausted one could not be set back
                position = iterator.__reduce__()[2]
                self.journal.append(lambda: iterator.__setstate__(position))
            elif not self.is_made_inside(iterator):
                if shared or id(iterator) in self.iterators or not can_fork(iterator):
                    kind = bare_name(type(iterator))
                    raise broken("fork", f"{kind} is advanced")
        return next(iterator, NULL)

    def _journal(self, undo: Callable[[], object]) -> None:
        if self.journal is not None:
            self.journal.append(undo)
