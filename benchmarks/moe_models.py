"""The layers that the MoE benchmark measures: transformers blocks with random weights, and ours
from the same weights.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import nn

from anyshape.moe import MoE, Routing


@dataclass(frozen=True)
class Model:
    """One layer: sizes of a transformers block (family, config class, block class, config)."""

    name: str
    family: str
    config: str
    block: str
    sizes: Mapping[str, object]

    def make_config(self) -> object:
        package = f"transformers.models.{self.family}.configuration_{self.family}"
        return getattr(importlib.import_module(package), self.config)(**self.sizes)

    def make_block(self) -> nn.Module:
        """The block with random weights, in bfloat16 on the GPU."""
        package = f"transformers.models.{self.family}.modeling_{self.family}"
        torch.manual_seed(0)
        with torch.device("meta"):
            block = getattr(importlib.import_module(package), self.block)(self.make_config())
        block = block.to(torch.bfloat16).to_empty(device="cuda").eval().requires_grad_(False)
        for name, tensor in block.state_dict().items():
            scale = 0.02 if "bias" in name else tensor.shape[-1] ** -0.5
            tensor.normal_(std=scale)
        return block


def scout_layer() -> MoE:
    """Llama 4 Scout's layer as eight ranks share it; the published shard has gate and up fused."""
    torch.manual_seed(0)
    routing = Routing(16, 1, "sigmoid", apply_to="input")
    layer = MoE(5120, 1024, routing, shared_size=1024, device="cuda", dtype=torch.bfloat16)
    layer.router.weight.data.normal_(std=5120**-0.5)
    return layer.requires_grad_(False).eval()


SCOUT = Model(
    "Llama 4 Scout, shard of 8",
    "llama4",
    "Llama4TextConfig",
    "Llama4TextMoe",
    {"hidden_size": 5120, "intermediate_size": 1024, "num_local_experts": 16},
)
QWEN = Model(
    "Qwen3-30B-A3B",
    "qwen3_moe",
    "Qwen3MoeConfig",
    "Qwen3MoeSparseMoeBlock",
    {
        "hidden_size": 2048,
        "moe_intermediate_size": 768,
        "num_experts": 128,
        "num_experts_per_tok": 8,
        "norm_topk_prob": True,
    },
)
GPT_OSS = Model(
    "gpt-oss-20b",
    "gpt_oss",
    "GptOssConfig",
    "GptOssMLP",
    {
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
    },
)
MIXTRAL = Model(
    "Mixtral-8x7B",
    "mixtral",
    "MixtralConfig",
    "MixtralSparseMoeBlock",
    {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_local_experts": 8,
        "num_experts_per_tok": 2,
    },
)
DEEPSEEK = Model(
    "DeepSeek-V3, 32 of 256 experts",
    "deepseek_v3",
    "DeepseekV3Config",
    "DeepseekV3MoE",
    {
        "hidden_size": 7168,
        "moe_intermediate_size": 2048,
        "n_routed_experts": 32,
        "num_experts_per_tok": 8,
        "n_group": 1,
        "topk_group": 1,
    },
)


def make_layer(model: Model) -> MoE:
    """Ours, from the block's weights (rewritten in the order that our kernels read)."""
    return MoE.from_hf(model.make_block(), relayout=True)
