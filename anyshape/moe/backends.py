"""The Triton kernel of each operator, by name; empty where Triton is not installed. What is made
of several may be `replayed`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from anyshape.kernels.replays import Replayed

try:
    from anyshape.kernels.launches import has_listeners
    from anyshape.moe import (
        triton_activation,
        triton_few,
        triton_gather,
        triton_gemm,
        triton_routing,
        triton_shuffling,
    )
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".", 1)[0] != "triton":
        raise
    KERNELS: Mapping[str, Callable[..., object]] = MappingProxyType({})
else:

    def replayed(function: Callable[..., Any]) -> Callable[..., Any]:
        """The function, which launches kernels, at less cost for the host."""
        return Replayed(function, has_listeners)

    KERNELS = MappingProxyType(
        {
            "routing_scores": triton_routing.routing_scores,
            "index_shuffling": triton_shuffling.index_shuffling,
            "combine_shuffling": triton_shuffling.combine_shuffling,
            "split_shuffling": triton_shuffling.split_shuffling,
            "gather_mul": triton_gather.gather_mul,
            "gather_mul_quantize": triton_gather.gather_mul_quantize,
            "scatter_add": triton_gather.scatter_add,
            "scatter_add_padded": triton_gather.scatter_add_padded,
            "silu_mul": triton_activation.silu_mul,
            "silu_mul_quantize": triton_activation.silu_mul_quantize,
            "gate_few": triton_few.gate_few,
            "down_few": triton_few.down_few,
            "grouped_gemm": triton_gemm.grouped_gemm,
            "grouped_gemm_scatter": triton_gemm.grouped_gemm_scatter,
            "grouped_gemm_gated": triton_gemm.grouped_gemm_gated,
        }
    )
