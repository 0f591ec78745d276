"""The Triton kernel of each operator, by name; empty where Triton is not installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

try:
    from anyshape.attention import triton_attention, triton_backward, triton_write
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".", 1)[0] != "triton":
        raise
    KERNELS: Mapping[str, Callable[..., object]] = MappingProxyType({})
else:
    KERNELS = MappingProxyType(
        {
            "ragged_paged_attention": triton_attention.ragged_paged_attention,
            "ragged_attention": triton_attention.ragged_attention,
            "ragged_attention_backward": triton_backward.ragged_attention_backward,
            "write_pages": triton_write.write_pages,
        }
    )
