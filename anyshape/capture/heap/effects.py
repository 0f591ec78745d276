"""A write that a segment makes to an outside object, as the log holds it, and which of the writes
are left when all are done at once."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
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
