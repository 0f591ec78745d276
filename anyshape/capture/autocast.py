"""What autocast does to an operator on the CPU, by the name of its row; on GPUs the rows say it
themselves.

Copied from torch's own lists (ATen/autocast_mode.cpp, the CPU section): `lower` runs in
autocast's dtype, `float32` in float32, `promote` in the widest floating dtype among its
arguments. What is in no list runs in the dtypes that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from anyshape.ops.table import AutocastClass

_LOWER = """
conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d conv_transpose3d bmm mm
baddbmm addmm addbmm linear matmul conv_tbc prelu scaled_dot_product_attention
chain_matmul linalg_vecdot
"""
_FLOAT32 = """
avg_pool3d binary_cross_entropy grid_sampler grid_sample polar prod quantile nanquantile stft
cdist trace view_as_complex cholesky cholesky_inverse cholesky_solve inverse lu_solve orgqr
ormqr pinverse max_pool3d adaptive_avg_pool3d mse_loss cosine_embedding_loss nll_loss
hinge_embedding_loss poisson_nll_loss smooth_l1_loss cross_entropy l1_loss huber_loss
margin_ranking_loss soft_margin_loss triplet_margin_loss multi_margin_loss ctc_loss kl_div
multilabel_margin_loss binary_cross_entropy_with_logits
"""
_PROMOTE = "stack cat concat concatenate index_copy"

COMPOSED = frozenset("einsum inner tensordot multi_dot matrix_power cov corrcoef".split())
"""Functions in no list that ATen computes by others, which are: they are taken apart at once."""

CPU_AUTOCAST: Mapping[str, AutocastClass] = MappingProxyType(
    {
        **dict.fromkeys(_LOWER.split(), "lower"),
        **dict.fromkeys(_FLOAT32.split(), "float32"),
        **dict.fromkeys(_PROMOTE.split(), "promote"),
    }
)
