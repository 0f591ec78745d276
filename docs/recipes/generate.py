"""`generate`: one compile serves the prompt, every step after it, and every next request.

By name, the way transformers does it: hand `generate` a `CompileConfig`. Or compile the model's own
forward, which has nothing to do with the kind of cache.
"""

import torch
from transformers import LlamaConfig, LlamaForCausalLM

import anyshape

torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=100, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
model = LlamaForCausalLM(config).eval()
settings = {"max_new_tokens": 6, "do_sample": False}
prompts = [torch.randint(3, 100, (batch, length)) for batch, length in ((1, 5), (3, 9), (2, 1))]
expected = [model.generate(tokens, **settings) for tokens in prompts]

# A server: requests of any batch and any length, and no compile after the first few.
model.forward = anyshape.compile(model.forward)
for tokens, wanted in zip(prompts, expected):
    assert torch.equal(model.generate(tokens, **settings), wanted)
warm = model.forward.stats().specializations
for batch, length in ((4, 3), (1, 17), (2, 8)):
    model.generate(torch.randint(3, 100, (batch, length)), **settings)
assert model.forward.stats().specializations == warm
print(model.forward.stats())
