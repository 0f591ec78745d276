"""Programs as engineers bring them, each at several sizes against eager: what they have broken."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape


class Accuracy:
    """A metric that counts in Python numbers."""

    def __init__(self) -> None:
        self.right, self.total, self.losses = 0, 0, []

    def update(self, logits: Tensor, labels: Tensor) -> None:
        self.right += (logits.argmax(-1) == labels).sum().item()
        self.total += labels.numel()
        self.losses.append(nn.functional.cross_entropy(logits, labels).item())


def test_a_metric_keeps_its_counts_apart_from_floats_of_data() -> None:
    net = nn.Linear(5, 3)

    def step(x: Tensor, labels: Tensor, metric: Accuracy) -> None:
        with torch.no_grad():
            metric.update(net(x), labels)

    fast, metric, expected = anyshape.compile(step), Accuracy(), Accuracy()
    for size in (3, 4, 1, 2, 17):
        given = torch.randn(size, 5), torch.randint(0, 3, (size,))
        fast(*given, metric)
        step(*given, expected)
        assert (metric.right, metric.total) == (expected.right, expected.total)
        assert metric.losses == pytest.approx(expected.losses)


def test_a_moving_average_of_weights_is_written_where_gradients_are_off() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    mean, expected = copy.deepcopy(net), copy.deepcopy(net)

    def update(average: nn.Module, decay: float) -> None:
        with torch.no_grad():
            for old, new in zip(average.parameters(), net.parameters()):
                old.mul_(decay).add_(new, alpha=1 - decay)
            for old, new in zip(average.buffers(), net.buffers()):
                old.copy_(new)

    fast = anyshape.compile(update)
    for decay in (0.5, 0.75, 0.9):
        net[0].weight.data.add_(1)
        fast(mean, decay)
        update(expected, decay)
        torch.testing.assert_close(mean.state_dict(), expected.state_dict())
        assert mean[0].weight.requires_grad
        assert torch.is_grad_enabled()


def test_what_is_made_where_gradients_are_off_requires_none() -> None:
    weight = nn.Parameter(torch.randn(3, 3))

    def program(x: Tensor) -> tuple[Tensor, ...]:
        with torch.no_grad():
            q, _ = torch.linalg.qr(weight)
            spectrum = torch.fft.fft(weight).abs()
        return q, spectrum, x + 1

    for made in anyshape.compile(program)(torch.ones(1)):
        assert not made.requires_grad


def state_of_the_last_tokens(x: Tensor) -> Tensor:
    """As caches of linear attention are filled."""
    state = torch.zeros(x.shape[0], 4)
    state.copy_(x[:, -4:])
    return state


def copied_twice(x: Tensor) -> tuple[Tensor, ...]:
    turned, computed = torch.zeros(x.shape[1], x.shape[0]), x + 1
    same, repeated = torch.empty_like(computed), torch.empty(3, x.shape[1])
    turned.copy_(x.t())
    same.copy_(computed)
    repeated.copy_(x[0])
    return turned, turned.view(-1), same, computed, repeated, repeated[1]


@pytest.mark.parametrize("program", [state_of_the_last_tokens, copied_twice])
def test_what_is_copied_into_a_new_tensor_has_memory_and_layout_of_its_own(program: Any) -> None:
    fast = anyshape.compile(program)
    for size in (5, 2, 1, 17):
        x = torch.randn(size, size + 16)
        ours, theirs = fast(x), program(x)
        assert layouts(ours, x) == layouts(theirs, x)
        torch.testing.assert_close(ours, theirs)
    assert fast.stats().specializations == 1


def layouts(made: Tensor | tuple[Tensor, ...], x: Tensor) -> list[object]:
    """Strides, and which tensors share memory."""
    found = [made, x] if isinstance(made, Tensor) else [*made, x]
    where = [t.untyped_storage().data_ptr() for t in found]
    return [(t.stride(), where.index(position)) for t, position in zip(found, where)]


COUNTED = {
    "zeros": lambda x, n: torch.zeros(n, 2),
    "reshape": lambda x, n: x.reshape((n, -1)),
    "narrow": lambda x, n: x.narrow(0, 0, n),
    "split": lambda x, n: x.split([n, x.shape[0] - n])[0],
    "repeat": lambda x, n: x.repeat(n, 1),
    "pad": lambda x, n: nn.functional.pad(x, (0, n)),
    "topk": lambda x, n: x.flatten().topk(n).values,
    "interpolate": lambda x, n: nn.functional.interpolate(x[None], size=n),
    "select": lambda x, n: x.select(0, n - 1),
    "div of sizes": lambda x, n: x.new_zeros(torch.div(x.shape[0], 2, rounding_mode="trunc")),
    "one_hot": lambda x, n: nn.functional.one_hot(torch.arange(3) % n, n),
}


@pytest.mark.parametrize("name", COUNTED)
def test_a_tensor_without_dimensions_is_a_number_where_numbers_are_wanted(name: str) -> None:
    program = COUNTED[name]
    fast = anyshape.compile(program, fullgraph=True)
    for size in (3, 1, 2, 17):
        given = torch.randn(2 * size, size + 3), torch.tensor(size)
        assert torch.equal(fast(*given), program(*given))
    assert fast.stats().specializations == 1


class PadsByBuffers(nn.Module):
    """As the convolutions of audio codecs reckon their padding."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("left", torch.tensor(2))
        self.register_buffer("kernel", torch.tensor(3))

    def forward(self, x: Tensor) -> Tensor:
        frames = (x.shape[-1] - self.kernel + self.left) / 2 + 1
        whole = (torch.ceil(frames).to(torch.int64) - 1) * 2 + self.kernel - self.left
        return nn.functional.pad(x, (self.left, whole - x.shape[-1]))


