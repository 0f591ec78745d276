"""PEFT: adapters are compiled as what they are, and can be switched.

Compile what `get_peft_model` gives. Another adapter is another specialization; none is made twice.
"""

import torch
from peft import LoraConfig, get_peft_model
from transformers import LlamaConfig, LlamaForCausalLM

import anyshape

torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=100,
)  # fmt: skip
lora = LoraConfig(target_modules=["q_proj", "v_proj"], r=2, init_lora_weights=False)
model = get_peft_model(LlamaForCausalLM(config).eval(), lora, adapter_name="first")
model.add_adapter("second", lora)
fast = anyshape.compile(model)
counts = []
with torch.no_grad():
    for _ in range(3):
        for adapter in ("first", "second"):
            model.set_adapter(adapter)
            for length in (3, 7, 1):
                tokens = torch.randint(3, 100, (2, length))
                torch.testing.assert_close(fast(tokens).logits, model(tokens).logits)
        counts.append(fast.stats().specializations)
assert counts[1] == counts[2], counts
print(fast.stats())
