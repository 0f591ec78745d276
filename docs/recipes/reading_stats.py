"""What runs compiled, what does not, and where to look.

`print(fast.stats())` begins with a verdict. Behind each of its words is one call that says more.
"""

import torch

import anyshape


def program(x: torch.Tensor) -> torch.Tensor:
    y = x.relu() * 2
    if y.sum() > 10:  # decided by data: the graph breaks here
        y = y @ (y.t() @ y)
    return y.softmax(-1)


fast = anyshape.compile(program)
with torch.no_grad():
    for rows in (2, 5, 9):
        fast(torch.ones(rows, 3))
    print(fast.stats())
    assert fast.stats().verdict().startswith("compiled in")

    found = anyshape.explain(program)(torch.ones(2, 3))
    print(found.breaks[0])  # the line, the reason, and what to do
    assert found.breaks[0].id == "tensor-branch"  # docs/breaks/tensor-branch.md

    print("\n".join(fast.recompiles()))  # which guard failed, with which values
    print(fast.guards())  # what is relied on, by which line

    mended = anyshape.compile(
        lambda x: torch.where((y := x.relu() * 2).sum() > 10, y @ (y.t() @ y), y).softmax(-1),
        fullgraph=True,  # from now on a graph break is an error
    )
    torch.testing.assert_close(mended(torch.ones(2, 3)), program(torch.ones(2, 3)))
    assert mended.stats().verdict() == "compiled whole, once"
