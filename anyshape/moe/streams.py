"""Work beside the main stream: the shared expert, and what is so small that only waiting for it
would cost.

In: a computation. Out: a function that waits for its result. Inside a CUDA graph a fork costs
nothing, so there even a memset goes aside; outside it costs the host a few microseconds.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

# Above this many tokens the shared expert alone fills the GPU, and a second stream only adds waits
# (benchmarks/moe.py prints both, so that the number can be checked again).
TWO_STREAM_TOKENS = 1024


def pays_to_fork(tokens: Tensor) -> bool:
    """Whether the shared expert of so few tokens leaves room for the router beside it."""
    if not tokens.is_cuda or torch.compiler.is_compiling():
        return False
    return tokens.shape[0] <= TWO_STREAM_TOKENS


def is_capturing(tokens: Tensor) -> bool:
    """Whether a CUDA graph is being recorded, in which a fork is free."""
    return tokens.is_cuda and torch.cuda.is_current_stream_capturing()


def fork(tokens: Tensor, aside: bool) -> torch.cuda.Event | None:
    """The point in the stream from which work aside may run; None for no work aside."""
    return torch.cuda.current_stream(tokens.device).record_event() if aside else None


def start(
    compute: Callable[[], Tensor], since: torch.cuda.Event | None, *inputs: Tensor
) -> Callable[[], Tensor]:
    """Starts compute(), on the side stream from `since` on; what comes back waits for its result.

    `inputs` are the tensors that compute() reads: their memory is kept until it is done.
    """
    if since is None:
        result = compute()
        return lambda: result
    main, side = torch.cuda.current_stream(inputs[0].device), side_stream(inputs[0].device)
    side.wait_event(since)
    with torch.cuda.stream(side):
        out = compute()
    for tensor in inputs:
        tensor.record_stream(side)
    done = side.record_event()

    def wait() -> Tensor:
        main.wait_event(done)
        out.record_stream(main)
        return out

    return wait


@functools.cache
def side_stream(device: torch.device) -> torch.cuda.Stream:
    """The second stream of `device`, one for all layers: the allocator keeps a pool for each."""
    return torch.cuda.Stream(device)
