"""Model graphs made of rows, as capture would make them."""

from __future__ import annotations

from typing import Any

from programs import Sketch

from anyshape.ir import dtypes


def rms_norm(b: Any, x: Any, w: Any, eps: float = 1e-6) -> Any:
    wide = b.to_dtype(x, dtypes.float32)
    variance = b.mean(b.pow(wide, 2), (-1,), True)
    return b.mul(w, b.to_dtype(b.mul(wide, b.rsqrt(b.add(variance, eps))), x.dtype))


def rotate_half(b: Any, x: Any) -> Any:
    half = x.shape[-1] // 2
    return b.cat((b.neg(b.slice(x, 3, half, half)), b.slice(x, 3, 0, half)), 3)


def rotary(b: Any, q: Any, cos: Any, sin: Any) -> Any:
    return b.add(b.mul(q, cos), b.mul(rotate_half(b, q), sin))


def llama(layers: int, dtype: Any = dtypes.float32, hidden: int = 256, heads: int = 4) -> Any:
    """(sketch, graph) of a small Llama over tokens (batch, length)."""
    sketch = Sketch()
    b = sketch.builder
    head = hidden // heads
    tokens = sketch.input("s0 s1", dtypes.int64)
    batch, length = tokens.shape

    def weight(*shape: int) -> Any:
        return sketch.input(" ".join(map(str, shape)), dtype)

    x = b.embedding(tokens, weight(1000, hidden))
    positions = b.unsqueeze(b.arange(length, 0, 1, dtypes.int64, "cpu"), 0)
    frequencies = sketch.input(f"{head // 2}")
    grid = b.matmul(
        b.expand(b.reshape(frequencies, (1, head // 2, 1)), (1, head // 2, 1)),
        b.to_dtype(b.unsqueeze(positions, 1), dtypes.float32),
    )
    angles = b.transpose(grid, 1, 2)
    both = b.cat((angles, angles), 2)
    cos = b.unsqueeze(b.to_dtype(b.mul(b.cos(both), 1.0), dtype), 1)
    sin = b.unsqueeze(b.to_dtype(b.mul(b.sin(both), 1.0), dtype), 1)
    for _ in range(layers):
        h = rms_norm(b, x, weight(hidden))

        def split(t: Any) -> Any:
            return b.transpose(b.reshape(t, (batch, length, heads, head)), 1, 2)

        q, k, v = (split(b.linear(h, weight(hidden, hidden))) for _ in range(3))
        q, k = rotary(b, q, cos, sin), rotary(b, k, cos, sin)
        scores = b.mul(b.matmul(q, b.transpose(k, 2, 3)), head**-0.5)
        row = b.unsqueeze(b.arange(length, 0, 1, dtypes.int64, "cpu"), 1)
        allowed = b.le(b.arange(length, 0, 1, dtypes.int64, "cpu"), row)
        scores = b.where(allowed, scores, -1e30)
        probs = b.to_dtype(b.softmax(b.to_dtype(scores, dtypes.float32), -1), dtype)
        o = b.reshape(b.transpose(b.matmul(probs, v), 1, 2), (batch, length, hidden))
        x = b.add(x, b.linear(o, weight(hidden, hidden)))
        h = rms_norm(b, x, weight(hidden))
        gate = b.silu(b.linear(h, weight(2 * hidden, hidden)))
        up = b.linear(h, weight(2 * hidden, hidden))
        x = b.add(x, b.linear(b.mul(gate, up), weight(hidden, 2 * hidden)))
    x = rms_norm(b, x, weight(hidden))
    return sketch, sketch.finish(b.linear(x, weight(1000, hidden)))
