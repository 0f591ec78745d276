"""What the kernels for Hopper have in common: which work there is, where pages lie, and scores."""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier, tma

LOG2E = gl.constexpr(1.4426950408889634)
LN2 = gl.constexpr(0.6931471805599453)
# elements of a row that lie together in shared memory: 128 bytes, as far as rows are swizzled
CHUNK = gl.constexpr(64)
STARTS = gl.constexpr(1)
LENGTHS = gl.constexpr(2)
PAGE_TABLE = gl.constexpr(4)
MAX_QUERIES = gl.constexpr(8)


@gluon.jit
def add(a, b):
    return a + b


@gluon.jit
def rows_at(starts, s, real, rows):
    """(first row, how many) of sequences, within the `rows` there are."""
    start = gl.load(starts + s, mask=real, other=0).to(gl.int32)
    end = gl.load(starts + s + 1, mask=real, other=0).to(gl.int32)
    start = gl.minimum(gl.maximum(start, 0), rows)
    return start, gl.minimum(gl.maximum(end, start), rows) - start


@gluon.jit
def keys_at(lengths, s, real, most, PAGED: gl.constexpr):
    """(first key, keys) of sequences; see `triton_plan.keys_of`."""
    if PAGED:
        length = gl.load(lengths + s, mask=real, other=0).to(gl.int32)
        return length * 0, gl.minimum(gl.maximum(length, 0), most)
    else:
        return rows_at(lengths, s, real, most)


@gluon.jit
def count_of(sequences, capacity, GIVEN: gl.constexpr):
    """How many sequences there are."""
    count = capacity
    if GIVEN:
        count = gl.minimum(gl.maximum(gl.load(sequences).to(gl.int32), 0), capacity)
    return count


@gluon.jit
def sequence_of(step, ends):
    """(the sequence that a step belongs to, its first step); `ends` are all past-the-last steps."""
    past = ends <= step
    return gl.sum(past.to(gl.int32), 0), gl.max(gl.where(past, ends, 0), 0)


