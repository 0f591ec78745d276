"""What autocast does to an operator: torch's lists (ATen/autocast_mode.h and .cpp), by
ATen's name of the operator.

`lower` runs in autocast's dtype, `float32` in float32, `promote` in the widest floating dtype among
its arguments. What is in no list runs in the dtypes that it is given.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

_HOST_LOWER = """
conv1d conv2d conv3d convolution conv_transpose1d conv_transpose2d conv_transpose3d bmm mm
baddbmm addmm addbmm linear matmul conv_tbc prelu scaled_dot_product_attention
chain_matmul linalg_vecdot _addmm_activation _convolution mkldnn_rnn_layer
_native_multi_head_attention
"""
_HOST_FLOAT32 = """
avg_pool3d binary_cross_entropy grid_sampler grid_sample polar prod quantile nanquantile stft
cdist trace view_as_complex cholesky cholesky_inverse cholesky_solve inverse lu_solve orgqr
ormqr pinverse max_pool3d adaptive_avg_pool3d mse_loss cosine_embedding_loss nll_loss
hinge_embedding_loss poisson_nll_loss smooth_l1_loss cross_entropy l1_loss huber_loss
margin_ranking_loss soft_margin_loss triplet_margin_loss multi_margin_loss ctc_loss kl_div
multilabel_margin_loss multilabel_margin_loss_forward binary_cross_entropy_with_logits
cross_entropy_loss nll_loss2d grid_sampler_2d grid_sampler_3d
_lu_with_info reflection_pad1d reflection_pad2d replication_pad1d
replication_pad2d replication_pad3d adaptive_max_pool3d fractional_max_pool2d
fractional_max_pool3d max_unpool2d max_unpool3d fake_quantize_per_tensor_affine
fft_fft fft_ifft fft_fft2 fft_ifft2 fft_fftn fft_ifftn fft_rfft fft_irfft fft_rfft2 fft_irfft2
fft_rfftn fft_irfftn fft_hfft fft_ihfft geqrf linalg_cholesky linalg_cholesky_ex linalg_cond
linalg_eig linalg_eigh linalg_eigvals linalg_eigvalsh linalg_householder_product linalg_inv
linalg_inv_ex linalg_lstsq linalg_matrix_rank linalg_qr linalg_solve linalg_svd linalg_svdvals
linalg_tensorinv linalg_tensorsolve qr svd triangular_solve
"""
_HOST_PROMOTE = "stack cat concat concatenate index_copy"

_ACCELERATOR_LOWER = """
addbmm addmm addmv addr baddbmm bmm chain_matmul conv1d conv2d conv3d conv_tbc conv_transpose1d
conv_transpose2d conv_transpose3d convolution einsum linalg_multi_dot linalg_vecdot linear
matmul mm mv prelu rmatmul scaled_dot_product_attention
"""
_ACCELERATOR_FLOAT32 = """
acos asin binary_cross_entropy binary_cross_entropy_with_logits cdist cosh cosine_embedding_loss
cosine_similarity cross_entropy cumprod cumsum dist erfinv exp expm1 frobenius_norm group_norm
hinge_embedding_loss huber_loss kl_div l1_loss layer_norm linalg_matrix_norm linalg_vector_norm
log log10 log1p log2 log_softmax logsumexp margin_ranking_loss mse_loss multi_margin_loss
multilabel_margin_loss nll_loss norm nuclear_norm pdist poisson_nll_loss pow prod reciprocal
renorm rms_norm rsqrt sinh smooth_l1_loss soft_margin_loss softmax softmin softplus sum tan
torch_layer_norm torch_log_softmax torch_softmax triplet_margin_loss upsample_bicubic2d
upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d
upsample_trilinear3d vector_norm
"""
_ACCELERATOR_PROMOTE = """
addcdiv addcmul atan2 bilinear cross dot grid_sample grid_sampler index_put scatter_add
tensordot vdot
"""

COMPOSED = frozenset("einsum inner tensordot multi_dot matrix_power cov corrcoef".split())
"""Functions in no list that ATen computes by others, which are: they are taken apart at once."""

AutocastClass = Literal["lower", "float32", "promote"]


def _classes(lower: str, wide: str, promote: str) -> Mapping[str, AutocastClass]:
    made: dict[str, AutocastClass] = dict.fromkeys(lower.split(), "lower")
    made |= dict.fromkeys(wide.split(), "float32")
    return MappingProxyType(made | dict.fromkeys(promote.split(), "promote"))


ON_HOST = _classes(_HOST_LOWER, _HOST_FLOAT32, _HOST_PROMOTE)
"""What autocast does to an operator on the host, by ATen's name."""

ON_ACCELERATOR = _classes(_ACCELERATOR_LOWER, _ACCELERATOR_FLOAT32, _ACCELERATOR_PROMOTE)
"""The same on an accelerator."""
