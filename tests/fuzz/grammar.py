"""What lines of random programs are made of: templates by family.

In a template, lower-case names in braces are filled in. The same tensor is meant where a name
stands twice:

    v, w    any tensor                       m       of two dimensions or more
    e, e2   whole numbers, exactly           f, f2   floating (ef: whole)    z   complex
    q       int64     k  bool                x       an argument
    L, W, B [..., 4], [4, 4] and [4], floating
    C, K    an image of 4 channels and weights for it; C1, K1 over a line
    H       [a, 2, b, 4], for attention      P, R    products: [a, b, c] and [a, c, b]

Drawn anew at each place: i (a small number), d (a dimension), s (a size), dt (a dtype), ix (an
index), mask, ints, slice. n is the name that the statement binds.
"""

from __future__ import annotations

from collections.abc import Mapping


def cells(text: str) -> tuple[str, ...]:
    """Templates of one line each, between bars."""
    return tuple(cell.strip() for line in text.strip().split("\n") for cell in line.split(" | "))


PARTS: Mapping[str, tuple[str, ...]] = {
    "i": cells("0 | 1 | 2 | 3"),
    "j": cells("0 | 1 | 2 | -1 | True | 2.5"),
    "d": cells("0 | 0 | -1 | -1 | 1 | -2"),
    "dt": cells(
        "torch.float32 | torch.float64 | torch.int64 | torch.int32 | torch.int16 | torch.int8"
        " | torch.uint8 | torch.bool | torch.float16 | torch.bfloat16 | torch.float32 | int | float | bool"
    ),
    "ft": cells("torch.float32 | torch.float64 | torch.float16 | torch.bfloat16"),
    "slice": cells(": | 1: | :-1 | ::2 | :2 | -1: | 1::2 | :{s} | {s} // 2: | -{s}: | 5: | :0"),
    "place": cells("0 | -1 | 0 | 1 | 2"),
    "mask": cells(
        """
{e} > {i} | {e} > {i} | {e} != 0 | {e} <= 100 | {e}.bool() | {k} | {k} | ~{k} | {e}.sum(1) > {i} | {e}.sum({d}) > 4 | {e}[:, 0] != 0
{e}.any({d}) | {e}.select({d}, 0) > 0 | {e}.sum() > {i} | torch.arange({s}) > {i} | {e}.amax({d}) > {i} | {e2} > {i} | torch.ones({s}, dtype=torch.bool)
{e}.sum(1) > {i} | {e}[0] > 0 | torch.tensor(True) | {e} == {e2} | {e}.flatten() > 0 | ({e} > 0).all({d}) | torch.zeros({s}, dtype=torch.bool) | {e}.isnan()
"""
    ),
    "ints": cells(
        """
torch.tensor([0]) | torch.tensor([0, -1]) | [0, -1] | [0] | torch.tensor(0) | torch.arange({s}) | torch.zeros({s}, dtype=torch.int64) | {e}.long() % 2 | {q}
torch.arange({s}) % 2 | torch.arange({s}).flip(0) | {e}.argsort({d}) | {e}.argmax({d}) | torch.tensor([[0], [0]]) | torch.arange({s})[:, None] | {q} % {s} | torch.randperm({s})
torch.zeros(0, dtype=torch.int64) | torch.nonzero({e})[:, 0] | torch.tensor([0], dtype=torch.int32) | torch.topk({e}.flatten(), 1)[1] | torch.tensor([-1, 0, 0])
"""
    ),
    "item": cells("{slice} | {slice} | {place} | None | ... | {mask} | {mask} | {ints} | {ints}"),
    "ix": cells(
        """
{slice} | {place} | {mask} | {mask} | {mask} | {ints} | {ints} | :, {item} | ..., {item} | {item}, {item} | {item}, {item} | {item}, {item}, {item} | {item}, ... | ..., {place}
None, {item} | {item}, None | {mask}, {item} | {slice}, {mask} | {slice}, {ints} | {slice}, {slice} | ..., {slice} | {ints}, {ints} | {ints}, :, {ints} | {place}, {mask}
"""
    ),
}

VIEWS = """
{v}[{slice}] | {v}[{slice}] | {v}[{place}] | {v}[:, {place}] | {v}[:, {slice}] | {v}[..., {slice}] | {v}[..., None] | {v}[None] | {v}[{slice}, {slice}] | {v}[:, None]
{v}.t() | {v}.transpose(0, -1) | {v}.permute(1, 0) | {v}.permute(2, 0, 1) | {v}.mT | {v}.T | {v}.movedim(0, -1) | {v}.swapaxes(0, 1) | {v}.movedim(-1, 0) | {v}.permute(-1, *range({v}.dim() - 1))
{v}.unsqueeze({d}) | {v}.squeeze() | {v}.squeeze({d}) | {v}.reshape(-1) | {v}.view(-1) | {v}.flatten() | {v}.ravel() | {v}.contiguous() | {v}.flatten(0, 1) | {v}.flatten(1) | {v}.flatten(-2)
{v}.reshape({v}.shape) | {v}.view({v}.shape[0], -1) | {v}.reshape(-1, {v}.shape[0]) | {v}.unflatten(0, (1, -1)) | {v}.t().contiguous() | {v}.unflatten(-1, (-1, 1)) | {v}.view(-1, 4) | {v}.reshape(-1, 2)
{v}.expand(2, *{v}.shape) | {v}.expand_as({w}) | {v}.expand({v}.shape) | {v}.broadcast_to({w}.shape) | {v}[:1].expand({v}.shape) | {v}.expand(-1, {s}) | {v}.unsqueeze(1).expand(-1, {s}, -1)
{v}.narrow(0, 0, 1) | {v}.select({d}, 0) | {v}.chunk(2)[0] | {v}.chunk(2, -1)[-1] | {v}.split(2)[-1] | {v}.unbind()[0] | {v}.tensor_split(2)[1] | {v}.narrow({d}, 1, {v}.shape[{d}] - 1) | {v}.unbind({d})[-1] | {v}.split([1, {v}.shape[0] - 1])[1]
{v}.diagonal() | {v}.detach() | {v}.view_as({v}) | {v}.to({v}.dtype) | {v}[: {v}.shape[0] // 2] | {v}.diagonal(1) | {v}.diagonal(0, 0, -1) | {v}.diagonal(-1) | {v}.hsplit(1)[0] | {v}.cpu()
{v}.unfold(0, 1, 1) | {v}.unfold(-1, 2, 1) | {v}.as_strided((1,), (1,)) | {v}.as_strided({v}.shape, {v}.stride()) | {v}.as_strided(({s},), (1,)) | {v}[...] | {v}[:] | torch.ops.aten.alias({v}) | torch.broadcast_tensors({v}, {w})[0] | torch.atleast_2d({v})
{e}.view(torch.int32) | {v}.transpose(0, 1).reshape(-1) | {v}.T.contiguous().T | torch.dropout({v}, 0.5, False) | {v}.reshape({s}, -1) | torch.nn.functional.dropout({v}, 0.1, False) | {v}.mT.reshape(-1) | {v}.mT.flatten() | {v}.unsqueeze(-1).squeeze()
{v}.to(memory_format=torch.contiguous_format) | {v}.contiguous(memory_format=torch.channels_last) | {v}.clone(memory_format=torch.contiguous_format) | {v}.clone(memory_format=torch.preserve_format) | {v}.to(memory_format=torch.channels_last) | {v}.to({v}.dtype, copy=True)
torch.ops.aten.split_with_sizes({v}, [1, {v}.shape[0] - 1])[0] | torch.ops.aten.unbind({v})[0] | torch.ops.aten.chunk({v}, 2)[0] | torch.ops.aten.view({v}, [-1]) | torch.ops.aten.slice({v}, 0, 0, {s}) | torch.ops.aten.select({v}, 0, 0) | torch.ops.aten.t({m}) | torch.ops.aten.expand({v}, {v}.shape)
{v}.real | torch.view_as_real({z}) | {z}.imag | {z}.conj() | torch.view_as_real({z})[..., 0] | {z}.resolve_conj() | {z}.T.conj() | {z}.mT.reshape(-1)
"""