def test_numbers_kept_in_buffers_are_read_in_every_call() -> None:
    module = PadsByBuffers()
    fast = anyshape.compile(module, fullgraph=True)
    for size in (3, 1, 2, 17):
        x = torch.randn(2, size)
        assert torch.equal(fast(x), module(x))
        module.left += 1
    assert fast.stats().specializations == 1


KEEPING_CHANNELS_INNERMOST = {
    "shuffle": lambda x: nn.functional.pixel_shuffle(x, 2),
    "unshuffle": lambda x: nn.functional.pixel_unshuffle(x, 2),
    "channels": lambda x: nn.functional.channel_shuffle(x, 2),
    "reflect": lambda x: nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"),
    "replicate": lambda x: nn.functional.pad(x, (1, 2, 3, 1), mode="replicate"),
    "group norm": lambda x: nn.functional.group_norm(x, 2),
    "sample": lambda x: nn.functional.grid_sample(
        x, x.new_zeros(x.shape[0], 3, 2, 2), align_corners=False
    ),
    "roll": lambda x: x.roll(1, 2),
    "stack": lambda x: torch.stack([x, x]),
    "stack channels": lambda x: torch.stack([x, x], 2),
    "stack behind": lambda x: torch.stack([x, x], 4),
}


@pytest.mark.parametrize("name", KEEPING_CHANNELS_INNERMOST)
def test_layouts_of_pictures_are_eagers(name: str) -> None:
    program = KEEPING_CHANNELS_INNERMOST[name]
    fast = anyshape.compile(program)
    for size in (6, 2, 4):
        plain = torch.randn(2, 4, size, size + 2)
        for x in (plain, plain.to(memory_format=torch.channels_last)):
            ours, theirs = fast(x), program(x)
            assert ours.stride() == theirs.stride()
            torch.testing.assert_close(ours, theirs)


UNCHANGING = {
    "pad": lambda x: nn.functional.pad(x, (0, 0), mode="replicate"),
    "shuffle": lambda x: nn.functional.pixel_shuffle(x[None, None], 1),
    "channels": lambda x: nn.functional.channel_shuffle(x[None, :, :, None], 1),
}


@pytest.mark.parametrize("name", UNCHANGING)
def test_operators_that_change_nothing_still_give_memory_of_its_own(name: str) -> None:
    fast = anyshape.compile(UNCHANGING[name])
    for size in (3, 1, 2):
        x = torch.randn(size, 3)
        assert fast(x).untyped_storage().data_ptr() != x.untyped_storage().data_ptr()


