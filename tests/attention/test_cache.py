"""PagedCache: pages are handed out, shared, copied on write and taken back; results are those of plain tensors."""

from __future__ import annotations

import random

import pytest
import torch
from torch import Tensor

from anyshape.attention import PagedCache, ragged_paged_attention, write_pages
from anyshape.attention.cache import OutOfPages

HEADS, KEY_HEADS, SIZE, PAGE = 4, 2, 8, 4


def make(pages: int = 40, layers: int = 1) -> PagedCache:
    return PagedCache(
        pages,
        PAGE,
        KEY_HEADS,
        SIZE,
        layers=layers,
        max_sequences=6,
        max_keys=32,
        dtype=torch.float64,
    )


class Model:
    """A cache, and beside it each sequence's keys and values as plain tensors."""

    def __init__(self) -> None:
        self.cache = make()
        self.keys: dict[int, Tensor] = {}

    def add(self, prefix_of: int | None = None, length: int | None = None) -> int:
        made = self.cache.add(prefix_of, length)
        self.keys[made] = (
            torch.zeros(0, KEY_HEADS, SIZE).double()
            if prefix_of is None
            else self.keys[prefix_of][:length]
        )
        return made

    def step(self, counts: dict[int, int]) -> None:
        """New keys for some sequences; attention of their queries is that on the plain tensors."""
        batch = self.cache.step(counts)
        total = sum(counts.values())
        new = torch.randn(total, KEY_HEADS, SIZE).double()
        q = torch.randn(total, HEADS, SIZE).double()
        numbers = batch[:3]
        write_pages(new, -new, *self.cache.pages(), *numbers, sequences=batch.sequences)
        out = ragged_paged_attention(q, *self.cache.pages(), *numbers, sequences=batch.sequences)
        at = 0
        for sequence, count in counts.items():
            rows = slice(at, at + count)
            keys = self.keys[sequence] = torch.cat([self.keys[sequence], new[rows]])
            mask = torch.ones(count, keys.shape[0]).tril(keys.shape[0] - count).bool()
            theirs = torch.nn.functional.scaled_dot_product_attention(
                *(x.transpose(0, 1)[None] for x in (q[rows], keys, -keys)),
                attn_mask=mask,
                enable_gqa=True,
            )
            if count:
                torch.testing.assert_close(out[rows], theirs[0].transpose(0, 1))
            at += count

    def check(self) -> None:
        """Each page is free, or has as many references as sequences that have it."""
        held: dict[int, int] = {}
        for sequence in self.cache.sequences:
            pages = self.cache.pages_of(sequence)
            assert len(pages) == -(-self.cache.length(sequence) // PAGE)
            assert len(set(pages)) == len(pages)
            for page in pages:
                held[page] = held.get(page, 0) + 1
        assert self.cache.free_pages == 40 - len(held)
        assert all(self.cache.references(page) == held.get(page, 0) for page in range(40))


@pytest.mark.parametrize("seed", range(20))
def test_any_order_of_calls_is_right(seed: int) -> None:
    chance = random.Random(seed)
    torch.manual_seed(seed)
    model = Model()
    for _ in range(40):
        alive = list(model.cache.sequences)
        what = chance.choice(["add", "fork", "step", "step", "step", "free", "truncate"])
        if what == "add" or not alive:
            model.add()
        elif what == "fork":
            source = chance.choice(alive)
            model.add(source, chance.choice([None, chance.randint(0, model.cache.length(source))]))
        elif what == "free" and len(alive) > 4:
            model.cache.free(chance.choice(alive))
        elif what == "truncate":
            sequence = chance.choice(alive)
            length = chance.randint(0, model.cache.length(sequence))
            model.cache.truncate(sequence, length)
            model.keys[sequence] = model.keys[sequence][:length]
        else:
            chosen = chance.sample(alive, min(len(alive), chance.randint(0, 6)))
            counts = {s: chance.randint(0, min(6, 32 - model.cache.length(s))) for s in chosen}
            try:
                model.step(counts)
            except OutOfPages as error:
                assert error.needed > error.free
        model.check()


def test_a_shared_page_is_copied_when_it_is_written_to_and_only_then() -> None:
    model = Model()
    first = model.add()
    model.step({first: 6})
    second = model.add(first)
    assert model.cache.pages_of(first) == model.cache.pages_of(second)
    model.step({second: 1})
    assert model.cache.pages_of(first)[0] == model.cache.pages_of(second)[0]
    assert model.cache.pages_of(first)[1] != model.cache.pages_of(second)[1]
    third = model.add(first, 4)
    model.step({third: 1, first: 1})
    assert model.cache.references(model.cache.pages_of(first)[0]) == 3


def test_the_tensors_of_a_step_are_those_of_every_step() -> None:
    cache = make()
    one, two = cache.add(), cache.add()
    batches = [cache.step({one: 3}), cache.step({two: 5, one: 1})]
    assert [x.data_ptr() for x in batches[0]] == [x.data_ptr() for x in batches[1]]
    assert batches[1].starts.tolist() == [0, 5, 6, 6, 6, 6, 6]
    assert batches[1].lengths.tolist()[:2] == [5, 4]
    assert batches[1].sequences.tolist() == [2]
    assert batches[1].page_table[0, :2].tolist() == list(cache.pages_of(two))


def test_a_step_that_needs_too_many_pages_changes_nothing() -> None:
    cache = PagedCache(3, PAGE, KEY_HEADS, SIZE, max_sequences=2, max_keys=32)
    one, two = cache.add(), cache.add()
    cache.step({one: 4})
    with pytest.raises(OutOfPages, match="needs 3 pages, and 2 are free"):
        cache.step({one: 1, two: 5})
    assert cache.length(one) == 4 and cache.free_pages == 2
    cache.step({one: 1, two: 4})


def test_layers_share_the_table_and_not_the_pages() -> None:
    cache = make(layers=2)
    assert cache.pages(0)[0].data_ptr() != cache.pages(1)[0].data_ptr()
    with pytest.raises(ValueError, match="^layer must"):
        cache.pages(2)


MISTAKES = {
    "sequence": lambda cache: cache.free(7),
    "prefix_of": lambda cache: cache.add(7),
    "length": lambda cache: cache.add(0, 99),
    "length 2": lambda cache: cache.truncate(0, 99),
    "length 3": lambda cache: cache.add(None, 1),
    "counts": lambda cache: cache.step({7: 1}),
    "counts 2": lambda cache: cache.step({0: -1}),
    "counts 3": lambda cache: cache.step({0: 33}),
    "page_size": lambda cache: PagedCache(3, 0, 1, 1, max_sequences=1, max_keys=1),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_errors_name_the_argument(name: str) -> None:
    cache = make()
    cache.add()
    with pytest.raises(ValueError, match=rf"^{name.split()[0]}(\[\d\])? must"):
        MISTAKES[name](cache)


def test_a_freed_sequence_is_gone() -> None:
    cache = make()
    one = cache.add()
    cache.step({one: 9})
    cache.free(one)
    assert cache.free_pages == 40
    with pytest.raises(ValueError, match="^sequence must"):
        cache.free(one)
