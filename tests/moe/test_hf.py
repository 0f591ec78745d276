"""Hugging Face's own blocks, built from tiny configs with random weights, against the layers made
of them.
"""

from __future__ import annotations

import copy
import importlib
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from anyshape.errors import AnyshapeError
from anyshape.moe import MoE, replace_experts

pytest.importorskip("transformers")

from transformers.models.deepseek_v3 import configuration_deepseek_v3, modeling_deepseek_v3
from transformers.models.gpt_oss import configuration_gpt_oss, modeling_gpt_oss
from transformers.models.llama4 import configuration_llama4, modeling_llama4
from transformers.models.mixtral import configuration_mixtral, modeling_mixtral
from transformers.models.olmoe import configuration_olmoe, modeling_olmoe
from transformers.models.qwen3_moe import configuration_qwen3_moe, modeling_qwen3_moe

HIDDEN = 32
MODEL = {
    "hidden_size": HIDDEN,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 64,
    "pad_token_id": 0,
    "num_experts_per_tok": 2,
}


@dataclass(frozen=True)
class Case:
    """A family: its block, and a model with such blocks."""

    block: Callable[[], nn.Module]
    model: Callable[[], nn.Module]


def qwen(renormalize: bool) -> Case:
    config = configuration_qwen3_moe.Qwen3MoeConfig(
        **MODEL,
        moe_intermediate_size=24,
        num_experts=6,
        norm_topk_prob=renormalize,
        head_dim=16,
    )
    return Case(
        lambda: modeling_qwen3_moe.Qwen3MoeSparseMoeBlock(config),
        lambda: modeling_qwen3_moe.Qwen3MoeForCausalLM(config),
    )


def mixtral() -> Case:
    config = configuration_mixtral.MixtralConfig(**MODEL, intermediate_size=24, num_local_experts=4)
    return Case(
        lambda: modeling_mixtral.MixtralSparseMoeBlock(config),
        lambda: modeling_mixtral.MixtralForCausalLM(config),
    )


def olmoe() -> Case:
    config = configuration_olmoe.OlmoeConfig(**MODEL, intermediate_size=24, num_experts=5)
    return Case(
        lambda: modeling_olmoe.OlmoeSparseMoeBlock(config),
        lambda: modeling_olmoe.OlmoeForCausalLM(config),
    )


