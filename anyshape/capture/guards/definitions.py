"""What decides what a function and a class do: code and defaults, and the order of the bases.

In: a function or a class that the program relies on. Out: its state, and the text that tests it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyshape.nouns import frozen

MRO: Callable[[type], tuple[type, ...]] = vars(type)["__mro__"].__get__
"""The classes in which a class looks for names, past whatever its metaclass says."""


@frozen(eq=False)
class FunctionState:
    """What decides what a Python function does."""

    code: Any
    defaults: Any
    keyword_defaults: Any

    @classmethod
    def of(cls, fn: Any) -> FunctionState:
        """As it is now."""
        return cls(fn.__code__, fn.__defaults__, fn.__kwdefaults__)

    def holds(self, fn: Any) -> bool:
        """Is it so still?"""
        same_defaults = fn.__defaults__ is self.defaults
        same_keywords = fn.__kwdefaults__ is self.keyword_defaults
        return fn.__code__ is self.code and same_defaults and same_keywords

    def fails(self, path: str, name: Callable[[Any, str], str]) -> str:
        """The test, as Python text."""
        parts = {"code": self.code, "defaults": self.defaults, "kwdefaults": self.keyword_defaults}
        return " or ".join(
            f"{path}.__{what}__ is not {'None' if part is None else name(part, what)}"
            for what, part in parts.items()
        )
