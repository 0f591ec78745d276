"""What may be absent: triton, rich, transformers. `import anyshape` loads none of them.

A caller asks `available(name)` (which looks without importing) or `require(name)`, which imports
on the spot or raises E105 with the extra to install.
"""

from __future__ import annotations

import importlib
import importlib.util
from collections.abc import Mapping
from types import MappingProxyType, ModuleType

from anyshape.errors import AnyshapeError
from anyshape.nouns import frozen


@frozen
class Extra:
    """An optional package: the extra that installs it, and what needs it."""

    extra: str
    purpose: str


EXTRAS: Mapping[str, Extra] = MappingProxyType(
    {
        "triton": Extra("gpu", "kernels for GPUs are written in Triton"),
        "rich": Extra("cli", "colours on a terminal are rich's"),
        "transformers": Extra("demo", "the demo builds Hugging Face models from their configs"),
    }
)


def available(package: str) -> bool:
    """Whether `package` of EXTRAS could be imported; does not import it."""
    assert package in EXTRAS
    return importlib.util.find_spec(package) is not None


def require(package: str, submodule: str = "") -> ModuleType:
    """Import `package` of EXTRAS, or a submodule of it. Raises E105 where it is not installed."""
    extra = EXTRAS[package]
    if not available(package):
        raise AnyshapeError("E105", package=package, purpose=extra.purpose, extra=extra.extra)
    return importlib.import_module(f"{package}.{submodule}" if submodule else package)
