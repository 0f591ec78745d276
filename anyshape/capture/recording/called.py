"""What the program calls, row by row, as long as it is not known who reads the results."""

from __future__ import annotations

from typing import Any

from anyshape.ir.graph import Location
from anyshape.nouns import frozen


@frozen(eq=False)
class Called:
    """A row as the program calls it, and what that made; ``happens``: at the example sizes, too,
    unlike what lies on one side of a branch."""

    name: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    made: Any
    location: Location | None
    happens: bool
