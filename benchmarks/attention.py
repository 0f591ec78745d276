"""Attention on one GPU beside its peers; prints the tables and writes them to a file.

    python -m benchmarks.attention OUT_FOLDER [TABLE…]
    python -m benchmarks.attention --figures FILE…     # writes the tables into docs/attention.md

Peers: torch's flash and cuDNN attention on dense keys (without pages, so with less to do),
`varlen_attn` and flex, and where they are installed FlashInfer and FlashAttention 3
(`benchmarks/attention_peers.py`). A time is the median over replays of a CUDA graph that takes
several input sets in turn; the graphs of a row are replayed one after the other in each round, so
that all see the same clocks.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from anyshape.attention import ragged_attention, ragged_paged_attention
from benchmarks import attention_peers
from benchmarks.moe_kernels import ceilings, measure

HEADS, KEY_HEADS, SIZE = 32, 8, 128
# more than the L2 holds, so that every call reads from memory
ROTATED_BYTES = 2**28


@dataclass(frozen=True, slots=True)
class Row:
    """What was measured: bytes that must be read, operations, and microseconds by name."""

    table: str
    name: str
    bytes: float
    operations: float
    times: Mapping[str, float]

    def rate(self, name: str) -> str:
        """TB/s or TFLOP/s of one of the times."""
        took = self.times[name]
        if self.operations:
            return f"{self.operations / took / 1e6:.0f}"
        return f"{self.bytes / took / 1e6:.2f}"

    @property
    def factor(self) -> float:
        """The best peer's time over ours."""
        others = [took for name, took in self.times.items() if not name.startswith("ours")]
        return min(others, default=math.nan) / self.times["ours"]

    def text(self) -> str:
        cells = "  ".join(f"{n} {t:.1f} us {self.rate(n)}" for n, t in self.times.items())
        return f"{self.table:8} {self.name:28} {cells}  best peer / ours {self.factor:.2f}"


@dataclass(frozen=True, slots=True)
class Paged:
    """A batch on the GPU, its pages in random order, and rows of heads together (`by_head`)."""

    q: Tensor
    k_pages: Tensor
    v_pages: Tensor
    page_table: Tensor
    starts: Tensor
    lengths: Tensor

    def positional(self) -> tuple[Tensor, ...]:
        return self.q, self.k_pages, self.v_pages, self.page_table, self.starts, self.lengths


