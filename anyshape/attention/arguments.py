"""What attention asks of its arguments; every error names the argument.

Shapes, dtypes and devices are looked at always; values only where they lie on the host
(`check_values`).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anyshape.attention import faults
from anyshape.attention.rules import Rules
from anyshape.kernels import checks

FLOAT_DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
PAGE_DTYPES = (*FLOAT_DTYPES, torch.float8_e4m3fn, torch.float8_e5m2)
LARGEST_HEAD = 256  # of what runs on a GPU


def make_rules(
    size: int, scale: float | None, causal: bool, window: int | None, soft_cap: float | None
) -> Rules:
    """The rules, with the defaults filled in: scale is 1 / sqrt(head size)."""
    if window is not None and window < 1:
        checks.fail("window", "at least 1, or None", window)
    if soft_cap is not None and not soft_cap > 0:
        checks.fail("soft_cap", "above 0, or None", soft_cap)
    return Rules(size**-0.5 if scale is None else scale, causal, window or 0, soft_cap or 0.0)


def check_queries(q: Tensor) -> None:
    """q [T, H, D]."""
    checks.check_tensor("q", q, 3, FLOAT_DTYPES)
    _check_last("q", q)


def check_rows(argument: str, value: Tensor, like: Tensor) -> None:
    """Packed keys or values [rows, KH, size], of q's dtype."""
    checks.check_tensor(argument, value, 3, (like.dtype,))
    checks.check_device(argument, value, like)
    _check_last(argument, value)


def check_pages(k_pages: Tensor, v_pages: Tensor, like: Tensor, name: str) -> None:
    """k_pages [P, page_size, KH, D] and v_pages [P, page_size, KH, DV]."""
    for argument, pages in (("k_pages", k_pages), ("v_pages", v_pages)):
        checks.check_tensor(argument, pages, 4, PAGE_DTYPES)
        checks.check_device(argument, pages, like)
        _check_last(argument, pages)
        if pages.dtype.itemsize > 1 and pages.dtype != like.dtype:
            checks.fail(argument, f"of {name}'s dtype {like.dtype}, or float8", pages.dtype)
    if v_pages.shape[:3] != k_pages.shape[:3]:
        expected = f"of shape {tuple(k_pages.shape[:3])} but for its last dimension, as k_pages"
        checks.fail("v_pages", expected, f"shape {tuple(v_pages.shape)}")
    if v_pages.dtype != k_pages.dtype:
        checks.fail("v_pages", f"of dtype {k_pages.dtype}, as k_pages", v_pages.dtype)
    if k_pages.shape[1] < 1:
        checks.fail("k_pages", "pages of at least one row", f"shape {tuple(k_pages.shape)}")


def check_heads(q: Tensor, k: Tensor, v: Tensor, names: tuple[str, str]) -> None:
    """q's heads are a multiple of the key heads, and keys are as long as queries."""
    heads, key_heads = q.shape[1], k.shape[-2]
    if key_heads < 1 or heads < 1 or heads % key_heads:
        checks.fail("q", f"of heads in a multiple of {names[0]}'s {key_heads}", heads)
    checks.check_size(names[0], k, k.dim() - 1, q.shape[2], "the head size of q")
    if q.device.type == "cpu":
        return
    for argument, value in (("q", q), (names[1], v)):
        size = value.shape[-1]
        checks.check_range(f"{argument}.shape[-1]", size, 1, LARGEST_HEAD, "the head size")


def check_starts(argument: str, starts: Tensor, like: Tensor) -> int:
    """How many sequences there is room for: starts is [S + 1]."""
    checks.check_tensor(argument, starts, 1, checks.INDEX_DTYPES)
    checks.check_device(argument, starts, like)
    if starts.shape[0] < 1:
        checks.fail(argument, "of at least one element", f"shape {tuple(starts.shape)}")
    return starts.shape[0] - 1


def check_table(page_table: Tensor, lengths: Tensor, sequences: int, like: Tensor) -> None:
    """page_table [S, C] and lengths [S]."""
    checks.check_tensor("page_table", page_table, 2, (torch.int32,))
    checks.check_size("page_table", page_table, 0, sequences, "sequences, one less than starts")
    checks.check_device("page_table", page_table, like)
    checks.check_vector("lengths", lengths, sequences, "sequences, one less than starts")
    checks.check_device("lengths", lengths, like)


