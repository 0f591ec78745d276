"""The quick test of a deep model's guards: it is used, and whatever changes is seen by the call."""

import dis
import sys
import threading

import pytest
import torch
from torch import nn

import anyshape
from anyshape.dispatch import dict_version_guards, parameter_guards
from anyshape.dispatch.dict_version_guards import DictVersionGuards

X = torch.randn(3, 8)
NUMBERED = dict_version_guards.dictionaries_are_numbered()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.dropout = nn.Dropout(0.5)
        self.linear = nn.Linear(8, 8)
        self.scale = 1.5

    def forward(self, x):
        return x + self.dropout(self.linear(self.norm(x))) * self.scale


class Deep(nn.Module):
    def __init__(self, layers=12):
        super().__init__()
        torch.manual_seed(0)
        self.blocks = nn.ModuleList(Block() for _ in range(layers))

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def flip_training(model):
    model.blocks[7].dropout.train()
    model.blocks[7].dropout.p = 0.0


def swap_parameter(model):
    model.blocks[5].linear.weight = nn.Parameter(torch.ones(8, 8))


def swap_data(model):
    model.blocks[5].linear.weight.data = torch.ones(8, 8)


def swap_module(model):
    model.blocks[3] = nn.Identity()


def set_a_number(model):
    model.blocks[11].scale = -2.0


def add_a_hook(model):
    model.blocks[2].register_forward_hook(lambda module, args, result: result * 2)


def replace_a_method(model):
    model.blocks[2].linear.forward = lambda x: x * 3


def write_in_place(model):
    model.blocks[0].linear.weight.data.fill_(0.25)


CHANGES = (
    flip_training, swap_parameter, swap_data, swap_module, set_a_number, add_a_hook,
    replace_a_method, write_in_place,
)  # fmt: skip


@pytest.fixture
def tested(monkeypatch):
    """How many guards were left to the quick test, by specialization."""
    counts = []

    def of(guards, options, made=dict_version_guards.DictVersionGuards.of):
        found = made(guards, options)
        counts.append(0 if found is None else len(found.all_guards()))
        return found

    monkeypatch.setattr(parameter_guards.DictVersionGuards, "of", of)
    return counts


def same(fast, model, x):
    torch.testing.assert_close(fast(x), model(x))


@torch.no_grad()
@pytest.mark.parametrize("change", CHANGES)
def test_the_call_after_a_change_sees_it(tested, change):
    model = Deep().eval()
    fast = anyshape.compile(model)
    same(fast, model, X)
    same(fast, model, torch.randn(7, 8))
    assert tested == [tested[0]] and (tested[0] >= dict_version_guards.MANY) is NUMBERED
    change(model)
    same(fast, model, X)
    same(fast, model, torch.randn(1, 8))


@torch.no_grad()
def test_a_change_and_its_undoing_need_no_other_specialization():
    model = Deep().eval()
    fast = anyshape.compile(model)
    same(fast, model, X)
    model.blocks[4].scale = 9.0
    model.blocks[4].scale = 1.5
    same(fast, model, X)
    assert fast.stats().specializations == 1


class Marked(torch.Tensor):
    pass


@torch.no_grad()
def test_arguments_of_other_kinds_are_other_specializations():
    model = Deep().eval()
    fast = anyshape.compile(model)
    same(fast, model, X)
    with pytest.raises(RuntimeError):
        fast(X.double())  # as eager: the weights are float32
    result = fast(X.as_subclass(Marked))
    assert type(result) is Marked
    torch.testing.assert_close(torch.Tensor(result), model(X))
    same(fast, model, X.t().contiguous().t())


def test_modes_are_part_of_it():
    model = Deep().eval()
    fast = anyshape.compile(model)
    with torch.no_grad():
        assert not fast(X).requires_grad
    assert fast(X).requires_grad
    with torch.inference_mode():
        assert fast(X).is_inference()
    with torch.no_grad():
        x = X.clone().requires_grad_()
        assert not fast(x).requires_grad
    fast(x).sum().backward()
    expected = X.clone().requires_grad_()
    model(expected).sum().backward()
    torch.testing.assert_close(x.grad, expected.grad)