@gluon.jit
def range_at(first, last, keys, window, SET: gl.constexpr):
    """Tiles of keys for queries at positions `first` to `last`: (first, first that all see, past
    the last that all see, past the last). There is one at least.
    """
    low = keys * 0
    high = keys
    from_all = keys * 0
    to_all = keys
    if SET.causal:
        high = gl.minimum(last + 1, keys)
        to_all = gl.minimum(first + 1, keys)
    if SET.windowed:
        low = gl.minimum(gl.maximum(first - window + 1, 0), keys)
        from_all = gl.maximum(last - window + 1, 0)
        if not SET.causal:
            high = gl.minimum(last + window, keys)
            to_all = gl.minimum(first + window, keys)
    low = low // SET.bn
    high = gl.maximum((gl.maximum(high, 0) + SET.bn - 1) // SET.bn, low + 1)
    return low, (from_all + SET.bn - 1) // SET.bn, gl.maximum(to_all, 0) // SET.bn, high


@gluon.jit
def load_tile(
    desc, buffers, bar, slot, tile, key_first, keys, head, table, steps, SET: gl.constexpr,
    CHUNKS: gl.constexpr,
):  # fmt: skip
    """Start loading a tile of keys or values: a box of SET.box rows and CHUNK columns at a time,
    each within a page. Boxes without a row of the sequence are left out. Returns whether a page
    does not exist: nothing is read then, as the copy engine knows how many rows there are.
    """
    row_page, row_head, column_head, pages = steps
    bad = keys < 0
    BOXES: gl.constexpr = SET.bn // SET.box
    first = tile * SET.bn
    live = gl.minimum((gl.maximum(keys - first, 0) + SET.box - 1) // SET.box, BOXES)
    for i in gl.static_range(BOXES + 1):
        mbarrier.expect(bar, i * CHUNKS * desc.block_type.nbytes, pred=live == i)
    for i in gl.static_range(BOXES):
        j = first + i * SET.box
        if SET.page:
            page = gl.load(table + j // SET.page, mask=i < live, other=0)
            bad = bad | (page < 0) | (page >= pages)
            page = gl.where((page < 0) | (page >= pages), -1, page)
            row = page * row_page + j % SET.page
        else:
            row = key_first + j
        row += head * row_head
        for c in gl.static_range(CHUNKS):
            tma.async_copy_global_to_shared(
                desc,
                [row, head * column_head + c * CHUNK],
                bar,
                buffers.index((slot * CHUNKS + c) * BOXES + i),
                pred=i < live,
            )
    return bad


@gluon.jit
def note_faults(faults, starts, lengths, s, real, rows, most, LIMIT: gl.constexpr):
    """Set the bits of what is wrong with starts and lengths; see `triton_plan.note_faults`."""
    start = gl.load(starts + s, mask=real, other=0)
    end = gl.load(starts + s + 1, mask=real, other=0)
    wrong = real & ((start < 0) | (end < start) | (end > rows) | ((s == 0) & (start != 0)))
    length = gl.load(lengths + s, mask=real, other=0)
    long = real & ((length < 0) | (length > most))
    bits = gl.max(wrong.to(gl.int32), 0) * STARTS + gl.max(long.to(gl.int32), 0) * LENGTHS
    if LIMIT:
        many = real & (end - start > LIMIT)
        bits += gl.max(many.to(gl.int32), 0) * MAX_QUERIES
    if bits != 0:
        gl.atomic_or(faults, bits)


@gluon.jit
def zero_tail(out, totals, end, rows, strides, LAYOUT: gl.constexpr, SET: gl.constexpr):
    """Zeros in the rows from `end` on, which belong to no sequence; every program takes some."""
    out_token, out_head, totals_token = strides
    DV: gl.constexpr = SET.value_size
    column = gl.arange(0, DV, LAYOUT)
    nothing = gl.zeros([DV], out.dtype.element_ty, LAYOUT)
    for row in range(end + gl.program_id(0), rows, gl.num_programs(0)):
        for head in range(SET.heads * SET.group):
            gl.store(out + row.to(gl.int64) * out_token + head * out_head + column, nothing)
            if SET.totals:
                gl.store(totals + row.to(gl.int64) * totals_token + head, 0.0)


@gluon.jit
def scores_of(products, factor, soft_cap, SET: gl.constexpr):
    """(scores of products of queries and keys, what makes them units of log2)."""
    if SET.capped:
        bent = 1.0 - 2.0 / (1.0 + power_of_2(products * (factor / soft_cap * 2.0 * LOG2E)))
        return bent, soft_cap * LOG2E
    else:
        return products, factor * LOG2E


@gluon.jit
def power_of_2(x):
    """2 to the x in one instruction; what would be subnormal is 0."""
    return gl.inline_asm_elementwise(
        "ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], dtype=gl.float32, is_pure=True, pack=1
    )


@gluon.jit
def hold(sums):
    """The same sums, which are 0 or more, and NaN perhaps: made before whatever follows in the
    program. The assembler moves arithmetic freely, but not a barrier whose threads depend on it.
    """
    return gl.inline_asm_elementwise(
        "{ .reg .pred p; .reg .b32 m; setp.geu.f32 p, $1, 0f00000000; "
        "selp.b32 m, 0xffffffff, 0, p; bar.warp.sync m; mov.b32 $0, $1; }",
        "=f,f",
        [sums],
        dtype=gl.float32,
        is_pure=False,
        pack=1,
    )


@gluon.jit
def see(scores, j, position, keys, window, SET: gl.constexpr):
    """Scores with -inf where a query (a row) does not see a key (a column)."""
    seen = j < keys
    if SET.causal:
        seen = seen & (j <= position)
    if SET.windowed:
        seen = seen & (j - position > -window)
        if not SET.causal:
            seen = seen & (j - position < window)
    return gl.where(seen, scores, float("-inf"))
