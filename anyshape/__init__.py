"""anyshape: compile PyTorch programs whose shapes are not known. Public names only."""

from anyshape.api import (
    check,
    compile,  # noqa: A004 - torch.compile's name
    explain,
    is_compiling,
    mark_dynamic,
    mark_static,
    mark_unbacked,
    reset,
)
from anyshape.errors import AnyshapeError, AnyshapeWarning, GraphBreakError

__all__ = [
    "AnyshapeError",
    "AnyshapeWarning",
    "GraphBreakError",
    "check",
    "compile",
    "explain",
    "is_compiling",
    "mark_dynamic",
    "mark_static",
    "mark_unbacked",
    "reset",
]
