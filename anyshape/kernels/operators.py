"""How a kernel becomes a torch operator: one call that registers its schema and its
implementations.

Comes in: a schema in torch's own language (mutation declared), the reference, a fake, and the
Triton kernel.
Goes out: `torch.ops.anyshape.<name>`, which traces under torch.compile and records into CUDA
graphs.
The registrations go straight to the dispatcher: `torch.library.custom_op` costs 6 us more a call.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

LIBRARY = torch.library.Library("anyshape", "FRAGMENT")


def define(
    schema: str,
    *,
    reference: Callable[..., object],
    fake: Callable[..., object],
    triton: Callable[..., object] | None,
) -> torch._ops.OpOverload:
    """Register `schema` with its CPU, CUDA and fake implementations, and return the operator.

    Without Triton the reference runs on CUDA too.
    """
    name = schema.split("(", 1)[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, reference, "CPU")
    LIBRARY.impl(name, reference if triton is None else triton, "CUDA")
    torch.library.register_fake(f"anyshape::{name}", fake, lib=LIBRARY)
    return getattr(torch.ops.anyshape, name).default
