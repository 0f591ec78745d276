"""Entries of torch's operator database that once broke the graph: with every dimension unbacked
each structure is one graph, equal to eager at every size, and of the kind named here or better.
"""

from __future__ import annotations

import pytest
import torch

from conformance import cases, check

ENTRIES = {cases.name_of(entry): entry for entry in cases.ENTRIES}
KINDS = {
    "generated": "nn.functional.local_response_norm masked.amax masked.mean masked.softmax masked.normalize masked.std "
    "__getitem__ slice allclose cartesian_prod linalg.diagonal nn.functional.glu permute_copy "
    "angle cumulative_trapezoid diagflat fft.ifftshift mvlgamma.mvlgamma_p_3 scatter_reduce.mean "
    "scatter_reduce.amax narrow narrow_copy split_with_sizes_copy gather nn.functional.batch_norm",
    "eager": "equal gradient chalf native_batch_norm linalg.pinv.singular histogram combinations "
    "new_empty_strided histogramdd nn.functional.linear_cross_entropy.chunked nn.functional.ctc_loss nn.functional.embedding",
    "extern": "masked.median svd linalg.svd linalg.qr linalg.eigh geqrf linalg.slogdet ormqr "
    "cholesky_inverse cholesky_solve linalg.ldl_solve linalg.solve_triangular "
    "nn.functional.linear_cross_entropy "
    "nn.functional.multi_head_attention_forward svd_lowrank pca_lowrank",
}
CASES = [(name, kind) for kind, names in KINDS.items() for name in names.split()]


@pytest.mark.parametrize(("name", "kind"), CASES, ids=[name for name, _ in CASES])
def test_one_graph_at_unbacked_sizes(name: str, kind: str) -> None:
    entry = ENTRIES[name]
    for structure in cases.structures(entry, torch.float32, most=3, derived=4):
        made = check.check_structure(entry, structure, "float32")
        assert check.KINDS.index(made.kind) <= check.KINDS.index(kind), made
