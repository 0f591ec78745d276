"""Short programs as users write them, at several sizes: eager's results, and one graph where the
Python around the tensors decides nothing by data.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import enum
import functools
import math
import re
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.utils.checkpoint
from torch import Tensor, nn

from tests.capture.by_reference import compiled, same

SIZES = (3, 1, 2, 17, 0, 5)


class Config:
    def __init__(self) -> None:
        self.scale = 1
        self.parts = [1, 2]
        self.table = {"k": (1, 2)}


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        assert not torch.is_grad_enabled()
        return x * x

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return 2 * x * grad


@dataclasses.dataclass
class Point:
    x: Tensor
    n: int = 0
    parts: list[int] = dataclasses.field(default_factory=list)

    def __post_init__(self) -> None:
        self.n = self.x.shape[0]
        self.parts.append(self.n)

    @functools.cached_property
    def triple(self) -> Tensor:
        return self.x * 3


CONFIG = Config()


def by_a_list_of_sizes(x: Tensor) -> Tensor:
    return x.t()[[x.shape[1] - 1, 0, 1]]


def of_a_copied_config(x: Tensor) -> Any:
    config = copy.deepcopy(CONFIG)
    config.scale += 1
    config.parts.append(3)
    other = copy.copy(config)
    return x * config.scale + sum(other.parts) + len(CONFIG.parts), config.table


def of_copied_tensors(x: Tensor) -> Any:
    y = copy.deepcopy({"x": x, "list": [x, x]})
    y["x"].add_(1)
    return y, y["list"][0] is y["x"], x


def of_a_dataclass(x: Tensor) -> Any:
    point = Point(x)
    moved = dataclasses.replace(point, x=x + 1)
    return point.triple + point.triple, point.n, moved.parts, dataclasses.asdict(point)["x"]


def of_patterns(x: Tensor) -> Any:
    found: list[Any] = []
    for value in [1, (1, x), [x, 2, 3], {"k": x, "r": 1}, Color.RED, "s", Point(x)]:
        match value:
            case int(n):
                found.append(x * n)
            case (1, y):
                found.append(y + 1)
            case [y, *rest]:
                found.append(y * len(rest))
            case {"k": y, **others}:
                found.append(y - len(others))
            case Color.RED:
                found.append(x)
            case Point(x=y, n=k) if k >= 0:
                found.append(y * 2)
            case _:
                found.append(None)
    return found


def of_a_function_without_gradients(x: Tensor) -> Tensor:
    return Square.apply(x + 1) * 2  # type: ignore[no-any-return]


def checkpointed(x: Tensor) -> Any:
    return torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False)


def of_tensors_as_keys(x: Tensor) -> Any:
    y = x * 2
    names = {x: "x", y: "y"}
    return [names[t] for t in (y, x)], x in {y}, len({x, y, x})


def of_sizes_as_keys(x: Tensor) -> Any:
    table = {x.shape[1]: "columns", (x.shape[1], "a"): x}
    table.setdefault(x.shape[1] + 1, "more")
    return table, table[4], table.get(5), x.shape[1] in table, {x.shape[1]}


def of_text(x: Tensor) -> Any:
    found = re.match(r"(\w+)\.(\d+)", "layer.12")
    assert found is not None
    return x * int(found.group(2)), re.compile(r"\d+").findall("1 22"), re.sub("a", "b", "aa")


def printed(x: Tensor) -> Tensor:
    print(x.shape, tuple(x.shape), x.shape[0])
    return x + 1


def product_of_a_generator(x: Tensor) -> Tensor:
    return x * math.prod(size + 1 for size in x.shape) + math.prod(x.shape)


def checked(x: Tensor) -> Tensor:
    assert (x > -1e9).all(), "too small"
    assert x.sum().item() > -1e9
    if torch.isnan(x).any():
        raise ValueError("not a number")
    return x + 1


@contextlib.contextmanager
def noted(log: list[str], name: str) -> Iterator[str]:
    log.append("in " + name)
    try:
        yield name
    finally:
        log.append("out " + name)


def of_contexts(x: Tensor) -> Any:
    log: list[str] = []
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.callback(log.append, "callback")
        with noted(log, "a") as a, noted(log, "b"), contextlib.suppress(ZeroDivisionError):
            x = x * len(a) + 1 / 0
    return x, log


def functional(x: Tensor) -> Any:
    weights = {name: value.detach() * 2 for name, value in NET.named_parameters()}
    return torch.func.functional_call(NET, weights, (x,))


NET = nn.Linear(4, 4)
WHOLE: tuple[Callable[[Tensor], Any], ...] = (
    by_a_list_of_sizes,
    of_a_copied_config,
    of_copied_tensors,
    of_a_dataclass,
    of_patterns,
    of_a_function_without_gradients,
    checkpointed,
    of_tensors_as_keys,
    of_sizes_as_keys,
    of_text,
    printed,
    product_of_a_generator,
    checked,
    of_contexts,
    functional,
)


@pytest.mark.parametrize("program", WHOLE, ids=lambda program: program.__name__)
def test_a_program_is_one_graph_for_every_size(
    program: Callable[[Tensor], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    fast = compiled(program)
    with torch.no_grad():
        for n in SIZES:
            x = torch.arange(float(n * 4)).reshape(n, 4)
            expected = program(x.clone())
            shown = capsys.readouterr()
            same(fast(x), expected)
            assert capsys.readouterr() == shown
    assert fast.stats().specializations == 1


@pytest.mark.parametrize(
    "condition",
    [
        lambda x: (x > 0).all(),
        lambda x: x.sum(),
        lambda x: x.sum().item() > 0,
        lambda x: not (x <= 0).any(),
    ],
    ids=["tensor", "number", "item", "negated"],
)
def test_an_assertion_on_data_is_a_check_that_raises_what_eager_raises(
    condition: Callable[[Tensor], Any],
) -> None:
    def program(x: Tensor, log: list[Any]) -> Any:
        log.append("before")
        y = x * 2
        try:
            assert condition(y), "no"
        except AssertionError as error:
            return y - 1, str(error)
        log.append(y)
        return y + 1

    fast = compiled(program)
    for x in (torch.ones(3), torch.zeros(3), torch.ones(2), torch.zeros(1)):
        found: list[Any] = []
        expected: list[Any] = []
        same(fast(x, found), program(x, expected))
        same(found, expected)
    assert fast.stats().specializations == 1 and fast.stats().graph_breaks == 0


def test_a_function_with_gradients_is_captured_with_its_own_backward() -> None:
    fast = compiled(of_a_function_without_gradients, fullgraph=False)
    for n in SIZES:
        x, y = (torch.ones(n, requires_grad=True) for _ in range(2))
        fast(x).sum().backward()
        of_a_function_without_gradients(y).sum().backward()
        same(x.grad, y.grad)
    assert fast.stats().graph_breaks == 0


def test_a_module_made_inside_is_no_specialization_for_each_call() -> None:
    def program(x: Tensor) -> Tensor:
        layer = nn.Linear(4, 2)
        return layer(x)  # type: ignore[no-any-return]

    fast = compiled(program, fullgraph=False)
    for n in (*SIZES, *SIZES):
        x = torch.ones(n, 4)
        torch.manual_seed(n)
        found = fast(x)
        torch.manual_seed(n)
        same(found.detach(), program(x).detach())
    assert not fast.warned and fast.stats().specializations <= 10


@pytest.mark.parametrize("leaf", [True, False])
def test_whether_an_argument_is_a_leaf_is_relied_on(leaf: bool) -> None:
    fast = compiled(lambda x: (x.is_leaf, x * 2), fullgraph=False)
    for given in (leaf, not leaf, leaf):
        x = torch.ones(2, requires_grad=True)
        x = x if given else x * 1
        assert fast(x)[0] is given


def test_generic_types_are_subscripted() -> None:
    def program(xs: list[torch.Tensor]) -> Any:
        found = torch.jit.annotate(typing.List[torch.Tensor], [])
        sizes: typing.Dict[str, int] = {}
        for x in xs:
            found.append(x * 2)
            sizes[str(len(found))] = x.shape[0]
        return found, typing.cast(typing.Optional[int], sizes)

    fast = compiled(program)
    for n in (3, 1, 0, 5):
        xs = [torch.ones(n), torch.zeros(n)]
        same(fast(xs), program(xs))
    assert fast.stats().specializations == 1
