"""A write that a segment makes to an outside object, as the log holds it, and which of the writes
are left when all are done at once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from anyshape.nouns import frozen


@frozen
class Effect:
    """A write to an outside object: `fn(target, *args, **kwargs)` does it. Arguments may be proxies
    or created objects.
    """

    fn: Callable[..., Any]
    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@frozen
class Failing:
    """A write of C that raised, done once more: what it wrote before that is written, and nobody
    hears of the error again."""

    fn: Callable[..., Any]

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        with contextlib.suppress(Exception):
            self.fn(*args, **kwargs)


ENTRY = dict.__setitem__
PLAIN_KEYS = frozenset({str, int})


def without_overwritten(
    effects: Sequence[Effect],
    real: Callable[[Any], Any],
    no_dict_writers: Collection[Callable[..., Any]],
) -> list[Effect]:
    """The writes without those that a later one undoes unseen.

        d["a"] = 1; d["b"] = 2; d["a"] = 3    ->    d["a"] = 3; d["b"] = 2

    A key stays where the first write has put it. What lay there in between is made for nobody: the
    parameters that ``torch.func.functional_call`` puts into a module, say. ``real``: the object
    that a target stands for; ``no_dict_writers``: what writes no dict."""
    left: list[Effect] = []
    written: dict[tuple[int, type, Any], int] = {}
    for effect in effects:
        if effect.fn is ENTRY and type(effect.args[0]) in PLAIN_KEYS:
            key = id(real(effect.target)), type(effect.args[0]), effect.args[0]
            if key in written:
                left[written[key]] = effect
                continue
            written[key] = len(left)
        elif effect.fn is not ENTRY and effect.fn not in no_dict_writers:
            written.clear()
        left.append(effect)
    return left


TAKEN = frozenset({set.discard, set.remove})


def without_passing(
    effects: Sequence[Effect],
    real: Callable[[Any], Any],
    ids: Collection[int],
    created: Mapping[int, Any],
) -> Sequence[Effect]:
    """The writes without those that put the id of a new object into a set and take it out again, as
    `reprlib.recursive_repr` does with what is shown: it can have lain in no set before. ``ids``:
    what the program knows for ids; ``created``: what the trace has made, by id."""
    if not any(effect.fn in TAKEN for effect in effects):
        return effects
    left: list[Effect | None] = []
    added: dict[tuple[int, Any], int] = {}
    for effect in effects:
        known = effect.fn in (set.add, *TAKEN) and _holds_new_id(effect.args[0], ids, created)
        key = (id(real(effect.target)), effect.args[0]) if known else None
        if key is not None and effect.fn is not set.add and key in added:
            left[added.pop(key)] = None
        elif key is None or key not in added:
            if key is not None and effect.fn is set.add:
                added[key] = len(left)
            left.append(effect)
    return [effect for effect in left if effect is not None]


def _holds_new_id(value: Any, ids: Collection[int], created: Mapping[int, Any]) -> bool:
    """Whether it is such an id, or a tuple of numbers with one."""
    parts = value if type(value) is tuple else (value,)
    whole = all(type(part) is int for part in parts)
    return whole and any(part in ids and part in created for part in parts)
