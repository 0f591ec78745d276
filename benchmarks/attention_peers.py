"""Attention of two published libraries, where they are installed: FlashInfer (0.7.2, its own paged
kernels, planned on the host beforehand) and FlashAttention 3 (flash-attn3-jax 0.2.3, the published
kernels behind JAX; the time is that of its kernels alone, without launches).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.profiler import ProfilerActivity, profile

try:
    import flashinfer
except ImportError:
    flashinfer = None
try:
    import jax
    from flash_attn3_jax import flash_mha, flash_mha_with_kvcache
    from jax import numpy as jnp
except ImportError:
    jax = None

WORKSPACE_BYTES = 2**28
# calls that are recorded together, each with the result of the last as its queries
CHAINED = 10
SPLITS = (1, 4, 16)


def _pages_of(page_table: Tensor, lengths: Tensor, page_size: int) -> tuple[Tensor, ...]:
    """(where each sequence's pages begin, all pages, rows of each last page)."""
    counts = (lengths + page_size - 1) // page_size
    begins = torch.zeros(len(lengths) + 1, dtype=torch.int32, device=lengths.device)
    begins[1:] = counts.cumsum(0)
    used = torch.arange(page_table.shape[1], device=lengths.device) < counts[:, None]
    return begins, page_table[used].int(), ((lengths - 1) % page_size + 1).int()


def flashinfer_call(batch: Any, heads: int, key_heads: int) -> Callable[[], object]:
    """FlashInfer on a batch of benchmarks.attention whose pages have their heads apart."""
    q, k, v = batch.q, batch.k_pages.transpose(1, 2), batch.v_pages.transpose(1, 2)
    workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device="cuda")
    page_size, size = k.shape[2:]
    pages = _pages_of(batch.page_table, batch.lengths, page_size)
    dtypes = {"q_data_type": q.dtype, "kv_data_type": k.dtype}
    if q.shape[0] == len(batch.lengths):
        wrapper = flashinfer.BatchDecodeWithPagedKVCacheWrapper(workspace, "HND")
        wrapper.plan(*pages, heads, key_heads, size, page_size, **dtypes)
    else:
        wrapper = flashinfer.BatchPrefillWithPagedKVCacheWrapper(workspace, "HND", backend="fa3")
        wrapper.plan(
            *(batch.starts, *pages, heads, key_heads, size, page_size), causal=True, **dtypes
        )
    return lambda: wrapper.run(q, (k, v))


def _kernel_time(run: Callable[[], object]) -> float:
    """Microseconds a call that FlashAttention's kernels take of a chain of calls."""
    run()
    with profile(activities=[ProfilerActivity.CUDA]) as recorded:
        run()
        torch.cuda.synchronize()
    names = ("flash", "prepare", "combine")
    return sum(
        event.self_device_time_total / CHAINED
        for event in recorded.key_averages()
        if any(name in event.key.lower() for name in names)
    )


def _random(*shapes: Sequence[int]) -> list[Any]:
    keys = jax.random.split(jax.random.PRNGKey(0), len(shapes))
    return [
        jax.random.normal(key, shape, jnp.bfloat16) for key, shape in zip(keys, shapes, strict=True)
    ]


def flash3_prefill(count: int, length: int, heads: int, key_heads: int, size: int) -> float:
    """Dense causal sequences."""
    q, k, v = _random(*((count, length, n, size) for n in (heads, key_heads, key_heads)))

    @jax.jit
    def chain(q: Any, k: Any, v: Any) -> Any:
        for _ in range(CHAINED):
            q = flash_mha(q, k, v, is_causal=True)
        return q

    return _kernel_time(lambda: chain(q, k, v).block_until_ready())


def flash3_decode(count: int, length: int, heads: int, key_heads: int, size: int) -> float:
    """One query a sequence, pages of 64 in random order; the best number of splits."""
    pages = count * -(-length // 64)
    q, k, v = _random((count, 1, heads, size), *[(pages, 64, key_heads, size)] * 2)
    table = jax.random.permutation(jax.random.PRNGKey(1), pages).astype(jnp.int32)
    table = table.reshape(count, -1)
    lengths = jnp.full((count,), length, jnp.int32)

    def took(splits: int) -> float:
        @jax.jit
        def chain(q: Any, k: Any, v: Any, table: Any, lengths: Any) -> Any:
            for _ in range(CHAINED):
                q = flash_mha_with_kvcache(
                    q, k, v, cache_seqlens=lengths, page_table=table, num_splits=splits
                )
            return q

        return _kernel_time(lambda: chain(q, k, v, table, lengths).block_until_ready())

    return min(took(splits) for splits in SPLITS if splits <= max(1, length // 128))
