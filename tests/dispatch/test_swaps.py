"""What is swapped is no new program: adapters, modules, weights, factors, offloaded layers.

Each program is right after each swap; what is counted is how many programs were compiled.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import anyshape
from benchmarks import growth


class Adapted(nn.Module):
    """A linear layer with adapters by name, as PEFT has them."""

    def __init__(self, adapters: int, rank: int = 2) -> None:
        super().__init__()
        self.base = nn.Linear(6, 6)
        self.down = nn.ModuleDict({f"a{i}": nn.Linear(6, rank) for i in range(adapters)})
        self.up = nn.ModuleDict({f"a{i}": nn.Linear(rank, 6) for i in range(adapters)})
        self.scaling = {f"a{i}": 0.5 for i in range(adapters)}
        self.active = ["a0"]

    def forward(self, x: Tensor) -> Tensor:
        whole = self.base(x)
        for name in self.active:
            if name in self.down:
                whole = whole + self.up[name](self.down[name](x)) * self.scaling[name]
        return whole


def check(fast: Callable[..., Any], model: nn.Module, width: int = 6) -> None:
    with torch.no_grad():
        for rows in (3, 5, 1):
            x = torch.randn(rows, width)
            torch.testing.assert_close(fast(x), model(x))


def test_adapters_of_one_structure_run_one_program() -> None:
    model = Adapted(9).eval()
    fast = anyshape.compile(model)
    for _ in range(2):
        for i in range(9):
            model.active[0] = f"a{i}"
            check(fast, model)
        assert fast.stats().programs == 1, fast.stats()
        assert fast.stats().recompiles == 8, fast.recompiles()


def test_an_adapter_of_another_rank_is_another_program() -> None:
    model = Adapted(2).eval()
    model.down["a1"], model.up["a1"] = nn.Linear(6, 3), nn.Linear(3, 6)
    fast = anyshape.compile(model)
    for name in ("a0", "a1", "a0", "a1"):
        model.active[0] = name
        check(fast, model)
    assert fast.stats().programs == fast.stats().specializations == 2


def test_gradients_of_adapters_share_a_program() -> None:
    model = Adapted(4)
    fast = anyshape.compile(model)
    for _ in range(2):
        for i in range(4):
            model.active[0] = f"a{i}"
            x = torch.randn(3, 6, requires_grad=True)
            weights = [x, model.down[f"a{i}"].weight, model.base.weight]
            given = torch.autograd.grad(fast(x).sin().sum(), weights)
            wanted = torch.autograd.grad(model(x).sin().sum(), weights)
            for one, other in zip(given, wanted, strict=True):
                torch.testing.assert_close(one, other)
    assert fast.stats().programs == 1, fast.stats()


def test_programs_that_are_shared_write_the_buffers_of_their_own_variant() -> None:
    class Counting(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            for name in "abc":
                self.register_buffer(name, torch.zeros(4))
            self.active = "a"

        def forward(self, x: Tensor) -> Tensor:
            seen = getattr(self, self.active)
            seen.add_(x.sum(0))
            return x * seen

    model = Counting()
    twin = copy.deepcopy(model)
    pairs = [*zip(model.buffers(), twin.buffers(), strict=True)]
    apart = [other._version - one._version for one, other in pairs]
    fast = anyshape.compile(model)
    for name in "abcabc":
        model.active = twin.active = name
        x = torch.randn(5, 4)
        torch.testing.assert_close(fast(x), twin(x))
        for one, other in pairs:
            torch.testing.assert_close(one, other)
        assert [other._version - one._version for one, other in pairs] == apart
    assert fast.stats().programs == 1, fast.stats()


def test_factors_kept_outside_are_numbers_from_the_second_value_on() -> None:
    model = nn.Sequential(Adapted(1), Adapted(1)).eval()
    fast = anyshape.compile(model)
    for factor in (0.5, 0.75, 2.0, -1.0, 0.5):
        for layer in model:
            layer.scaling["a0"] = factor
        check(fast, model)
    assert fast.stats().specializations == 2, fast.recompiles()


def test_of_adapters_that_are_put_in_factors_and_lists_of_names_are_read_in_each_call() -> None:
    """What has been put in once is likely to be changed next: no call is needed that shows it."""
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU(), nn.Linear(6, 6)).eval()
    fast = anyshape.compile(model)
    check(fast, model)
    model[0], model[2] = Adapted(1).eval(), Adapted(1).eval()
    for factor in (0.5, 0.75, -1.0, 0.5):
        for layer in (model[0], model[2]):
            layer.scaling["a0"], layer.active = factor, ["a0"]
        check(fast, model)
    model[0].active.append("a0")
    check(fast, model)
    model[0].active = []
    check(fast, model)
    assert fast.stats().specializations == 4, fast.recompiles()  # one for each length


class Configured(nn.Module):
    """Uses a float that lies in a dict where only a constant will do."""

    def __init__(self, use: Callable[[Tensor, float], Tensor]) -> None:
        super().__init__()
        self.linear, self.settings, self.use = nn.Linear(6, 6), {"value": 0.5}, use

    def forward(self, x: Tensor) -> Tensor:
        return self.use(self.linear(x), self.settings["value"])


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize(
    "use",
    [
        lambda x, value: x + torch.arange(0.0, 10 * value, 0.5).sum(),
        lambda x, value: nn.functional.hardtanh(x, -value, value),
        lambda x, value: nn.functional.interpolate(x[None, None], scale_factor=4 * value),
        lambda x, value: x * {0.5: 2, 0.25: 3}[value],
        lambda x, value: x * len(f"{value}"),
        lambda x, value: x * (2 if value.is_integer() else 3),
    ],
)
def test_floats_that_have_to_be_constants_stay_so_where_modules_are_replaced(
    use: Callable[[Tensor, float], Tensor], fullgraph: bool
) -> None:
    model = Configured(use).eval()
    fast = anyshape.compile(model, fullgraph=fullgraph)
    check(fast, model)
    model.linear = nn.Linear(6, 6)
    check(fast, model)
    assert fast.stats().graph_breaks == 0, fast.stats()
    model.settings["value"] = 0.25
    if not fullgraph:
        check(fast, model)


def test_modules_replaced_by_equal_ones() -> None:
    model = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.ReLU(), nn.Linear(6, 6)).eval()
    fast = anyshape.compile(model)
    check(fast, model)
    for _ in range(6):
        model[0] = nn.Linear(6, 6)
        check(fast, model)
    assert fast.stats().programs == 2, fast.stats()  # and one whose weights are arguments


def _hooked(layers: int) -> nn.Module:
    """Layers whose weights are moved by hooks that torch's own compiler must not look into."""

    @torch.compiler.disable
    def before(module: nn.Module) -> None:
        module.weight.data = module.stored.clone()

    @torch.compiler.disable
    def after(module: nn.Module) -> None:
        module.weight.data = torch.empty(0)

    def forward(module: Any, x: Tensor) -> Tensor:
        before(module)
        x = type(module).forward(module, x)
        after(module)
        return x

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

        def forward(self, x: Tensor) -> Tensor:
            return x + self.second(self.first(x).relu()).softmax(-1)

    model = nn.Sequential(*(Block() for _ in range(layers))).eval()
    for module in model.modules():
        if isinstance(module, nn.Linear):
            module.stored = module.weight.data.clone()
            module.forward = functools.partial(forward, module)
    return model


