"""What a specialization relies on, that it is tested, and how it is told."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from anyshape.capture.guards.tensor_specs import TensorSpec
from anyshape.capture.heap.sources import Sources, expression, read_path
from anyshape.dispatch.parameter_guards import Layout, parameter_test
from anyshape.nouns import replace
from anyshape.options import Options
from tests.capture.by_reference import compiled, same


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    torch.manual_seed(0)
    with torch.no_grad():
        yield


class Config:
    def __init__(self) -> None:
        self.scale = 2.0
        self.activation = "tanh"


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = Config()
        self.first = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4)
        self.extra = nn.Sequential(nn.Linear(4, 4))
        self.register_buffer("shift", torch.ones(4))

    def forward(self, x: Tensor) -> Tensor:
        x = getattr(torch, self.config.activation)(self.norm(self.first(x)))
        return self.extra(x) * self.config.scale + self.shift + (1.0 if self.training else 0.0)


X = torch.linspace(-1, 1, 12).reshape(3, 4)


def set_data(net: Net) -> None:
    net.first.weight.data = torch.full((4, 4), 0.5)


def set_data_in_place(net: Net) -> None:
    net.first.weight.fill_(0.25)


def set_data_transposed(net: Net) -> None:
    net.first.weight.data = net.first.weight.data.t()


def replace_parameter(net: Net) -> None:
    net.first.bias = nn.Parameter(torch.ones(4))


def assign_state(net: Net) -> None:
    state = {name: value * 2 for name, value in net.state_dict().items()}
    net.load_state_dict(state, assign=True)


def load_state(net: Net) -> None:
    net.load_state_dict({name: value * 2 for name, value in net.state_dict().items()})


def add_hook(net: Net) -> None:
    net.norm.register_forward_hook(lambda module, args, output: output * 3)


def add_pre_hook(net: Net) -> None:
    net.register_forward_pre_hook(lambda module, args: (args[0] + 1,))


def new_submodule(net: Net) -> None:
    net.extra.append(nn.Tanh())


def replace_submodule(net: Net) -> None:
    net.norm = nn.Identity()


def train(net: Net) -> None:
    net.train()


def change_config(net: Net) -> None:
    net.config.scale = 5.0


def change_activation(net: Net) -> None:
    net.config.activation = "sin"


def new_config(net: Net) -> None:
    net.config = copy.copy(net.config)
    net.config.scale = 7.0


def change_buffer(net: Net) -> None:
    net.shift = torch.zeros(4)


def change_epsilon(net: Net) -> None:
    net.norm.eps = 0.5


def replace_forward(net: Net) -> None:
    net.norm.forward = lambda x: x * 10


CHANGES = (
    *(set_data, set_data_in_place, set_data_transposed, replace_parameter, assign_state, load_state, add_hook, add_pre_hook),
    *(new_submodule, replace_submodule, train, change_config, change_activation, new_config, change_buffer),
    *(change_epsilon, replace_forward),
)  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_next_call_sees(change: Callable[[Net], None]) -> None:
    net = Net().eval()
    fast = compiled(net)
    same(fast(X), net(X))
    before = net(X)
    change(net)
    same(fast(X), net(X))
    assert not torch.equal(net(X), before)
    same(fast(X[:1]), net(X[:1]))


def test_half_keeps_the_parameter_objects_and_is_seen() -> None:
    net = Net().eval()
    fast = compiled(net)
    fast(X)
    net.to(torch.float64)
    same(fast(X.double()), net(X.double()))


@contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextmanager
def precision(name: str) -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(name)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


WORLDS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "autocast": lambda: torch.autocast("cpu", dtype=torch.bfloat16),
    "inference": torch.inference_mode,
    "grad": torch.enable_grad,
    "default dtype": lambda: default_dtype(torch.float64),
    "matmul precision": lambda: precision("high"),
}


@pytest.mark.parametrize("name", WORLDS)
def test_a_mode_is_part_of_what_is_relied_on(name: str) -> None:
    net = Net().eval()
    program = lambda x: net(x) + torch.zeros(4)
    fast = compiled(program)
    same(fast(X), program(X))
    with WORLDS[name]():
        found, wanted = fast(X), program(X)
        assert (found.dtype, found.requires_grad) == (wanted.dtype, wanted.requires_grad)
        torch.testing.assert_close(found, wanted)
    same(fast(X), program(X))
    assert fast.stats().specializations == 2
    assert name.split()[0] in fast.recompiles()[0]


ARGUMENTS: dict[str, Callable[[Tensor], Tensor]] = {
    "dtype": lambda x: x.double(),
    "rank": lambda x: x[None],
    "layout": lambda x: x.t().contiguous().t(),
    "holes": lambda x: x.repeat(1, 2)[:, ::2],
    "requires_grad": lambda x: x.clone().requires_grad_(),
    "class": lambda x: nn.Parameter(x, requires_grad=False),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_what_an_argument_is_makes_a_specialization(name: str) -> None:
    program = lambda x: torch.relu(x) + 1
    fast = compiled(program)
    for x in (X, ARGUMENTS[name](X), X, ARGUMENTS[name](X)):
        same(fast(x), program(x))
    assert fast.stats().specializations == 2


def test_a_spec_fits_other_sizes_and_nothing_else() -> None:
    spec = TensorSpec.of(X)
    assert spec.holds(torch.zeros(9, 1)) and spec.holds(torch.zeros(0, 3))
    for other in (
        X.double(),
        X[0],
        X.t(),
        X.to_sparse(),
        X.numpy(),
        torch.zeros(3, 4, dtype=torch.complex64),
    ):
        assert not spec.holds(other)


def _nested(x: Tensor) -> Tensor:
    return torch.nested.nested_tensor([x, x[:1]])


UNLIKE = {
    "negated": lambda x: torch._neg_view(x.clone()),
    "zeros without memory": lambda x: torch._efficientzerotensor(x.shape),
    "nested": _nested,
    "nested, of two columns": lambda x: _nested(x).transpose(1, 2),
    "sparse": lambda x: x.to_sparse(),
    "compressed": lambda x: x.to_sparse_csr(),
    "of the library": lambda x: x.contiguous().to_mkldnn(),
    "integers": lambda x: x.int(),
    "meta": lambda x: x.to("meta"),
    "requires gradients": lambda x: x.clone().requires_grad_(),
    "parameter": lambda x: nn.Parameter(x.clone(), requires_grad=False),
    "no tensor": lambda x: x.tolist(),
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("alike", [True, False], ids=["torch's guard", "one by one"])
@pytest.mark.parametrize("unlike", UNLIKE)
def test_the_guard_of_a_tensor_refuses_what_differs(unlike: str, alike: bool) -> None:
    """Torch's own guard ends the process at what has no strides, so it is not asked of that."""
    example = torch.randn(2, 3, 4) if unlike.startswith("nested") else X
    spec = TensorSpec.guarding(example)
    if not alike:
        spec = replace(spec, is_alike=lambda t: False)
    names: dict[str, Any] = {}
    text = spec.fails("x", lambda obj, head: names.update({f"{head}_": obj}) or f"{head}_")

    def fits(x: Any) -> bool:
        return not eval(text, names | {"x": x})

    other = UNLIKE[unlike](X)
    assert not fits(other) and not spec.holds(other)
    assert fits(example) and spec.holds(example)
    with torch.inference_mode():  # which torch's guard takes for another kind
        inside = example.clone()
        assert fits(example) and fits(inside)
    assert fits(inside)