def paged(
    queries: Sequence[int],
    keys: Sequence[int],
    page_size: int = 64,
    *,
    by_head: bool = True,
    dtype: torch.dtype = torch.bfloat16,
) -> Paged:
    """A batch of these sequences."""
    widths = [-(-length // page_size) for length in keys]
    order = torch.randperm(sum(widths), device="cuda", dtype=torch.int32)
    table = torch.zeros(len(keys), max(widths), dtype=torch.int32, device="cuda")
    at = 0
    for s, width in enumerate(widths):
        table[s, :width] = order[at : at + width]
        at += width
    shape = (at, KEY_HEADS, page_size, SIZE) if by_head else (at, page_size, KEY_HEADS, SIZE)
    pages = [torch.randn(shape, device="cuda", dtype=torch.bfloat16).to(dtype) for _ in range(2)]
    if by_head:
        pages = [x.transpose(1, 2) for x in pages]
    q = torch.randn(sum(queries), HEADS, SIZE, device="cuda", dtype=torch.bfloat16)
    starts = torch.tensor([0, *queries], device="cuda").cumsum(0).int()
    lengths = torch.tensor(keys, dtype=torch.int32, device="cuda")
    return Paged(q, *pages, table, starts, lengths)


def copies(nbytes: float) -> int:
    """How many input sets are taken in turn."""
    return max(1, min(16, math.ceil(ROTATED_BYTES / max(1.0, nbytes))))


def dense_decode(count: int, length: int, sets: int) -> dict[str, list[Callable[[], object]]]:
    """torch's attention on dense keys."""
    inputs = []
    for _ in range(sets):
        q = torch.randn(count, HEADS, 1, SIZE, device="cuda", dtype=torch.bfloat16)
        k, v = (
            torch.randn(count, KEY_HEADS, length, SIZE, device="cuda", dtype=torch.bfloat16)
            for _ in range(2)
        )
        inputs.append((q, k, v))
    return peers(inputs, causal=False)


def peers(
    inputs: Sequence[tuple[Tensor, Tensor, Tensor]], *, causal: bool
) -> dict[str, list[Callable[[], object]]]:
    """Calls of torch's two fastest backends."""

    def call(backend: SDPBackend, given: tuple[Tensor, Tensor, Tensor]) -> Callable[[], object]:
        def run() -> object:
            with sdpa_kernel(backend):
                return scaled_dot_product_attention(*given, is_causal=causal, enable_gqa=True)

        return run

    backends = {"flash": SDPBackend.FLASH_ATTENTION, "cuDNN": SDPBackend.CUDNN_ATTENTION}
    return {name: [call(backend, given) for given in inputs] for name, backend in backends.items()}


DECODE = (
    (1, 131072), (16, 8192), (64, 4096), (256, 1024), (64, 512),
    (1, 128), (1, 1024), (1, 8192), (8, 1024), (8, 16384), (32, 2048), (256, 128), (128, 4096),
)  # fmt: skip


def uneven(count: int, most: int, least: int) -> list[int]:
    """Lengths that are drawn evenly."""
    generator = torch.Generator().manual_seed(count)
    return torch.randint(least, most, (count,), generator=generator).tolist()


UNEVEN = {
    "16, 1,024 to 8,192": uneven(16, 8192, 1024),
    "64, 512 to 4,096": uneven(64, 4096, 512),
    "256, 1 to 4,096": uneven(256, 4096, 1),
    "1 of 131,072, 63 of 512": [131072] + [512] * 63,
    "4 of 32,768, 252 of 128": [32768] * 4 + [128] * 252,
}


def decode_rows(page_size: int = 64) -> list[Row]:
    rows = []
    for count, length in DECODE:
        nbytes = 4.0 * count * length * KEY_HEADS * SIZE
        sets = copies(nbytes)
        ours = [paged([1] * count, [length] * count, page_size) for _ in range(sets)]
        candidates = decoding(ours) | dense_decode(count, length, sets) | published(ours)
        times = measure(candidates)
        if attention_peers.jax is not None and nbytes >= ROTATED_BYTES:
            times["FA3"] = attention_peers.flash3_decode(count, length, HEADS, KEY_HEADS, SIZE)
        rows.append(Row("decode", f"{count} x {length:,}", nbytes, 0, times))
        print(rows[-1].text(), flush=True)
    for name, lengths in UNEVEN.items():
        nbytes = 4.0 * sum(lengths) * KEY_HEADS * SIZE
        ours = [paged([1] * len(lengths), lengths, page_size) for _ in range(copies(nbytes))]
        candidates = decoding(ours) | published(ours)
        if name in list(UNEVEN)[:2]:
            candidates |= flexible(lengths)
        rows.append(Row("decode", name, nbytes, 0, measure(candidates)))
        print(rows[-1].text(), flush=True)
    return rows


def layout_rows() -> list[Row]:
    """The same decoding with other pages."""
    rows = []
    count, length = 16, 8192
    for name, page_size, by_head, dtype in (
        ("pages of 16", 16, True, torch.bfloat16),
        ("pages of 256", 256, True, torch.bfloat16),
        ("heads of a row together", 64, False, torch.bfloat16),
        ("pages of 16, heads together", 16, False, torch.bfloat16),
        ("float8", 64, True, torch.float8_e4m3fn),
    ):
        nbytes = 2.0 * dtype.itemsize * count * length * KEY_HEADS * SIZE
        batches = [
            paged([1] * count, [length] * count, page_size, by_head=by_head, dtype=dtype)
            for _ in range(copies(nbytes))
        ]
        rows.append(Row("pages", f"16 x 8,192, {name}", nbytes, 0, measure(decoding(batches))))
        print(rows[-1].text(), flush=True)
    return rows


def gradient_rows() -> list[Row]:
    """Packed causal sequences forward and backward, beside torch's on dense ones."""
    rows = []
    for count, length in ((8, 2048), (2, 8192)):
        total = count * length
        packed = [
            torch.randn(
                *(total, heads, SIZE), device="cuda", dtype=torch.bfloat16, requires_grad=True
            )
            for heads in (HEADS, KEY_HEADS, KEY_HEADS)
        ]
        starts = torch.arange(0, total + 1, length, device="cuda", dtype=torch.int32)
        grad = torch.randn(total, HEADS, SIZE, device="cuda", dtype=torch.bfloat16)
        dense = [
            torch.randn(
                *(count, HEADS, length, SIZE),
                device="cuda",
                dtype=torch.bfloat16,
                requires_grad=True,
            )
            for _ in range(3)
        ]
        dense_grad = torch.randn(count, HEADS, length, SIZE, device="cuda", dtype=torch.bfloat16)

        def ours(
            packed: Sequence[Tensor] = packed, starts: Tensor = starts, grad: Tensor = grad
        ) -> object:
            out = ragged_attention(*packed, starts, causal=True)
            return torch.autograd.grad(out, packed, grad)

        def flash(dense: Sequence[Tensor] = dense, grad: Tensor = dense_grad) -> object:
            with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
                out = scaled_dot_product_attention(*dense, is_causal=True)
            return torch.autograd.grad(out, dense, grad)

        times = measure({"ours": [ours], "flash, keys repeated": [flash]}, iterations=4)
        operations = 3.5 * causal_operations([length] * count)
        rows.append(Row("training", f"{count} x {length:,}", 0, operations, times))
        print(rows[-1].text(), flush=True)
    return rows


def decoding(batches: Sequence[Paged]) -> dict[str, list[Callable[[], object]]]:
    """Ours, with a hint that there is one query each; without; and without regard to the others."""

    def call(batch: Paged, **keywords: object) -> Callable[[], object]:
        return lambda: ragged_paged_attention(*batch.positional(), **keywords)

    return {
        "ours": [call(batch, max_queries=1) for batch in batches],
        "ours, no hint": [call(batch) for batch in batches],
        "ours, invariant": [call(batch, max_queries=1, batch_invariant=True) for batch in batches],
    }


def published(batches: Sequence[Paged]) -> dict[str, list[Callable[[], object]]]:
    """FlashInfer, where it is installed."""
    if attention_peers.flashinfer is None:
        return {}
    return {
        "FlashInfer": [
            attention_peers.flashinfer_call(batch, HEADS, KEY_HEADS) for batch in batches
        ]
    }


def flexible(lengths: Sequence[int]) -> dict[str, list[Callable[[], object]]]:
    """flex attention on padded keys."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention  # noqa: PLC0415

    compiled = torch.compile(flex_attention)
    most, count = max(lengths), len(lengths)
    limit = torch.tensor(lengths, device="cuda")
    q = torch.randn(count, HEADS, 1, SIZE, device="cuda", dtype=torch.bfloat16)
    k = torch.randn(count, KEY_HEADS, most, SIZE, device="cuda", dtype=torch.bfloat16)
    v = torch.randn_like(k)
    mask = create_block_mask(lambda b, h, i, j: j < limit[b], count, None, 1, most, device="cuda")
    return {"flex": [lambda: compiled(q, k, v, block_mask=mask, enable_gqa=True)]}


PREFILL = ((8, 2048), (2, 8192), (1, 32768), (16, 512))


def causal_operations(lengths: Sequence[int]) -> float:
    return sum(2.0 * length**2 * HEADS * SIZE for length in lengths)


def prefill_rows(page_size: int = 64) -> list[Row]:
    rows = []
    lengths_of = {f"{count} x {length:,}": [length] * count for count, length in PREFILL}
    generator = torch.Generator().manual_seed(0)
    lengths_of["16 uneven, 64 to 4,096"] = torch.randint(
        64, 4096, (16,), generator=generator
    ).tolist()
    for name, lengths in lengths_of.items():
        batch = paged(lengths, lengths, page_size)
        total = sum(lengths)
        k, v = (
            torch.randn(total, KEY_HEADS, SIZE, device="cuda", dtype=torch.bfloat16)
            for _ in range(2)
        )
        candidates: dict[str, list[Callable[[], object]]] = {
            "ours": [lambda b=batch: ragged_paged_attention(*b.positional())],
            "ours, packed": [
                lambda b=batch, k=k, v=v: ragged_attention(b.q, k, v, b.starts, causal=True)
            ],
        }
        candidates |= published([batch])
        if len(set(lengths)) == 1:
            count, length = len(lengths), lengths[0]
            q = torch.randn(count, HEADS, length, SIZE, device="cuda", dtype=torch.bfloat16)
            dense = [
                torch.randn(count, KEY_HEADS, length, SIZE, device="cuda", dtype=torch.bfloat16)
                for _ in range(2)
            ]
            candidates |= peers([(q, *dense)], causal=True)
        else:
            candidates |= variable(batch, k, v, max(lengths))
        times = measure(candidates, iterations=4)
        if attention_peers.jax is not None and len(set(lengths)) == 1:
            times["FA3"] = attention_peers.flash3_prefill(
                *(len(lengths), lengths[0], HEADS, KEY_HEADS, SIZE)
            )
        rows.append(Row("prefill", name, 0, causal_operations(lengths), times))
        print(rows[-1].text(), flush=True)
    return rows


def variable(
    batch: Paged, k: Tensor, v: Tensor, longest: int
) -> dict[str, list[Callable[[], object]]]:
    """torch's varlen_attn, keys repeated beforehand where it has no grouped heads."""
    from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415

    group = HEADS // KEY_HEADS
    wide = [x.repeat_interleave(group, 1) for x in (k, v)]
    return {
        "varlen": [
            lambda: varlen_attn(
                *(batch.q, *wide, batch.starts, batch.starts, longest, longest),
                window_size=(-1, 0),
            )
        ]
    }


def mixed_rows(page_size: int = 64) -> list[Row]:
    """One prefill among many decodes, and each alone."""
    rows = []
    for length in (1024, 4096):
        both = paged([2048] + [1] * 64, [2048] + [length] * 64, page_size)
        one = paged([2048], [2048], page_size)
        many = paged([1] * 64, [length] * 64, page_size)
        times = measure(
            {
                "ours": [lambda b=both: ragged_paged_attention(*b.positional())],
                "ours, prefill alone": [lambda b=one: ragged_paged_attention(*b.positional())],
                "ours, decodes alone": [
                    lambda b=many: ragged_paged_attention(*b.positional(), max_queries=1)
                ],
            }
        )
        nbytes = 4.0 * (2048 + 64 * length) * KEY_HEADS * SIZE
        rows.append(Row("mixed", f"2,048 and 64 x 1 of {length:,}", nbytes, 0, times))
        alone = times["ours, prefill alone"] + times["ours, decodes alone"]
        print(rows[-1].text(), f"together / sum {times['ours'] / alone:.2f}", flush=True)
    return rows


TABLES: Mapping[str, Callable[[], list[Row]]] = {
    "decode": decode_rows,
    "prefill": prefill_rows,
    "mixed": mixed_rows,
    "pages": layout_rows,
    "training": gradient_rows,
}


PAGE = Path(__file__).parents[1] / "docs" / "attention.md"
UNITS = {"prefill": "TFLOP/s", "training": "TFLOP/s", "mixed": ""}


def markdown(table: str, rows: Sequence[Row]) -> str:
    """Microseconds and rates of a table's rows."""
    names = list(dict.fromkeys(name for row in rows for name in row.times))
    unit = UNITS.get(table, "TB/s")
    lines = [
        f"**{table}** (us" + (f", and {unit} in brackets)" if unit else ")"),
        "",
        "| | " + " | ".join(names) + " | best peer / ours |",
        "|---" * (len(names) + 2) + "|",
    ]
    for row in rows:
        cells = [
            f"{row.times[name]:.1f}" + (f" ({row.rate(name)})" if unit else "")
            if name in row.times
            else "-"
            for name in names
        ]
        factor = "-" if math.isnan(row.factor) else f"{row.factor:.2f}"
        lines.append("| " + " | ".join([row.name, *cells, factor]) + " |")
    return "\n".join(lines)


def write_figures(found: Mapping[str, Any]) -> None:
    """Replaces the tables between the marks of docs/attention.md."""
    rows = [
        Row(row["table"], row["name"], row["bytes"], row["operations"], row["us"])
        for row in found["rows"]
    ]
    tables = dict.fromkeys(row.table for row in rows)
    parts = [
        f"{found['device']}, torch {found['torch']}, Triton {found['triton']}, {found['date']}; "
        + ", ".join(f"{name} {value:.2f}" for name, value in found["ceilings"].items())
    ]
    parts += [markdown(table, [row for row in rows if row.table == table]) for table in tables]
    begin, end = "<!-- figures of benchmarks/attention.py -->", "<!-- end of figures -->"
    before, rest = PAGE.read_text().split(begin, 1)
    after = rest.split(end, 1)[1]
    PAGE.write_text(before + begin + "\n" + "\n\n".join(parts) + "\n" + end + after)


def write(path: Path, found: Mapping[str, float], rows: Sequence[Row]) -> None:
    """What was measured so far."""
    written = {
        "date": time.strftime("%Y-%m-%d"),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "ceilings": found,
        "rows": [
            {
                "table": row.table,
                "name": row.name,
                "bytes": row.bytes,
                "operations": row.operations,
                "us": dict(row.times),
            }
            for row in rows
        ],
    }
    path.write_text(json.dumps(written, indent=1))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("tables", nargs="*", default=list(TABLES))
    parser.add_argument("--figures", type=Path, nargs="+", help="write these files' tables")
    arguments = parser.parse_args()
    if arguments.figures:
        read = [json.loads(path.read_text()) for path in arguments.figures]
        write_figures(read[0] | {"rows": [row for found in read for row in found["rows"]]})
        return
    found = ceilings()
    print(found, flush=True)
    rows: list[Row] = []
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name in arguments.tables:
        rows += TABLES[name]()
        write(arguments.out / "attention.json", found, rows)


if __name__ == "__main__":
    main()