def test_windows_added_one_by_one_compile_in_time_and_code_that_grow_with_their_number() -> None:
    def program(picture: Tensor) -> Tensor:
        made = picture.new_zeros(picture.shape)
        for row in range(0, 12, 2):
            made[..., row : row + 4] += picture[..., row : row + 4] * 2
        return made

    fast = anyshape.compile(program)
    for size in (17, 16, 20):
        x = torch.randn(3, size)
        torch.testing.assert_close(fast(x), program(x))
    assert len(fast.code()) < 60_000


def kept_by_a_loop(scores: Tensor, near: Tensor) -> Tensor:
    """As boxes are kept that overlap with none kept before."""
    order, kept = scores.argsort(descending=True), []
    while order.numel() > 0:
        kept.append(order[0])
        if order.numel() == 1:
            break
        rest = order[1:]
        order = rest[near[order[0], rest] <= 0.3]
    return torch.stack(kept) if kept else scores.new_empty(0, dtype=torch.long)


def test_a_loop_that_data_ends_is_left_to_python() -> None:
    fast = anyshape.compile(kept_by_a_loop)
    for size in (9, 1, 0, 2):
        given = torch.rand(size), torch.rand(size, size)
        assert torch.equal(fast(*given), kept_by_a_loop(*given))
    assert fast.stats().specializations > 0


class Remembering(nn.Module):
    """Keeps its state in a tuple that is made anew in each call."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.LSTMCell(3, 4)
        self.state = (torch.zeros(1, 4), torch.zeros(1, 4))

    def forward(self, x: Tensor) -> Tensor:
        if self.state[0].shape[0] != x.shape[0]:
            self.state = (x.new_zeros(x.shape[0], 4), x.new_zeros(x.shape[0], 4))
        self.state = self.cell(x, self.state)
        return self.state[0]


def test_state_kept_in_a_tuple_makes_no_specialization_for_each_call() -> None:
    module = Remembering()
    fast, twin = anyshape.compile(module), copy.deepcopy(module)
    with torch.no_grad():
        for size in (2, 2, 5, 5, 1, 1, 17, 17, 17, 2):
            x = torch.randn(size, 3)
            torch.testing.assert_close(fast(x), twin(x))
    assert fast.stats().specializations <= 4


class Adapted(nn.Module):
    """Adapters that are swapped between calls."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.adapters = nn.Linear(4, 4), {}

    def forward(self, x: Tensor) -> Tensor:
        y = self.base(x)
        for down, up, scale in self.adapters.values():
            y = y + (x @ down) @ up * scale
        return y


def test_adapters_swapped_between_calls_become_arguments() -> None:
    module = Adapted()
    fast = anyshape.compile(module)
    with torch.no_grad():
        for rank in (2, 3, 1, 4, 2, 5, 7):
            module.adapters["a"] = (torch.randn(4, rank), torch.randn(rank, 4), 0.5)
            x = torch.randn(rank, 4)
            torch.testing.assert_close(fast(x), module.forward(x))
    assert fast.stats().specializations <= 3


def test_attention_without_weights_goes_on_with_what_it_gives() -> None:
    """The fast path of torch gives no weights, where its meta kernel makes some."""
    attend = nn.MultiheadAttention(16, 2, batch_first=True).eval()

    def block(x: Tensor) -> tuple[Tensor, Any]:
        made, weights = attend(x, x, x, need_weights=False)
        noise = torch.rand(x.shape[0])
        return 2 * made + noise[:, None, None], weights

    fast = anyshape.compile(block)
    with torch.no_grad():
        for length in (7, 5, 1, 0):
            x = torch.randn(2, length, 16)
            with torch.random.fork_rng():
                expected, nothing = block(x)
            found, weights = fast(x)
            torch.testing.assert_close(found, expected)
            assert nothing is None and weights is None
    assert fast.stats().specializations == 1


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x: Tensor, rows: Tensor) -> Tensor:
        self.calls += 1
        y = self.linear(x)
        if torch.isnan(y).any():
            raise FloatingPointError("not a number")
        return y + y[rows[0]]


