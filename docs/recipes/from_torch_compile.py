"""Moving over from torch.compile, option by option: `anyshape.compile` takes all of its arguments.

| torch.compile | here |
|---|---|
| `fullgraph=True` | the same: a graph break is an error |
| `dynamic=None` | every size is symbolic from the first call on; no recompile to find out |
| `dynamic=True` | the same, and numbers among the arguments are symbolic too |
| `dynamic=False` | every size is a constant |
| `backend=...` | anyshape compiles; one warning says so |
| `mode=...` | the same names; on the CPU they change nothing |
| `options={...}` | our own (`anyshape options`); inductor's are ignored, in one warning |
| `disable=True` | the same |
| `recompile_limit=8` | `max_variants`; recompiles are counted for each function by itself |
| `shapes_spec=...` | `shapes=...`: declared sizes, held to in every call |
| `torch._dynamo.mark_dynamic` | understood, as is `anyshape.mark_dynamic` |
| `torch.compiler.reset` | `anyshape.reset` |
| `torch._dynamo.explain` | `anyshape.explain` |
| `TORCH_LOGS=graph_breaks,recompiles` | warnings, `fast.stats()`, `fast.recompiles()` |
"""

import warnings

import torch

import anyshape


@anyshape.compile(fullgraph=True, dynamic=True, mode="max-autotune", recompile_limit=4)
def scaled(x: torch.Tensor, n: int) -> torch.Tensor:
    return x.reshape(n, -1) * n


for n in (2, 3, 1, 6):
    x = torch.randn(n * 4)
    assert torch.equal(scaled(x, n), x.reshape(n, -1) * n)
assert scaled.stats().specializations == 1

# The name alone works everywhere a backend has a name. After install() it is the same compiler as
# above; without it, Dynamo captures, and its graphs are compiled.
anyshape.install()
fast = torch.compile(lambda x: x.sin() + x.shape[0], backend="anyshape")
for rows in (3, 1, 0):
    assert torch.equal(fast(torch.zeros(rows)), torch.full((rows,), float(rows)))
anyshape.uninstall()

with warnings.catch_warnings(record=True) as warned:
    warnings.simplefilter("always")
    anyshape.compile(scaled.uncompiled(), options={"max_autotune": True})
assert "max_autotune" in str(warned[0].message)
print(scaled.stats())
