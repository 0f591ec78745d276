"""What the heap asks of whoever interprets: a protocol that every domain fulfils."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol


class Observer(Protocol):
    """Hooks of `interpreter/domain.py`, where each is explained."""

    records: bool

    def read(self, obj: Any, kind: str, key: Any, value: Any) -> Any: ...

    def wrote(self, fn: Callable[..., Any], target: Any, args: tuple[Any, ...]) -> None: ...

    def behind(self, view: Any, mapping: Any) -> None: ...

    def will_look_inside(self, obj: Any) -> None: ...

    def will_advance(self, iterator: Any) -> None: ...

    def class_changed(self) -> None: ...

    def binary(self, op: str, a: Any, b: Any) -> Any: ...

    def call_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any: ...
