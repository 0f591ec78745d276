"""`torch.compile(..., backend="anyshape")`: what Dynamo has captured, compiled here.

In: an FX graph with its symbolic sizes, as the Python function that FX writes of it. Out: that
function, compiled as any other, every size symbolic but those of parameters and buffers. Dynamo's
guards stand in front of it: they choose the graph, ours the specialization of it.
pyproject.toml registers `compile_fx` as an entry point, by which torch finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from anyshape.api import compile, reset
from anyshape.dispatch.ranks import warn_once
from anyshape.errors import AnyshapeError
from anyshape.torch_arguments import NAME

STATIC = "_dynamo_static_input_type"  # in a placeholder's record of a parameter or a buffer


class Backend:
    """What `torch.compile` calls with each graph."""

    __name__ = NAME

    def __call__(
        self,
        module: GraphModule,
        example_inputs: Sequence[Any],
        *,
        mode: str | None = None,
        options: Mapping[str, object] | None = None,
    ) -> Callable[..., Any]:
        """Compiles one graph of Dynamo's."""
        warn_once(AnyshapeError("E108"))
        return compile(
            function_of(module),
            dynamic=True,
            mode=mode,
            options=options,
            shapes=static_sizes(module),
        )

    def reset(self) -> None:
        """`torch.compiler.reset`."""
        reset()


compile_fx = Backend()


def function_of(module: GraphModule) -> Callable[..., Any]:
    """The graph as a Python function, which FX may not have written yet."""
    assert module.code
    forward: Callable[..., Any] = module.forward
    return forward


def static_sizes(module: GraphModule) -> dict[str, str] | None:
    """The sizes of parameters and buffers, which are arguments of a graph that serves every module
    of one class; Dynamo has guarded them."""
    placeholders = [node for node in module.graph.nodes if node.op == "placeholder"]
    shapes = {node.target: _sizes(node) for node in placeholders if _is_static(node)}
    return {name: sizes for name, sizes in shapes.items() if sizes} or None


def _is_static(node: Node) -> bool:
    value = node.meta.get("example_value")
    record = node.meta.get("tensor_dict") or {}
    return isinstance(value, torch.Tensor) and (STATIC in record or node.type is torch.nn.Parameter)


def _sizes(node: Node) -> str:
    sizes = node.meta["example_value"].shape
    return " ".join(str(size) if type(size) is int else "_" for size in sizes)
