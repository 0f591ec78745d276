"""The Triton kernel of each operator, by name; empty where Triton is not installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

KERNELS: Mapping[str, Callable[..., object]] = MappingProxyType({})