POINTWISE = """
-{v} | {v}.abs() | torch.relu({v}) | {v}.clamp(-8, 8) | {v}.clone() | torch.square({v}).clamp(-8, 8) | torch.nn.functional.relu6({v}) | {v}.neg() | {v}.positive() | torch.nn.functional.hardtanh({v}, -2, 2)
{v} + {w} | {v} - {w} | ({v} * {w}).clamp(-8, 8) | torch.maximum({v}, {w}) | torch.minimum({v}, {w}) | {v} + {w} | {v} + {v}.mT | {v} * {v} | {v} - {v}.T | {v} + {v}[0] | {v} + {v}[:, :1] | {v} * {w}[{slice}]
{v} + {i} | {i} - {v} | ({v} * {i}).clamp(-8, 8) | {v} + {s} | ({v} * 1.0).clamp(-8, 8) | {v} + True | {v} * 2 | {v} + {j} | {v} * {j} | {v}.add({w}, alpha=2) | torch.rsub({v}, {i}) | {v} + 1.5
torch.where({e} > {i}, {v}, {w}) | torch.where({e} != 0, {v}, {i}) | {v}.masked_fill({e} > 0, {i}) | torch.where({mask}, {v}, {w}) | torch.where({mask}, {v}, {j}) | {v}.masked_fill({mask}, {i}) | {v}.where({mask}, {i})
{e} > {e2} | {e} == {e2} | {e} <= {i} | {e} // 2 | {e} % 3 | {e}.logical_not() | ({e} > 0) & ({e2} < 2) | {e} != {e}.T | {e} > {e2} | {e}.isnan() | {e}.remainder(-3) | {e}.bool() ^ {e2}.bool() | torch.isin({e}, torch.tensor([1, 2]))
{e}.sign() | {e}.floor() | {e} ^ {e2} | ~{e} | {e} << 1 | {e} & 3 | {e}.bool() | {e}.fmod(3) | {e} / 2 | {e}.round() | {e} // {e2}.abs().clamp(1, 3) | {e} % 2 == 0 | torch.div({e}, 2, rounding_mode="trunc") | {e}.ceil()
torch.addcmul({v}, {w}, {w}).clamp(-8, 8) | {v}.lerp({w}, 1.0) | {v}.clamp(min=0) | {v}.clamp(min={w}) | torch.heaviside({e}, {e2}) | {v}.clip(None, 3) | torch.logical_xor({e}, {e2}) | {v}.nan_to_num() | torch.copysign({e}, {e2})
"""

CONVERSIONS = """
{e}.to(torch.int64) | {e}.to(torch.float64) | {e}.to(torch.int32) | {e}.to(torch.int8) | {v}.float() | {e}.to(int) | {e}.to(float) | {e}.to(bool) | {e}.to("cpu", int) | {v}.to("cpu") | {e}.to("cpu", torch.float32) | {e}.to(torch.float32, copy=True)
{e}.to(torch.int16) | {e}.abs().to(torch.uint8) | {e}.to({v}.dtype) | {e}.type_as({w}) | {e}.half().float() | {e}.to({w}) | {e}.type({dt}) | {e}.to({dt}) | {e}.to({dt}) | {e}.half() | {e}.bfloat16() | {e}.long() | {e}.int() | {e}.double()
{e}.to(torch.uint8) * 100 + 60 | -{e}.to(torch.uint8) | {e}.to(torch.int8) * 50 | {e}.bool() + {e2}.bool() | {e}.bool() * 3 | {e}.to(torch.int8).abs() << 5 | {e}.to(torch.uint8) // 2 - 1 | {e}.to(torch.complex64) | {e}.half() + {w} | {e}.bfloat16() * {w}
{e}.to(torch.uint8).sum(dtype=torch.uint8) | ({e}.to(torch.int8) * 60).cumsum({d}, dtype=torch.int8) | {e}.to(torch.int8).prod({d}, dtype=torch.int8) | {e}.bool().sum({d}) | {e}.bool().cumsum({d}) | torch.tensor(2, dtype={dt}) + {v} | {v} + torch.ones((), dtype={dt})
{v}.to(torch.bfloat16).float() | {e}.to(torch.float16) + 0.1 > 0 | torch.result_type({v}, {w}) | torch.promote_types({v}.dtype, {w}.dtype) | {e}.to(non_blocking=True, dtype={dt}) | {v}.to({w}.device)
"""

REDUCTIONS = """
{v}.sum() | {v}.sum({d}) | {v}.sum({d}, keepdim=True) | {v}.amax({d}) | {v}.amin({d}, keepdim=True) | {v}.sum((0, 1)) | {v}.sum((0, -1), keepdim=True) | {e}.sum({d}, dtype={ft}) | {v}.amax((0, 1)) | {v}.amax()
{e}.any({d}) | {e}.all() | {e}.argmax({d}) | {e}.argmin() | {e}.max({d})[0] | {e}.min({d})[1] | {e}.count_nonzero() | {e}.max({d}, keepdim=True).values | {e}.any({d}, keepdim=True) | {e}.all({d}) | {e}.count_nonzero({d}) | {v}.max() | {v}.min()
{e}.clamp(-1, 1).prod({d}) | {e}.sum({d}, dtype=torch.float64) | {e}.any() | {e}.aminmax()[1] | {e}.aminmax(dim={d})[0] | {e}.argmax({d}, keepdim=True) | {e}.contiguous().median({d})[0] | {e}.median() | {e}.mode({d})[0] | {e}.kthvalue(1, {d})[0] | {v}.nansum({d})
{v}.mT.sum({d}) | {v}[{slice}].sum() | {v}[{slice}].amax({d}) | torch.einsum("ij->ji", {v}) | torch.einsum("ij->j", {v}) | torch.einsum("ij,kj->ik", {e}, {e2}).clamp(-8, 8) | torch.trace({e}) | {e}.flatten().dot({e}.flatten()).clamp(-8, 8)
{v}[torch.zeros({s}, dtype=torch.int64)].sum() | {v}[torch.zeros({s}, dtype=torch.int64)].sum({d}) | {v}[torch.zeros({s}, dtype=torch.int64)].amax({d}) | {v}[torch.zeros({s}, dtype=torch.int64)].cumsum({d}) | {v}.gather(0, torch.zeros({s}, {s}, dtype=torch.int64)).sum({d}) | {v}.index_select(0, torch.zeros({s}, dtype=torch.int64)).sum({d})
{v}[:, torch.zeros({s}, dtype=torch.int64)].sum({d}) | {v}.flatten()[torch.zeros({s}, dtype=torch.int64)].sum() | torch.nn.functional.embedding(torch.zeros({s}, dtype=torch.int64), {m}).sum({d})
"""

