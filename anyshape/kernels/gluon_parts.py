"""What kernels in Gluon that are divided into parts have in common: layouts, the ring of buffers,
tiles that are taken one by one, and how one part tells the others which tile is next.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import mbarrier

# the most numbers in one message
NUMBERS = gl.constexpr(8)


@gluon.constexpr_function
def line_layout(warps):
    return gl.BlockedLayout([1], [32], [warps], [0])


@gluon.constexpr_function
def accumulator_layout(warps, columns, k_width):
    return gl.NVMMADistributedLayout([3, 0], [warps, 1], [16, columns, k_width])


@gluon.constexpr_function
def pick(condition, yes, no):
    return yes if condition else no


@gluon.jit
def advance(slot, phase, STAGES: gl.constexpr):
    """The next stage of the ring, and the parity its barriers then have."""
    wrap = slot == STAGES - 1
    return gl.where(wrap, 0, slot + 1), gl.where(wrap, phase ^ 1, phase)


@gluon.jit
def take(counter):
    """Count one more tile as taken; how many had been is the sum of what is returned, and nobody
    waits for the answer before it is summed. (One number would be waited for at once, to be handed
    to all threads; so would an address that is the same for all lanes.)
    """
    layout: gl.constexpr = line_layout(gl.num_warps())
    THREADS: gl.constexpr = 32 * gl.num_warps()
    lane = gl.arange(0, THREADS, layout)
    one = gl.full([THREADS], 1, gl.int32, layout)
    taken = gl.atomic_add(counter + lane, one, mask=lane == 0, sem="relaxed")
    return gl.where(lane == 0, taken, 0)


@gluon.constexpr_function
def message_layout(warps):
    """Every thread has all the numbers of a message."""
    return gl.BlockedLayout([NUMBERS], [32], [warps], [0])


@gluon.jit
def make_channel(LISTENERS: gl.constexpr):
    """Room for two messages: (numbers, "full" and "empty" barriers)."""
    layout: gl.constexpr = gl.SwizzledSharedLayout(1, 1, 1, [0])
    numbers = gl.allocate_shared_memory(gl.int32, [2, NUMBERS], layout)
    full = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    empty = gl.allocate_shared_memory(gl.int64, [2, 1], mbarrier.MBarrierLayout())
    for i in gl.static_range(2):
        mbarrier.init(full.index(i), count=1)
        mbarrier.init(empty.index(i), count=LISTENERS)
    return numbers, full, empty


@gluon.jit
def send(channel, turn, parity, message, COUNT: gl.constexpr = 5):
    """Send the other warps where the next tile is: COUNT numbers."""
    numbers, full, empty = channel
    mbarrier.wait(empty.index(turn), parity)
    layout: gl.constexpr = message_layout(gl.num_warps())
    index = gl.arange(0, NUMBERS, layout)
    value = gl.zeros([NUMBERS], gl.int32, layout)
    for i in gl.static_range(COUNT):
        value = gl.where(index == i, message[i], value)
    numbers.index(turn).store(value)
    mbarrier.arrive(full.index(turn), count=1)
    return advance(turn, parity, 2)


@gluon.jit
def number_of(value, I: gl.constexpr):
    index = gl.arange(0, NUMBERS, value.type.layout)
    return gl.sum(gl.where(index == I, value, 0), 0)


@gluon.jit
def receive_numbers(channel, turn, parity):
    """The numbers of the next message (see `number_of`), and where the one behind it will be."""
    numbers, full, empty = channel
    mbarrier.wait(full.index(turn), parity)
    value = numbers.index(turn).load(message_layout(gl.num_warps()))
    mbarrier.arrive(empty.index(turn), count=1)
    turn, parity = advance(turn, parity, 2)
    return value, turn, parity
