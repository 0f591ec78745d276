"""What the user changes between two calls, the next call sees."""

from __future__ import annotations

import contextlib
import copy
import os
import pickle
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import anyshape
from anyshape.tools import models
from anyshape.tools.models import Recipe


class Config:
    """What a model looks up in each forward."""

    def __init__(self) -> None:
        self.scale = 2.0
        self.activation = "gelu"


class Net(nn.Module):
    """A little of everything that can be changed."""

    def __init__(self) -> None:
        super().__init__()
        self.config = Config()
        self.first = nn.Linear(8, 16)
        self.norm = nn.BatchNorm1d(16)
        self.dropout = nn.Dropout(0.5)
        self.extra = nn.Sequential()
        self.second = nn.Linear(16, 4)
        self.register_buffer("shift", torch.linspace(0, 1, 4))

    def forward(self, x: Tensor) -> Tensor:
        x = getattr(F, self.config.activation)(self.first(x))
        x = self.extra(self.dropout(self.norm(x)))
        return self.second(x) * self.config.scale + self.shift


X = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture
def net() -> Net:
    torch.manual_seed(0)
    return Net().eval()


def set_data(net: Net) -> None:
    net.first.weight.data = torch.full_like(net.first.weight, 0.25)


def write_in_place(net: Net) -> None:
    with torch.no_grad():
        net.second.weight.mul_(3.0)


def new_parameter(net: Net) -> None:
    net.first.weight = nn.Parameter(torch.full((16, 8), 0.125))


def transposed_parameter(net: Net) -> None:
    net.second.weight.data = net.second.weight.data.t().contiguous().t()


def assign_state(net: Net) -> None:
    torch.manual_seed(5)
    net.load_state_dict(Net().state_dict(), assign=True)


def copy_state(net: Net) -> None:
    torch.manual_seed(6)
    net.load_state_dict(Net().state_dict())


def forward_hook(net: Net) -> None:
    net.first.register_forward_hook(lambda module, args, output: output + 1)


def forward_pre_hook(net: Net) -> None:
    net.second.register_forward_pre_hook(lambda module, args: (args[0] * 2,))


def new_submodule(net: Net) -> None:
    net.extra.append(nn.Tanh())


def replaced_submodule(net: Net) -> None:
    net.norm = nn.Identity()


def replaced_forward(net: Net) -> None:
    net.first.forward = lambda x: torch.zeros(*x.shape[:-1], 16)


def changed_scale(net: Net) -> None:
    net.config.scale = 5.0


def changed_activation(net: Net) -> None:
    net.config.activation = "relu"


def changed_epsilon(net: Net) -> None:
    net.norm.eps = 0.5


def replaced_config(net: Net) -> None:
    net.config = Config()
    net.config.scale = -1.0


def new_buffer(net: Net) -> None:
    net.shift = torch.full((4,), 7.0)


CHANGES = [
    set_data, write_in_place, new_parameter, transposed_parameter, assign_state, copy_state,
    forward_hook, forward_pre_hook, new_submodule, replaced_submodule, replaced_forward,
    changed_scale, changed_activation, changed_epsilon, replaced_config, new_buffer,
]  # fmt: skip


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@torch.no_grad()
def test_the_next_call_sees(net: Net, change: Callable[[Net], None]) -> None:
    fast = anyshape.compile(net)
    before = net(X)
    torch.testing.assert_close(fast(X), before)
    change(net)
    after = net(X)
    torch.testing.assert_close(fast(X), after)
    if change is not transposed_parameter:
        assert not torch.equal(before, after), "the change must matter"


@torch.no_grad()
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_to_another_dtype_in_place(net: Net, dtype: torch.dtype) -> None:
    fast = anyshape.compile(net)
    fast(X)
    net.to(dtype)
    result, expected = fast(X.to(dtype)), net(X.to(dtype))
    assert result.dtype == dtype
    torch.testing.assert_close(result, expected)


@torch.no_grad()
def test_train_makes_dropout_and_running_statistics_eagers(net: Net) -> None:
    twin = copy.deepcopy(net)
    fast = anyshape.compile(net)
    fast(X)
    for mode in (True, True, False, True):
        fast.train(mode)
        twin.train(mode)
        torch.manual_seed(3)
        result = fast(X)
        torch.manual_seed(3)
        expected = twin(X)
        torch.testing.assert_close(result, expected)
        torch.testing.assert_close(net.norm.running_mean, twin.norm.running_mean)
        assert net.norm.num_batches_tracked == twin.norm.num_batches_tracked