SCANS = """
{v}.cumsum({d}) | {e}.sort({d}).values | {e}.sort(stable=True, dim={d})[1] | {e}.cummax({d})[0] | {e}.diff(dim={d}) | {e}.argsort(stable=True, dim={d}) | {e}.cummin({d})[0] | {e}.sign().cumprod({d}) | {e}.sort({d}, descending=True).values | {v}.diff(dim={d}, append={v})
{v}.topk(1, {d})[0] | {v}.topk(min(2, {v}.shape[-1])).values | {e}.flip({d}).cumsum({d}) | {v}[:1].expand({v}.shape).cumsum({d}) | {v}[{slice}].cumsum({d}) | {v}[0].expand({v}.shape).cumsum({d}) | {v}.unsqueeze(0).expand({s}, *{v}.shape).cumsum(0)
torch.searchsorted({e}.flatten().sort()[0], {e2}.flatten()) | torch.bucketize({e}, torch.tensor([0, 2])) | {e}.msort() | {e}.cumsum({d}).flip({d}) | {e}.unique() | {e}.unique(return_inverse=True)[1] | {e}.flatten().unique(return_counts=True)[1] | torch.unique_consecutive({e})
{v}[..., :1].expand(*{v}.shape[:-1], {s}).cumsum({d}) | {e}.logical_not().cumsum({d}) | {e}.sort({d})[0].diff(dim={d}) | {v}[{slice}].mT.cumsum({d}) | {v}.diff() | {v}.diff(n=2)
"""

JOINS = """
{v}.flip({d}) | {v}.roll(1, {d}) | {v}.repeat(2, 1) | {v}.repeat_interleave(2, {d}) | torch.tril({v}) | {v}.triu(1) | {v}.tile(2) | {v}.rot90() | {v}.repeat(1, 2) | {v}.fliplr()
torch.cat([{v}, {w}]) | torch.cat([{v}, {v}], -1) | torch.cat([{v}, {w}], {d}) | torch.stack([{v}, {v}], {d}) | torch.cat([{v}.flatten(), {w}.flatten()]) | torch.cat([{v}, torch.tensor([])]) | torch.cat([torch.zeros(0, dtype={dt}), {v}]) | torch.cat([{v}, {v}.new_zeros(0)], {d})
torch.nn.functional.pad({v}, (1, 2)) | torch.nn.functional.pad({v}, (1, 0), value=2) | torch.nn.functional.pad({v}, (-1, 1)) | torch.cat([{v}[{slice}], {w}[{slice}]]) | torch.hstack([{v}, {w}]) | torch.stack([{v}, {w}]).amax(0) | torch.nn.functional.pad({f}, (1, 1), mode="replicate")
{v}.select_scatter({w}, 0, 0) | {v}.select_scatter({v}.select({d}, 0), {d}, -1) | {v}.slice_scatter({w}, 0) | {v}.diagonal_scatter({v}.diagonal()) | {v}.slice_scatter({v}[:1], {d}, 0, 1) | {v}.diagonal_scatter(torch.ones({v}.diagonal().shape, dtype={dt})) | {v}.select_scatter({w}[0], 0, 0) | torch.select_scatter({v}, torch.zeros({v}[0].shape, dtype={dt}), 0, -1) | {v}.slice_scatter(torch.ones({v}[1:].shape, dtype={dt}), 0, 1)
torch.meshgrid({v}.flatten(), {w}.flatten(), indexing="ij")[0] | torch.cartesian_prod({v}.flatten(), {w}.flatten()) | torch.block_diag({v}, {v}) | torch.kron({e}, {e2}) | torch.column_stack([{v}, {v}]) | torch.outer({e}.flatten(), {e2}.flatten()).clamp(-8, 8) | torch.cat([{v}, {w}], out={v}.new_empty(0))
"""

FACTORIES = """
{v}.new_zeros({s}) | {v}.new_ones({v}.shape) | torch.zeros_like({v}) | torch.full(({s}, 2), {i}) | torch.arange({s}) | torch.ones({s}, {s}) | torch.zeros({v}.shape, dtype={w}.dtype) | torch.zeros({s}, requires_grad=True) | torch.ones_like({f}, requires_grad=True) | {f}.new_full({f}.shape, 2, requires_grad=True)
torch.arange({s}, 0, -1) | torch.eye({s}) | torch.tensor([{s}, {i}]) | torch.empty_like({v}).fill_({i}) | torch.full_like({v}, {i}) | torch.tensor({i}) | torch.zeros(0) | torch.zeros({s}, 0) | torch.ones((), dtype={dt}) | torch.linspace(0, {s}, {s} + 1) | torch.arange(0, {s}, 2, dtype={dt})
torch.zeros_like({v}, dtype={dt}) | torch.ones_like({v}.mT) | torch.empty_like({v}.t()).copy_({v}.t()) | torch.zeros({s}, 3, dtype={dt}) | torch.tensor([[{s}], [{s}]]) | torch.full(({s},), float("nan")) | torch.tril_indices({s}, {s}) | {v}.new_tensor([1, {s}]) | torch.zeros({v}.shape[0], {s}, dtype=torch.bool) | torch.empty_strided(({s}, 2), (2, 1)).fill_(1)
"""

INDEXING = """
{v}[{ix}] | {v}[{ix}] | {v}[{ix}] | {v}[{ix}] | {v}[{ix}] | {v}[{ix}] | {v}[{ix}] | {v}[{ix}] | {v}[{ix}] | {v}[{ix}]
{v}[{mask}] | {v}[{mask}] | torch.nonzero({e}) | {v}.masked_select({mask}) | {v}[torch.arange({s}) % 1] | {v}[{mask}].sum() | {v}[{mask}][{slice}] | {v}[{e} <= 100][0] | {v}[{mask}, ...] | {v}[{mask}].sum({d}) | {v}[{mask}] + 1
{v}.index_select({d}, torch.arange({v}.shape[{d}]).flip(0)) | {v}[torch.arange({v}.shape[0]).flip(0)] | {v}[:, torch.tensor([0])] | {v}.index_select({d}, {ints}) | {v}[{e}.argsort(0)[:, 0]] | {v}[[0, -1]] | {v}[{ints}] | torch.nn.functional.embedding({ints}, {m})
{v}.gather({d}, torch.zeros_like({v}, dtype=torch.int64)) | {v}.take(torch.arange({v}.numel()).flip(0)) | {v}.gather({d}, {e}.argsort({d})) | torch.take_along_dim({v}, {e}.argsort({d}), {d}) | {v}.gather({d}, {q} % {s}) | {v}.take({ints}) | {v}.half()[{q} % {s}] | {v}[torch.arange({s}) % {v}.shape[0]]
{v}.scatter({d}, torch.zeros_like({v}, dtype=torch.int64), {i}) | {v}.index_add(0, torch.arange({v}.shape[0]).flip(0), {v}) | {v}.index_fill({d}, torch.tensor([0]), {i}) | {v}.scatter({d}, {e}.argsort({d}), {v}) | {v}.index_copy(0, torch.arange({v}.shape[0]).flip(0), {v}) | torch.index_put({v}, ({mask},), torch.ones((), dtype={v}.dtype))
{v}.flatten().scatter_add(0, torch.arange({v}.numel()) // 2, {v}.flatten()) | {v}.flatten().scatter_reduce(0, torch.arange({v}.numel()) // 3, {v}.flatten(), "amax") | {v}.index_add(0, torch.zeros({v}.shape[0], dtype=torch.int64), {v}).clamp(-8, 8) | {v}.masked_scatter({mask}, {v}.flatten()) | torch.nn.functional.one_hot({e}.long() % 3, 3)
torch.zeros(9, dtype={v}.dtype).index_add(0, {e}.abs().flatten().to(torch.int64) % 9, {e}.flatten().to({v}.dtype)).clamp(-8, 8) | torch.bincount({e}.abs().flatten().to(torch.int64), minlength=3) | torch.zeros(5, dtype={v}.dtype).index_put(({e}.abs().flatten().to(torch.int64) % 5,), {e}.flatten().to({v}.dtype), accumulate=True).clamp(-8, 8)
torch.histc({e}.float(), 4, -4, 4) | {v}[torch.where({e} > 0)] | {v}[torch.nonzero({e}, as_tuple=True)] | torch.where({e} > 0)[0] | torch.argwhere({e}) | {v}[{e}.argmax()] | {v}[{e}.argmax(0)] | {v}[torch.tensor({i})] | {v}[:, torch.tensor({i})]
"""