@pytest.mark.filterwarnings("ignore:E901")  # changed while it is captured: natively from then on
@torch.no_grad()
def test_threads_that_call_while_another_changes_get_one_state_or_the_other():
    model = Deep().eval()
    fast = anyshape.compile(model)
    before = fast(X)
    model.blocks[6].scale = 0.5
    after = fast(X)
    wrong, stop = [], threading.Event()

    def call():
        while not stop.is_set():
            found = fast(X)
            if not any(torch.allclose(found, one, atol=1e-5) for one in (before, after)):
                wrong.append(found)

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(60):
        model.blocks[6].scale = (1.5, 0.5)[turn % 2]
        fast(X)
    stop.set()
    for thread in threads:
        thread.join()
    assert not wrong
    same(fast, model, X)


def test_which_versions_number_the_dictionaries_of_objects():
    """Since 3.13 an object's attributes lie in the object, and its dictionary is not told."""
    assert NUMBERED is (sys.version_info < (3, 13))


@pytest.mark.skipif(not NUMBERED, reason="dictionaries of objects are not numbered")
def test_a_dictionary_gets_another_number_with_each_write():
    table = {"a": 1}
    numbers = [dict_version_guards.number_of(table)]
    for write in (lambda: table.update(a=2), lambda: table.pop("a"), lambda: table.update(b=1)):
        write()
        numbers.append(dict_version_guards.number_of(table))
    assert len({*numbers}) == 4
    assert table.get("b") == 1 and dict_version_guards.number_of(table) == numbers[-1]


class Work:
    """What a call's guards do: instructions of Python (the longest entry), dictionaries, words and
    tensors compared in C, dictionaries tested again."""

    def __init__(self, monkeypatch):
        self.instructions, self.compared, self.again = [], [], 0
        entry_of, fresh_of = parameter_guards.compile_entry, parameter_guards._compare_bytes
        of, test = DictVersionGuards.of, DictVersionGuards._test

        def entry(*args):
            made = entry_of(*args)
            self.instructions.append(len([*dis.get_instructions(made.__code__)]))
            return made

        def fresh(parameters, hooks, *args):
            self.compared += [len(parameters), len(hooks)]
            return fresh_of(parameters, hooks, *args)

        def versions(guards, options):
            found = of(guards, options)
            self.compared += [len(found.dicts), len(found.by_words)]
            return found

        def tested(guards, index):
            self.again += 1
            return test(guards, index)

        monkeypatch.setattr(parameter_guards, "compile_entry", entry)
        monkeypatch.setattr(parameter_guards, "_compare_bytes", fresh)
        monkeypatch.setattr(parameter_guards.DictVersionGuards, "of", versions)
        monkeypatch.setattr(DictVersionGuards, "_test", tested)


@torch.no_grad()
def test_guards_of_a_call_are_in_proportion_to_what_the_program_reads(monkeypatch):
    """Python's part is the same at any depth, C's grows with the layers; a write tests again the
    guards of what was written."""
    found = []
    for layers in (8, 32, 96):
        with monkeypatch.context() as patched:
            work, model = Work(patched), Deep(layers).eval()
            fast = anyshape.compile(model)
            same(fast, model, X)
            assert work.again == 0
            model.blocks[5].scale = float("1.5")  # another object
            same(fast, model, X)
            same(fast, model, X)
            assert work.again == 1 and len(work.instructions) == 1
            found.append((work.instructions[0], *work.compared))
    few, some, many = found
    assert few[0] == some[0] == many[0]
    for small, medium, large in zip(few[1:], some[1:], many[1:], strict=True):
        assert large - medium == (medium - small) * 64 // 24
