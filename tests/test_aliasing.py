"""What is a view in eager is one here: a write through it reaches what it views, at every size."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import anyshape
from anyshape.tools.accuracy import strides_that_matter

SHAPES = ((3, 4), (1, 4), (4, 1), (5, 5), (1, 1))

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "contiguous": lambda x: x.contiguous(),
    "to the same dtype": lambda x: x.to(torch.float32),
    "float": lambda x: x.float(),
    "type_as": lambda x: x.type_as(x),
    "cpu": lambda x: x.cpu(),
    "reshape to the same": lambda x: x.reshape(x.shape),
    "reshape": lambda x: x.reshape(-1),
    "reshape_as": lambda x: x.reshape_as(x),
    "flatten": lambda x: x.flatten(),
    "ravel": lambda x: x.ravel(),
    "view_as": lambda x: x.view_as(x),
    "unflatten": lambda x: x.unflatten(0, (-1, 1)),
    "dropout in eval mode": lambda x: F.dropout(x, 0.5, False),
    "expand to the same": lambda x: x.expand(x.shape),
    "unsqueeze": lambda x: x.unsqueeze(0),
    "squeeze": lambda x: x.squeeze(),
    "movedim": lambda x: x.movedim(0, 1),
    "transpose": lambda x: x.transpose(0, 1),
    "T": lambda x: x.T,
    "detach": lambda x: x.detach(),
    "chunk": lambda x: x.chunk(2)[0],
    "narrow": lambda x: x.narrow(0, 0, 1),
    "select": lambda x: x[0],
    "select by a number in a tensor": lambda x: x[x.argmax() * 0],
    "select by two numbers in tensors": lambda x: x[x.argmax() * 0, x.argmin() * 0 - 1],
    "a column by a number in a tensor": lambda x: x[:, x.argmax() * 0 - 1],
    "slice": lambda x: x[:, ::2],
    "atleast_2d": lambda x: torch.atleast_2d(x),
    "a copy: clone": lambda x: x.clone(),
    "a copy: clamp": lambda x: x.clamp(0.5),
    "a copy: an index": lambda x: x[torch.tensor([0])],
    "transposed contiguous": lambda x: x.t().contiguous(),
    "transposed reshape": lambda x: x.t().reshape(-1),
}


@torch.no_grad()
@pytest.mark.parametrize("name", VIEWS)
def test_a_write_reaches_what_eager_reaches(name: str) -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = VIEWS[name](x)
        y += 1
        return y, x * 2

    fast = anyshape.compile(program)
    for shape in SHAPES:
        ours = torch.arange(float(shape[0] * shape[1])).reshape(shape)
        theirs = ours.clone()
        version = ours._version
        results, expected = fast(ours), program(theirs)
        assert torch.equal(results[0], expected[0]), shape
        assert torch.equal(results[1], expected[1]), shape
        assert torch.equal(ours, theirs), shape
        assert (results[0].data_ptr() == ours.data_ptr()) == (
            expected[0].data_ptr() == theirs.data_ptr()
        ), shape
        assert (ours._version > version) == (theirs._version > version), shape


@torch.no_grad()
@pytest.mark.parametrize("name", VIEWS)
def test_what_is_returned_aliases_what_eagers_does(name: str) -> None:
    program = VIEWS[name]
    fast = anyshape.compile(lambda x: (program(x), x * 2))
    for shape in SHAPES:
        x = torch.arange(float(shape[0] * shape[1])).reshape(shape)
        result, expected = fast(x)[0], program(x)
        assert torch.equal(result, expected), shape
        assert strides_that_matter(result) == strides_that_matter(expected), shape
        assert (result.data_ptr() == x.data_ptr()) == (expected.data_ptr() == x.data_ptr()), shape


def of_a_reshape(x: Tensor) -> tuple[Tensor, ...]:
    t = x.t().reshape(-1)
    return t[1:], t, t.view(-1)[2:]


def of_a_flip(x: Tensor) -> tuple[Tensor, ...]:
    t = x.flip(0)
    return t[1:], t.t()


def of_a_copy_of_a_copy(x: Tensor) -> tuple[Tensor, ...]:
    t = x.t().contiguous()
    u = t.t().reshape(-1)
    return t.view(-1)[1:], u[1:], u[:2], t


def of_what_is_computed(x: Tensor) -> tuple[Tensor, ...]:
    y = x + 1
    t = y.t().reshape(-1)
    return t[1:], (t * 2).exp(), y @ y.t(), t.view(-1, 1) @ t.view(1, -1), y, t


def shared(tensors: tuple[Tensor, ...]) -> list[list[bool]]:
    positions = [t.untyped_storage().data_ptr() for t in tensors]
    return [[a == b for b in positions] for a in positions]


@torch.no_grad()
@pytest.mark.parametrize(
    "program", [of_a_reshape, of_a_flip, of_a_copy_of_a_copy, of_what_is_computed]
)
def test_views_of_one_copy_share_its_memory(program: Callable[..., tuple[Tensor, ...]]) -> None:
    fast = anyshape.compile(program)
    for shape in (*SHAPES, (2, 7)):
        x = torch.randn(shape)
        ours, theirs = fast(x), program(x)
        assert shared((x, *ours)) == shared((x, *theirs)), shape
        for a, b in zip(ours, theirs, strict=True):
            torch.testing.assert_close(a, b)
            assert strides_that_matter(a) == strides_that_matter(b)


@torch.no_grad()
@pytest.mark.parametrize("unbacked", [False, True])
@pytest.mark.parametrize("name", ["reshape", "flatten", "ravel", "contiguous"])
@pytest.mark.filterwarnings("ignore")
def test_a_tensor_with_holes_is_viewed_where_eager_views_it(name: str, unbacked: bool) -> None:
    fast = anyshape.compile(VIEWS[name])
    shapes = ((3, 4), (1, 4), (3, 1), (1, 1), (2, 5))
    expanded = [torch.randn(n).expand(m, n) for m, n in shapes]
    stepped = [torch.randn(m, n, 2)[..., 0] for m, n in shapes]
    for x in (*expanded, *stepped, *(torch.randn(2 * n)[::2] for n in (5, 1, 2))):
        for dim in range(x.dim() if unbacked else 0):
            anyshape.mark_unbacked(x, dim)
        ours, theirs = fast(x), VIEWS[name](x)
        assert torch.equal(ours, theirs)
        assert (ours.data_ptr() == x.data_ptr()) == (theirs.data_ptr() == x.data_ptr())
        assert strides_that_matter(ours) == strides_that_matter(theirs)


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x.data,
        lambda x: x.data[0],
        lambda x: x.data.add_(1),
        lambda x: x.detach(),
        lambda x: x.view(-1),
    ],
)
def test_what_is_returned_of_data_has_a_counter_of_its_own(
    program: Callable[[Tensor], Tensor],
) -> None:
    fast = anyshape.compile(program)
    for n in (2, 3):
        counters = []
        for run in (fast, program):
            x = torch.ones(n, n)
            made = run(x)
            before = x._version, made._version
            made.add_(1)
            counters.append((before, x._version, made._version, x.tolist()))
        assert counters[0] == counters[1]


def _written_through_a_view(x: Tensor) -> Tensor:
    y = x * 2
    y.movedim(0, -1)[..., 0].add_(3)
    return y


NO_VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "written through a view": _written_through_a_view,
    "written through a view in another shape": lambda x: (y := x * 2).view(-1).mul_(2).view_as(y),
    "detach": lambda x: (x * 2).detach(),
    "roll": lambda x: x.roll(1),
    "kron": lambda x: torch.kron(x, x),
    "group_norm": lambda x: F.group_norm(x[None], 2),
    "new": lambda x: x * 2,
    "a new one, twice": lambda x: torch.stack([x, x]),
}


@pytest.mark.parametrize("name", NO_VIEWS)
def test_what_is_no_view_may_be_written_with_gradients(name: str) -> None:
    """Of a view that was made without gradients, autograd refuses that."""
    fast = anyshape.compile(NO_VIEWS[name])
    for shape in ((4, 2), (2, 6)):
        with torch.no_grad():
            found, expected = (run(torch.ones(shape)) for run in (fast, NO_VIEWS[name]))
        assert found._is_view() == expected._is_view()
        if not expected._is_view():
            found.mul_(torch.ones((), requires_grad=True)).sum().backward()


SEEN: dict[str, Callable[[Tensor], Tensor]] = {
    "reshape": lambda x: x.reshape(-1),
    "the same shape": lambda x: x.reshape(x.shape),
    "reshape_as": lambda x: x.reshape_as(x.mT),
    "flatten": lambda x: x.flatten(),
    "flatten of one dimension": lambda x: x.flatten(0, 0),
    "ravel": lambda x: x.ravel(),
    "contiguous": lambda x: x.contiguous(),
    "to": lambda x: x.to(torch.float32),
    "rot90": lambda x: x.rot90(),
    "squeeze": lambda x: x.squeeze(),
    "unflatten": lambda x: x.unflatten(0, (-1, 1)),
    "dropout": lambda x: F.dropout(x, 0.5, False),
    "detach": lambda x: x.detach(),
}
BEHIND: dict[str, Callable[[Tensor], Tensor]] = {
    "the argument": lambda x: x,
    "its transpose": lambda x: x.mT,
    "a new tensor": lambda x: x * 2,
    "a transpose of a new one": lambda x: (x * 2).mT,
    "a part": lambda x: x[:, :1],
}


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("seen", SEEN)
@pytest.mark.parametrize("written", (False, True))
def test_a_result_is_a_view_only_where_eager_s_is(seen: str, behind: str, written: bool) -> None:
    def program(x: Tensor) -> Tensor:
        made = SEEN[seen](BEHIND[behind](x))
        if written:
            made.add_(1)
        return made

    fast = anyshape.compile(program)
    for shape in ((3, 4), (1, 4), (4, 1), (0, 4), (1, 1), (4, 0)):
        x, y = torch.ones(shape), torch.ones(shape)
        found, expected = fast(x), program(y)
        assert found._is_view() <= expected._is_view(), shape
        assert (found is x) == (expected is y), shape
        assert x._version == y._version and found._version == expected._version, shape
        assert torch.equal(x, y) and torch.equal(found, expected), shape


BASES: dict[str, Callable[[Tensor], object]] = {
    "an argument": lambda x: x._base is None,
    "a view of an argument": lambda x: x[1:]._base is x,
    "a view": lambda x: (x * 2).view(-1)._base is None,
    "a new tensor": lambda x: (x * 2)._base is None,
    "a row by a number in a tensor": lambda x: x[x.argmax() * 0]._base is None,
}


@pytest.mark.parametrize("name", BASES)
def test_what_a_tensor_is_a_view_of_is_told(name: str) -> None:
    fast, x = anyshape.compile(BASES[name]), torch.arange(6.0).view(3, 2) + 0
    for given in (x, x[:2]):
        assert fast(given) == BASES[name](given)


ASKED: dict[str, Callable[[Tensor], object]] = {
    "a reshape": lambda x: (x * 2).mT.reshape(-1)._is_view(),
    "contiguous()": lambda x: (x * 2).mT.contiguous()._is_view(),
    "what it is a view of": lambda x: (x.detach() * 2).mT.reshape(-1)._base is None,
}


@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", ASKED)
def test_view_or_none_is_asked_inside_where_sizes_decide(name: str, gradients: bool) -> None:
    fast = anyshape.compile(ASKED[name])
    for shape in ((3, 4), (1, 4), (3, 1), (2, 5)):
        x = torch.randn(shape, requires_grad=gradients)
        assert fast(x) == ASKED[name](x), shape