SIZES_OF_DATA = """
{v}.repeat_interleave({e}.abs().flatten()[: {v}.shape[0]].to(torch.int64)[:1].sum() % 3, 0) | {v}.flatten()[: int({e}.abs().sum()) % 7] | {v}.flatten().tensor_split([int({e}.count_nonzero()) % 3])[0] | torch.zeros(int({e}.bool().sum()), {s}) | torch.tensor({e}.flatten()[:2].tolist())
{v}.flatten().split([int({e}.bool().sum()) % 2, {v}.numel() - int({e}.bool().sum()) % 2])[1] | torch.nonzero({e}).shape[0] | {v}[{mask}].shape[0] | {v}[{mask}].numel() * {v} | torch.nonzero({e}).sum(0) | {e}.unique().shape | torch.arange(int({e}.abs().max())) | {v} + {e}.sum().item() | {v}[: int({e}.bool().sum())].sum({d})
{v}[{e} > 0].cumsum(0) | {v}[{e} > 0].view(-1, 1) | torch.cat([{v}[{e} > 0], {v}[{e} <= 0]]) | {v}[{e} > 0].reshape(1, -1) + 1 | {e}.sum().item() | {e}.tolist() | {e}.flatten()[:2].tolist() | torch.zeros({e}.clamp(0, 3).sum().item() % 5) | {v}.new_zeros({s}).new_zeros({v}.stride()[-1])
{v}.repeat_interleave({e}.abs().flatten()[: {v}.shape[0]].long(), 0, output_size=None) | torch.bincount({e}.abs().long().flatten()) | torch.bincount({e}.long().flatten()) | torch.split({v}.flatten(), 2)[0] | torch.combinations({v}.flatten()[:4])
"""

QUERIES = """
{v}.stride() | {v}.shape | {v}.dtype | {v}.is_contiguous() | {v}.dim() | {v}.numel() | {v}.storage_offset() | {v}.size({d}) | {v}.stride({d}) | {v}.element_size() | {v}.requires_grad | {v}.is_floating_point() | len({v}) | {v}.nbytes
torch.is_tensor({v}) | torch.overrides.is_tensor_like({v}) | torch.overrides.has_torch_function(({v},)) | torch.is_autocast_cpu_enabled() | torch.is_deterministic_algorithms_warn_only_enabled() | torch.are_deterministic_algorithms_enabled() | torch.is_grad_enabled() | torch.overrides.is_tensor_like({s}) | torch.is_inference_mode_enabled()
{v} is {w} | {v}.is_set_to({w}) | {v}._is_view() | type({v}) is torch.Tensor | isinstance({v}, torch.FloatTensor) | {v}.is_contiguous(memory_format=torch.channels_last) | {v}.data_ptr() == {w}.data_ptr() | {v}.contiguous() is {v} | torch.cuda.is_available() | torch.get_default_dtype() | {v}.is_leaf | {v}.layout | {v}.device.type
{v}.chunk(2) | {v}.split(2) | {v}.unbind() | {v}.unbind({d}) | {v}.tensor_split(2) | torch.ops.aten.split_with_sizes({v}, [1, {v}.shape[0] - 1]) | torch.ops.aten.unbind({v}) | torch.ops.aten.chunk({v}, 2) | torch.ops.aten.split({v}, 1) | {e}.sort({d}) | {e}.max({d}) | {e}.aminmax() | torch.broadcast_tensors({v}, {w}) | torch.where({e} > 0) | {e}.topk(1) | torch.meshgrid({v}.flatten(), {w}.flatten(), indexing="ij") | torch.atleast_1d({v}, {w}) | torch.get_device_module("cpu") is torch.cpu | torch.cuda.device_count() | torch.cuda.is_initialized() | torch.backends.cudnn.is_available() | torch.is_autocast_enabled("cpu") | torch.get_num_threads()
"""