def deepseek(renormalize: bool, groups: int) -> Case:
    config = configuration_deepseek_v3.DeepseekV3Config(
        **MODEL | {"num_key_value_heads": 2},
        intermediate_size=40,
        moe_intermediate_size=24,
        n_routed_experts=8,
        n_shared_experts=1,
        n_group=groups,
        topk_group=max(1, groups // 2),
        norm_topk_prob=renormalize,
        first_k_dense_replace=1,
        q_lora_rank=16,
        kv_lora_rank=16,
        qk_rope_head_dim=8,
        qk_nope_head_dim=8,
        v_head_dim=8,
    )
    return Case(
        lambda: modeling_deepseek_v3.DeepseekV3MoE(config),
        lambda: modeling_deepseek_v3.DeepseekV3ForCausalLM(config),
    )


def llama4(top_k: int) -> Case:
    config = configuration_llama4.Llama4TextConfig(
        **MODEL | {"num_experts_per_tok": top_k},
        intermediate_size=24,
        intermediate_size_mlp=40,
        num_local_experts=4,
        head_dim=16,
    )
    return Case(
        lambda: modeling_llama4.Llama4TextMoe(config),
        lambda: modeling_llama4.Llama4ForCausalLM(config),
    )


def gpt_oss() -> Case:
    config = configuration_gpt_oss.GptOssConfig(
        **MODEL, intermediate_size=24, num_local_experts=4, head_dim=16
    )
    return Case(
        lambda: modeling_gpt_oss.GptOssMLP(config),
        lambda: modeling_gpt_oss.GptOssForCausalLM(config),
    )


CASES = {
    "qwen3_moe": qwen(renormalize=True),
    "qwen3_moe, weights as they are": qwen(renormalize=False),
    "mixtral": mixtral(),
    "olmoe": olmoe(),
    "deepseek_v3": deepseek(renormalize=True, groups=4),
    "deepseek_v3, one group": deepseek(renormalize=False, groups=1),
    "llama4": llama4(1),
    "llama4, top 2": llama4(2),
    "gpt_oss": gpt_oss(),
}


def randomize(module: nn.Module) -> nn.Module:
    """Weights that make every expert and bias count."""
    torch.manual_seed(0)
    with torch.no_grad():
        for name, tensor in module.state_dict().items():
            if tensor.is_floating_point():
                tensor.normal_(std=0.1 if "correction" in name else 0.3)
    return module.eval()


def hidden_states(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    return result[0] if isinstance(result, tuple) else result


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_from_hf_agrees_with_the_block(name: str) -> None:
    block = randomize(CASES[name].block())
    layer = MoE.from_hf(block)
    for shape in [(2, 9, HIDDEN), (1, 1, HIDDEN)]:
        x = torch.randn(shape)
        want = hidden_states(block(x)).view(shape)
        torch.testing.assert_close(layer(x), want, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_from_hf_shares_every_weight(name: str) -> None:
    block = randomize(CASES[name].block())
    ours = {p.data_ptr() for p in MoE.from_hf(block).state_dict().values()}
    assert ours == {p.data_ptr() for p in block.state_dict().values()}


@torch.no_grad()
@pytest.mark.parametrize("name", CASES)
def test_replaced_block_returns_what_the_block_returned(name: str) -> None:
    holder = nn.Sequential(randomize(CASES[name].block()))
    x = torch.randn(2, 5, HIDDEN)
    want = holder[0](x)
    report = replace_experts(holder, router_outputs=True)
    assert [row.path for row in report.replaced] == ["0"]
    torch.testing.assert_close(holder[0](x), want, rtol=1e-4, atol=1e-4)


@torch.no_grad()
@pytest.mark.parametrize(
    "name", ["qwen3_moe", "mixtral", "olmoe", "deepseek_v3", "llama4", "gpt_oss"]
)
def test_replaced_model_computes_the_same_from_the_same_weights(name: str) -> None:
    model = randomize(CASES[name].model())
    names = list(model.state_dict())
    pointers = {p.data_ptr() for p in model.parameters()}
    ids = torch.randint(0, 64, (2, 7))
    want = model(ids).logits
    report = replace_experts(model)
    assert len(report.replaced) == (1 if name == "deepseek_v3" else 2)
    assert not report.refused
    torch.testing.assert_close(model(ids).logits, want, rtol=1e-3, atol=1e-3)
    assert list(model.state_dict()) == names
    assert {p.data_ptr() for p in model.parameters()} == pointers


@torch.no_grad()
@pytest.mark.parametrize("name", ["llama4", "gpt_oss"])
def test_relayout_changes_nothing_but_strides(name: str) -> None:
    model = randomize(CASES[name].model())
    before = dict(model.named_parameters())
    values = {key: value.clone() for key, value in before.items()}
    ids = torch.randint(0, 64, (2, 7))
    want = model(ids).logits
    replace_experts(model, relayout=True)
    torch.testing.assert_close(model(ids).logits, want, rtol=1e-3, atol=1e-3)
    for key, value in model.named_parameters():
        assert value is before[key]
        assert torch.equal(value, values[key])
    moved = [value for key, value in before.items() if key.endswith("experts.gate_up_proj")]
    assert all(value.transpose(1, 2).is_contiguous() for value in moved) and moved


def test_report_says_what_was_replaced() -> None:
    model = randomize(CASES["qwen3_moe"].model())
    text = str(replace_experts(model))
    assert "replaced 2 expert blocks" in text
    assert "model.layers.1.mlp: Qwen3MoeSparseMoeBlock, 6 experts, top 2" in text


def test_block_with_an_unknown_activation_is_left_and_listed() -> None:
    model = randomize(CASES["mixtral"].model())
    model.model.layers[0].mlp.experts.act_fn = nn.ReLU()
    report = replace_experts(model)
    assert [row.path for row in report.replaced] == ["model.layers.1.mlp"]
    assert [(row.path, row.reason) for row in report.refused] == [
        ("model.layers.0.mlp", "its activation ReLU has no kernel")
    ]


def test_block_that_is_not_known_is_an_error() -> None:
    with pytest.raises(AnyshapeError, match="E151 Linear cannot"):
        MoE.from_hf(nn.Linear(2, 2))


@torch.no_grad()
def test_subclass_of_a_block_keeps_its_own_forward() -> None:
    class Mine(modeling_mixtral.MixtralSparseMoeBlock):
        def forward(self, hidden_states: Tensor) -> Tensor:
            return super().forward(hidden_states) + 1

    config = configuration_mixtral.MixtralConfig(**MODEL, intermediate_size=8, num_local_experts=4)
    holder = nn.Sequential(randomize(Mine(config)))
    x = torch.randn(2, 3, HIDDEN)
    want = holder(x)
    assert [row.path for row in replace_experts(holder).replaced] == ["0.experts"]
    torch.testing.assert_close(holder(x), want, rtol=1e-4, atol=1e-4)


@torch.no_grad()
def test_replaced_model_follows_a_change_of_dtype_and_of_weights() -> None:
    holder = nn.Sequential(randomize(CASES["llama4"].block()))
    replace_experts(holder)
    holder.bfloat16()
    x = torch.randn(3, HIDDEN, dtype=torch.bfloat16)
    before = holder(x)[0]
    assert before.dtype == torch.bfloat16
    holder[0].shared_expert.down_proj.weight.zero_()
    holder[0].experts.down_proj.zero_()
    assert not holder(x)[0].any()


@torch.no_grad()
def test_replaced_model_follows_a_tensor_that_is_exchanged() -> None:
    block = randomize(CASES["deepseek_v3"].block())
    holder = nn.Sequential(block)
    replace_experts(holder)
    x = torch.randn(4, 3, HIDDEN)
    bias = torch.randn_like(block.gate.e_score_correction_bias) * 5
    holder[0].gate.e_score_correction_bias = bias
    block.gate.e_score_correction_bias = bias
    torch.testing.assert_close(holder(x), block(x), rtol=1e-4, atol=1e-4)


# Families without a row of their own: their experts have transformers' common interface.
OTHERS = {
    "qwen2_moe": ("Qwen2Moe", {"moe_intermediate_size": 24, "num_experts": 6}),
    "glm4_moe": (
        "Glm4Moe",
        {"moe_intermediate_size": 24, "n_routed_experts": 6, "first_k_dense_replace": 0},
    ),
    "phimoe": ("Phimoe", {"num_local_experts": 4}),
    "ernie4_5_moe": ("Ernie4_5_Moe", {"moe_intermediate_size": 24, "moe_num_experts": 4}),
    "granitemoe": ("GraniteMoe", {"num_local_experts": 4}),
}


@torch.no_grad()
@pytest.mark.parametrize("name", OTHERS)
def test_experts_of_other_families_are_replaced_by_their_common_interface(name: str) -> None:
    prefix, sizes = OTHERS[name]
    package = f"transformers.models.{name}"
    configuration = importlib.import_module(f"{package}.configuration_{name}")
    modeling = importlib.import_module(f"{package}.modeling_{name}")
    config = getattr(configuration, f"{prefix}Config")(**MODEL, intermediate_size=24, **sizes)
    model = randomize(getattr(modeling, f"{prefix}ForCausalLM")(config))
    names, ids = list(model.state_dict()), torch.randint(0, 64, (2, 7))
    want = model(ids).logits
    report = replace_experts(model)
    assert len(report.replaced) >= 1
    assert "its own router" in str(report)
    torch.testing.assert_close(model(ids).logits, want, rtol=1e-3, atol=1e-3)
    assert list(model.state_dict()) == names


@torch.no_grad()
def test_copy_of_a_replaced_model_has_weights_of_its_own() -> None:
    for name in ("qwen3_moe", "gpt_oss"):
        model = randomize(CASES[name].model())
        replace_experts(model)
        other, ids = copy.deepcopy(model), torch.randint(0, 64, (2, 3))
        want = model(ids).logits
        for parameter in model.parameters():
            parameter.zero_()
        torch.testing.assert_close(other(ids).logits, want)


@torch.no_grad()
def test_hooks_of_a_router_still_run() -> None:
    model, calls = randomize(CASES["mixtral"].model()), []
    model.model.layers[1].mlp.gate.register_forward_hook(lambda *_: calls.append(1))
    report = replace_experts(model)
    paths = [row.path for row in report.replaced]
    assert paths == ["model.layers.0.mlp", "model.layers.1.mlp.experts"]
    model(torch.randint(0, 64, (1, 3)))
    assert calls == [1]


@torch.no_grad()
@pytest.mark.parametrize("name", ["qwen3_moe", "mixtral", "gpt_oss"])
@pytest.mark.parametrize("asked_before", [False, True])
def test_router_logits_are_there_when_asked_for(name: str, asked_before: bool) -> None:
    model, ids = randomize(CASES[name].model()), torch.randint(0, 64, (2, 5))
    want = copy.deepcopy(model)(ids, output_router_logits=True).router_logits
    if asked_before:  # transformers then leaves its hooks on the routers
        model(ids, output_router_logits=True)
    report = replace_experts(model, router_outputs=True)
    assert [row.top_k for row in report.replaced] == [2, 2]
    torch.testing.assert_close(
        model(ids, output_router_logits=True).router_logits, want, rtol=1e-3, atol=1e-3
    )


def test_experts_with_hooks_are_left_and_listed() -> None:
    model = randomize(CASES["mixtral"].model())
    model.model.layers[1].mlp.experts.register_forward_hook(lambda *_: None)
    report = replace_experts(model)
    assert [row.path for row in report.replaced] == ["model.layers.0.mlp"]
    assert "model.layers.1.mlp: MixtralSparseMoeBlock left as it was: experts has" in str(report)


def test_model_that_is_a_block_itself_has_its_experts_replaced() -> None:
    report = replace_experts(randomize(CASES["mixtral"].block()))
    assert [row.path for row in report.replaced] == ["experts"]
    assert not report.refused


@torch.no_grad()
def test_replaced_block_is_one_graph_for_torch_compile() -> None:
    holder = nn.Sequential(randomize(CASES["qwen3_moe"].block()))
    replace_experts(holder)
    compiled = torch.compile(holder, fullgraph=True, dynamic=True, backend="aot_eager")
    for length in (5, 9):
        x = torch.randn(2, length, HIDDEN)
        torch.testing.assert_close(compiled(x), holder(x))
