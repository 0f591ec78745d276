"""Launches of the program's own Triton kernels, as operators that a graph can call.

In: a kernel as `triton.jit`, `triton.autotune` or `triton.heuristics` made it, and what a launch
hands it: which parameters are tensors, which are numbers, and the values of the others. Out: an
operator of grids and arguments, that launches it as the program does. Triton itself is not
imported here.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch

from anyshape.kernel_writes import may_write
from anyshape.nouns import frozen, replace

NAMESPACE = "anyshape_kernels"
AXES = 3
"""Of a grid."""
LIBRARY = torch.library.Library(NAMESPACE, "FRAGMENT")


@frozen
class Launch:
    """What is the same at each launch: the parameters by name, of which so many are handed over by
    position; which of the given values each of them is, in order, as one tensor may be several;
    the types that a schema has for values that may differ; the others; and how many grids there
    are, one for each of a tuned kernel's configurations."""

    names: tuple[str, ...]
    positional: int
    positions: tuple[int, ...]
    types: tuple[str | None, ...]
    constants: tuple[Any, ...]
    grids: int

    def schema(self) -> str:
        """Those that may be written lie in memory of their own."""
        grids = (f"int g{n}" for n in range(AXES * self.grids))
        given = (f"{kind.replace('!', f'a{n}!')} p{n}" for n, kind in enumerate(self.types) if kind)
        return f"({', '.join((*grids, *given))}) -> ()"


TENSOR, READ = "Tensor(!)", "Tensor"
NUMBERS: Mapping[type, str] = {bool: "bool", int: "int", float: "float"}
_made: dict[Any, torch._ops.OpOverload] = {}
_lock = threading.Lock()


def operator_of(kernel: Any, launch: Launch) -> torch._ops.OpOverload:
    """The operator: `AXES` numbers for each grid, then what differs from launch to launch, in
    order. It is made once, and keeps the kernel. `launch.constants` are hashable."""
    constants = tuple((type(value), value) for value in launch.constants)  # 1 == 1.0 == True
    key = id(kernel), replace(launch, constants=constants)
    with _lock:
        if key not in _made:
            _made[key] = _define(kernel, launch)
        return _made[key]


def _define(kernel: Any, launch: Launch) -> torch._ops.OpOverload:
    schema = launch.schema()
    digest = hashlib.sha256(
        repr((schema, launch.names, launch.positions, launch.constants)).encode()
    ).hexdigest()
    known = getattr(function_of(kernel), "__name__", "kernel")
    name = f"{''.join(c if c.isalnum() else '_' for c in known)}_{digest[:8]}_{len(_made)}"
    LIBRARY.define(f"{name}{schema}")
    LIBRARY.impl(name, _launcher(kernel, launch), "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{name}", _nothing, lib=LIBRARY)
    operator: torch._ops.OpOverload = getattr(getattr(torch.ops, NAMESPACE), name).default
    return operator


def _nothing(*given: object) -> None:
    """Of tensors without memory nothing is launched."""


def _launcher(kernel: Any, launch: Launch) -> Callable[..., None]:
    numbers = AXES * launch.grids

    def launched(*values: Any) -> None:
        differing, constant = iter(values[numbers:]), iter(launch.constants)
        own = [next(differing if kind else constant) for kind in launch.types]
        given = [own[position] for position in launch.positions]
        launch_now(kernel, launch.names, launch.positional, values[:numbers], given)

    return launched


def launch_now(
    kernel: Any, names: Sequence[str], positional: int, sizes: Sequence[int], given: Sequence[Any]
) -> None:
    """Launches it as the program does. `sizes`: of all grids, one behind the other."""
    grids = [tuple(sizes[n : n + AXES]) for n in range(0, len(sizes), AXES)]
    grid = grids[0] if len(grids) == 1 else _grid_by_configuration(kernel, grids)
    kernel[grid](*given[:positional], **dict(zip(names[positional:], given[positional:])))


def _grid_by_configuration(
    kernel: Any, grids: list[tuple[int, ...]]
) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    """What a tuned kernel asks for the grid of the configuration that it has chosen or tries."""
    configurations = tuner_of(kernel).configs

    def grid(given: Mapping[str, Any]) -> tuple[int, ...]:
        for one, each in zip(configurations, grids, strict=True):
            if all(given[name] == value for name, value in one.kwargs.items()):
                return each
        raise ValueError(f"no configuration of {kernel} has these numbers: {dict(given)}")

    return grid


def written_by(kernel: Any) -> Set[str] | None:
    """The parameters that a launch may write through; None where that cannot be said, as where
    functions of the program's run before a kernel."""
    tuner, innermost = tuner_of(kernel), _innermost(kernel)
    hooks = list(getattr(innermost, "pre_run_hooks", ()))
    if tuner is not None:
        hooks += (one.pre_hook for one in tuner.configs)
        hooks += (getattr(tuner, n, True) for n in ("reset_to_zero", "restore_value"))
        hooks.append(getattr(tuner, "user_defined_pre_hook", True))
    source = "".join(getattr(innermost, "raw_src", ()))
    return None if any(hooks) else may_write(innermost.fn, source)


def function_of(kernel: Any) -> Any:
    """The Python function below all that was made of it."""
    return _innermost(kernel).fn


def _innermost(kernel: Any) -> Any:
    """The kernel that is neither tuned nor has heuristics."""
    while hasattr(kernel.fn, "fn"):
        kernel = kernel.fn
    return kernel


def tuner_of(kernel: Any) -> Any:
    """The part of a kernel that chooses among configurations; None where there is none."""
    while hasattr(kernel, "fn"):
        if hasattr(kernel, "configs"):
            return kernel
        kernel = kernel.fn
    return None