WRITES = """
{v}.add_({i}) | {v}.add_({w}) | {v}.mul_(2).clamp_(-8, 8) | {v}.sub_({w}) | {v}.clamp_(-3, 3) | {v}.neg_() | {v}.abs_() | {v}.zero_() | {v}.fill_({i}) | {v}.fill_({j}) | {v}.relu_() | {v}.floor_divide_(2) | {v}.remainder_(3) | {v}.add_({w}, alpha=2).clamp_(-8, 8) | {v}.logical_not_()
{v} += {i} | {v} += {w} | {v} -= {w} | {v} *= -1 | {v}.copy_({w}) | {v}.copy_({w}.clone()) | {v}[0] = {w} | {v}[-1] = {i} | {v}[0] += {i} | {v} //= 2 | {v}[{place}] = {j} | {v}[{slice}] *= 2 | {v} %= 5 | {v} &= 3 | {v} |= 1 | {v}.sign_()
{v}[{slice}] = {i} | {v}[{slice}] = {w} | {v}[{slice}] += {i} | {v}[:, {place}] = {i} | {v}[..., :1] = {w} | {v}[:, ::2] = {w} | {v}[...] = {i} | {v}[{slice}, {slice}] = {j} | {v}[{slice}].add_({i}) | {v}[{slice}].mul_(-1) | {v}[None, {slice}] = {i} | {v}[..., None] += {i}
{v}.t()[0] = {i} | {v}.t().add_({w}.t()) | {v}.view(-1)[0] = {i} | {v}.reshape(-1).add_({i}) | {v}.unsqueeze(0).sub_({i}) | {v}.flatten()[1:] = {i} | {v}.mT[{slice}] = {i} | {v}.movedim(0, -1)[..., 0].add_({i}) | {v}.permute(1, 0).mul_(-1) | {v}.unbind({d})[0].add_({i}) | {v}.split(1)[-1].zero_() | {v}.unfold(-1, 1, 1).add_({i})
{v}.diagonal().fill_({i}) | {v}.select(0, 0).copy_({w}) | {v}.transpose(0, -1)[0].neg_() | {v}.squeeze().add_({i}) | {v}.chunk(2)[0].zero_() | {v}.diagonal(1).add_({i}) | {v}.narrow({d}, 0, 1).fill_({i}) | {v}.as_strided((1,), (1,)).fill_({i}) | {v}.flatten(0, 1)[0] = {i} | {v}.detach()[0] = {i} | {v}.expand(1, *{v}.shape).add_({i}) | torch.view_as_real({z})[..., 0].add_({i}) | {z}.imag.zero_() | {z}.real[0] = {i}
torch.add({v}, {i}, out={v}) | torch.neg({w}, out={v}) | {v}.unsqueeze_(0) | {v}.t_() | {v}.squeeze_(0) | {v}.transpose_(0, -1) | torch.cumsum({v}, {d}, out={v}) | torch.maximum({v}, {w}, out={v}) | torch.sum({e}, {d}, out={v}) | torch.add({v}, {w}, out={v}[{slice}]) | torch.mul({w}, 2, out={v}) | torch.clamp({w}, -2, 2, out={v}) | torch.eq({e}, {e2}, out={v}) | torch.mm({e}, {e2}, out={v})
{v}[{s} // 2 :] = {i} | {v}[: {s}].add_({i}) | {v}.where({e} > 0, {w}).add_({i}) | {v}.detach().add_({i}) | {v}.expand({v}.shape).add_({i}) | {v}.contiguous().add_({i}) | {v}.to({v}.dtype).add_({i}) | {v}.to({dt}).zero_() | {v}.diff().add_({i}) | torch.dropout({v}, 0.5, False).add_({i}) | {v}.T.contiguous().add_({i}) | {v}.reshape({s}, -1).mul_(-1)
{v}[1:] += {v}[:-1].clone() | {v}[1:] = {v}[:-1].clone() | {v}.unfold(0, 1, 1).add_({i}) | {v}.view(-1)[::2] = {v}.view(-1)[0].clone() | {v}.flatten()[:2].zero_() | {v}.T[:1].add_({i}) | {v}[..., None].mul_(-1) | {v}.view(-1, 1)[0] = {i} | {v}.copy_({v}.flip(0)) | {v}.copy_({v}.mT) | {v} += {v}.T | {v}[0] = {v}[-1] | {v}[:1] += {v}.sum(0, keepdim=True).clamp(-3, 3).to({v}.dtype)
{v}.triu_() | {v}.cumsum_({d}).clamp_(-8, 8) | {v}.bitwise_not_() | {v}.swapaxes(0, 1)[0] = {w} | {v}.view_as({v}).add_({i}) | {v}.tril_(-1) | {v}.lerp_({w}, 1.0) | {v}.addcmul_({w}, {w}).clamp_(-8, 8) | {v}.fill_diagonal_({i}) | {v}.swapdims_(0, 1) | {v}.eq_({w}) | {v}.gt_({i}) | {v}.sort({d})[0].add_({i}) | {v}.fill_({e}.max().to({v}.dtype))
{v}.resize_({v}.shape) | {v}.data.add_({i}) | {v}.index_fill_({d}, torch.tensor([0]), {i}) | {v}.real.add_({i}) | {v}.view({v}.dtype).add_({i}) | torch.nn.functional.relu({v}, inplace=True) | torch.nn.functional.hardtanh_({v}) | torch._foreach_add_([{v}, {w}], {i}) | {v}.__setitem__(0, {i}) | {v}.masked_fill_({v} != {v}, {i})
"""

INDEX_WRITES = """
{v}[{ix}] = {i} | {v}[{ix}] = {i} | {v}[{ix}] = {j} | {v}[{ix}] = {w} | {v}[{ix}] += {i} | {v}[{ix}] *= 2 | {v}[{ix}] = {v}[{ix}] | {v}[{ix}] = torch.tensor({i}) | {v}[{ix}] = torch.ones((), dtype={dt}) | {v}[{ix}] = {i} | {v}[{ix}] -= 1
{v}[{mask}] = {i} | {v}[{mask}] = {i} | {v}[{mask}] = {j} | {v}[{mask}] = {w} | {v}[{mask}] += {i} | {v}[{mask}] *= -1 | {v}[{mask}] = -{v}[{mask}] | {v}[{mask}, {place}] = {i} | {v}[:, {mask}] = {i} | {v}[..., {mask}] = {i} | {v}[{mask}] = {i}
{v}[{e}.sum(1) > {i}] = {j} | {v}[{e}[:, 0] != 0] = -1 | {v}[{e}.sum({d}) > 4] = {i} | {v}[{slice}][{mask}] = {i} | {v}[{place}][{mask}] = {i} | {v}.mT[{mask}] = {i} | {v}.flatten()[{mask}] = {i} | {v}.masked_fill_({mask}, {i}) | {v}.masked_scatter_({mask}, {v}.clone()) | {v}.view(-1)[{ints}] = {i} | {v}[{mask}][0] = {i}
{v}[{ints}] = {i} | {v}[{ints}] = {w} | {v}[{ints}] += {i} | {v}[:, {ints}] = {i} | {v}[{ints}, {ints}] = {i} | {v}[{ints}] = {v}[{ints}] | {v}.index_put_(({ints},), torch.ones((), dtype={v}.dtype), accumulate=True) | {v}.index_put_(({mask},), torch.ones((), dtype={v}.dtype)) | {v}.index_copy_(0, {ints}, {v}[{ints}])
{v}.index_add_(0, torch.arange({v}.shape[0]).flip(0), {v}.clone()) | {v}.scatter_({d}, torch.zeros_like({v}, dtype=torch.int64), {i}) | {v}.index_copy_(0, torch.arange({v}.shape[0]).flip(0), {v}.clone()) | {v}.scatter_({d}, {e}.argsort({d}), {v}.clone()) | {v}.index_fill_({d}, {ints}, {i}) | {v}.put_(torch.arange({v}.numel()).flip(0), {v}.clone()) | {v}.index_add_({d}, {ints}, {v}.clone()).clamp_(-8, 8)
{v}.scatter_add_(0, torch.zeros_like({v}, dtype=torch.int64)[:1], {v}.clone()).clamp_(-8, 8) | {v}.scatter_reduce_({d}, torch.zeros_like({v}, dtype=torch.int64), {v}.clone(), "amin") | {v}.view(-1).index_put_((torch.arange({v}.numel()) % 2,), {v}.flatten().clone(), accumulate=True).clamp_(-8, 8) | {v}.index_reduce_(0, torch.zeros({v}.shape[0], dtype=torch.int64), {v}.clone(), "amax")
{v}[torch.where({e} > 0)] = {i} | {v}[torch.nonzero({e}, as_tuple=True)] += {i} | {v}.select(-1, 0).copy_({v}.select(-1, -1).clone()) | {v}.diagonal()[{mask}] = {i} | {v}[torch.arange({s}), torch.arange({s})] = {i} | {v}[:, None][{mask}] = {i} | {v}[None, {mask}] = {i} | {v}.unbind()[0][{mask}] = {i} | {v}.T[{mask}] = {i}
"""