@pytest.mark.filterwarnings("ignore")
def test_a_nested_tensor_where_a_tensor_was_runs_natively() -> None:
    program = lambda x: x * 2
    fast = anyshape.compile(program)
    same(fast(torch.ones(2, 3, 4)), torch.full((2, 3, 4), 2.0))
    for x in (_nested(X), _nested(X).transpose(1, 2)):
        for found, expected in zip(fast(x).unbind(), program(x).unbind(), strict=True):
            same(found, expected)
    assert "nested" in " ".join(fast.recompiles())


def test_a_later_call_asks_once_what_a_tensor_is() -> None:
    fast = compiled(lambda x: torch.relu(x) + 1)
    fast(X)
    asked: list[str] = []

    def heard(frame: Any, event: str, given: Any) -> None:
        if event == "c_call":
            asked.append(given.__name__)

    sys.setprofile(heard)
    try:
        fast(X)
    finally:
        sys.setprofile(None)
    assert asked.count("check") == 1
    assert not {"dim", "is_neg", "_is_zerotensor"} & {*asked}


def test_guards_name_the_users_line() -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        return x + y  # the line

    fast = compiled(program)
    fast(torch.ones(3), torch.ones(3))
    relations = fast.guards().partition("\n  guards\n")[2]
    (line,) = [line for line in relations.splitlines() if "==" in line]
    assert "x.size(0)" in line and "y.size(0)" in line
    number = program.__code__.co_firstlineno + 1
    assert f"test_guards.py:{number}" in line


def test_recompiles_say_what_was_found_instead() -> None:
    net = Net().eval()
    fast = compiled(net)
    fast(X)
    net.config.scale = 9.0
    fast(X)
    (reason,) = fast.recompiles()
    assert "config.scale == 2.0; now 9.0" in reason and "test_guards.py:" in reason


def test_an_outside_list_is_guarded_by_what_was_read() -> None:
    items = [1.0, 2.0, 3.0]
    fast = compiled(lambda x: x * items[0] + len(items))
    for change in (
        lambda: None,
        lambda: items.__setitem__(1, 9.0),
        lambda: items.__setitem__(0, 4.0),
        lambda: items.pop(),
    ):
        change()
        same(fast(X), X * items[0] + len(items))
    assert fast.stats().specializations == 3  # the second element was never read