def test_hooks_that_move_weights_make_no_segments_for_each_layer() -> None:
    counts = []
    for layers in (2, 5):
        model = _hooked(layers)
        fast = anyshape.compile(model)
        check(fast, model)
        counts.append(fast.stats().specializations)
    assert counts[1] <= counts[0] + 2, counts


class Guarded:
    """Attributes go through code of the class."""

    factor = 3

    def __init__(self, scale: float, names: tuple[str, ...] = ("x",)) -> None:
        self.scale = scale
        self.names = list(names)

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("hidden"):
            raise AttributeError(name)
        return super().__getattribute__(name)


def test_what_lies_in_objects_that_answer_by_code_is_guarded_without_calling_it() -> None:
    class Scaled(nn.Module):
        def __init__(self, settings: Guarded) -> None:
            super().__init__()
            self.settings = settings

        def forward(self, x: Tensor) -> Tensor:
            more = getattr(self.settings, "more", 0)
            return x * self.settings.scale * self.settings.factor + len(self.settings.names) + more

    model = nn.Sequential(Scaled(Guarded(2.0))).eval()
    fast = anyshape.compile(model)
    for _ in range(5):
        model[0] = Scaled(Guarded(2.0))
        check(fast, model)
    assert fast.stats().graph_breaks == 0, anyshape.explain(model)
    model[0].settings.scale = 3.0
    check(fast, model)
    model[0].settings.names.append("y")
    check(fast, model)
    model[0].settings.more = 4  # was missing
    check(fast, model)
    model[0].settings.factor = 5  # hides that of the class
    check(fast, model)
    model[0] = Scaled(Guarded(1.0, ("x", "y", "z")))
    check(fast, model)


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "forward hook": lambda m: m.register_forward_hook(lambda _, __, out: out + 1),
    "forward pre-hook": lambda m: m.register_forward_pre_hook(lambda _, args: (args[0] + 1,)),
    "own forward": lambda m: setattr(m, "forward", lambda x: x * 5),
    "weight": lambda m: setattr(m, "weight", nn.Parameter(torch.randn(6, 6))),
    "bias": lambda m: setattr(m, "bias", None),
    "data": lambda m: setattr(m.weight, "data", torch.randn(6, 6)),
    "dtype": lambda m: m.double().float(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_changes_of_a_module_that_was_replaced_often_are_seen(name: str) -> None:
    """It is an argument by then, with guards of its own."""
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU()).eval()
    fast = anyshape.compile(model)
    for _ in range(6):
        model[0] = nn.Linear(6, 6)
        check(fast, model)
    before = fast.stats().specializations
    check(fast, model)
    assert fast.stats().specializations == before
    CHANGES[name](model[0])
    check(fast, model)