SMOOTH_WRITES = """
{f}.mul_(0.3) | {f}[{slice}].mul_(0.7) | {f}.tanh_() | {f}[{slice}] = {i} | {f}[{mask}] = {i} | {f}[{ix}] = {i} | {f}[{ix}] = 0.5 | {f} += {f2} | {f}[{slice}].add_({f2}) | {f}.sub_({f2}) | {f}.copy_({f2}) | {f}.mT.mul_(0.5) | {f}.view(-1)[{slice}] = 0.1
{f}.masked_fill_({mask}, 0.25) | {f}[{mask}] *= 0.5 | {f}.clamp_(-1, 1) | {f}.sigmoid_() | {f}.flatten()[0] = 0.1 | torch.mul({f2}, 0.5, out={f}) | {f}.zero_() | {f}.exp_().clamp_(-3, 3) | {f}.addmm_({L}.clone(), {W}.clone()) | torch.mm({L}, {W}, out={f}) | torch.sigmoid({f2}, out={f}) | {f}.div_(3) | {f}[{slice}] = {f2} | {f}.lerp_({f2}, 0.5) | torch.softmax({f2}, {d}, out={f})
"""

RANDOM = """
torch.randint(0, 5, ({s}, 2)) | torch.randperm({s}) | (torch.rand({v}.shape) * 4).floor() | torch.bernoulli(torch.full({v}.shape, 0.5)) | torch.randn({s}) > 0 | torch.nn.functional.dropout({ef}, 0.5) | torch.rand_like({ef}) > 0.5 | torch.randint_like({ef}, 3) | torch.randn({v}.shape).sign() | {ef} * (torch.rand({s}, 1) > 0.3)
{ef}.clone().uniform_().mul_(4).floor_() | torch.zeros({s}).bernoulli_(0.4) | torch.empty({s}, dtype=torch.int64).random_(0, 4) | {v}[torch.randperm({v}.shape[0])] | torch.multinomial(torch.ones({s} + 1), 1) | torch.nn.functional.dropout({ef}, 0.5).mT | torch.normal(0.0, 1.0, ({s},)) > 0
"""

NANS = """
({e} / 0).isinf() | ({e} / 0).isnan().sum({d}) | ({e} / 0 * 0).nan_to_num(2) | ({e} / 0).amax({d}).isnan() | ({e} / 0).argmax() | ({e} / 0).sort({d})[1] | ({e} / 0).clamp(-3, 3).nan_to_num(1)
torch.maximum({e} / 0, {e2}).isnan() | torch.where({e} > 0, float("nan"), 1.0).min({d})[1] | torch.fmax(torch.where({e} > 0, float("nan"), 1.0), {e2}) | (torch.where({e} > 0, float("inf"), 1.0) > {e2}) | ({e} / 0).sign().nan_to_num(3)
torch.where({e} > 0, float("nan"), 1.0).cummax({d})[1] | torch.where({e} > 0, float("nan"), 1.0).bool() | (torch.where({e} > 0, float("nan"), 1.0) != 1).any({d}) | ({e}.half() / 3 * 3).round() | torch.nanmedian(torch.where({e} > 0, float("nan"), 1.0)) | torch.nansum(torch.where({e} > 0, float("nan"), 1.0), {d})
"""

LIBRARY = """
torch.nn.functional.linear({L}, {W}) | torch.nn.functional.linear({L}, {W}) | torch.nn.functional.linear({L}, {W}, {B}) | {L} @ {W} | {L} @ {W}.T | torch.addmm({B}, {L}, {W}) | torch.mm({L}, {W}) | {L}.matmul({W}) | torch.nn.functional.linear({L}.clamp(-2, 2), {W}).clamp(-8, 8) | torch.nn.functional.linear({L}[{slice}], {W}) | torch.nn.functional.linear({L}, {W}).mT
torch.nn.functional.conv2d({C}, {K}) | torch.nn.functional.conv2d({C}, {K}, {B}, padding=1) | torch.nn.functional.conv2d({C}, {K}, padding=1).view(-1, 4) | torch.nn.functional.conv2d({C}, {K}).flatten(1) | torch.nn.functional.conv2d({C}, {K}, stride=2, padding=1) | torch.nn.functional.conv2d({C}[0], {K}, padding=1) | torch.nn.functional.conv2d({C}, {K}).flatten(2).transpose(1, 2) | torch.nn.functional.conv2d({C}, {K}[:, :1], groups=4)
torch.nn.functional.conv1d({C1}, {K1}, padding=1) | torch.nn.functional.conv1d({C1}[0], {K1}, padding=1) | torch.nn.functional.conv1d({C1}, {K1}, padding=2, dilation=2) | torch.nn.functional.conv_transpose2d({C}, {K}) | torch.nn.functional.conv_transpose1d({C1}, {K1}) | torch.nn.functional.conv1d({C1}, {K1}, padding=1).mT | torch.nn.functional.conv1d({C1}, {K1}, padding=1).view(-1, 4)
torch.bmm({P}, {R}) | {P} @ {R} | ({P} @ {R}).clamp(-8, 8) | {P} @ {R}[0] | ({v}.clamp(-2, 2) @ {w}.clamp(-2, 2)).clamp(-8, 8) | ({v} @ {v}.mT).clamp(-8, 8) | {P}.mT.matmul({P}) | torch.baddbmm({P} @ {R}, {P}, {R}) | torch.mv({L}[0], {B}) if {L}.dim() == 3 else {L} @ {B} | torch.einsum("abc,acd->abd", {P}, {R}) | torch.einsum("bij->bji", {P}) | torch.einsum("ij,jk->ki", {m}, {m}.mT)
torch.nn.functional.max_pool2d({C}, 2) | torch.nn.functional.max_pool2d({C}, 3, stride=1, padding=1) | torch.nn.functional.adaptive_max_pool2d({C}, 1) | torch.nn.functional.adaptive_max_pool2d({C}, (2, 1)) | torch.nn.functional.max_pool1d({C1}, 2) | torch.nn.functional.interpolate({C}, scale_factor=2) | torch.nn.functional.pixel_shuffle({C}, 2) | torch.nn.functional.avg_pool2d({C}, 2) * 4 | torch.nn.functional.unfold({C}, 2) | torch.nn.functional.max_pool2d({C}, 2, return_indices=True)[1] | {C}.contiguous(memory_format=torch.channels_last) | {C}.to(memory_format=torch.channels_last)
"""