def test_a_check_that_fails_while_training_leaves_no_half_of_a_step_behind() -> None:
    eager = Counting()
    net = copy.deepcopy(eager)
    fast = anyshape.compile(net)
    x, nan = torch.randn(3, 4), torch.full((3, 4), float("nan"))
    for given, row, error in (
        (x, 1, None),
        (nan, 1, FloatingPointError),
        (x, 9, IndexError),
        (x, 2, None),
    ):
        for model in (eager, fast):
            before = net.calls._version
            if error is None:
                model(given, torch.tensor([row])).sum().backward()
            else:
                with pytest.raises(error):
                    model(given, torch.tensor([row]))
        assert net.calls._version == before + 1
        assert torch.equal(net.calls, eager.calls)


def test_parts_of_a_shape_are_sizes() -> None:
    def shapes(x: Tensor) -> dict[str, Any]:
        shape = x.shape
        return {
            "slice": shape[1:],
            "last": x.size()[:-1],
            "sum": shape + (1,),
            "sum behind": (1, *shape[:1]) + shape,
            "product": 2 * shape,
            "text": f"{shape[1:]} {shape}",
            "class": (type(shape), type(shape[1:]), isinstance(shape, torch.Size)),
            "tuple": tuple(shape),
            "elements": shape[1:].numel(),
        }

    fast = anyshape.compile(shapes)
    for size in ((2, 3, 4), (1, 3, 4), (0, 1, 1), (17, 2, 0)):
        x = torch.zeros(size)
        found, expected = fast(x), shapes(x)
        assert found == expected
        assert {k: type(v) for k, v in found.items()} == {k: type(v) for k, v in expected.items()}
    assert fast.stats().specializations == 1


def test_masked_actions_are_one_specialization() -> None:
    """`torch.distributions` keeps shapes in attributes, and asks `_is_all_true` in its checks."""

    def act(logits: Tensor, mask: Tensor) -> tuple[Tensor, ...]:
        lowest = torch.finfo(logits.dtype).min
        chances = torch.distributions.Categorical(logits=logits.masked_fill(~mask, lowest))
        action = chances.sample()
        return action, chances.log_prob(action), chances.entropy()

    fast = anyshape.compile(act, fullgraph=True)
    for batch in (4, 1, 7, 2, 16, 1):
        given = torch.randn(batch, 3), torch.rand(batch, 3) < 2
        torch.manual_seed(batch)
        expected = act(*given)
        torch.manual_seed(batch)
        torch.testing.assert_close(fast(*given), expected)
    assert fast.stats().specializations == 1


def test_a_kept_shape_that_changes_is_added_to() -> None:
    class Kept:
        shape = torch.Size([3])

    def program(kept: Kept, x: Tensor) -> tuple[Tensor, torch.Size]:
        return x * 2, torch.Size((2,)) + kept.shape + x.shape

    fast, kept = anyshape.compile(program), Kept()
    for size in (3, 1, 4, 0, 7):
        kept.shape = torch.Size([size])
        made = fast(kept, torch.ones(2, size))[1]
        assert made == torch.Size([2, size, 2, size]) and type(made) is torch.Size
    assert fast.stats().specializations <= 2


class Momentum(nn.Module):
    """A teacher that follows its student, as `p.data = ...` is often written."""

    def __init__(self) -> None:
        super().__init__()
        self.student, self.teacher = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        with torch.no_grad():
            for new, old in zip(self.student.parameters(), self.teacher.parameters()):
                old.data = old.data * 0.9 + new.data * 0.1
            target = self.teacher(x)
        return self.student(x), target


def test_weights_whose_data_is_replaced_in_each_call_become_arguments() -> None:
    eager = Momentum()
    net = copy.deepcopy(eager)
    fast = anyshape.compile(net)
    made = []
    for batch in (2, 3, 1, 17, 5, 2, 0, 9):
        x = torch.randn(batch, 4)
        torch.testing.assert_close(fast(x), eager(x))
        torch.testing.assert_close(net.state_dict(), eager.state_dict())
        made.append(fast.stats().specializations)
    assert made[-1] == made[-3]
