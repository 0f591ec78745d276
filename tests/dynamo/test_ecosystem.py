"""Libraries that take the name of a backend reach the compiler by it. Those that are not installed
are skipped; none of them is among the test requirements."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import anyshape
from anyshape.api import CompiledFunction


@pytest.fixture(autouse=True)
def installed() -> Iterator[None]:
    torch.compiler.reset()
    anyshape.install()
    yield
    anyshape.uninstall()


def llama() -> Any:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=50, max_position_embeddings=64,
        bos_token_id=1, eos_token_id=2, pad_token_id=0,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


def stats_of(module: nn.Module) -> anyshape.dispatch.stats.Stats:
    compiled = module._compiled_call_impl
    assert isinstance(compiled, CompiledFunction)
    return compiled.stats()


def test_transformers_generate_with_a_compile_config() -> None:
    from transformers import CompileConfig

    model = llama()
    settings = {"max_new_tokens": 5, "do_sample": False, "cache_implementation": "static"}
    config = CompileConfig(backend="anyshape", mode=None)
    config._compile_all_devices = True  # how transformers' own tests compile on a CPU
    for length in (3, 9):
        tokens = torch.randint(3, 50, (2, length))
        expected = model.generate(tokens, **settings, disable_compile=True)
        assert torch.equal(model.generate(tokens, **settings, compile_config=config), expected)
    assert isinstance(model._compiled_call, CompiledFunction)
    assert model._compiled_call.stats().calls


def test_trainer_by_the_name_of_the_backend(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    from transformers import Trainer, TrainingArguments

    tokens = torch.randint(3, 50, (8, 6))
    data = [{"input_ids": row, "labels": row} for row in tokens]

    def trained(**settings: Any) -> tuple[float, Any]:
        torch.manual_seed(0)
        model = llama().train()
        arguments = TrainingArguments(
            tmp_path, max_steps=2, per_device_train_batch_size=4, report_to=[], use_cpu=True,
            disable_tqdm=True, save_strategy="no", seed=1, **settings,
        )  # fmt: skip
        trainer = Trainer(model, arguments, train_dataset=data)
        return trainer.train().training_loss, trainer

    expected, _ = trained()
    loss, trainer = trained(torch_compile_backend="anyshape")
    assert loss == pytest.approx(expected, rel=1e-5)
    assert anyshape.api._compiled_class(type(trainer.model_wrapped))


def test_accelerate_by_the_name_of_the_backend() -> None:
    accelerate = pytest.importorskip("accelerate")
    from accelerate.utils import TorchDynamoPlugin

    plugin = TorchDynamoPlugin(backend="anyshape")
    assert plugin.to_kwargs()["backend"] == "anyshape"
    prepared = accelerate.Accelerator(cpu=True, dynamo_plugin=plugin).prepare(nn.Linear(3, 4))
    assert prepared(torch.ones(2, 3)).shape == (2, 4) and prepared(torch.ones(0, 3)).shape == (0, 4)
    assert prepared.stats().specializations == 1


def test_diffusers_repeated_blocks() -> None:
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    model = diffusers.UNet2DConditionModel(
        sample_size=8, in_channels=4, out_channels=4, layers_per_block=1, cross_attention_dim=8,
        block_out_channels=(8, 16), attention_head_dim=4, norm_num_groups=4,
        down_block_types=("CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D"),
    ).eval()  # fmt: skip
    plain = copy.deepcopy(model)
    model.compile_repeated_blocks(backend="anyshape", fullgraph=True)
    for size in (8, 4):
        x, text = torch.randn(2, 4, 8, size), torch.randn(2, 5, 8)
        with torch.no_grad():
            ours, theirs = model(x, 3, text).sample, plain(x, 3, text).sample
        torch.testing.assert_close(ours, theirs)
    blocks = [m for m in model.modules() if type(m).__name__ in model._repeated_blocks]
    assert blocks and all(stats_of(block).specializations == 1 for block in blocks)


def test_peft_adapters() -> None:
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(llama(), peft.LoraConfig(target_modules=["q_proj"], r=2))
    plain = copy.deepcopy(model)
    model.compile(backend="anyshape")
    for length in (3, 7):
        tokens = torch.randint(3, 50, (2, length))
        with torch.no_grad():
            torch.testing.assert_close(model(tokens).logits, plain(tokens).logits)
    assert list(model.state_dict()) == list(plain.state_dict())
    assert stats_of(model).specializations == 1


def test_lightnings_compile() -> None:
    lightning = pytest.importorskip("lightning")

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(3, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x).relu()

    module = Module()
    fast = torch.compile(module, backend="anyshape")
    with torch.no_grad():
        for rows in (2, 0, 5):
            x = torch.randn(rows, 3)
            torch.testing.assert_close(fast(x), module(x))


def test_sentence_transformers() -> None:
    library = pytest.importorskip("sentence_transformers")
    model = library.SentenceTransformer(modules=[Words()])
    expected = model.encode(["a b c", "d"], convert_to_tensor=True)
    model.compile(backend="anyshape")
    torch.testing.assert_close(model.encode(["a b c", "d"], convert_to_tensor=True), expected)


class Words(nn.Module):
    """The least that a SentenceTransformer takes."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(256, 8)

    def tokenize(self, texts: list[str], **settings: Any) -> dict[str, torch.Tensor]:
        lengths = max(map(len, texts))
        return {"input_ids": torch.tensor([list(t.ljust(lengths).encode()) for t in texts])}

    preprocess = tokenize

    def forward(self, features: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        embedded = self.embedding(features["input_ids"]).mean(1)
        return {**features, "sentence_embedding": embedded}

    def get_sentence_embedding_dimension(self) -> int:
        return 8