INEXACT = """
{f}.mean({d}) | {f}.softmax({d}) | {f}.tanh() | {f}.exp() | {f}.float().var({d}) | {f} / 3 | {f} * 0.1 | torch.sigmoid({f}) | {f}.log_softmax({d}) | torch.nn.functional.silu({f}) | {f}.sin() | {f}.mean((0, 1)) | torch.nn.functional.softmax({f}, {d}, dtype=torch.float64) | {f}.abs().sqrt() | {f}.clamp(-3, 3).expm1() | {v}.float().softmax({d})
{f}.float().logsumexp({d}) | torch.nn.functional.layer_norm({f}, {f}.shape[-1:]) | torch.nn.functional.gelu({f}) | torch.nn.functional.gelu({f}) | torch.nn.functional.gelu({f}, approximate="tanh") | {f}.float().std() | {f}.mean() | {f}.norm() | torch.nn.functional.normalize({f}) | torch.nn.functional.rms_norm({f}, {f}.shape[-1:]) | torch.nn.functional.group_norm({f}, 1) | torch.nn.functional.group_norm({f}, {f}.shape[1]) | torch.nn.functional.softplus({f}) | torch.nn.functional.elu({f}) | torch.nn.functional.mish({f}) | torch.nn.functional.leaky_relu({f}, 0.1)
torch.nn.functional.mse_loss({f}, {f} + 1) | torch.nn.functional.l1_loss({f}, {f}.mT.clone()) | torch.nn.functional.cross_entropy({L}.reshape(-1, 4), torch.arange({L}.numel() // 4) % 4) | torch.nn.functional.cross_entropy({m}, {e}.long()[:, 0] % 2) | torch.nn.functional.nll_loss({f}.log_softmax(-1), torch.zeros({f}.shape[0], dtype=torch.int64)) | torch.nn.functional.binary_cross_entropy_with_logits({f}, ({e} > 0).to({f}.dtype)) | torch.nn.functional.smooth_l1_loss({f}, {f} * 2) | torch.nn.functional.huber_loss({f}, {f} * 3, reduction="none") | torch.nn.functional.kl_div({f}.log_softmax(-1), {f}.softmax(-1), reduction="sum") | torch.nn.functional.cosine_similarity({f}, {f} + 1, dim={d}) | torch.nn.functional.mse_loss({f}, {f} + 1, reduction="none") | torch.nn.functional.cross_entropy({f}, torch.full(({f}.shape[0],), -100), reduction="sum")
torch.nn.functional.scaled_dot_product_attention({H}, {H}, {H}) | torch.nn.functional.scaled_dot_product_attention({H}, {H}, {H}, is_causal=True) | torch.nn.functional.batch_norm({C}, None, None, training=True) | torch.nn.functional.batch_norm({m}, torch.zeros({m}.shape[1]), torch.ones({m}.shape[1])) | torch.nn.functional.avg_pool2d({C}, 3, 1, 1) | torch.nn.functional.adaptive_avg_pool2d({C}, 1) | torch.nn.functional.adaptive_avg_pool2d({C}, (2, 3)) | torch.nn.functional.instance_norm({C}) | torch.nn.functional.interpolate({C}, scale_factor=2, mode="bilinear") | torch.nn.functional.adaptive_avg_pool1d({C1}, 2) | torch.nn.functional.avg_pool1d({C1}, 2)
{f}[{slice}].softmax({d}) | {f}[torch.zeros({s}, dtype=torch.int64)].softmax({d}) | {f}[torch.zeros({s}, dtype=torch.int64)].mean({d}) | {f}[{mask}].softmax({d}) | {f}[{mask}].mean() | {f}.masked_fill({mask}, -1e9).softmax({d}) | torch.nn.functional.linear({L}, {W}).softmax(-1) | torch.nn.functional.gelu(torch.nn.functional.linear({L}, {W})) | {f}.mT.softmax({d}) | torch.nn.functional.linear(torch.nn.functional.gelu(torch.nn.functional.linear({L}, {W})), {W})
torch.polar({f}.float().abs(), {f}.float()) | {z}.abs() | {z}.exp() | {z} * {z}.conj() | {f}.logcumsumexp({d}) | torch.rand({s}, 2) | torch.randn({v}.shape) | torch.nn.functional.dropout({f}, 0.3) | torch.rand_like({f}) | torch.cdist({m}, {m}) | torch.linalg.norm({f}) | torch.linalg.cholesky({m} @ {m}.mT + 5 * torch.eye({m}.shape[-2])) | torch.nn.functional.glu({f}) | {f}.std({d}) | {f}.var((0, 1)) | torch.var_mean({f})[0] | {f}.norm(dim={d}) | torch.linalg.inv({m} @ {m}.mT + 40 * torch.eye({m}.shape[-2])) | torch.softmax({f}, {d}).mT.sum({d})
"""

COMPLEX = """
torch.complex({ef}, {ef}) | {z} + {z} | {z} * 1j | {z}.mT.reshape(-1) | {z}.real + {z}.imag | {z}.sum({d}) | torch.view_as_complex(torch.stack([{ef}, {ef}], -1)) | torch.view_as_real({z}).sum(-1) | {z}.conj().clone() | {z} == {z} | torch.complex({ef}, {ef}).mT.reshape(-1) | {z}.conj().mT.contiguous() | {z}.cumsum({d}) | {z}.flatten()[1:] | {z}.conj()[0] | ({z} * {z}.conj()).real | {z}[{ix}] | torch.cat([{z}, {z}]) | {z}.neg() | {ef}.to(torch.complex64) | {z}.to(torch.complex128) | torch.where({mask}, {z}, 0)
"""

RAISING = """
{v}[{s}] | {v}[torch.tensor({s})] | {v}[torch.tensor([{s}])] | {v}.index_select(0, torch.tensor([{s}])) | {v}.gather(0, torch.full_like({v}, {s}, dtype=torch.int64)) | torch.linalg.cholesky({ef} + {i}) | torch.bincount({e}.long().flatten() - 2) | {v}.view(2, -1) | {v}.reshape({s}, {s}) | {v}.amax({d}) | {v}[{v}.abs() <= 100][0] | torch.cat([{v}, {w}], {d}) | {v}.narrow(0, 1, {s}) | {v}.expand({s}, 3) | {v} @ {w}
torch.nn.functional.adaptive_avg_pool2d({C}[:, :, :0], 1) | torch.nn.functional.adaptive_max_pool2d({C}, 1) | torch.nn.functional.embedding({e}.long(), {m}) | {v}[{e}.long()] | torch.nn.functional.one_hot({e}.long()) | {v}.unflatten(0, (2, -1)) | {v} + {w} | {v}.sum(2) | {v}.squeeze(3) | {v}.max(0)[0] | {v}.split([1, 2]) | torch.nn.functional.cross_entropy({m}, {e}.long()[:, 0]) | {v}.item() | {v}.unbind()[2] | {v}.scatter(0, torch.full_like({v}, {s}, dtype=torch.int64), 1) | {v}[[{s}]] | torch.multinomial({ef}.flatten().abs(), 1) | {v}.topk(3)
"""

RAISING_WRITES = """
{v}[{s}] = {i} | {v}[torch.tensor([{s}])] = {i} | {v}[{e}.long()] = {i} | {v}.index_fill_(0, torch.tensor([{s}]), {i}) | {v}.add_({w}) | {v}[{mask}] = {w} | {v}.copy_({w}) | {v}[:, {s}] = {i} | {v}.view(-1, {s}).add_({i}) | {v} += {j} | {v}[[{s}]] += {i} | assert {v}.shape[0] > {i} | assert {e}.sum() != {i}, "data" | {v}.scatter_(0, torch.full_like({v}, {s}, dtype=torch.int64), {i}) | {v}.expand(2, *{v}.shape).add_({i}) | {v}.index_add_(0, torch.tensor([{s}]), {v}[:1])
"""

