"""What the fuzzer found, shrunk: each program does now what eager does, at every size."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.fuzz.oracle import wrong
from tests.fuzz.programs import Fuzzed, Input


def over(
    shapes: str, *lines: str, layouts: str = "plain", dtypes: str = "", gradients: bool = False
) -> Fuzzed:
    """A program over x0, x1...: one shape each, after commas; the last line is what it returns."""
    kinds = dtypes.split() or ["float32"] * 9
    inputs = tuple(
        Input(
            f"x{n}",
            tuple(shape.split()),
            kinds[n],
            tuple(layout.replace("-", " ") for layout in layouts.split()),
            requires_grad=gradients,
        )
        for n, shape in enumerate(shapes.split(","))
    )
    return Fuzzed(inputs, lines[:-1], lines[-1])


def at(program: Fuzzed, *sizes: tuple[int, int, int]) -> Fuzzed:
    """The program at these sizes of a, b and c."""
    return replace(program, sizes=tuple(dict(zip("abc", own, strict=True)) for own in sizes))


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
    "what gives back its argument where data makes it empty is resized with it": over(
        "a", "t = x0[x0 > 9]", "u = t.diff(n=2)", "torch.eq(torch.zeros(t.shape[0], 3), 0, out=t)", "t, u",
    ),
    "a view in another dtype of a stride that eager refuses where there is nothing": over(
        "a 1", "t = x0 << 1", "t, t.view(torch.int32)", dtypes="bool",
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
    "a scatter into a row by a number in a tensor keeps its place": over(
        "a 4 b", "t = x0[x0.sum().long() * 0 - 1] if x0.numel() else x0[0]", "torch.select_scatter(t, torch.zeros(t[0].shape), 0, -1), t.diagonal_scatter(t.diagonal() * 2)"
    ),
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
    "row-major by a fact about two sizes together": over(
        "1 b", "t = x0.mT.flatten()", "t[None] *= 2", "t.unbind(0)", "t"
    ),
    "broadcast to its own shape, of a size that data decides": over(
        "b", "t = torch.zeros(x0.shape)", "u = t.repeat_interleave(x0.long().abs()[:1].sum() % 3, 0)",
        "u, torch.broadcast_tensors(u, t)[0] if x0.numel() < 2 else u"
    ),
    "a view of what a library wrote, of rows with holes": over(
        "a b", "x0[x0.bool()] = -x0[x0 != 0]", "x0.real[0] = 2", "x0", layouts="plain stepped", dtypes="complex64"
    ),
    "memory around what was written": over(
        "4 4", "t = x0.as_strided((2, 2), (1, 1)) if x0.stride(0) > 4 else x0", "x0.copy_(x0.T.clone())",
        "x0.as_strided((2, 2), (1, 1)) + 1, t + 1", layouts="plain stepped offset"
    ),
    "a truth in a tensor indexes a slice of nothing": over(
        "a b", "x0[:0][torch.tensor(True)] = 3", "x0[5:][x0.sum() > 0] = 1", "t = x0 * 2", "t[:0][:, torch.tensor(True)] += 1", "t, x0 + 1"
    ),
    "a step between transposed tensors has a gradient laid out as they are": over(
        "a b", "t = x0.sign()", "torch.relu(t), torch.relu(x0.round()), x0.floor() * x0", layouts="transposed", gradients=True
    ),
    "the gradient of a sum repeats one element": over("a b c", "x0.sum(1)", layouts="plain stepped", gradients=True),
    "the gradient of a sum of all repeats one element": over("a b", "x0.sum()", layouts="plain transposed", gradients=True),
    "an operator without a row writes what it has saved": over(
        "a b", "t = x0.neg()", "t.index_reduce_(0, torch.zeros(t.shape[0], dtype=torch.int64), t.clone(), 'amax')", "t * 2", gradients=True
    ),
    "gradients are recorded of what nobody is handed": over(
        "a 4", "t = torch.zeros(x0.shape[0], requires_grad=True)", "u = t * 1", "u[..., None].mul_(-1)", "x0[None]"
    ),
    "a mask written into a copy keeps the layout": over(
        "a b 3", "t = x0.mT * 2", "torch.index_put(t, (t > 0,), torch.ones(())), torch.index_put(t, (t.sum((1, 2)) > 0,), torch.ones(()))",
        layouts="plain transposed permuted"
    ),
    "numbers drawn in place before what raises": over(
        "a b", "t = x0.clone().uniform_().mul_(4).floor_()", "torch.bincount(t.long().flatten() - 2)", "x0 + 1"
    ),
    "places that nobody reads after a write, with gradients": over(
        "4 4, a b", "t = x0.detach().requires_grad_().index_select(0, x1.argmax(-1))", "t.add_(3)", "t * 2", "x1 + 1"
    ),
    "gradients of products lie as the factors": over(
        "4 4, 4 4", "torch.nn.functional.linear(x0, x1)", layouts="permuted gaps plain transposed", gradients=True
    ),
    "gradients of what is taken and raised lie as the argument": over(
        "a 2 b", "x0.take(torch.arange(x0.numel()).flip(0)), x0.tanh(), x0.amin(-2)", layouts="transposed plain permuted", gradients=True
    ),
    "two gradients that eager gives as one tensor": over("a b, a b", "x0 + x1", gradients=True),
    "a gradient whose shape eager refuses": over(
        "4", "t = x0 * x0", "t.scatter_add_(0, torch.zeros_like(t, dtype=torch.int64)[:1], t.clone())", "t", gradients=True
    ),
    "a result that its gradient reads is written in place": over(
        "4 4", "t = x0.abs().sqrt()", "t.addmm_(x0, x0)", "t, x0.exp().softmax(-1).mul_(2)", gradients=True
    ),
    "groups of one channel, of half of a batch of two": over(
        "a a a", "t = x0.tensor_split(2)[1]", "u = [v * 2 for v in (t > 0).chunk(2)]",
        "torch.nn.functional.group_norm(t, t.shape[1]), u[-1]", layouts="permuted", dtypes="float16", gradients=True
    ),
    "a slice of one row decides the order of what is indexed": over(
        "2 a b", "t = (x0 * 0)[1::2, x0.argsort(-2)]", "t, t + 1", layouts="permuted"
    ),
    "a dimension of one element between others, turned": over(
        "a b c", "t = x0[:, None]", "u = torch.tensor(2.0) + t",
        "torch.zeros_like(torch.select_scatter(u, torch.zeros(u[0].shape), 0, -1)) if u.shape[0] else u", layouts="permuted"
    ),
    "a copy of one repeated row": over(
        "1 b", "x0.unsqueeze(1).expand(-1, 4, -1).to(x0.dtype, copy=True)", layouts="gaps permuted plain"
    ),
    "what is flattened for the sake of sizes of one": over(
        "4 4 1 1, a b 2", "x0.flatten(1).split(2)[-1].square(), sum(list(x1[:1].flatten(0, 1)))", layouts="transposed"
    ),
    "a write through a reshape that cuts where two dimensions lie together": over(
        "a b 4", "x0.reshape(-1, x0.shape[0]).mul_(2)", "x0 * 1", layouts="permuted"
    ),
    "a reshape that is a view for the sake of another tensor's size of one": over(
        "1 b, a b", "t = x1.reshape(x0.shape[1], -1)", "t, x0, x1 * 2", layouts="gaps transposed stepped plain"
    ),
    "what raises behind something that data decides": over(
        "a", "t = x0.repeat_interleave(x0.abs().long() * 0, 0)", "try:\n    u = t[0] + 1\nexcept IndexError:\n    u = t.clone()",
        "u.movedim(0, -1).shape[0]"
    ),
    "a complex number scattered in place": over(
        "4", "x0.scatter_(0, torch.zeros_like(x0, dtype=torch.int64), 2)", "x0 + 1", dtypes="complex64"
    ),
    "a size from data, of a view whose size nobody sees afterwards": over(
        "b", "s = x0[1:]", "t = s[: int(s.bool().sum())].sum(0)", "torch.isin(t, torch.tensor([1, 2])), (t * 0).clamp(-8, 8)", dtypes="bool"
    ),
    "a write through a view of rows as long as another tensor's": over(
        "a b c, c c", "x1.view(-1, x0.shape[2]).add_(2)", "x1[torch.where(x1 > 0)] = 0", "x1 * 2, x1.t().contiguous()"
    ),
    "gradients pass a slice of everything": over(
        "4 4, a b c", "x0[0:].sum(), x0[:].mT.cumsum(-2), x1[:].sum(0), x1[: x1.shape[0], 0:] * 2", layouts="offset permuted", gradients=True
    ),
    "kron, where eager refuses to view what it has multiplied": over(
        "4 4, a 4 b", "t = torch.kron(x0, x1)", "t * 2", layouts="transposed plain expanded"
    ),
    "inplace=True of what is a view where a size is one": over(
        "a 2 b 4", "torch.nn.functional.relu(x0.transpose(0, 1).reshape(-1), inplace=True)", "x0 * 2"
    ),
    "a list whose last tensor is refused after a write": over(
        "a b, a b", "x1.mul_(2)", "torch._foreach_mul_([x1, x1[:1].expand(3, -1)], 3)", "x0 * 1, x1"
    ),
    "results with no operator in common add to one gradient": over(
        "a b 2, a b 2", "t = x0.flatten().dot(x0.flatten()).clamp(-8, 8), x1 * 2", "x0.mT.reshape(-1), x1.mT.reshape(-1), *t", gradients=True
    ),
    "gradients of what a mask selects lie as the argument": over(
        "a b 4, a 1 b", "x0.masked_select(x0 > 0), x1.masked_select(x1.mT > 0) * 2", layouts="permuted plain gaps transposed", gradients=True
    ),
    "a product of one number that is written behind it": over(
        ", a", "t = x0.sign().cumprod(-1)", "t.view_as(t).add_(0)", "t, x0.exp(), x1.sigmoid().cumprod(0).add_(1)", gradients=True
    ),
    "what a check of two sizes from data says of an argument's": over(
        "2 a b", "t = x0.transpose(0, 1).reshape(-1)", "u = torch.cat([t[t > 0], t[t <= 0]])", "x0.clamp_(-3, 3)", "u, u.unfold(-1, 2, 1)"
    ),
    "rows of which there is one, of a size that is written otherwise": over(
        "b", "t = torch.nn.functional.one_hot(x0.long() % 3, 3)", "t[t.sum() > 3] += 0", "t.add_(1)", "torch.ops.aten.chunk(x0, 2)[0].unique().shape", "t",
        layouts="stepped", dtypes="bool"
    ),
    "out= of another shape, of what is a view where a size is one": over(
        "a b 2, 1 b", "t = x0.transpose(0, 1).reshape(-1)", "torch.sum(x1, 0, out=t)", "t.neg_()", "t", layouts="plain offset"
    ),
    "a view in another shape that the scheduler does not find again": replace(
        over(
            "a 4 b c", "t = x0.view(-1, 4)", "u = torch.ones(t.shape, dtype=torch.bool)", "u[(0, -1), (0, 0)] = False",
            "v = t.masked_fill(u, 1)", "x0.scatter_reduce_(-1, torch.zeros_like(x0, dtype=torch.int64), x0.clone(), 'sum')",
            "w = torch.ops.aten.chunk(v, 2)[0]", "t, x0", layouts="gaps gaps permuted",
        ),
        sizes=({"a": 3, "b": 3, "c": 1}, {"a": 5, "b": 5, "c": 5}),
    ),
    "a write to a ravelled column": over(
        "a b, 4", "x0[:, 0].ravel().add_(2)", "x1.ravel().mul_(3)", "x0[:, 0].ravel().mul_(2), x0 * 1, x1", layouts="plain stepped"
    ),
    "gradients of what is set in a slice of a part, or of everything": over(
        "a b 4", "t = x0 * 1", "t[:3] = 1", "t", layouts="permuted", gradients=True
    ),
    "gradients of what is set in a slice of everything": over(
        "a b 4", "t = x0 * 1", "t[..., :4] = 1", "t", layouts="permuted", gradients=True
    ),
    "gradients of a slice of a part beside others, or of everything": over(
        "a b 4", "(x0 * 1)[:3, ...].permute(2, 0, 1) * 2", layouts="permuted", gradients=True
    ),
    "a whole quotient of halves lies as its operands": over(
        "a b 4, a 4 b", "y = x1.abs() + 1", "x0.mT // y, torch.div(x0.mT, y, rounding_mode='floor'), 5.0 // y.mT, y.mT // 2, y // x0.mT",
        layouts="plain permuted transposed", dtypes="bfloat16 bfloat16"
    ),
    "a whole quotient of halves has no derivative": over("a b, a b", "x0 // (x1.abs() + 1)", dtypes="float16 float16", gradients=True),
    "gradients pass as_strided inside of the view alone": over(
        "a b 4", "t = x0.cumsum(0)[-1:, :1]", "t.as_strided((3,), (1,), 0) if x0.numel() > 3 else t", gradients=True
    ),
    "cpu() in a memory format": over("a 2 b 4", "x0.cpu(memory_format=torch.channels_last), x0.cpu()"),
    "part of a tensor with a new dimension has gaps, all of it has none": over(
        "a b 4", "(x0 * 1)[:, :4, None]", layouts="permuted"
    ),
    "a flattened argument with gaps, written before, is a copy": over(
        "a b, b", "x0.relu_()", "x1.T[:1].add_(2)", "x0.flatten(), x1.t().contiguous()", layouts="gaps plain stepped"
    ),
    "a copy in another shape, written through a view of it": over(
        "a 2 b 4", "t = x0.mT.flatten()", "t.T.contiguous().add_(1)", "u = x0.mT.flatten(0, 1)", "u.flatten()[:2].zero_()", "t, u"
    ),
    "a turned product is no view": over("4 4", "t = (x0 @ x0).rot90()", "t[1:] = t[:-1].clone()", "t, x0.rot90(2), x0.rot90(-1)"),
    "a turned product is no view, with gradients": over(
        "4 4", "t = x0.new_full(x0.shape, 2, requires_grad=True)", "t.chunk(2, -1)[-1].rot90(), (x0 @ x0).rot90()", gradients=True
    ),
    "_is_view() of what a mask selects": over("4 4", "t = x0[x0 > 0].view(-1, 1)", "t._is_view(), (t * 2)._is_view(), x0._is_view(), t[:1]", gradients=True),
    "a branch on data that writes through a reshape": over(
        "4 4, a 4", "t = x0.reshape(-1)", "if float(x1.sum()) > 1:\n    t.view_as(t).add_(1)", "x0 * -1"
    ),
    "a branch on data that writes through what is a view where a size is one": over(
        "a 4", "t = x0.mT.reshape(-1)", "if float(t.sum()) > 1:\n    t.view_as(t).add_(2)", "t + 1"
    ),
    "a copy that is its argument where that is empty": over(
        "a b 2", "t = x0 + 0", "for k in x0.flatten()[:3].to(torch.int64).tolist():\n    t = t * 2 - k", "x0.T.contiguous().add_(0)", "t.clamp(-8, 8)"
    ),
    "a flattened empty argument is a view of it": over(
        "a 4 b c", "t = x0.mT.flatten()", "u = t.half().float()", "t.unsqueeze_(0)", "u", layouts="offset plain"
    ),
    "memory formats at sizes of one": over(
        "a 2 b 4, a 4 b c", "x0.contiguous(memory_format=torch.channels_last), x1.to(memory_format=torch.channels_last)", layouts="transposed permuted plain"
    ),
    "parts of what is written behind them, with gradients": over(
        "a b 4, b", "t = x0 * 1", "u = t.chunk(2), t.unbind(-1)", "t.squeeze().add_(1)", "x1.detach().add_(1)", "u, x1.split(2)", gradients=True
    ),
    "parts of what is written behind them are read, with gradients": over(
        "a b 4", "t = x0 * 1", "u = t.chunk(2, -1)[0]", "t.add_(1)", "u * 2", gradients=True
    ),
    "out= of what has no derivative so": over("4", "t = torch.rand_like(x0)", "torch.softmax(x0, -1, out=t)", "t * 2", gradients=True),
    "what index_reduce_ has saved is written": over(
        "4 b", "t = x0 * 1", "t.index_reduce_(0, torch.zeros(4, dtype=torch.int64), t.clone(), 'amax')", "t.index_add_(0, torch.arange(4).flip(0), t.clone())", "t",
        gradients=True
    ),
    "the gradient of cummin of nothing is its argument": over("a 2 b 4", "x0.cummin(-1)[0]", layouts="stepped plain", gradients=True),
    "gradients of what is set at places in what a mask selects": over(
        "a 4", "t = x0[x0 * 0 == 0]", "t.index_fill_(0, torch.topk(t, 1)[1], 2)", "u = x0[x0 * 0 == 0]", "u[x0.flatten().argmax()[None]] = 1", "t, u", gradients=True
    ),
    "an image without a batch lies as one of a batch": over(
        "4 b c, 4 4 3 3, 4 4 1 1", "y = x1.contiguous(memory_format=torch.channels_last)",
        "torch.nn.functional.conv2d(x0, y, padding=1), torch.nn.functional.conv2d(x2[0], x2, padding=1)", layouts="plain transposed", dtypes="float64 float64 float64"
    ),
    "what is put at a mask of an argument's size lies as what it is put into": over(
        "a, a 4", "t = torch.index_put(x1, (x0 > 0,), torch.ones(()))", "t.logical_not_()", "t", layouts="transposed plain"
    ),
    "a detached result counts writes with what it is of": over("4 4", "t = x0 * 2", "t[:2].detach(), t[1:]", gradients=True),
    "a flattened result counts writes with what is detached": over("a b", "t = x0 * 2", "t.view(-1), t.detach()", gradients=True),
    "data of a result made here counts its writes alone": over("4 4", "t = x0 * 2", "u = t.data", "u[:2], u, t, x0.data, x0.data[0]", gradients=True),
    "a write to what a mask of one truth selects, with gradients": over(
        "a", "t = x0.clone()", "t[x0.sum() > 1] += 0", "torch.cat([t, t])", gradients=True
    ),
    "a roll of nothing asks for no dimension": over("a", "t = x0[:0].masked_select(x0[:0] > 0)", "t.roll(1, 1), x0.roll((0, 1), (0, 0))"),
    "a view in another dtype is none": over("a b", "t = x0.view(torch.int32)", "t.broadcast_to(t.shape), t, t._is_view()"),
    "a copy in the middle of its storage is no view": over(
        "4 a b", "t, u = x0.split([1, x0.shape[0] - 1])", "u *= -1", "u, x0[1:2].transpose(0, 1).reshape(-1), u[:1].mT.reshape(-1)", layouts="gaps"
    ),
    "sizes that data decides are joined, with gradients": over(
        "a a a, a b", "t = (x0 @ x0).clamp(-8, 8)", "u = torch.nn.functional.layer_norm(x1, x1.shape[-1:])[t.sum() > 1]", "v = u - u.T",
        "v.scatter(-2, t.argsort(-2), v)", gradients=True
    ),
    "at least one dimension of a number": over("a", "torch.atleast_1d(x0, 3)"),
    "what is made of a reshape lies as the view that it may be": at(
        over("a b", "t = x0.reshape(-1, 2)", "t.clone(), t + 1, t.double(), torch.zeros_like(t)", layouts="permuted"), (16, 4, 1), (2, 2, 1), (3, 2, 1), (4, 6, 1)
    ),
    "a stride of what is made of a reshape": at(
        over("a b", "(x0.reshape(-1, 2) + 1).stride(), x0.reshape(-1, 2).sin().is_contiguous()", layouts="permuted"), (16, 4, 1), (2, 2, 1), (3, 2, 1), (1, 2, 1)
    ),
    "views of dimensions of one element have the stride of the last one": over(
        "1 b, a b", "x0.unflatten(-1, (-1, 1)).stride(), x1[:1].view(-1, 1, 1).stride(), x1.mT[:, :1].unflatten(0, (1, -1)).stride()", layouts="stepped plain permuted"
    ),
    "a copy of what data makes empty": over(
        "a b c", "t = x0.repeat_interleave(x0.abs().flatten()[: x0.shape[0]].long(), 0)", "t.mT.reshape(-1), t.flatten()[:2]"
    ),
    "a value that has more dimensions is written to nothing": at(over("b, a b", "x0[1::2] = x1", "x0"), (3, 0, 2), (1, 4, 1)),
    "a size that may not be 0 is divided by": at(
        over(
            "a b 4, a 4", "t = torch.zeros(x1.clamp(0, 3).sum().item() % 5) + 2", "x0.reshape(t.shape[0], -1).reshape(-1, 2), t",
            layouts="plain offset gaps", dtypes="float32 int64"
        ), (2, 3, 0), (3, 2, 1), (1, 2, 40)
    ),
    "what is expanded for a product of nothing": at(
        over("a b c, 2 a b", "t = x1 @ x0.cumsum(1).flip(-1)", "x1", dtypes="bfloat16 bfloat16"), (1, 0, 3), (1, 6, 1)
    ),
    "a copy with gaps lends no memory": over(
        "a b c", "x0.mul_(2).clamp_(-8, 8)", "torch.nn.functional.dropout(x0, 0.3)", "t = torch.div(x0, 2, rounding_mode='trunc')",
        "torch.bincount(x0.abs().long().flatten())", "t", layouts="plain gaps", dtypes="float64"
    ),
    "a view with steps of what a mask is tested against": at(
        over(
            "4 a b 4 2, a c b 2, a 1", "t = x1[::2].softmax(1)", "x2.flatten()[torch.zeros(t.shape[2], dtype=torch.bool)] = 0", "x1[x1.flatten() > 0] *= -1", "t"
        ), (0, 0, 0)
    ),
    "an einsum over what is found to have one element": at(
        over("a a", "t = x0.unflatten(0, (2, -1))", "torch.einsum('abc,acd->abd', t, t)", layouts="permuted", dtypes="bfloat16"), (2, 5, 3), (4, 1, 1)
    ),
    "two copies of a written argument share no memory": over("a 4", "x0[x0 != 0] = 3", "x0.flatten(), x0.flatten()[1:]", layouts="permuted plain"),
    "a scatter and a view of it by offsets have one version counter": over(
        "a b, a b", "t = x0.slice_scatter(x1, 0)", "u = t.as_strided((x0[x0.amax(-1) > 2, ...].shape[0],), (1,))", "torch.zeros_like(u, dtype=int), t, u, x0"
    ),
    "a view in another dtype of part of a copy": at(
        Fuzzed(
            (Input("x0", ("a", "a", "a"), "float32", ("reversed rows", "transposed", "plain")),), ("t = x0.flatten().tensor_split([int(x0.count_nonzero()) % 3])[0]",),
            "t.view(torch.int32),"
        ), (2, 5, 3), (3, 1, 1), (4, 2, 2)
    ),
    "a slice of everything that is not counted from the first": over(
        "4 4 3, a b 2", "t = x0 * 2", "t[..., -x0.shape[2]:] = 1", "t, x1[:, -x1.shape[1]:]", layouts="permuted plain", gradients=True
    ),
    "aten.slice of everything": over("a 2 b 4", "torch.ops.aten.slice(x0 * 2, 0, 0, x0.shape[0]).mT.flatten().exp(),", gradients=True),
    "gradients of parts that meet at a view": over("2 a b", "t = x0.mT", "u = t.clamp(min=0)", "t.to(torch.bfloat16).float(), u", gradients=True),
    "gradients of attention over rows with holes": at(
        over(
            "a 2 b 4", "torch.nn.functional.scaled_dot_product_attention(x0, x0, x0, is_causal=True),", layouts="gaps stepped plain", dtypes="float64", gradients=True
        ), (5, 7, 2), (5, 5, 5), (2, 2, 7), (2, 3, 0)
    ),
    "gradients of what is put at a mask": over(
        "a 4", "t = x0 * 2", "t[..., x0.bool()] = 3", "t.T.reshape(-1).exp(),", layouts="permuted plain", gradients=True
    ),
    "what is put at a truth is no view": over(
        "a b c", "torch.index_put(x0, (torch.tensor(True),), torch.ones(())), x0.select(0, 0)", layouts="permuted offset", gradients=True
    ),
    "kron where a size is one": at(
        over("b a, a b", "torch.square(torch.kron(x0, x1)).clamp(-8, 8),", layouts="permuted"), (4, 1, 2), (1, 4, 2), (2, 1, 3)
    ),
    "kron with what data decides": at(
        over("a 1, a b 2", "torch.kron(x1.flatten().unique(return_counts=True)[1], x0),", layouts="transposed plain"), (2, 5, 3), (1, 2, 3)
    ),
    "what is indexed with a truth that is known": over(
        "a 4", "x0[torch.tensor(True)].sum(-2) ^ x0[: x0.shape[0] // 2],", layouts="transposed", dtypes="int64"
    ),
    "lines whose channels are innermost are pooled as images": over(
        "a b 4", "t = x0.mT", "torch.nn.functional.adaptive_avg_pool1d(t, 2), torch.nn.functional.adaptive_max_pool1d(t, 1), torch.nn.functional.avg_pool1d(t, 1)",
        layouts="plain gaps offset"
    ),
    "images with a batch of its own stride": at(
        Fuzzed((Input("x0", ("a", "b", "c", "4"), "float32", ("reversed rows",)),), ("t = x0.permute(0, 3, 1, 2)",), "torch.nn.functional.adaptive_max_pool2d(t, 2), t"),
        (3, 4, 5), (2, 2, 7), (1, 4, 3)
    ),
    "round of integers": at(over("a b c", "x0.round()[(x0 / 2).argsort(0)[:, 0]],", layouts="permuted", dtypes="int8"), (3, 3, 1), (3, 4, 5)),
    "zeros like two tensors that lie otherwise": over(
        "a b c", "x0.scatter_add_(0, torch.zeros_like(x0, dtype=torch.int64)[:1], x0.clone()).clamp_(-8, 8)", "torch.zeros_like(x0.sign().cumprod(1)), x0 * 2",
        layouts="permuted plain", dtypes="int32"
    ),
    "a reshape to the sizes of another tensor": over("b a, a a a", "t = x0.reshape(x0.shape[0], x1.shape[2])", "t, t.reshape(-1)", layouts="gaps plain offset"),
    "strides of powers and comparisons, read where nothing is": at(
        over("a 1, 4 a 1", "(x0 / 0).isinf().stride(), (x0 ** 2).stride(), x1.isfinite().stride(), (x1 * 2).isinf().stride()", layouts="plain permuted"), (0, 0, 0), (3, 1, 2), (0, 1, 1)
    ),
    "strides of a pool of nothing, read": at(over("a 4 b c", "torch.nn.functional.adaptive_max_pool2d(x0, 1).stride(),", layouts="plain"), (0, 3, 2), (2, 3, 1)),
    "a write through a reshape whose sizes data decides": at(
        over(
            "b a", "n = int(x0.bool().sum()) % 2", "t = x0.flatten().split([n, x0.numel() - n])[1]", "x0.reshape(t.shape[0], -1).mul_(-1)",
            "x0 * 1", layouts="stepped reversed-rows gaps", dtypes="int32"
        ), (3, 0, 2), (1, 6, 1), (2, 3, 1)
    ),
    "a write to a view that only a later check of data makes one": at(
        over("a b c", "t = x0.mT.reshape(-1)", "u = t[t <= 100][0]", "t.add_(1)", "u.msort(), x0 * 1", layouts="permuted", dtypes="int16"), (1, 4, 3), (3, 4, 1)
    ),
    "the stride of a diagonal of nothing with gaps": at(
        over("a b", "t = x0.diagonal(0, 0, -1)", "u = torch.nonzero(t).sum(0)", "torch.mul(x0, 1, out=x0.new_empty(0))", "u, t.stride()", layouts="reversed-rows"),
        (17, 9, 2), (3, 0, 2), (3, 2, 2)
    ),
    "a leaf that is written as what is detached of it": over(
        "a b", "t = x0.new_full(x0.shape, 2, requires_grad=True)", "t.detach().add_(0)", "x0, t"
    ),
    "integers that a number with gradients is set into": Fuzzed(
        (Input("x0", ("a", "2"), "uint8", ("plain",)), Input("x1", (), "float32", ("plain",), requires_grad=True)),
        ("x0.swapaxes(0, 1)[0] = x1",), "x1 * 2,",
    ),
    "gradients of what is written whole": over("a b, b", "t = x0 * 1", "t.copy_(x1)", "t, (x0 > 0).sum()", gradients=True),
    "gradients of a whole slice that is written": over("a b, b", "t = x0 * 2", "t[:] = x1", "t + 1", gradients=True),
    "gradients of what a product of beta 0 does not read": over("a b, a, b", "torch.addr(x0, x1, x2, beta=0)", gradients=True),
    "a kernel at places that are numbers, before what says that there are any": at(
        over(
            "a b, a b", "torch.nn.functional.nll_loss(x1.log_softmax(-1), torch.zeros(x1.shape[0], dtype=torch.int64))",
            "t = torch.nn.functional.embedding(torch.zeros(x0.shape[1], dtype=torch.int64), x0.sign()).sum(0)", "x0[x0 != 0][0] = 1", "t,"
        ), (5, 5, 5), (0, 3, 2), (4, 0, 2)
    ),
    "what is put lies in its rows by a check of sizes that are equal": at(
        over(
            "a b c, a a", "t = x1.triu(1)", "x1[x1.long() % 2] = x1[x1.sum(1) > 3]", "u = x0[t.isnan()].sum()", "u, t[torch.tensor(0)]"
        ), (0, 0, 0), (3, 3, 1), (5, 5, 5)
    ),
    "room for a quotient of sizes": at(
        over(
            "a 4 b c, 4 4 1 1, 4 4", "t = x0.mT.flatten()", "u = torch.nn.functional.conv2d(x0, x1, padding=1).view(-1, 4)",
            "torch.nn.functional.linear(torch.nn.functional.gelu(torch.nn.functional.linear(u, x2)), x2)", "t,", dtypes="float64 float64 float64"
        ), (0, 0, 3)
    ),
    "a product that is viewed, where a size is found to be 1": at(
        over("a b 4, 4 4", "torch.kron(x1, x0)", layouts="plain plain permuted"), (3, 4, 5), (16, 4, 4), (1, 6, 1)
    ),
    "a product that is viewed, of what was written through a turned view": at(
        over("a b 4, a b", "x1.T[torch.arange(x0.shape[1]) > 1] = 2", "torch.kron(x1, x0[..., None])", dtypes="bfloat16 float32"), (3, 2, 1), (2, 5, 3)
    ),
    "an index and a mask of what is found to be as long": at(
        over("4 4, 4", "t = x0 @ x0.T", "u = torch.empty_like(x1)", "torch.add(x1, 3, out=u)", "t[u.long() % 2, u <= 100] *= 2", "t,"), (3, 0, 2)
    ),
    "integers that eager refuses unless there are none": at(
        over("a b", "t = torch.nn.functional.batch_norm(x0, torch.zeros(x0.shape[1]), torch.ones(x0.shape[1]))", "x0 * 2,", dtypes="int64"),
        (1, 0, 5), (0, 2, 1), (2, 2, 2)
    ),
    "a view of a convolution whose weight has its channels innermost": at(
        over("a 4 b, 4 4", "t = torch.nn.functional.conv1d(x0, x1.unfold(0, 1, 1), padding=1)", "u = t.view(-1, 4)", "t + 1, u"), (4, 3, 1), (5, 2, 1)
    ),
    "a stride that is handed in to a native region": over(
        "a b, 4 4", "x0[1:] += x0[:-1].clone()", "torch.nn.functional.linear(x1, x1),", layouts="plain gaps"
    ),
    "a product into windows that overlap, which it reads": at(
        over("2 a b", "t = x0.unfold(-1, 2, 1)", "u = t.any()", "t = t.narrow(0, 0, 1)", "torch.mul(t, 2, out=t)", "u,"), (3, 3, 1)
    ),
    "a write to the bytes of bools": at(
        over("4 4", "t = (x0 / 0).isinf()", "u = t.view(torch.int32)", "u[torch.tensor([0])] += 2", "u,"), (1, 6, 1)
    ),
    "channels that are innermost, but for the stride of a size of 1": at(
        over("a 2 b 4", "t = torch.cat([x0, x0])", "u = t.mT.flatten()", "t += 2", "u,", layouts="transposed"), (1, 1, 1), (2, 1, 3)
    ),
    "a reshape that is a view is not contiguous": at(
        over("a b c", "x0.mT.reshape(-1).is_contiguous(),", layouts="gaps", dtypes="int64"), (1, 6, 1), (2, 3, 4)
    ),
    "a size that data refuses first is divided by": at(
        over("a 4", "t = (x0 / 0).sort(0)[1]", "t[torch.tensor(0)].reshape(x0.shape[0], -1),"), (0, 0, 0), (4, 3, 2)
    ),
    "a view that a gradient saves, whose base is written": at(
        over(
            "a a a", "t = x0.norm(dim=-1)", "u = x0.diagonal_scatter(torch.ones(x0.diagonal().shape, dtype=torch.float16))",
            "u[-t.shape[0]:] = x0", "v = torch.linalg.cholesky(u @ u.mT + 5 * torch.eye(u.shape[-2]))", "t,", gradients=True
        ), (2, 2, 2)
    ),
    "what nobody reads has no part in a gradient": at(
        over(
            "a 2 b 4, 4 4", "t = x0.flatten().tensor_split([int(x1.count_nonzero()) % 3])[0].repeat(1, 2)",
            "u = torch.complex(t, t).mT.reshape(-1)", "v = t + 0", "v[1:] += 2", "v,", gradients=True
        ), (3, 0, 2), (2, 2, 2), (1, 4, 3)
    ),
}  # fmt: skip
FOUND["what a gradient saves of an argument that is written"] = at(
    Fuzzed(
        (
            Input("x0", ("a", "b", "2"), "float32", ("plain",)),
            Input("x1", ("1", "b"), "float32", ("plain",), requires_grad=True),
        ),
        (
            "t = torch.addcmul(x0, x1, x1).clamp(-8, 8)",
            "x0.index_reduce_(0, torch.zeros(x0.shape[0], dtype=torch.int64), x0.clone(), 'amax')",
        ),
        "t,",
    ),
    *((1, 1, 1), (6, 2, 3), (2, 2, 2)),
)
FOUND["an argument that has fewer dimensions by the time of another's gradient"] = at(
    Fuzzed(
        (
            Input("x0", ("a", "b", "c"), "float32", ("plain",)),
            Input("x1", (), "float32", ("plain",), requires_grad=True),
        ),
        ("t = x1 * x0.shape[1] + 1", "x0.squeeze_(0)", "torch.eq(x1, x1, out=x0)"),
        "t.cpu(), t",
    ),
    *((1, 6, 1), (3, 2, 1)),
)


@pytest.mark.parametrize("name", FOUND)
def test_it_does_what_eager_does(name: str) -> None:
    assert wrong(FOUND[name]) == []
