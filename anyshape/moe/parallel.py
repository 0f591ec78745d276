"""A mixture-of-experts layer over several ranks: tensor parallel, expert parallel, or both.

In: this rank's tokens. Out: this rank's results. Tensor parallel splits every expert's columns,
expert parallel splits the experts. Expert parallel has two forms: *dynamic* sends each row to the
rank that owns its expert (all-to-all of the true sizes; one device-to-host copy a call, hidden
behind the shared expert), *static* lets every rank see all tokens (all-gather, reduce-scatter; no
size on the host, so a CUDA graph can hold it). docs/moe.md has pictures of both.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from anyshape.kernels import checks
from anyshape.moe.experts import Activation, Experts, Fp8Experts, Fp8Rows, TokenRows
from anyshape.moe.gather import scatter_add
from anyshape.moe.graphed import Graphed
from anyshape.moe.layer import (
    MoE,
    add_routed,
    check_tokens,
    inference_only,
    new_zeros,
    start_shared,
)
from anyshape.moe.mesh import Axis, HostCopy, Mesh, agree, compare
from anyshape.moe.router import Plan, Router, Routing
from anyshape.moe.shared import SharedExpert
from anyshape.moe.shuffling import combine_shuffling, index_shuffling, split_shuffling
from anyshape.moe.streams import fork, pays_to_fork


@dataclass(frozen=True, slots=True)
class Exchange:
    """How tokens travel.

    `mode`: "dynamic" or "static", see the module. `deduplicate`: tensor-parallel ranks, which have
    the same tokens, each send their share over the expert axis instead of all of them sending
    everything. `sequence_parallel`: each tensor-parallel rank comes with its own equal share of the
    tokens and leaves with it, so the all-reduce is a reduce-scatter. `verify`: compare the number
    of tokens among the ranks that must have the same "always" (one small collective and a sync; the
    default over gloo) or for each "new" number only (the default otherwise).
    """

    mode: Literal["dynamic", "static"] = "dynamic"
    deduplicate: bool = True
    sequence_parallel: bool = False
    verify: Literal["always", "new", "auto"] = "auto"

    def __post_init__(self) -> None:
        checks.check_choice("mode", self.mode, ("dynamic", "static"))
        checks.check_choice("verify", self.verify, ("always", "new", "auto"))


class ParallelMoE(nn.Module):
    """One rank's part of a layer; every rank of the mesh makes and calls it in the same order.

    x [..., D] -> [..., D]; in the static mode with `valid_tokens` (int32 [1]) as in `MoE`, the
    number of tokens being the same on every rank. Making it compares the settings of all ranks
    (E152 if they differ).
    """

    router: Router
    experts: Experts | Fp8Experts
    shared: SharedExpert | None

    def __init__(
        self,
        router: Router,
        experts: Experts | Fp8Experts,
        shared: SharedExpert | None,
        routing: Routing,
        mesh: Mesh,
        exchange: Exchange | None = None,
    ) -> None:
        super().__init__()
        self.router, self.experts, self.shared = router, experts, shared
        self.routing, self.mesh = routing, mesh
        self.exchange = Exchange() if exchange is None else exchange
        self._agreed: set[tuple[int, ...]] = set()
        if experts.num_experts * mesh.ep.size != routing.num_experts:
            expected = f"{routing.num_experts // mesh.ep.size}, this rank's share of the experts"
            checks.fail("experts", expected, experts.num_experts)
        self._agree_on_settings()

    @classmethod
    def of(
        cls, layer: MoE, mesh: Mesh, exchange: Exchange | None = None, *, fp8: bool = False
    ) -> ParallelMoE:
        """This rank's part of a whole layer; slices are copied. `fp8` quantizes the part."""
        if isinstance(layer.experts, Fp8Experts):
            raise ValueError("layer must be in its own dtype; fp8=True quantizes each rank's part")
        experts = shard_experts(layer.experts, mesh)
        used = Fp8Experts.quantize(experts) if fp8 else experts
        shared = None if layer.shared is None else shard_shared(layer.shared, mesh.tp)
        return cls(layer.router, used, shared, layer.routing, mesh, exchange)

    @property
    def hidden_size(self) -> int:
        return self.router.weight.shape[1]

    def graphed(self, max_tokens: int) -> Graphed:
        """One CUDA graph for up to `max_tokens` (static mode only); all ranks replay together."""
        if self.exchange.mode != "static":
            checks.fail("mode", "'static' to be recorded", repr(self.exchange.mode))
        device = self.router.weight.device
        dtype = self.experts.dtype
        return Graphed(
            *(self, max_tokens, self.hidden_size, self.mesh.watch_for), dtype=dtype, device=device
        )

    def forward(self, x: Tensor, *, valid_tokens: Tensor | None = None) -> Tensor:
        check_tokens(x, self.hidden_size, self.experts)
        with torch.no_grad():
            tokens = x.reshape(-1, self.hidden_size)
            out = self._forward(tokens, valid_tokens).view(x.shape)
        self.mesh.watch_for(out)
        return inference_only(out, x, self.experts.gate_up)

    def _forward(self, tokens: Tensor, valid_tokens: Tensor | None) -> Tensor:
        tp = self.mesh.tp
        self._agree_on_tokens(tokens.shape[0])
        view = self._view(tokens)
        if self.mesh.ep.group is None:
            out = self._routed_here(view, valid_tokens)
        elif self.exchange.mode == "static":
            out = self._routed_static(view, valid_tokens)
        else:
            if valid_tokens is not None:
                checks.fail("valid_tokens", "None in the dynamic mode", "a tensor")
            out = self._routed_dynamic(view)
        if self._shares_stay():
            return out
        if self.exchange.sequence_parallel:
            return tp.reduce_scatter(out.view(tp.size, -1, self.hidden_size))
        return tp.reduce(out)

    def _shares_stay(self) -> bool:
        """Whether tokens come in shares, and nothing here needs those of other ranks."""
        exchanged = self.exchange.deduplicate and self.mesh.ep.group is not None
        return self.exchange.sequence_parallel and exchanged and self.shared is None

    def _view(self, tokens: Tensor) -> View:
        """The tokens that this rank needs, and the share of them that it sends over the ep axis."""
        tp, count = self.mesh.tp, tokens.shape[0]
        if self._shares_stay():
            return View(tokens, 0, count, tp)
        if self.exchange.sequence_parallel:
            tokens = tp.gather(tokens).view(-1, self.hidden_size)
            count = tokens.shape[0]
        # all-gathers need equal shares; without, every rank sends everything, as deduplicate=False
        even = self.exchange.mode == "dynamic" or count % tp.size == 0
        if self.exchange.deduplicate and even:
            return View(tokens, tp.rank * count // tp.size, (tp.rank + 1) * count // tp.size, tp)
        return View(tokens, 0, count, Axis())

    def _routed_here(self, view: View, valid_tokens: Tensor | None) -> Tensor:
        """No expert axis: every rank has all experts, or a slice of each."""
        shared = self._start_shared(view.tokens)
        plan = self.router(view.tokens, self.routing, valid_tokens)
        return add_routed(self.experts, view.tokens, plan, self.routing, shared)

    def _start_shared(self, tokens: Tensor) -> Callable[[], Tensor]:
        aside = self.shared is not None and pays_to_fork(tokens)
        return start_shared(self.shared, tokens, fork(tokens, aside))

    # -- static: everybody sees all tokens --

    def _routed_static(self, view: View, valid_tokens: Tensor | None) -> Tensor:
        """All-gather of the tokens, own experts on all of them, reduce-scatter of the results."""
        tp, ep = view.outer, self.mesh.ep
        shared = self._start_shared(view.tokens)
        everyone = tp.gather(ep.gather(view.share()))  # [tp, ep, S, D]
        tokens = everyone.view(-1, self.hidden_size)
        plan = self._plan_of_all(tokens, view, valid_tokens)
        sums = add_routed(self.experts, tokens, plan, self.routing, lambda: new_zeros(tokens))
        routed = ep.reduce_scatter(tp.reduce_scatter(sums.view(everyone.shape)))
        out = shared()
        out[view.first : view.last] += routed
        return out

    def _plan_of_all(self, tokens: Tensor, view: View, valid_tokens: Tensor | None) -> Plan:
        """Rows of this rank's experts among all tokens, up to min(own experts, K) a token."""
        routing, own = self.routing, self.experts.num_experts
        first = self.mesh.ep.rank * own
        scores, factors = self.router.scores(tokens, routing)
        if valid_tokens is not None:
            scores = self._without_padding(scores, view, valid_tokens)
        counts, experts, indices = index_shuffling(
            scores, routing.top_k, expert_range=(first, first + own)
        )
        bound = tokens.shape[0] * min(own, routing.top_k)
        counts = counts[first : first + own]
        factors = factors[:, first : first + own]  # a row's weight is looked up by its own expert
        if routing.apply_to == "input":
            experts = experts - first  # of rows past those counted it does not matter
        return Plan(counts, experts[:bound], indices[:bound], factors, counts)

    def _without_padding(self, scores: Tensor, view: View, valid_tokens: Tensor) -> Tensor:
        """Scores with which padding tokens choose no expert of this rank: they have no rows here.

        Their scores become -inf for own experts and 0 for others; where others are fewer than K,
        columns are added (of NaN, which no real token prefers).
        """
        outer, ep, own = view.outer, self.mesh.ep, self.experts.num_experts
        size = view.last - view.first
        valid = valid_tokens.reshape(-1)
        valid = ep.gather(valid).view(-1) if valid.shape[0] == 1 else valid  # [ep]
        begins = torch.arange(outer.size, device=valid.device)[:, None] * size
        positions = torch.arange(size, device=valid.device)
        padding = positions >= (valid[None, :] - begins)[:, :, None]  # [tp, ep, S]
        others = scores.shape[1] - own
        extra = max(0, self.routing.top_k - others)
        nowhere = scores.new_zeros(scores.shape[1] + extra)
        nowhere[ep.rank * own : (ep.rank + 1) * own] = float("-inf")
        padded = nn.functional.pad(scores, (0, extra), value=float("nan"))
        return torch.where(padding.view(-1, 1), nowhere, padded)

    # -- dynamic: rows go where their expert is --

    def _routed_dynamic(self, view: View) -> Tensor:
        """Counts, rows out, rows back, with the shared expert's halves in the gaps."""
        share, ep = view.share(), self.mesh.ep
        plan = self.router(share, self.routing)
        arrivals = self._announce(plan.token_counts, view)
        rows = self._outgoing(share, plan)
        hidden = None if self.shared is None else self.shared.first_half(view.tokens)
        sizes = arrivals.sizes(view.outer, ep)
        results = self._visit(rows, arrivals.counts, sizes, view.outer)
        back = ep.start_exchange(results, sizes.received, sizes.sent)
        if hidden is None or self.shared is None:
            out = new_zeros(view.tokens)
        else:
            out = self.shared.second_half(hidden)
        returned = back()
        if self.routing.apply_to == "output":
            returned = returned * plan.row_weights()[:, None]
        own, unique = out[view.first : view.last], self.routing.top_k == 1
        scatter_add(own, returned.to(out.dtype), plan.token_indices, unique=unique)
        return out

    def _announce(self, counts: Tensor, view: View) -> Arrivals:
        """Tells each rank how many rows will come; starts the one copy to the host."""
        ep, tp = self.mesh.ep, self.mesh.tp
        sent = counts.view(ep.size, -1)
        received = ep.transpose(sent)
        header = received.new_full((1, received.shape[1]), view.tokens.shape[0])
        everyone = tp.gather(torch.cat([received, header]))  # [tp, ep + 1, own experts]
        kept = everyone if view.outer.group is not None else everyone[tp.rank : tp.rank + 1]
        by_source = kept[:, :-1].reshape(-1, received.shape[1])
        summary = [sent.sum(1), by_source.sum(1), everyone[:, -1, 0]]
        return Arrivals(by_source, HostCopy(torch.cat(summary), self.mesh.timeout), tp.size)

    def _outgoing(self, share: Tensor, plan: Plan) -> Rows:
        on_input = self.routing.apply_to == "input"
        source = (plan.expert_indices, plan.scaling_factors) if on_input else (None, None)
        rows = self.experts.gather(share, plan.token_indices, *source)
        return Rows.of(rows)

    def _visit(self, rows: Rows, counts: Tensor, sizes: Sizes, outer: Axis) -> Tensor:
        """Rows to their experts' ranks, through them, and into the order they came [arrived, D]."""
        ep = self.mesh.ep
        coming = [ep.start_exchange(part, sizes.sent, sizes.received) for part in rows.parts]
        arrived = [part() for part in coming]
        complete = [gather_ragged(outer, part, sizes.by_outer) for part in arrived]
        sorted_rows, totals = zip(
            *(combine_shuffling(part, counts) for part in complete), strict=True
        )
        results = self.experts(Rows(sorted_rows).unpacked(), totals[0][:-1], None)
        results = split_shuffling(results, counts)
        return scatter_ragged(outer, results, sizes.by_outer)

    # -- what ranks must agree on --

    def _agree_on_settings(self) -> None:
        routing, weight = self.routing, self.router.weight
        values = {
            "num_experts": routing.num_experts,
            "top_k": routing.top_k,
            "hidden size": self.hidden_size,
            "expert size": self.experts.sizes[1],
            "dtype": self.experts.dtype.itemsize,
            "float8": int(isinstance(self.experts, Fp8Experts)),
            "shared expert": int(self.shared is not None),
            "mode": ("dynamic", "static").index(self.exchange.mode),
            "deduplicate": int(self.exchange.deduplicate),
            "sequence_parallel": int(self.exchange.sequence_parallel),
        }
        for axis in self.mesh.axes():
            agree(axis, "the layer", tuple(values), tuple(values.values()), weight.device)

    def _agree_on_tokens(self, count: int) -> None:
        """Compares the number of tokens where it must be equal and is not sent along anyway."""
        static = self.exchange.mode == "static"
        axes = [axis for axis in self.mesh.axes() if axis.group is not None]
        if self.mesh.ep.group is not None and not static:
            axes = [self.mesh.tp] if self.exchange.sequence_parallel else []
        if not axes or not self._must_verify(axes, count):
            return
        for axis in axes:
            agree(axis, "the input", ("number of tokens",), (count,), self.router.weight.device)
        self._agreed.add((count,))

    def _must_verify(self, axes: list[Axis], count: int) -> bool:
        device = self.router.weight.device
        if device.type == "cuda" and torch.cuda.is_current_stream_capturing():
            return False
        always = self.exchange.verify == "always"
        if self.exchange.verify == "auto":
            always = any(axis.is_gloo for axis in axes)
        return always or (count,) not in self._agreed

    def extra_repr(self) -> str:
        return f"{self.routing}, tp={self.mesh.tp.size}, ep={self.mesh.ep.size}, {self.exchange}"


class View(NamedTuple):
    """Tokens [T, D], of which this rank sends `first` to `last`, and those of `outer` the rest."""

    tokens: Tensor
    first: int
    last: int
    outer: Axis

    def share(self) -> Tensor:
        return self.tokens[self.first : self.last]


class Rows(NamedTuple):
    """Rows as tensors that can travel: float8 as uint8, its scales beside it as [M, 1]."""

    parts: tuple[Tensor, ...]

    @classmethod
    def of(cls, rows: Tensor | TokenRows | Fp8Rows) -> Rows:
        if isinstance(rows, Tensor):
            return cls((rows,))
        assert isinstance(rows, Fp8Rows), "rows that travel are gathered"
        return cls((rows.values.view(torch.uint8), rows.scales[:, None]))

    def unpacked(self) -> Tensor | Fp8Rows:
        if len(self.parts) == 1:
            return self.parts[0]
        return Fp8Rows(self.parts[0].view(torch.float8_e4m3fn), self.parts[1].reshape(-1))


class Sizes(NamedTuple):
    """Rows sent to and received from each ep rank, and in all at each rank of the outer axis."""

    sent: list[int]
    received: list[int]
    by_outer: list[int]


class Arrivals(NamedTuple):
    """Rows that come to this rank's experts: counts [sources, own experts], and their sums."""

    counts: Tensor
    summary: HostCopy
    tp_size: int

    def sizes(self, outer: Axis, ep: Axis) -> Sizes:
        """Waits for the copy; raises E152 if tensor-parallel ranks have different tokens."""
        values = self.summary.wait()
        tokens = values[len(values) - self.tp_size :]
        compare("the input", ("number of tokens",), [[count] for count in tokens])
        sent, sources = values[: ep.size], values[ep.size : len(values) - self.tp_size]
        blocks = [sources[i : i + ep.size] for i in range(0, len(sources), ep.size)]
        return Sizes(sent, blocks[outer.rank], [sum(block) for block in blocks])


def gather_ragged(axis: Axis, rows: Tensor, counts: list[int]) -> Tensor:
    """rows [counts[rank], D] -> those of all ranks, padded on the way to the longest."""
    if axis.group is None:
        return rows
    longest = max(counts)
    padded = rows.new_zeros((longest, *rows.shape[1:]))
    padded[: rows.shape[0]] = rows
    everyone = axis.gather(padded)
    return torch.cat([everyone[rank, :count] for rank, count in enumerate(counts)])


def scatter_ragged(axis: Axis, rows: Tensor, counts: list[int]) -> Tensor:
    """rows [sum(counts), D] -> the sum over the ranks of this rank's block."""
    if axis.group is None:
        return rows
    padded = rows.new_zeros((axis.size, max(counts), *rows.shape[1:]))
    for rank, block in enumerate(rows.split(counts)):
        padded[rank, : counts[rank]] = block
    return axis.reduce_scatter(padded)[: counts[axis.rank]]


def slice_of(tensor: Tensor, dim: int, axis: Axis, name: str) -> Tensor:
    """The part of `tensor` that is this rank's along `dim`, in memory of its own."""
    size = tensor.shape[dim]
    if size % axis.size:
        checks.fail(name, f"a multiple of {axis.size}, the ranks that share it", size)
    step = size // axis.size
    part = tensor.detach().narrow(dim, axis.rank * step, step)
    return part if axis.size == 1 else part.contiguous()


def shard_experts(experts: Experts, mesh: Mesh) -> Experts:
    """This rank's experts, and its columns of each; the bias of a sum stays on one rank."""
    tp, ep = mesh.axes()
    column = 2 if experts.transposed else 1

    def own(tensor: Tensor) -> Tensor:
        return slice_of(tensor, 0, ep, "the number of experts")

    bias, down_bias = experts.gate_up_bias, experts.down_bias
    return Experts(
        shard_gate_up(own(experts.gate_up), column, tp, experts.activation),
        slice_of(own(experts.down), 3 - column, tp, "the expert size"),
        None if bias is None else shard_gate_up(own(bias), 1, tp, experts.activation),
        own(down_bias) if down_bias is not None and tp.rank == 0 else None,
        activation=experts.activation,
        transposed=experts.transposed,
    )


def shard_gate_up(tensor: Tensor, dim: int, tp: Axis, activation: Activation) -> Tensor:
    """This rank's columns of gate and the same of up, in the activation's order."""
    if activation.interleaved or tp.size == 1:
        return slice_of(tensor, dim, tp, "twice the expert size")
    halves = tensor.chunk(2, dim)
    return torch.cat([slice_of(half, dim, tp, "the expert size") for half in halves], dim)


def shard_shared(shared: SharedExpert, tp: Axis) -> SharedExpert:
    """This rank's columns of the shared expert, which every rank of the expert axis has."""
    if shared.up is None:
        gate, up = shard_gate_up(shared.gate, 0, tp, shared.activation), None
    else:
        gate = slice_of(shared.gate, 0, tp, "the shared expert's size")
        up = slice_of(shared.up, 0, tp, "the shared expert's size")
    return SharedExpert(
        gate, up, slice_of(shared.down, 1, tp, "the shared expert's size"), shared.activation
    )
