"""transformers' Trainer: `torch_compile_backend="anyshape"`.

`anyshape.install()` first: accelerate knows only the backends of its own list, to which it adds the
name; and the model is captured by anyshape, with every size symbolic, instead of by Dynamo.
"""

import tempfile

import torch
from accelerate import Accelerator  # Trainer needs it
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

import anyshape

anyshape.install()
torch.manual_seed(0)
config = LlamaConfig(
    hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, vocab_size=100, bos_token_id=1, eos_token_id=2, pad_token_id=0,
)  # fmt: skip
rows = torch.randint(3, 100, (8, 6))
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        folder, torch_compile_backend="anyshape", max_steps=3, per_device_train_batch_size=4,
        use_cpu=True, report_to=[], save_strategy="no", disable_tqdm=True, learning_rate=1e-2,
    )  # fmt: skip
    data = [{"input_ids": row, "labels": row} for row in rows]
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=data)
    trainer.train()
stats = trainer.model_wrapped.stats()
assert stats.specializations and Accelerator is not None
print(stats)
anyshape.uninstall()
