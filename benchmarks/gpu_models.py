"""The models of the GPU's benchmarks; nothing here imports ANYSHAPE or Triton, so that a first call
that is timed behind it imports what it needs itself."""

from __future__ import annotations

import torch
import transformers

VOCABULARY = 32000


def llama() -> torch.nn.Module:
    config = transformers.LlamaConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=8, num_attention_heads=16,
        num_key_value_heads=8, vocab_size=VOCABULARY,
    )  # fmt: skip
    return transformers.LlamaForCausalLM(config)


def qwen3_moe() -> torch.nn.Module:
    config = transformers.Qwen3MoeConfig(
        vocab_size=VOCABULARY, hidden_size=2048, intermediate_size=6144, num_hidden_layers=4,
        num_attention_heads=32, num_key_value_heads=4, head_dim=128, num_experts=128,
        num_experts_per_tok=8, moe_intermediate_size=768,
    )  # fmt: skip
    config._experts_implementation = "grouped_mm"
    return transformers.Qwen3MoeForCausalLM(config)


MODELS = {"Llama, 8 layers": llama, "Qwen3-MoE, 4 layers": qwen3_moe}