def check_sequences(sequences: Tensor | None, like: Tensor) -> None:
    """A number on the device."""
    if sequences is None:
        return
    checks.check_valid("sequences", sequences, like)
    if sequences.numel() != 1:
        checks.fail("sequences", "a single number", f"shape {tuple(sequences.shape)}")


def check_scale(argument: str, scale: Tensor | None, key_heads: int, like: Tensor) -> None:
    """A float32 number, or one for each key head, on the device."""
    if scale is None:
        return
    if not isinstance(scale, Tensor):
        raise TypeError(f"{argument} must be a tensor on the device, got {type(scale).__name__}")
    if scale.dtype != torch.float32:
        checks.fail(argument, "of dtype torch.float32", scale.dtype)
    if scale.dim() > 1 or scale.numel() not in (1, key_heads):
        expected = f"a single number or one for each of {key_heads} key heads"
        checks.fail(argument, expected, f"shape {tuple(scale.shape)}")
    checks.check_device(argument, scale, like)


def check_sinks(sinks: Tensor | None, q: Tensor) -> None:
    """One number for each head of q."""
    if sinks is not None:
        checks.check_vector("sinks", sinks, q.shape[1], "heads of q", FLOAT_DTYPES)
        checks.check_device("sinks", sinks, q)


def check_out(out: Tensor, shape: tuple[int, ...], like: Tensor) -> None:
    """Where results are to be written."""
    checks.check_tensor("out", out, len(shape), (like.dtype,))
    for dim, size in enumerate(shape):
        checks.check_size("out", out, dim, size, ("rows of q", "heads of q", "value size")[dim])
    checks.check_device("out", out, like)
    _check_last("out", out)


def check_faults(value: Tensor | None, like: Tensor) -> None:
    """Where kernels note what is wrong with values."""
    if value is not None:
        checks.check_vector("faults", value, 1, "see new_faults()", (torch.int32,))
        checks.check_device("faults", value, like)


def _check_last(argument: str, value: Tensor) -> None:
    if value.shape[-1] > 1 and value.stride(-1) != 1:
        checks.fail(argument, "of stride 1 in its last dimension", f"strides {value.stride()}")


def check_values(
    starts: Sequence[int],
    lengths: Sequence[int],
    table: Tensor,
    page_size: int,
    pages: int,
    rows: int,
    *,
    writes: bool = False,
) -> None:
    """Values that the host knows: what `faults` says of those that only the device knows.

    `starts` and `lengths` are of the sequences there are. With `writes`, no two new rows may go
    to the same element.
    """
    rising = all(a <= b for a, b in zip(starts[:-1], starts[1:], strict=True))
    if starts[0] != 0 or not rising or starts[-1] > rows:
        _fail(faults.STARTS, starts)
    capacity = table.shape[1] * page_size
    for s, length in enumerate(lengths):
        least = starts[s + 1] - starts[s] if writes else 0
        if not least <= length <= capacity:
            _fail(faults.LENGTHS, f"{length} for sequence {s}, {least} to {capacity}")
    widths = torch.tensor(lengths, dtype=torch.int64).add_(page_size - 1).floor_divide_(page_size)
    used = torch.arange(table.shape[1]) < widths[:, None]
    named = table[: len(lengths)]
    wrong = (used & ((named < 0) | (named >= pages))).nonzero()
    if len(wrong):
        s, column = wrong[0].tolist()
        _fail(faults.PAGE_TABLE, f"{int(named[s, column])} for sequence {s}, of {pages} pages")
    if writes:
        _check_written(starts, lengths, table, page_size)


def _check_written(
    starts: Sequence[int], lengths: Sequence[int], table: Tensor, page_size: int
) -> None:
    written: dict[int, int] = {}
    for s, length in enumerate(lengths):
        count = starts[s + 1] - starts[s]
        if not count:
            continue
        for page in table[s, (length - count) // page_size : -(-length // page_size)].tolist():
            other = written.setdefault(page, s)
            if other != s:
                whose = f"of sequences {other} and {s}"
                checks.fail("page_table", "without a page that two write to", f"{page} {whose}")
        used = table[s, : -(-length // page_size)]
        if used.unique().numel() != used.numel():
            checks.fail("page_table", "without a page twice in a sequence", used.tolist())


def _fail(bit: int, got: object) -> None:
    argument, must = faults.FAULTS[bit]
    raise ValueError(f"{argument} must {must}, got {got}")