@torch.no_grad()
def test_autocast(net: Net) -> None:
    fast = anyshape.compile(net)
    plain = fast(X)
    with torch.autocast("cpu", torch.bfloat16):
        result, expected = fast(X), net(X)
    assert result.dtype == expected.dtype
    assert expected.dtype != plain.dtype or not torch.equal(expected, plain)
    torch.testing.assert_close(result, expected, rtol=2e-2, atol=2e-2)
    torch.testing.assert_close(fast(X), plain)


def test_inference_mode_no_grad_and_grad(net: Net) -> None:
    fast = anyshape.compile(net)
    with torch.no_grad():
        assert not fast(X).requires_grad
    with torch.inference_mode():
        assert fast(X).is_inference()
    result = fast(X)
    assert result.requires_grad
    result.sum().backward()
    twin = copy.deepcopy(net)
    twin.zero_grad()
    twin(X).sum().backward()
    torch.testing.assert_close(net.first.weight.grad, twin.first.weight.grad)


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@torch.no_grad()
def test_another_default_dtype() -> None:
    fast = anyshape.compile(lambda x: torch.ones(3) * x.shape[0] + torch.arange(3) / 2)
    assert fast(X).dtype == torch.float32
    with default_dtype(torch.float64):
        result = fast(X)
    assert result.dtype == torch.float64
    torch.testing.assert_close(result, torch.tensor([5.0, 5.5, 6.0], dtype=torch.float64))


@torch.no_grad()
def test_another_matmul_precision(net: Net) -> None:
    fast = anyshape.compile(net)
    fast(X)
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        torch.testing.assert_close(fast(X), net(X))
    finally:
        torch.set_float32_matmul_precision(before)
    torch.testing.assert_close(fast(X), net(X))


@torch.no_grad()
def test_a_changed_attribute_of_a_hugging_face_config() -> None:
    module = models.build("llama", Recipe(layers=1))
    fast = anyshape.compile(module)
    arguments = models.inputs("llama", 2, 7)
    del arguments["use_cache"]
    module.config.use_cache = False
    assert fast(**arguments).past_key_values is None
    module.config.use_cache = True
    assert fast(**arguments).past_key_values is not None


@torch.no_grad()
def test_the_attention_implementation_can_be_changed() -> None:
    module = models.build("llama", Recipe(layers=1))
    fast = anyshape.compile(module)
    arguments = models.inputs("llama", 2, 7)
    torch.testing.assert_close(
        fast(**arguments).logits, module(**arguments).logits, rtol=1e-4, atol=1e-5
    )
    module.set_attn_implementation("eager")
    torch.testing.assert_close(
        fast(**arguments).logits, module(**arguments).logits, rtol=1e-4, atol=1e-5
    )


@torch.no_grad()
def test_a_compiled_module_can_be_copied_saved_and_pickled(net: Net) -> None:
    fast = anyshape.compile(net)
    expected = fast(X)
    assert fast.state_dict().keys() == net.state_dict().keys()
    twin = copy.deepcopy(fast)
    write_in_place(net)
    torch.testing.assert_close(twin(X), expected)
    again = pickle.loads(pickle.dumps(fast))
    torch.testing.assert_close(again(X), net(X))


@torch.no_grad()
def test_eight_threads_compile_and_call_the_same_and_different_functions(net: Net) -> None:
    fast = anyshape.compile(net)
    wrong: list[str] = []
    start = threading.Barrier(8)

    def work(index: int) -> None:
        own = anyshape.compile(lambda x: torch.relu(x + index).sum(0) * 2)
        start.wait()
        with torch.no_grad():
            for rows in range(1, 12):
                x = torch.randn(rows, 8)
                for name, run, check in (
                    ("shared", fast, net),
                    ("own", own, lambda x: torch.relu(x + index).sum(0) * 2),
                ):
                    if not torch.allclose(run(x), check(x), rtol=1e-4, atol=1e-5):
                        wrong.append(f"{name} {index} {rows}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert not any(thread.is_alive() for thread in threads)


@torch.no_grad()
def test_a_child_forked_after_a_compile_can_call_and_compile() -> None:
    def program(x: Tensor) -> Tensor:
        return torch.softmax(x * 2, -1)

    fast = anyshape.compile(program)
    fast(X)
    child = os.fork()
    if child == 0:
        torch.set_num_threads(1)
        right = torch.allclose(fast(X[:2]), program(X[:2]))
        fresh = anyshape.compile(lambda x: torch.tanh(x) + 3)
        right = right and torch.allclose(fresh(X), torch.tanh(X) + 3)
        os._exit(0 if right else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
