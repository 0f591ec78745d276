"""What an entry of the zoo is: how to build it, what to call it with, at which sizes.

A Hugging Face entry names a class and a config of transformers and the settings that make it
small; weights are random, nothing is downloaded.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anyshape.optional import require

Sizes = tuple[int, int]  # batch, and tokens, pixels a side, samples or whatever the entry varies
Inputs = Callable[[int, int, torch.Generator], Mapping[str, object]]

TEXT: tuple[Sizes, ...] = ((2, 7), (2, 16), (1, 33), (3, 20), (2, 1), (1, 1), (4, 50))
PICTURES: tuple[Sizes, ...] = ((2, 32), (1, 32), (3, 32), (2, 64), (1, 96))
ONE_PICTURE: tuple[Sizes, ...] = ((2, 32), (1, 32), (3, 32), (5, 32))
WORDS = 99


@dataclass(frozen=True, slots=True)
class Entry:
    """One program of the zoo. `grad` leaves gradients on and compares those of parameters too."""

    name: str
    family: str
    build: Callable[[], Callable[..., object]]
    inputs: Inputs
    shapes: tuple[Sizes, ...] = TEXT
    grad: bool = False


def small(class_name: str, config_name: str, settings: Mapping[str, object]) -> nn.Module:
    """A transformers model in eval mode. A setting that is a pair (config name, settings) is a
    config inside the config.
    """
    transformers = require("transformers")
    config = make_config(config_name, settings)
    torch.manual_seed(0)
    return getattr(transformers, class_name)._from_config(config).eval()


def make_config(name: str, settings: Mapping[str, object]) -> object:
    values = {
        key: make_config(*value) if is_config(value) else value for key, value in settings.items()
    }
    return getattr(require("transformers"), name)(**values)


def is_config(value: object) -> bool:
    return isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], dict)


def hf(
    family: str,
    class_name: str,
    inputs: Inputs,
    shapes: tuple[Sizes, ...] = TEXT,
    config: str = "",
    name: str = "",
    **settings: object,
) -> Entry:
    """An entry for a class of transformers; its config is found by the class's own name."""

    def build() -> nn.Module:
        return small(class_name, config or config_of(class_name), settings)

    return Entry(name or class_name, family, build, inputs, shapes)


def config_of(class_name: str) -> str:
    return getattr(require("transformers"), class_name).config_class.__name__


# --- inputs ---


def ids(batch: int, length: int, generator: torch.Generator) -> Tensor:
    return torch.randint(3, WORDS, (batch, length), generator=generator)


def tokens(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    """Token ids and a mask of which the last row hides its end."""
    mask = torch.ones(batch, length, dtype=torch.int64)
    mask[-1, max(1, length - length // 3) :] = 0
    return {"input_ids": ids(batch, length, generator), "attention_mask": mask}


def plain_tokens(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    return {"input_ids": ids(batch, length, generator)}


def two_texts(batch: int, length: int, generator: torch.Generator) -> dict[str, object]:
    """An encoder's tokens and as many, and two more, for its decoder."""
    given = tokens(batch, length, generator)
    return {**given, "decoder_input_ids": ids(batch, length + 2, generator)}


def pictures(batch: int, size: int, generator: torch.Generator) -> dict[str, object]:
    return {"pixel_values": torch.randn(batch, 3, size, size, generator=generator)}
