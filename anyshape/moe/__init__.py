"""Mixture-of-experts kernels, usable with plain PyTorch: no compiler of ours is needed.

Tokens are sorted by expert (`index_shuffling`), gathered (`gather_mul`), multiplied group by group
(`grouped_gemm`, `silu_mul`) and added back (`scatter_add`, or the product's own epilogue). No size
ever goes to the host.
"""

from __future__ import annotations

from anyshape.moe.activation import silu_mul, silu_mul_quantize
from anyshape.moe.experts import Activation, Experts
from anyshape.moe.gather import gather_mul, gather_mul_quantize, scatter_add, scatter_add_padded
from anyshape.moe.grouped_gemm import (
    grouped_gemm,
    grouped_gemm_fp8_rowwise,
    grouped_gemm_gated,
)
from anyshape.moe.layer import MoE
from anyshape.moe.mesh import Mesh
from anyshape.moe.parallel import Exchange, ParallelMoE
from anyshape.moe.replace import Replacements, replace_experts
from anyshape.moe.router import Router, Routing
from anyshape.moe.routing import routing_scores
from anyshape.moe.shared import SharedExpert
from anyshape.moe.shuffling import combine_shuffling, index_shuffling, split_shuffling

__all__ = [
    "Activation",
    "Exchange",
    "Experts",
    "Mesh",
    "MoE",
    "ParallelMoE",
    "Replacements",
    "Router",
    "Routing",
    "SharedExpert",
    "combine_shuffling",
    "gather_mul",
    "gather_mul_quantize",
    "grouped_gemm",
    "grouped_gemm_fp8_rowwise",
    "grouped_gemm_gated",
    "index_shuffling",
    "replace_experts",
    "routing_scores",
    "scatter_add",
    "scatter_add_padded",
    "silu_mul",
    "silu_mul_quantize",
    "split_shuffling",
]