# Whole statements: {n} is bound by each of them.
BLOCKS = """
if {s} > {t}:
    {n} = {v} + {i}
else:
    {n} = {v} - {i}
---
{n} = {v}.clone()
if {s} == {t}:
    {n} += {i}
---
if {s} > 1:
    {v}.add_({i})
{n} = {v} * 2
---
if {s} == 0:
    {n} = {v}
elif {s} == 1:
    {n} = {v} + 1
else:
    {n} = {v} - 1
---
{n} = {v}
for k in range(3):
    {n} = {n} + k
    {v}.add_(1)
---
{n} = 0
for row in {v}:
    {n} = {n} + row
---
{n} = {v} + 0
for k in range({s}):
    {n}[0] += k
---
if {e}.sum() > 0:
    {v} += {i}
{n} = {v} + {i}
---
{n} = {v}.view_as({v})
if float({e}.sum()) > 1:
    {n}.add_({i})
---
{n} = {v} + int({e}.count_nonzero())
---
{n} = {v} * min({s}, {t}) + max({s}, 2)
---
try:
    {n} = {v} + {w}
except RuntimeError:
    {n} = {v} + 1
---
try:
    {n} = {v}[{i}]
    {n} = {n} + 1
except IndexError:
    {n} = {v}.clone()
---
{n} = [{v}, {w}, {v}][{s} % 3] + {i}
---
{n} = sum([t.sum() for t in {v}.unbind()], {v}.sum())
---
{n} = [{v}[k] for k in range({v}.shape[0])][-1]
---
def inner(t, by={i}):
    t.add_(by)
    return t[0]
{n} = inner({v})
---
{n} = (lambda t: t.t() if t.shape[0] == t.shape[1] else t)({v})
---
{n} = {v}.reshape(-1) if {v}.is_contiguous() else {v} * 2
---
{n} = torch.zeros({e}.clamp(0, 3).sum().item() % 5) + {i}
---
{n} = torch.tensor({e}.flatten()[:2].tolist())
---
{n}, {n}_ = {v}.split([1, {v}.shape[0] - 1])
{n}_ *= -1
---
{n} = {v} + 0
for k in {e}.flatten()[:3].tolist():
    {n} = {n} + k
---
{n} = {v} + 0
for k in {e}.flatten()[:3].to(torch.int64).tolist():
    if k > 0:
        {n} = {n} * 2 - k
{n} = {n}.clamp(-8, 8)
---
{n} = {v}.flatten()
{n}_ = {e}.flatten()[:2].abs().to(torch.int64).tolist()
{n} = torch.cat([{n}[:k] for k in [*{n}_, 1]])
---
{n} = {v}.clone()
while {n}.abs().sum() > 4:
    {n} = torch.div({n}, 2, rounding_mode="trunc")
---
{n} = 0
while {n} * {n} < {s}:
    {n} += 1
{n} = {v} + {n}
---
{n} = {v}
if {e}.any():
    {n} = {n}[..., :1]
{n} = {n} + {i}
---
{n} = {v}, {w}
{n} = ({n}[0] if {n}[0].numel() > {n}[1].numel() else {n}[1]).abs()
---
{n}_ = torch.ones({v}.shape, dtype=torch.bool)
rows, cols = zip(*[(0, 0), (-1, 0)])
{n}_[rows, cols] = False
{n} = {v}.masked_fill({n}_, {i})
---
{n} = {v} + 1
{n}[{mask}] = {i}
---
{n} = {v} * 2
{n}[{ix}] = {i}
---
{n} = {v}.clone()
{n}[{mask}] += {i}
---
{n}_ = {v} + {i}
{n} = {n}_[{slice}]
{n} += {i}
---
{n}_, {n} = {e}.sort({d})
---
{n}, {n}_ = {e}.max({d})
{n}.add_({i})
---
{n} = torch.nn.functional.conv2d({C}, {K}, padding=1).view(-1, 4)
{n}_ = torch.nn.functional.linear(torch.nn.functional.gelu(torch.nn.functional.linear({n}, {W})), {W})
---
{n} = torch.nn.functional.linear({L}, {W}).view(-1, 4)
{n}_ = torch.nn.functional.linear(torch.relu(torch.nn.functional.linear({n}, {W})), {W})
---
{n} = {L}
for k in range(3):
    {n} = torch.nn.functional.linear(torch.relu({n}), {W}).clamp(-3, 3)
---
with torch.no_grad():
    {n} = {v}.detach()[{slice}] * 2
---
{n} = torch.empty_like({v})
torch.add({v}, {i}, out={n})
---
{n} = {v}.new_empty(0)
torch.mul({v}, {i}, out={n})
---
{n} = torch.zeros({s}, 3, dtype={v}.dtype)
for k, row in enumerate({n}.unbind()):
    row.add_(k)
---
{n} = [t * 2 for t in {v}.chunk(2)][-1]
---
{n} = {v}[:, {slice}] if {v}.dim() > 1 and {s} != 1 else {v}[None]
"""

INEXACT_BLOCKS = """
{n} = torch.nn.functional.conv2d({C}, {K}, padding=1).view(-1, 4)
{n}_ = torch.nn.functional.linear(torch.nn.functional.gelu(torch.nn.functional.linear({n}, {W})), {W})
---
{n} = torch.nn.functional.linear({L}, {W}).view(-1, 4)
{n}_ = torch.nn.functional.linear(torch.nn.functional.gelu(torch.nn.functional.linear({n}, {W})), {W})
---
{n} = torch.nn.functional.linear({L}, {W})
{n}_ = {n}.flatten(1)
{n}_ = torch.nn.functional.linear(torch.nn.functional.silu(torch.nn.functional.linear({n}, {W})), {W}).softmax(-1)
---
{n} = {f}.softmax({d})
{n} = {n}.masked_fill({mask}, 0.0)
---
{n} = torch.nn.functional.gelu({L})
for k in range({i}):
    {n} = {n} + torch.nn.functional.linear(torch.nn.functional.gelu({n}), {W}) * 0.1
"""


def statements(text: str) -> tuple[str, ...]:
    """Templates of several lines each."""
    return tuple(block.strip("\n") for block in text.split("---\n"))


EXPRESSIONS: Mapping[str, tuple[str, ...]] = {
    "view": cells(VIEWS),
    "pointwise": cells(POINTWISE),
    "conversion": cells(CONVERSIONS),
    "reduction": cells(REDUCTIONS),
    "scan": cells(SCANS),
    "join": cells(JOINS),
    "factory": cells(FACTORIES),
    "indexing": cells(INDEXING),
    "size of data": cells(SIZES_OF_DATA),
    "query": cells(QUERIES),
    "random": cells(RANDOM),
    "nan": cells(NANS),
    "library": cells(LIBRARY),
    "inexact": cells(INEXACT),
    "complex": cells(COMPLEX),
    "raising": cells(RAISING),
}
"""What makes a value; each is bound to a name."""

STATEMENTS: Mapping[str, tuple[str, ...]] = {
    "write": cells(WRITES),
    "index write": cells(INDEX_WRITES),
    "smooth write": cells(SMOOTH_WRITES),
    "raising write": cells(RAISING_WRITES),
    "block": statements(BLOCKS),
    "inexact block": statements(INEXACT_BLOCKS),
}

ROUNDED = frozenset({"inexact", "inexact block", "smooth write"})
"""Families whose values are not whole numbers."""
SMOOTH = ROUNDED | {
    *("view", "pointwise", "reduction", "scan", "join", "factory", "indexing", "query"),
    *("library", "complex"),
}
"""Families that may read what is not whole: where they jump, they read ``e``."""

SHARES: Mapping[str, int] = {
    "view": 16, "pointwise": 10, "conversion": 4, "reduction": 6, "scan": 5, "join": 5,
    "factory": 3, "indexing": 10, "size of data": 4, "query": 4, "random": 3, "nan": 2,
    "library": 9, "inexact": 10, "complex": 3, "raising": 2,
    "write": 14, "index write": 12, "smooth write": 4, "raising write": 1, "block": 8, "inexact block": 3,
}  # fmt: skip
"""How often each family is drawn."""
