"""What the ranks of test_parallel run, and how they are started: forked from a server that has
imported torch.
"""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor

from anyshape.moe import Activation, Experts, MoE, Router, Routing, SharedExpert, parallel
from anyshape.moe.mesh import Mesh
from anyshape.moe.parallel import Exchange, ParallelMoE

HIDDEN, EXPERT_SIZE, SHARED_SIZE, EXPERTS = 8, 4, 8, 8
TIMEOUT_SECONDS = 8


class Outcome(NamedTuple):
    """How a rank ended: its exit code (None if it had to be stopped), result and error."""

    exit_code: int | None
    result: object
    error: str


def run_ranks(
    world: int,
    program: Callable[..., object],
    directory: Path,
    *arguments: object,
    patience_seconds: int = 3 * TIMEOUT_SECONDS,
) -> list[Outcome]:
    """Runs program(rank, *arguments) in `world` processes over gloo; who never ends is stopped."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.moe.rank_programs"])
    processes = [
        context.Process(target=_rank, args=(rank, world, program, directory, arguments))
        for rank in range(world)
    ]
    for process in processes:
        process.start()
    deadline = time.monotonic() + patience_seconds
    for process in processes:
        process.join(max(0.0, deadline - time.monotonic()))
    return [_outcome(rank, process, directory) for rank, process in enumerate(processes)]


def _outcome(rank: int, process: multiprocessing.process.BaseProcess, directory: Path) -> Outcome:
    exit_code = process.exitcode
    if exit_code is None:
        process.kill()
        process.join()
    result, error = directory / f"{rank}.pt", directory / f"{rank}.txt"
    return Outcome(
        exit_code,
        torch.load(result, weights_only=False) if result.exists() else None,
        error.read_text() if error.exists() else "",
    )


def _rank(
    rank: int,
    world: int,
    program: Callable[..., object],
    directory: Path,
    arguments: tuple[object, ...],
) -> None:
    torch.set_num_threads(1)
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    try:
        dist.init_process_group(
            "gloo",
            init_method=f"file://{directory}/store",
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=TIMEOUT_SECONDS),
        )
        torch.save(program(rank, *arguments), directory / f"{rank}.pt")
        dist.destroy_process_group()
    except Exception:
        (directory / f"{rank}.txt").write_text(traceback.format_exc())
        time.sleep(0.4)  # others may still be reading what this rank sent before it failed
        os._exit(1)


@dataclass(frozen=True)
class Case:
    """One layer over one mesh; `tokens` of each ep rank, of which `valid` count."""

    tp: int
    ep: int
    exchange: Exchange
    tokens: tuple[int, ...]
    exact: bool = True
    fp8: bool = False
    skewed: bool = False
    valid: tuple[int, ...] | None = None
    routing: Routing = field(default_factory=lambda: EXACT)
    shared: bool = True
    timeout_seconds: int = TIMEOUT_SECONDS


# Sigmoids of large integers are exactly 0 or 1, and of 0 a half: all sums of such layers are exact
# in float32.
EXACT = Routing(EXPERTS, 2, "sigmoid", bias="ranking")


def integers(shape: tuple[int, ...], seed: int, low: int = -2, high: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(low, high, shape, generator=generator).float()


def exact_layer(case: Case) -> MoE:
    """A layer of small integers with exact intermediate results: silu(128 n) is 128 n or 0."""
    gate, up = integers((2, EXPERTS, EXPERT_SIZE, HIDDEN), 1)
    down = integers((EXPERTS, HIDDEN, EXPERT_SIZE), 2)
    bias = integers((EXPERTS,), 3, 0, 100) / 1024
    if case.skewed:  # one expert is chosen by all tokens and most by none
        bias[1] += 8
        bias[EXPERTS // 2 :] -= 8
    experts = Experts(torch.cat([gate * 128, up], 1), down, activation=Activation())
    first = integers((SHARED_SIZE, HIDDEN), 4) * 128
    second, third = integers((SHARED_SIZE, HIDDEN), 5), integers((HIDDEN, SHARED_SIZE), 6)
    shared = SharedExpert(torch.cat([first, second]), None, third, Activation())
    router = Router(integers((EXPERTS, HIDDEN), 7) * 128, bias)
    return MoE.of(router, experts, shared if case.shared else None, case.routing)


def float_layer(case: Case) -> MoE:
    torch.manual_seed(5)
    layer = MoE(
        HIDDEN,
        EXPERT_SIZE,
        case.routing,
        shared_size=SHARED_SIZE if case.shared else None,
        expert_bias=not case.fp8,
        router_bias=True,
        dtype=torch.bfloat16 if case.fp8 else torch.float32,
    )
    return layer.requires_grad_(False)


def make_layer(case: Case) -> MoE:
    return exact_layer(case) if case.exact else float_layer(case)


def make_tokens(case: Case, ep_rank: int) -> Tensor:
    """The tokens of one row of tensor-parallel ranks."""
    shape = (case.tokens[ep_rank], HIDDEN)
    if case.exact:
        return integers(shape, 100 + ep_rank)
    generator = torch.Generator().manual_seed(100 + ep_rank)
    x = torch.randn(shape, generator=generator)
    return x.bfloat16() if case.fp8 else x


def make_mesh(case: Case) -> Mesh:
    return Mesh.of_world(tp=case.tp, ep=case.ep, timeout=timedelta(seconds=case.timeout_seconds))


def run_case(rank: int, case: Case) -> Tensor:
    mesh = make_mesh(case)
    layer = ParallelMoE.of(make_layer(case), mesh, case.exchange, fp8=case.fp8)
    x = make_tokens(case, mesh.ep.rank)
    if case.exchange.sequence_parallel:
        x = x.chunk(case.tp)[mesh.tp.rank]
    if case.valid is None:
        return layer(x)
    valid = case.valid[mesh.ep.rank]
    x = torch.cat([x[:valid], torch.full_like(x[valid:], float("nan"))])
    return layer(x, valid_tokens=torch.tensor([valid], dtype=torch.int32))


def run_cases(rank: int, cases: dict[str, Case]) -> dict[str, Tensor]:
    return {name: run_case(rank, case) for name, case in cases.items()}


def replay(rank: int, case: Case) -> list[bool]:
    """One recording, several numbers of tokens, which differ from rank to rank."""
    mesh = make_mesh(case)
    whole = make_layer(case)
    graphed = ParallelMoE.of(whole, mesh, case.exchange).graphed(6)
    equal = []
    for step in range(4):
        x = make_tokens(case, mesh.ep.rank)[: (step + 3 * mesh.ep.rank) % 7]
        equal.append(torch.equal(graphed(x), whole(x)))
    return equal


def count_host_copies(rank: int, case: Case) -> int:
    """How often one call asks for a copy to the host."""
    layer = ParallelMoE.of(make_layer(case), make_mesh(case), case.exchange)
    original, made = parallel.HostCopy, []

    class Counted(original):
        def __init__(self, x: Tensor, timeout: timedelta) -> None:
            made.append(x.numel())
            super().__init__(x, timeout)

    parallel.HostCopy = Counted
    layer(make_tokens(case, layer.mesh.ep.rank))
    return len(made)


def row_bound(rank: int, case: Case) -> int:
    """For how many rows the static mode makes room."""
    layer = ParallelMoE.of(make_layer(case), make_mesh(case), case.exchange)
    original, rows = layer.experts.gather, []

    def gather(tokens: Tensor, indices: Tensor, *rest: object, **keywords: object) -> object:
        rows.append(indices.shape[0])
        return original(tokens, indices, *rest, **keywords)

    layer.experts.gather = gather
    layer(make_tokens(case, layer.mesh.ep.rank))
    return rows[0]


def die(rank: int, case: Case) -> Tensor:
    """Rank 1 is gone before the second call."""
    mesh = make_mesh(case)
    layer = ParallelMoE.of(make_layer(case), mesh, case.exchange)
    x = make_tokens(case, mesh.ep.rank)
    layer(x)
    if rank == 1:
        os._exit(9)
    return layer(x)


def sleep(rank: int, case: Case) -> Tensor:
    """Rank 1 does not come to the second call."""
    mesh = make_mesh(case)
    layer = ParallelMoE.of(make_layer(case), mesh, case.exchange)
    x = make_tokens(case, mesh.ep.rank)
    layer(x)
    if rank == 1:
        time.sleep(3 * TIMEOUT_SECONDS)
    return layer(x)


def disagree_about_tokens(rank: int, case: Case) -> Tensor:
    """Rank 1 comes with one token fewer than the others, in a number that all have seen before."""
    mesh = make_mesh(case)
    layer = ParallelMoE.of(make_layer(case), mesh, case.exchange)
    x = make_tokens(case, 0)
    layer(x)
    layer(x[:-2])
    return layer(x[:-2] if rank == 1 else x)


def disagree_about_settings(rank: int, case: Case) -> Tensor:
    mesh = make_mesh(case)
    whole = make_layer(case)
    routing = Routing(EXPERTS, 1) if rank == 1 else whole.routing
    layer = MoE.of(whole.router, whole.experts, whole.shared, routing)
    return ParallelMoE.of(layer, mesh, case.exchange)(make_tokens(case, 0))


def fail_alone(rank: int, case: Case) -> Tensor:
    """Rank 1 has an input of the wrong width, which it sees by itself."""
    mesh = make_mesh(case)
    layer = ParallelMoE.of(make_layer(case), mesh, case.exchange)
    x = make_tokens(case, mesh.ep.rank)
    return layer(x[:, :-1] if rank == 1 else x)
