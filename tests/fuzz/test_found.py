"""What the fuzzer found, shrunk: each program does now what eager does, at every size."""

from __future__ import annotations

import pytest

from tests.fuzz.oracle import wrong
from tests.fuzz.programs import Fuzzed, Input


def over(shapes: str, *lines: str, layouts: str = "plain", dtypes: str = "") -> Fuzzed:
    """A program over x0, x1...: one shape each, after commas; the last line is what it returns."""
    kinds = dtypes.split() or ["float32"] * 9
    inputs = tuple(
        Input(f"x{n}", tuple(shape.split()), kinds[n], tuple(layouts.split()))
        for n, shape in enumerate(shapes.split(","))
    )
    return Fuzzed(inputs, lines[:-1], lines[-1])


FOUND = {
    "equal results share no memory": over("a b", "x0 + 1, x0 + 1"),
    "views of equal results share none": over("a b", "(x0 + 1).t(), (x0 + 1).view(-1), x0 + 1"),
    "a result that is returned twice is one": over("a b", "t = x0 * 2", "t, t, t.view_as(t), t[:]"),
    "an alias of an argument is another object": over("a b", "x0.view_as(x0), x0.reshape(x0.shape), x0[...], x0"),
    "what gives back its argument gives that": over("a b", "x0.contiguous(), x0.float(), x0.add_(1)"),
    "a copy is a copy": over("a b", "x0.to(torch.float32, copy=True), x0.clone(), x0.clone()"),
    "the last row of an expanded one is contiguous": over(
        "a b", "t = x0[:1].expand(x0.shape)[: x0.shape[0] // 2]", "t.reshape(-1) if t.is_contiguous() else t * 2"
    ),
    "a write through a reshape of a stepped argument": over(
        "a b", "x0.reshape(-1).add_(2)", "x0 * 1", layouts="stepped"
    ),
    "a write through a flattened stepped argument": over(
        "a b", "x0.flatten()[1:] = 0", "x0 * 1", layouts="plain stepped offset"
    ),
    "a flattened stepped argument is a view": over(
        "a b", "x0.flatten(), x0.reshape(-1)[...]", layouts="stepped plain transposed"
    ),
    "a write to one row of an expanded argument": over(
        "a b", "x0[:1].add_(1)", "x0 * 2", layouts="plain expanded"
    ),
    "a masked addition to what nobody reads": over(
        "a b", "t = x0 + 1", "t[x0 > 0] += 1", "x0 * 2"
    ),
    "what is broadcast to its own shape is itself": over("a b, a b", "torch.broadcast_tensors(x0, x1)[0]"),
    "two of one element are broadcast to themselves": over("1 b, a 1", "torch.broadcast_tensors(x0, x1)"),
    "a tensor of one truth indexes a dimension of one element": over(
        "a b", "y = x0 + 1", "y[:, x0.sum() > 0] = 3", "y[(x0 > 1).any()] += 1",
        "x0[x0.sum() > 0] = 2", "y, x0[None, x0.any(), 1:], torch.index_put(y, (y.any(),), torch.ones(()))",
    ),
    "a write at places of a later dimension": over("1 b", "y = x0 + 1", "y[:, torch.tensor([0])] = 3", "y"),
    "a write through places in memory runs eagerly, without a word": over(
        "a b", "y = x0 * 2", "y.as_strided((1,), (1,))[0] = 3", "y * 2", "y"
    ),
    "a write through a reshape that cuts a transposed argument as it is cut": over(
        "a b", "t = x0.reshape(x0.shape[1], -1) if x0.numel() else x0", "t[[0]] = 3 if t.numel() else 0",
        "t", layouts="transposed"
    ),
    "the beginning of a flattened expanded argument is a copy": over(
        "a b", "x0.flatten()[: int(x0.count_nonzero()) % 3]", layouts="expanded"
    ),
    "one column gathered from what is made in the same kernel": over(
        "a 1, 1", "x0 += 2", "t = x0 + 2", "x1.fill_(x1.max())", "u = torch.broadcast_tensors(x0, x1)[0]",
        "t.gather(-1, torch.zeros_like(t, dtype=torch.int64)), u",
    ),
    "a copy of a last element that data decides whether to add to": over(
        "b", "t = x0[-1:].clone()", "if x0.sum() > 0:\n    t += 0", "t + 0, x0.chunk(2)[0].zero_()", layouts="plain"
    ),
    "a write through a copy of nothing moves the version": over(
        "a b", "x0.t().contiguous().add_(1)", "x0.t().reshape(-1).mul_(2)", "x0 + 1", layouts="plain transposed stepped"
    ),
    "a write through one column of rows with holes, laid along": over(
        "a b", "x0.reshape(x0.shape[1], x0.shape[0]).mul_(2)", "x0 * 1", layouts="plain stepped offset"
    ),
    "copies of copies of one row are views of it": over(
        "a b", "x0.T.contiguous().T.reshape(-1)[1:]", layouts="plain transposed stepped"
    ),
    "two copies of one row are one": over(
        "a b", "t = x0 * 2", "t.T.contiguous(), t.T.reshape(-1), t.mT.flatten()", layouts="plain stepped"
    ),
    "a write to a copy of a copy of one row": over(
        "a b", "x0.T.contiguous().T.reshape(-1).add_(1)", "x0 * 2", layouts="plain stepped expanded"
    ),
    "a number read from what is multiplied by it": over("a b", "t = x0 * 2", "t * t.sum().item(), t"),
    "an item that nobody reads": over(
        "a b", "t = x0.cumsum(1)", "u = t + int(t.count_nonzero())", "w = t * 2", "w + int(w.count_nonzero())"
    ),
    "numbers read from a slice of a flattened expanded argument": over(
        "a 1", "t = torch.tensor(x0.flatten()[:2].tolist())", "t[...] = 0", "t", layouts="expanded plain"
    ),
    "what is contiguous because a size is one is itself": over(
        "a b", "t = x0.t()", "t, t.contiguous(), t.contiguous().contiguous(), x0 * 2", layouts="plain transposed"
    ),
    "a mask of the rows of a square": over(
        "a a", "x0[x0.sum(1) > 4] = 0", "y = x0 * 2", "y[y[:, 0] != 0] = -1", "y[:, y[0] > 1] = torch.ones(1)", "y"
    ),
    "masks of a cube": over(
        "a a a, a a", "x0[x1 > 1] = 0", "x0[:, x1 < 0] = 1", "y = x0 + 1", "y[x1[0] > 2] += 1",
        "y.index_put_((x1[0] > 0,), torch.ones(()))", "torch.index_put(y, (x1 > 0,), torch.zeros(1, 1))",
    ),
    "what a new dimension is put in front of, indexed": over(
        "a b 3", "i = torch.arange(2) % x0.shape[0]", "x0[None, i], x0[None, None, i]", layouts="plain transposed"
    ),
    "rows of one row, from the second on, every other one": over(
        "a b", "t = x0[x0 > 0].reshape(1, -1) + 1", "t[1::2].mul_(2)", "t"
    ),
    "the other part of a split of nothing": over("a b", "t = x0.split([1, x0.shape[0] - 1])[1] if x0.shape[0] != 5 else x0", "t.sum()"),
    "places that are one number": over("a b", "x0.index_copy_(0, (x0.argmax() * 0), x0[[0]]) if x0.numel() else x0", "x0 * 2"),
    "a scatter into a view keeps its place in the storage": over(
        "a b", "t = x0[1:].select_scatter(x0[0], 0, 0)", "t += 1",
        "t, (x0 * 2)[:, 1:].slice_scatter(x0[:, :1], 1, 0, 1), x0.T.diagonal_scatter(x0.diagonal())", layouts="plain offset stepped"
    ),
    "what is selected by a number in a tensor lies in its base": over(
        "a b", "t = x0 * 2", "i = torch.tensor(-1)", "t[i], t[:, i], t[i].reshape(-1)", "t[i, 1:], t.T[i]"
    ),
    "strides of what is handed in": over(
        "a b 2", "x0.stride(), x0.stride(0), x0.new_zeros(x0.stride()[-1]), x0.stride() == (x0 + 1).stride()",
        layouts="plain transposed stepped gaps offset"
    ),
    "dropout of nothing is what it is given": over(
        "a b", "t = torch.nn.functional.dropout(x0, 0.5).mT", "t[:] = 0", "torch.alpha_dropout(x0, 0.5, True)"
    ),
    "a view of bytes of nothing": over(
        "2 a b", "t = x0.sum(0)", "t += 2", "t.view(torch.int32) + 2", dtypes="complex64"
    ),
    "what eager refuses and nobody reads": over(
        "a b 2 c", "t = x0 * 2", "t.mode(1)", "torch.nn.functional.adaptive_max_pool2d(t, 1)", "x0 + 1"
    ),
    "a view past the end of the storage that nobody reads": over(
        "a b", "t = x0 * 2", "t.as_strided((3, 2), (1, 2)), x0.as_strided((3,), (1,))", "x0 + 1", layouts="plain offset"
    ),
    "views by places": over(
        "a b 2", "t = x0 * 2", "u = t[1:].as_strided((2, 2), (3, 1)) if t.shape[0] > 2 else t.T",
        "u += 1", "u, t, t.T.as_strided((1,), (1,), 1)", layouts="plain transposed"
    ),
    "numbers drawn like what was written": over(
        "4 4", "x0.masked_scatter_(x0.any(-1), x0.clone())", "torch.randint_like(x0, 3), torch.bernoulli(x0 * 0.1)", layouts="plain transposed"
    ),
    "channels innermost, of nothing": over(
        "a b 2 2, a 1 b c", "x0.contiguous(memory_format=torch.channels_last), x1.contiguous(memory_format=torch.channels_last)",
        layouts="plain permuted"
    ),
    "a product into its own factor": over("4 4, 4 4", "torch.mm(x0, x1, out=x1)", "torch.add(x0, x1, out=x0)", "x0 + x1"),
    "a repeated row of one, flattened": over("a a a", "x0.expand(2, *x0.shape).mT.flatten()"),
    "a write through a copy of nothing that out= has told to be empty": over(
        "b a", "t = x0.mT.flatten()", "t.contiguous().add_(3)", "u = t.new_empty(0) if t.numel() == 0 else t.clone()",
        "torch.mul(t, 3, out=u)", "u, x0 + 1"
    ),
    "a tensor assigned to a slice of another size": over("a, b", "x0[:] = x1", "x0"),
    "strides of what is broadcast and flattened": over(
        "a 2 b 4, a 2 b 4", "torch.broadcast_tensors(x0, x1)[0].flatten(0, 1).stride(-1)"
    ),
    "rows as often as data says, beside their transpose": over(
        "a b c", "t = x0.repeat_interleave(x0.abs().flatten()[: x0.shape[0]].long(), 0)", "t - t.T"
    ),
    "legacy classes": over(
        "a b", "t = x0 + 1", "[isinstance(t, c) for c in (torch.FloatTensor, torch.LongTensor, torch.cuda.FloatTensor)], "
        "isinstance(t, (int, torch.HalfTensor)), t.type(torch.ShortTensor), t.type('torch.ByteTensor')"
    ),
    "an empty view of an argument that out= makes larger": over(
        "a 4", "t = x0[None, 5:].mT.reshape(-1)", "torch.mul(x0, 2, out=t)", "x0.sum(), t", layouts="plain expanded"
    ),
    "an alias of one row has its strides": over(
        "a b 2", "if x0.shape[1] == 1:\n    torch.add(x0, x0.rot90(), out=x0[:])", "x0 + 1", layouts="transposed"
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FOUND)
def test_it_does_what_eager_does(name: str) -> None:
    assert wrong(FOUND[name]) == []