def test_closures_and_globals_are_read_anew() -> None:
    scale = 1.0

    def program(x: Tensor) -> Tensor:
        return x * scale

    fast = compiled(program)
    same(fast(X), X)
    scale = 3.0
    same(fast(X), X * 3)


def test_one_list_handed_in_twice_is_not_two_lists() -> None:
    def program(x: Tensor, a: list[Any], b: list[Any]) -> int:
        a.append(x)
        return len(b)

    shared: list[Any] = []
    fast = compiled(program)
    assert fast(X, shared, shared) == 1
    assert fast(X, [], []) == 0
    assert fast(X, [], [1]) == 1


def test_what_replaces_a_parameter_makes_room_for_itself() -> None:
    net = Net().eval()
    fast = compiled(net, max_variants=3)
    for turn in range(8):
        net.first.weight.data = torch.full((4, 4), float(turn))
        same(fast(X), net(X))
    assert fast.stats().specializations <= 3


@pytest.mark.parametrize("count", [2, 40])
def test_parameters_are_fresh_until_one_is_changed(count: int) -> None:
    def changed(change: Callable[[nn.Parameter], Any]) -> bool:
        parameters = tuple(nn.Parameter(torch.randn(4, 4)) for _ in range(count))
        fresh = parameter_test(parameters, (), Options())
        assert fresh is not None and fresh()
        with torch.no_grad():
            change(parameters[1])
        return not fresh()

    assert changed(lambda p: setattr(p, "data", torch.randn(4, 4)))
    assert changed(lambda p: setattr(p, "data", p.data.t()))
    assert changed(lambda p: setattr(p, "data", p.data.view(torch.int32).view(torch.float32)[:2]))
    assert changed(lambda p: setattr(p, "data", p.data.half()))
    assert changed(lambda p: p.untyped_storage().resize_(4096))
    assert changed(lambda p: p.requires_grad_(False))
    assert not changed(lambda p: p.add_(1))
    assert not changed(lambda p: setattr(p, "grad", torch.ones(4, 4)))


def test_a_hook_in_any_of_many_dictionaries_is_seen() -> None:
    tables = tuple({} for _ in range(300))
    fresh = parameter_test((), tables, Options())
    assert fresh is not None and fresh()
    tables[299]["hook"] = print
    assert not fresh()


def test_the_layout_of_tensors_is_worked_out() -> None:
    assert Layout.find() is not None


def test_sources_print_as_the_user_would_write_them() -> None:
    net = Net()
    sources = Sources()
    root = sources.const(net, "net")
    weight = sources.child(
        sources.child(
            sources.child(sources.child(root, "attr", "_modules"), "item", "extra"),
            "attr",
            "_modules",
        ),
        "item",
        "0",
    )
    weight = sources.child(sources.child(weight, "attr", "_parameters"), "item", "weight")
    assert str(weight) == "net.extra[0].weight"
    slot = sources.child(sources.slot(0, "items"), "item", 2)
    assert (str(slot), expression(slot, lambda obj, hint: hint)) == ("items[2]", "slots[0][2]")
    assert read_path(slot, [[1, 2, 3]]) == 3
    assert sources.child(sources.slot(0, "items"), "item", 2) is slot


OVERLAPS: dict[str, Callable[[], tuple[Tensor, Tensor]]] = {
    "apart": lambda: (torch.arange(6.0), torch.ones(6)),
    "the same": lambda: (x := torch.arange(6.0), x),
    "views of one": lambda: ((base := torch.arange(6.0))[:4], base[2:]),
}


@pytest.mark.parametrize("first", OVERLAPS)
def test_memory_shared_with_what_is_written_is_noticed(first: str) -> None:
    def program(x: Tensor, y: Tensor) -> Tensor:
        before = y * 1
        x.view(-1).add_(1)
        return before + y

    fast = compiled(program)
    for name in (first, *OVERLAPS, first):
        same(fast(*OVERLAPS[name]()), program(*OVERLAPS[name]()))
    assert "share no memory" in fast.guards()


def test_nobody_asks_about_memory_where_nothing_is_written() -> None:
    fast = compiled(lambda x, y: x + y)
    for make in OVERLAPS.values():
        fast(*make())
    assert "share no memory" not in fast.guards()


@pytest.mark.filterwarnings("ignore::anyshape.errors.AnyshapeWarning")
def test_a_guard_that_divides_by_zero_does_not_hold() -> None:
    """It is eager that raises: in front of the division, another error."""

    def program(x: Tensor) -> Tensor:
        found = x.index_select(-1, torch.nonzero(x)[:, 0]).min()
        return found.reshape(x.shape[0], -1)

    fast = anyshape.compile(program)
    same(fast(torch.ones(1)), program(torch.ones(1)))
    for _ in range(2):
        with pytest.raises(RuntimeError, match="reduction dim"):
            fast(torch.ones(0))
    same(fast(torch.ones(1)), program(torch.ones(1)))
