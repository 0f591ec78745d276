"""One recording of a layer for every number of tokens up to a bound.

In: a layer and the bound. Out: a callable with static buffers, in which the number of tokens lives
on the device. On CUDA it is one CUDA graph; kernels read the true number and skip the padding. On
the CPU there is nothing to record, and the padded layer simply runs: same buffers, same results.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from anyshape.kernels import checks

WARM_UP_CALLS = 3  # Triton compiles and tunes in the first, the allocator settles in the next


class Graphed:
    """`forward(tokens [bound, D], valid_tokens=int32 [1])`, recorded once for 0 to bound tokens.

    `watch` is called with the output of each replay.
    """

    def __init__(
        self,
        forward: Callable[..., Tensor],
        max_tokens: int,
        hidden_size: int,
        watch: Callable[[Tensor], None] | None = None,
        *,
        dtype: torch.dtype,
        device: torch.device,
    ) -> None:
        self.max_tokens = max_tokens
        self._forward, self._watch = forward, watch
        self._tokens = torch.zeros(max_tokens, hidden_size, dtype=dtype, device=device)
        self._valid = torch.full((1,), max_tokens, dtype=torch.int32, device=device)
        self._recorded = self._record() if device.type == "cuda" else None

    @torch.no_grad()
    def _run(self) -> Tensor:
        return self._forward(self._tokens, valid_tokens=self._valid)

    def _record(self) -> tuple[torch.cuda.CUDAGraph, Tensor]:
        graph = torch.cuda.CUDAGraph()
        side = torch.cuda.Stream(self._tokens.device)
        side.wait_stream(torch.cuda.current_stream(self._tokens.device))
        with torch.cuda.stream(side):
            for _ in range(WARM_UP_CALLS):
                self._run()
        torch.cuda.current_stream(self._tokens.device).wait_stream(side)
        # High priority: what is forked off inside comes second. thread_local: NCCL's watchdog may
        # go on with its own calls meanwhile.
        stream = torch.cuda.Stream(self._tokens.device, priority=-1)
        with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
            out = self._run()
        return graph, out

    def __call__(self, x: Tensor) -> Tensor:
        """x [..., D] of up to `max_tokens` tokens -> the same shape, until the next call.

        Copies the tokens in; a caller that writes them into `tokens(n)` itself calls `replay(n)`
        instead.
        """
        tokens = x.reshape(-1, self._tokens.shape[1])
        self.tokens(tokens.shape[0]).copy_(tokens)
        return self.replay(tokens.shape[0]).view(x.shape)

    def tokens(self, count: int) -> Tensor:
        """The first `count` rows of the static input."""
        checks.check_range("the number of tokens", count, 0, self.max_tokens, "max_tokens")
        return self._tokens[:count]

    def replay(self, count: int) -> Tensor:
        """Runs on the first `count` rows of the static input; returns as many of the output."""
        self._valid.fill_(count)
        if self._recorded is None:
            return self._run()[:count]
        graph, out = self._recorded
        graph.replay()
        if self._watch is not None:
            self._watch(out)
        return out[:count]