def _llama(layers: int) -> nn.Module:
    transformers = pytest.importorskip("transformers")
    config = transformers.LlamaConfig(
        hidden_size=32, intermediate_size=64, num_hidden_layers=layers, num_attention_heads=4,
        num_key_value_heads=2, vocab_size=100,
    )  # fmt: skip
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


def _right(fast: Callable[..., Any], model: Callable[..., Any]) -> None:
    with torch.no_grad():
        ids = torch.randint(3, 100, (2, 5))
        wanted = model(ids).logits  # libraries set up their hooks in the first call
        torch.testing.assert_close(fast(ids).logits, wanted, rtol=1e-4, atol=1e-4)


def test_peft_adapters_in_turn() -> None:
    peft = pytest.importorskip("peft")
    lora = peft.LoraConfig(target_modules=["q_proj", "v_proj"], r=2, init_lora_weights=False)
    model = peft.get_peft_model(_llama(1), lora, adapter_name="a0")
    for i in range(1, 9):
        model.add_adapter(f"a{i}", lora)
    fast = anyshape.compile(model)
    for _ in range(2):
        for i in range(9):
            model.set_adapter(f"a{i}")
            _right(fast, model)
    assert fast.stats().programs == 1, fast.stats()
    assert fast.stats().recompiles <= 9, fast.recompiles()
    with model.disable_adapter():
        _right(fast, model)
    assert fast.stats().programs == 2, fast.stats()


@pytest.mark.filterwarnings("ignore:Already found a `peft_config`")
def test_adapters_of_a_flux_come_change_and_go_without_a_break() -> None:
    """Values that differ are counted, and not the specializations that rely on one of them."""
    pytest.importorskip("diffusers")
    pytest.importorskip("peft")
    model, inputs = growth.flux(1)
    fast = anyshape.compile(model)
    with torch.no_grad():
        for swap in growth.flux_swaps(model):
            swap()
            given = inputs()
            wanted = model(**given).sample
            torch.testing.assert_close(fast(**given).sample, wanted, rtol=1e-4, atol=1e-4)
    assert fast.stats().graph_breaks == 0
    assert fast.stats().specializations <= 6, fast.recompiles()


def test_offloading_by_accelerate_does_not_specialize_for_each_layer() -> None:
    accelerate = pytest.importorskip("accelerate")
    counts = []
    for layers in (4, 7):
        model = accelerate.cpu_offload(_llama(layers), execution_device="cpu")
        fast = anyshape.compile(model)
        _right(fast, model)
        counts.append(fast.stats().specializations)
    assert counts[0] < 40 and counts[1] - counts[0] <= 2, counts


@pytest.mark.parametrize("groups", ["leaf_level", "block_level"])
def test_offloading_by_groups_does_not_specialize_for_each_block(groups: str) -> None:
    pytest.importorskip("diffusers")
    counts = []
    for blocks in (2, 4):
        model, inputs = growth.flux(blocks)
        settings = {"num_blocks_per_group": 1} if groups == "block_level" else {}
        model.enable_group_offload(
            onload_device=torch.device("cpu"),
            offload_device=torch.device("cpu"),
            offload_type=groups,
            **settings,
        )
        fast = anyshape.compile(model)
        with torch.no_grad():
            for _ in range(2):
                given = inputs()
                torch.testing.assert_close(fast(**given)[0], model(**given)[0])
        counts.append(fast.stats().specializations)
    assert max(counts) < 50 and counts[1] - counts[0] <= 4, counts
