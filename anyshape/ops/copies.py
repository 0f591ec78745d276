"""Views as torch's ``*_copy`` operators make them: new row-major tensors.

``permute_copy(x, dims)`` is ``clone(permute(x, dims))``; each row here is made from its view's row.
"""

from __future__ import annotations

from typing import Any

from anyshape.ops import join, permute, reshape, split, view
from anyshape.ops.table import OPS, OpDef, add_row

FAMILIES = (join, permute, reshape, split, view)
"""The modules whose views are copied here, so that they come first."""

VIEWS = {
    "alias_copy": "alias",
    "detach_copy": "detach",
    "diagonal_copy": "diagonal",
    "expand_copy": "expand",
    "narrow_copy": "narrow",
    "permute_copy": "permute",
    "select_copy": "select",
    "split_copy": "split",
    "split_with_sizes_copy": "split",
    "squeeze_copy": "squeeze",
    "t_copy": "t",
    "transpose_copy": "transpose",
    "unbind_copy": "unbind",
    "unfold_copy": "unfold",
    "unsqueeze_copy": "unsqueeze",
    "view_copy": "reshape",
}


def _copied(b: Any, name: str, *args: Any) -> Any:
    made = b.call(name, *args)
    if isinstance(made, tuple):
        return tuple(b.clone(x, memory_format="contiguous_format") for x in made)
    return b.clone(made, memory_format="contiguous_format")


for _name, _view in VIEWS.items():
    add_row(
        OpDef(
            _name,
            OPS[_view].signature,
            f"torch.{_name}",
            expand=lambda b, *args, view=_view: _copied(b, view, *args),
            inline=True,
            by_value=OPS[_view].by_value,
        )
    )
