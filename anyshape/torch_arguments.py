"""The arguments of `torch.compile` as those of `anyshape.compile`.

In: what a user wrote for `torch.compile`. Out: our own options and declared sizes, and a note of
one line for each argument that changes nothing here. Names of inductor's options are asked of
inductor, and only where a name is none of ours.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any

from anyshape.errors import AnyshapeError
from anyshape.nouns import frozen
from anyshape.options import list_options, near

NAME = "anyshape"

OURS_OF_INDUCTOR: Mapping[str, Callable[[Any], Mapping[str, object]]] = MappingProxyType(
    {
        "force_disable_caches": lambda off: {"cache": not off},
        "fx_graph_cache": lambda on: {"cache": bool(on)},
    }
)
"""What an option of inductor is among ours; all others of its options change nothing here."""

OF_TORCH_COMPILE = frozenset({"guard_filter_fn", "use_aoti"})
"""Options that `torch.compile` takes for itself."""


@frozen
class Translated:
    """Options of ours, declared sizes, and what was said of the rest."""

    options: Mapping[str, object]
    shapes: Mapping[str, Any] | None
    assumptions: tuple[str, ...]
    notes: tuple[AnyshapeError, ...]


def translate(
    backend: Any = None,
    options: Mapping[str, object] | None = None,
    recompile_limit: int | None = None,
    shapes_spec: Any = None,
) -> Translated:
    """What these arguments mean here. Raises E101 for an option that nobody knows."""
    ours, ignored = _options(options or {})
    if recompile_limit is not None:
        ours = {"max_variants": recompile_limit, **ours}
    shapes, assumptions, unread = declared_in(shapes_spec)
    notes = [_ignored(f"backend={_named(backend)!r}", "anyshape itself compiles")] * (
        backend is not None and _named(backend) != NAME
    )
    if ignored:
        notes.append(_ignored(f"options={ignored}", "inductor reads them, and nothing here does"))
    if unread:
        notes.append(_ignored(f"shapes_spec of {unread}", "only tensors by name can be declared"))
    return Translated(ours, shapes, assumptions, tuple(notes))


def _named(backend: Any) -> str:
    return backend if isinstance(backend, str) else getattr(backend, "__name__", str(backend))


def _ignored(what: str, why: str) -> AnyshapeError:
    return AnyshapeError("E107", argument=what, because=why)


OWN = tuple(name for name, _, _ in list_options())


def _options(given: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """Ours, and the names of those that only inductor reads."""
    chosen: dict[str, object] = {}
    ignored = []
    for name, value in given.items():
        spelled = name.replace("-", "_")
        if spelled in OWN:
            chosen[spelled] = value
        elif spelled in OURS_OF_INDUCTOR:
            chosen.update(OURS_OF_INDUCTOR[spelled](value))
        elif spelled in OF_TORCH_COMPILE or spelled in inductors():
            ignored.append(name)
        else:
            raise AnyshapeError("E101", name=name, near=near(spelled, OWN))
    return chosen, ignored


def inductors() -> Iterable[str]:
    """The names of inductor's options; to import its table takes a second."""
    config = importlib.import_module("torch._inductor.config")
    names: Iterable[str] = config.get_config_copy()
    return names


def declared_in(
    spec: Any,
) -> tuple[dict[str, dict[int, str]] | None, tuple[str, ...], list[str]]:
    """The sizes that torch's `ShapesSpec` states of tensors by name, their bounds, and the names of
    what else it states."""
    if spec is None:
        return None, (), []
    parameters = spec.to_jsonable()
    parameters = parameters.get("params", parameters)
    parameters = parameters.get("params", parameters)
    shapes: dict[str, dict[int, str]] = {}
    bounds: dict[str, None] = {}
    unread = ["assumptions"] if getattr(spec, "assumptions", None) else []
    for name, stated in parameters.items():
        dims = stated.get("dims") if isinstance(stated, Mapping) else None
        if stated is None:
            continue
        if dims is None or not all(map(_is_read, dims)):
            unread.append(name)
            continue
        shapes[name] = {at: _text(size) for at, size in enumerate(dims) if size is not None}
        bounds.update(dict.fromkeys(bound for size in dims for bound in _bounds(size)))
    return shapes or None, tuple(bounds), unread


def _is_read(size: Any) -> bool:
    return size is None or type(size) is int or isinstance(size, Mapping)


def _text(size: Any) -> str:
    return str(size) if type(size) is int else re.sub(r"\W+", "_", size["name"])


def _bounds(size: Any) -> list[str]:
    if not isinstance(size, Mapping):
        return []
    signs = ((">=", size["min"]), ("<=", size["max"]))
    return [f"{_text(size)} {sign} {bound}" for sign, bound in signs if bound not in (None, 0)]
