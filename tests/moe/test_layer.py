"""The layer against a loop over tokens and experts, on the CPU."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import anyshape
from anyshape.errors import AnyshapeError
from anyshape.moe import Activation, MoE, Router, Routing, few
from anyshape.moe.experts import Experts


def activate(gate_up: Tensor, activation: Activation) -> Tensor:
    gate, up = gate_up.chunk(2, dim=-1)
    if activation.interleaved:
        gate, up = gate_up[..., ::2], gate_up[..., 1::2]
    if activation.kind == "gpt_oss":
        gate = gate.clamp(max=activation.limit)
        up = up.clamp(-activation.limit, activation.limit)
        return gate * torch.sigmoid(activation.alpha * gate) * (up + 1)
    if activation.kind == "silu":
        return functional.silu(gate) * up
    return (
        functional.gelu(gate, approximate="tanh" if activation.kind == "gelu_tanh" else "none") * up
    )


def choices(layer: MoE, token: Tensor) -> dict[int, float]:
    """The experts of one token and their weights."""
    routing = layer.routing
    logits = layer.router.weight.double() @ token
    if layer.router.bias is not None and routing.bias == "logits":
        logits = logits + layer.router.bias.double()
    weights = logits.softmax(0) if routing.function == "softmax" else logits.sigmoid()
    ranking = weights.clone()
    if layer.router.bias is not None and routing.bias == "ranking":
        ranking += layer.router.bias.double()
    if routing.groups > 1:
        groups = ranking.view(routing.groups, -1)
        best = groups.topk(routing.group_best, dim=1).values.sum(1)
        kept = best.topk(routing.top_groups).indices
        mask = torch.full_like(groups, float("-inf"))
        mask[kept] = 0
        ranking = (groups + mask).view(-1)
    chosen = ranking.topk(routing.top_k).indices.tolist()
    total = sum(weights[e].item() for e in chosen) if routing.renormalize else 1.0
    return {e: weights[e].item() / total * routing.scale for e in chosen}


def by_hand(layer: MoE, x: Tensor) -> Tensor:
    """What the layer means, one token and one expert at a time, in float64."""
    gate_up, down = (w.double() for w in layer.experts.weights())
    biases = layer.experts.gate_up_bias, layer.experts.down_bias
    tokens = x.reshape(-1, x.shape[-1]).double()
    out = torch.zeros_like(tokens)
    for t, token in enumerate(tokens):
        for e, weight in choices(layer, token).items():
            row = token * weight if layer.routing.apply_to == "input" else token
            hidden = gate_up[e] @ row + (0 if biases[0] is None else biases[0][e].double())
            hidden = activate(hidden, layer.experts.activation)
            result = down[e] @ hidden + (0 if biases[1] is None else biases[1][e].double())
            out[t] += result if layer.routing.apply_to == "input" else result * weight
        if layer.shared is not None:
            both = layer.shared.gate.double() @ token
            out[t] += layer.shared.down.double() @ activate(both, layer.shared.activation)
    return out.view(x.shape)


ROUTINGS = {
    "softmax": Routing(8, 2),
    "renormalized": Routing(8, 3, renormalize=True),
    "sigmoid on the input": Routing(8, 1, "sigmoid", apply_to="input"),
    "groups": Routing(
        8, 2, "sigmoid", True, groups=4, top_groups=2, group_best=2, scale=2.5, bias="ranking"
    ),
    "one expert": Routing(1, 1),
    "every expert": Routing(5, 5, renormalize=True),
}


def make(routing: Routing, dtype: torch.dtype = torch.float32, **options: object) -> MoE:
    torch.manual_seed(0)
    layer = MoE(24, 12, routing, dtype=dtype, **options)
    return layer.requires_grad_(False)


@pytest.mark.parametrize("tokens", [0, 1, 7, 33])
@pytest.mark.parametrize("name", ROUTINGS)
def test_layer_does_what_a_loop_over_tokens_and_experts_does(name: str, tokens: int) -> None:
    layer = make(ROUTINGS[name], shared_size=20, router_bias=True)
    x = torch.randn(tokens, 24)
    torch.testing.assert_close(layer(x).double(), by_hand(layer, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "activation",
    [
        Activation(),
        Activation("gelu"),
        Activation("gelu_tanh"),
        Activation("gpt_oss", limit=0.5, interleaved=True),
    ],
    ids=lambda a: a.kind,
)
def test_every_activation_with_biases(activation: Activation) -> None:
    layer = make(ROUTINGS["renormalized"], activation=activation, expert_bias=True)
    x = torch.randn(9, 24)
    torch.testing.assert_close(layer(x).double(), by_hand(layer, x), rtol=1e-4, atol=1e-5)


def test_transposed_weights_are_read_in_place() -> None:
    layer = make(Routing(4, 2))
    gate_up, down = layer.experts.weights()
    turned = Experts(
        gate_up.transpose(1, 2).contiguous(),
        down.transpose(1, 2).contiguous(),
        activation=Activation(),
        transposed=True,
    )
    other = MoE.of(layer.router, turned, None, layer.routing)
    x = torch.randn(6, 24)
    torch.testing.assert_close(other(x), layer(x))


def test_gather_inside_the_product_changes_nothing() -> None:
    layer = make(Routing(4, 2, renormalize=True), shared_size=8)
    x = torch.randn(9, 24)
    layer.experts.fused_gather_rows = 0
    apart = layer(x)
    layer.experts.fused_gather_rows = 5
    torch.testing.assert_close(layer(x), apart)


@pytest.mark.parametrize("apply_to", ["input", "output"])
@pytest.mark.parametrize("tokens", [1, 2])
def test_few_tokens_read_their_experts_themselves_and_agree(
    monkeypatch: pytest.MonkeyPatch, tokens: int, apply_to: str
) -> None:
    routing = Routing(16, 2, renormalize=True, apply_to=apply_to)
    layer = make(routing, expert_bias=True, router_bias=True, shared_size=8)
    x = torch.randn(tokens, 24)
    assert few.pays(tokens, 2, 16)
    apart = layer(x)
    monkeypatch.setattr(few, "FEW_PAIRS", 0)
    torch.testing.assert_close(layer(x), apart)


def test_few_tokens_of_a_layer_in_float8_are_not_rounded_themselves(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    layer = make(Routing(16, 2, renormalize=True), torch.bfloat16, expert_bias=True)
    x = torch.randn(2, 24, dtype=torch.bfloat16)
    exact = by_hand(layer, x)
    few_error = (layer.to_fp8()(x).double() - exact).norm()
    monkeypatch.setattr(few, "FEW_PAIRS", 0)
    assert few_error <= (layer.to_fp8()(x).double() - exact).norm()


def test_any_shape_and_any_stride_of_tokens() -> None:
    layer = make(Routing(4, 2), shared_size=8)
    x = torch.randn(24, 5, 3).permute(2, 1, 0)
    flat = layer(x.reshape(15, 24))
    torch.testing.assert_close(layer(x).reshape(15, 24), flat)
    torch.testing.assert_close(layer(x[1:2, ::2]), flat.view(3, 5, 24)[1:2, ::2])


def test_bfloat16_is_as_good_as_its_inputs() -> None:
    layer = make(Routing(8, 2, renormalize=True), torch.bfloat16, shared_size=16)
    x = torch.randn(40, 24, dtype=torch.bfloat16)
    error = (layer(x).double() - by_hand(layer, x)).abs().max()
    assert error < 0.02


def test_fp8_stays_within_the_error_of_its_rounding() -> None:
    layer = make(Routing(8, 2, renormalize=True), torch.bfloat16)
    x = torch.randn(40, 24, dtype=torch.bfloat16)
    exact = by_hand(layer, x)
    error = (layer.to_fp8()(x).double() - exact).norm() / exact.norm()
    assert error < 0.08


def test_router_may_have_a_dtype_of_its_own() -> None:
    layer = make(Routing(8, 2, renormalize=True), torch.bfloat16, router_bias=True)
    layer.router.float()
    x = torch.randn(40, 24, dtype=torch.bfloat16)
    assert layer(x).dtype == torch.bfloat16
    assert (layer(x).double() - by_hand(layer, x)).abs().max() < 0.02
    assert layer.graphed(4)(x[:3]).dtype == torch.bfloat16


def test_nan_token_leaves_the_others_alone() -> None:
    layer = make(Routing(4, 2), shared_size=8)
    x = torch.randn(6, 24)
    clean = layer(x)
    x[2] = float("nan")
    out = layer(x)
    assert out[2].isnan().all()
    kept = [0, 1, 3, 4, 5]
    torch.testing.assert_close(out[kept], clean[kept])


def test_one_recording_serves_every_number_of_tokens() -> None:
    layer = make(Routing(4, 2), shared_size=8)
    graphed = layer.graphed(8)
    for count in (8, 0, 1, 5, 8, 3):
        x = torch.randn(count, 24)
        torch.testing.assert_close(graphed(x), layer(x))


def test_what_is_past_the_valid_tokens_does_not_matter() -> None:
    layer = make(Routing(4, 2))
    x = torch.randn(6, 24)
    padded = torch.cat([x, torch.full((3, 24), float("nan"))])
    out = layer(padded, valid_tokens=torch.tensor([6], dtype=torch.int32))
    torch.testing.assert_close(out[:6], layer(x))


def test_more_tokens_than_the_recording_holds_is_an_error() -> None:
    with pytest.raises(ValueError, match="max_tokens"):
        make(Routing(4, 2)).graphed(4)(torch.randn(5, 24))


def test_a_gradient_is_an_error_and_not_silently_missing() -> None:
    layer = MoE(8, 4, Routing(4, 2))
    x = torch.randn(3, 8, requires_grad=True)
    out = x + layer(x)
    with pytest.raises(AnyshapeError, match="E153"):
        out.sum().backward()
    with pytest.raises(AnyshapeError, match="E153"):
        layer(x.detach()).sum().backward()


def test_compiles_into_one_graph_for_every_size() -> None:
    layer = make(Routing(4, 2), shared_size=8)
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="aot_eager")
    for count in (5, 9, 2):
        x = torch.randn(count, 24)
        torch.testing.assert_close(compiled(x), layer(x))


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="top_k"):
        Routing(4, 5)
    with pytest.raises(ValueError, match="groups"):
        Routing(8, 2, groups=3)
    with pytest.raises(ValueError, match="apply_to"):
        replace(ROUTINGS["softmax"], apply_to="middle")
    with pytest.raises(ValueError, match="x must be of size 24"):
        make(Routing(4, 2))(torch.randn(3, 23))
    with pytest.raises(ValueError, match="x must be of dtype torch.float32"):
        make(Routing(4, 2))(torch.randn(3, 24, dtype=torch.bfloat16))
    layer = make(Routing(4, 2))
    with pytest.raises(ValueError, match="num_experts"):
        MoE.of(Router(torch.randn(5, 24)), layer.experts, None, Routing(5, 2))


def test_copies_and_state_dict_round_trip() -> None:
    layer = make(Routing(4, 2), shared_size=8)
    other = make(Routing(4, 2), shared_size=8)
    for parameter in other.parameters():
        parameter.zero_()
    other.load_state_dict(layer.state_dict())
    x = torch.randn(3, 24)
    assert torch.equal(other(x), layer(x))
    assert torch.equal(copy.deepcopy(layer)(x), layer(x))


@pytest.mark.parametrize("fp8", [False, True])
def test_anyshape_compiles_it_once_for_every_number_of_tokens(*, fp8: bool) -> None:
    layer = make(Routing(16, 2, renormalize=True), shared_size=8)
    layer = layer.to_fp8() if fp8 else layer
    compiled = anyshape.compile(layer)
    close = {"rtol": 0.1, "atol": 0.1} if fp8 else {"rtol": 1e-4, "atol": 1e-5}
    graphs = set()
    for tokens in (17, 3, 2, 1, 0, 40):
        x = torch.randn(tokens, 24)
        torch.testing.assert_close(compiled(x), layer(x), **close)
        graphs.add(len(compiled.graphs()))
    assert len(graphs) == 1
