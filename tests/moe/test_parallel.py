"""2 and 4 processes over gloo, against the single-process layer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import Tensor

from anyshape.errors import AnyshapeError
from anyshape.moe import Routing
from anyshape.moe.mesh import HostCopy
from anyshape.moe.parallel import Exchange
from tests.moe import rank_programs as ranks
from tests.moe.rank_programs import EXACT, Case, Outcome
from tests.moe.test_layer import by_hand

DYNAMIC, STATIC = Exchange("dynamic"), Exchange("static")


def exact_cases(tp: int, ep: int) -> dict[str, Case]:
    """Every way of travelling over one mesh, with balanced, skewed and missing tokens."""
    exchanges = {"dynamic": DYNAMIC, "static": STATIC} if ep > 1 else {"": STATIC}
    if tp > 1:
        exchanges |= {
            f"{n} sequence": replace(e, sequence_parallel=True) for n, e in exchanges.items()
        }
        if ep > 1:
            exchanges |= {
                f"{n} repeated": replace(e, deduplicate=False) for n, e in exchanges.items()
            }
    cases = {}
    for name, exchange in exchanges.items():
        same = 4 * tp * (1 if exchange.mode == "dynamic" or ep == 1 else 2)
        even = (same,) * ep
        ragged = tuple(tp * (3 * rank % 5) for rank in range(ep))
        where = f"tp {tp} ep {ep} {name}"
        cases[where] = Case(tp, ep, exchange, even)
        cases[f"{where}, skewed"] = Case(tp, ep, exchange, even, skewed=True)
        cases[f"{where}, alone"] = Case(tp, ep, exchange, even, shared=False)
        cases[f"{where}, on the input"] = Case(
            tp, ep, exchange, even, routing=replace(EXACT, top_k=1, apply_to="input")
        )
        if exchange.mode == "dynamic":
            cases[f"{where}, ragged"] = Case(tp, ep, exchange, ragged)
            cases[f"{where}, skewed and ragged"] = Case(tp, ep, exchange, ragged, skewed=True)
            cases[f"{where}, nothing"] = Case(tp, ep, exchange, (0,) * ep)
        elif ep > 1 and not exchange.sequence_parallel:
            cases[f"{where}, uneven shares"] = Case(tp, ep, exchange, (5,) * ep)
            valid = tuple((5 * rank + 3) % (same + 1) for rank in range(ep))
            cases[f"{where}, padded"] = Case(tp, ep, exchange, even, valid=valid)
            wide = replace(EXACT, top_k=7)
            cases[f"{where}, padded, top 7"] = Case(
                tp, ep, exchange, even, valid=valid, routing=wide
            )
    return cases


def float_cases(tp: int, ep: int) -> dict[str, Case]:
    """Softmax weights and biases in float32, and float8 in the dynamic mode."""
    routing = Routing(8, 3, renormalize=True)
    cases = {
        f"tp {tp} ep {ep} {exchange.mode} floats": Case(
            tp, ep, exchange, (8,) * ep, exact=False, routing=routing
        )
        for exchange in (DYNAMIC, STATIC)
    }
    for exchange in (DYNAMIC, STATIC):
        cases[f"tp {tp} ep {ep} {exchange.mode} float8"] = Case(
            tp, ep, exchange, (8,) * ep, exact=False, fp8=True, routing=routing
        )
    return cases


MESHES = {2: [(2, 1), (1, 2)], 4: [(2, 2), (1, 4), (4, 1)]}
EXACT_CASES = {w: {n: c for m in MESHES[w] for n, c in exact_cases(*m).items()} for w in MESHES}
FLOAT_CASES = {w: {n: c for m in MESHES[w] for n, c in float_cases(*m).items()} for w in MESHES}
WORLD_OF = {n: w for cases in (EXACT_CASES, FLOAT_CASES) for w in cases for n in cases[w]}


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Outcome]]:
    """All cases of each number of processes, run once."""
    return {
        world: ranks.run_ranks(
            world,
            ranks.run_cases,
            tmp_path_factory.mktemp(f"world{world}"),
            EXACT_CASES[world] | FLOAT_CASES[world],
        )
        for world in MESHES
    }


def whole_result(outcomes: list[Outcome], name: str, case: Case, ep_rank: int) -> Tensor:
    """What a row of tensor-parallel ranks made: all the same, or a share each."""
    for outcome in outcomes:
        assert outcome.exit_code == 0, outcome.error
    row = [outcomes[ep_rank * case.tp + rank].result[name] for rank in range(case.tp)]
    if case.exchange.sequence_parallel:
        return torch.cat(row)
    count = case.tokens[ep_rank] if case.valid is None else case.valid[ep_rank]
    assert all(torch.equal(part[:count], row[0][:count]) for part in row)
    return row[0][:count]


@pytest.mark.parametrize("name", [n for cases in EXACT_CASES.values() for n in cases])
def test_integers_come_out_bit_for_bit(outcomes: dict[int, list[Outcome]], name: str) -> None:
    case = EXACT_CASES[WORLD_OF[name]][name]
    layer = ranks.make_layer(case)
    for ep_rank in range(case.ep):
        want = layer(ranks.make_tokens(case, ep_rank))
        got = whole_result(outcomes[WORLD_OF[name]], name, case, ep_rank)
        assert torch.equal(got, want[: len(got)])
        assert case.tokens[ep_rank] < 2 or want.unique().numel() > 4


@pytest.mark.parametrize("name", [n for cases in FLOAT_CASES.values() for n in cases])
def test_floats_have_at_most_twice_the_error_of_one_process(
    outcomes: dict[int, list[Outcome]], name: str
) -> None:
    case = FLOAT_CASES[WORLD_OF[name]][name]
    layer = ranks.make_layer(case)
    single = layer.to_fp8() if case.fp8 else layer
    for ep_rank in range(case.ep):
        x = ranks.make_tokens(case, ep_rank)
        exact = by_hand(layer, x)
        got = whole_result(outcomes[WORLD_OF[name]], name, case, ep_rank)
        own_error = (single(x).double() - exact).norm()
        assert (got.double() - exact).norm() <= 2 * own_error


def test_one_recording_serves_ranks_with_different_numbers_of_tokens(tmp_path: Path) -> None:
    case = Case(1, 2, STATIC, (6, 6))
    for outcome in ranks.run_ranks(2, ranks.replay, tmp_path, case):
        assert outcome.result == [True] * 4, outcome.error


def test_dynamic_mode_copies_sizes_to_the_host_once(tmp_path: Path) -> None:
    case = Case(2, 2, DYNAMIC, (6, 4))
    for outcome in ranks.run_ranks(4, ranks.count_host_copies, tmp_path, case):
        assert outcome.result == 1, outcome.error


@pytest.mark.parametrize("top_k, rows", [(1, 2 * 6 * 1), (7, 2 * 6 * 4)])
def test_static_mode_makes_room_for_own_experts_only(tmp_path: Path, top_k: int, rows: int) -> None:
    case = Case(1, 2, STATIC, (6, 6), routing=replace(EXACT, top_k=top_k))
    for outcome in ranks.run_ranks(2, ranks.row_bound, tmp_path, case):
        assert outcome.result == rows, outcome.error


@pytest.mark.parametrize("exchange", [DYNAMIC, STATIC], ids=lambda e: e.mode)
@pytest.mark.parametrize("tp, ep", [(1, 2), (2, 1), (2, 2)])
def test_rank_that_dies_ends_every_rank_with_an_error(
    tmp_path: Path, exchange: Exchange, tp: int, ep: int
) -> None:
    case = Case(tp, ep, exchange, (4,) * ep)
    outcomes = ranks.run_ranks(tp * ep, ranks.die, tmp_path, case)
    assert outcomes[1].exit_code == 9
    for rank, outcome in enumerate(outcomes):
        if rank != 1:
            assert outcome.exit_code == 1, "still running long after the timeout"
            assert "Error" in outcome.error


def test_rank_that_does_not_come_ends_the_others_within_the_timeout(tmp_path: Path) -> None:
    case = Case(1, 2, STATIC, (4, 4), timeout_seconds=1)
    outcomes = ranks.run_ranks(2, ranks.sleep, tmp_path, case, patience_seconds=3)
    assert outcomes[0].exit_code == 1
    assert "Timed out" in outcomes[0].error


@pytest.mark.parametrize(
    "program, tp, ep, exchange, what",
    [
        (ranks.disagree_about_tokens, 2, 1, STATIC, "number of tokens"),
        (ranks.disagree_about_tokens, 2, 2, DYNAMIC, "number of tokens"),
        (ranks.disagree_about_tokens, 1, 2, STATIC, "number of tokens"),
        (ranks.disagree_about_settings, 1, 2, DYNAMIC, "top_k"),
    ],
)
def test_disagreement_is_an_error_on_the_ranks_that_disagree(
    tmp_path: Path,
    program: Callable[..., object],
    tp: int,
    ep: int,
    exchange: Exchange,
    what: str,
) -> None:
    case = Case(tp, ep, exchange, (8,) * ep)
    outcomes = ranks.run_ranks(tp * ep, program, tmp_path, case)
    assert all(outcome.exit_code == 1 for outcome in outcomes), "no rank may be left waiting"
    for outcome in outcomes[:2]:
        assert "E152 the ranks disagree" in outcome.error
        assert what in outcome.error


def test_error_of_one_rank_ends_the_others(tmp_path: Path) -> None:
    case = Case(1, 2, DYNAMIC, (4, 4))
    outcomes = ranks.run_ranks(2, ranks.fail_alone, tmp_path, case)
    assert [outcome.exit_code for outcome in outcomes] == [1, 1]
    assert "x must be of size" in outcomes[1].error


def test_uneven_shares_of_experts_are_refused_by_name(tmp_path: Path) -> None:
    case = Case(1, 2, DYNAMIC, (4, 4), exact=False, routing=Routing(7, 2))
    for outcome in ranks.run_ranks(2, ranks.run_case, tmp_path, case):
        assert "the number of experts must be a multiple of 2" in outcome.error


def test_copy_that_never_arrives_is_an_error_after_the_timeout() -> None:
    class Never:
        def query(self) -> bool:
            return False

    copy = HostCopy(torch.zeros(2, dtype=torch.int32), timedelta(seconds=0.05))
    assert copy.wait() == [0, 0]
    copy._event = Never()
    with pytest.raises(AnyshapeError, match="E154 another rank did not answer within 0.05 s"):
        copy.wait()
