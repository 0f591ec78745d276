"""A call of a function with `functools.lru_cache` that goes past the cache, interpreted (see
`interpreter/polyfills.py`)."""

from __future__ import annotations

from typing import Any

from anyshape.capture.interpreter.intrinsic_names import past_cache


def call_past(cache: Any, fn: Any, args: Any, kwargs: Any) -> Any:
    since = past_cache(cache, None, (), None)
    result = fn(*args, **kwargs)
    past_cache(cache, since, (args, kwargs), result)
    return result
