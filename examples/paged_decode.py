"""How sequences share pages while they grow: `python examples/paged_decode.py`.

Runs on the CPU in a second, or on a GPU if there is one. Two prompts are read, one of them is
continued in two ways, and each step prints which pages a sequence has. At the end every result is
compared with attention on plain tensors, one sequence at a time.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyshape.attention import PagedCache, ragged_paged_attention, write_pages

HEADS, KEY_HEADS, SIZE, PAGE = 4, 2, 16, 4
PROMPTS = {"A": "the cat sat on the mat and", "B": "a dog"}


class Attention:
    """One attention layer with random weights, and what it has seen, as plain tensors."""

    def __init__(self, device: torch.device) -> None:
        self.cache = PagedCache(
            *(16, PAGE, KEY_HEADS, SIZE),
            max_sequences=4,
            max_keys=32,
            dtype=torch.float32,
            device=device,
        )
        self.device = device
        self.seen: dict[int, Tensor] = {}
        self.worst = 0.0

    def step(self, words: dict[int, list[str]]) -> Tensor:
        """New words for some sequences, each of which attends to all words of its own so far."""
        batch = self.cache.step({sequence: len(new) for sequence, new in words.items()})
        vectors = [embed(new, self.device) for new in words.values()]
        x = torch.cat(vectors)
        q, k, v = x.view(-1, HEADS, SIZE), x[:, :32].view(-1, 2, SIZE), x[:, 32:].view(-1, 2, SIZE)
        pages = self.cache.pages()
        tables = (batch.page_table, batch.starts, batch.lengths)
        write_pages(k, v, *pages, *tables, sequences=batch.sequences)
        out = ragged_paged_attention(q, *pages, *tables, sequences=batch.sequences)
        for (sequence, new), vector in zip(words.items(), vectors, strict=True):
            self.seen[sequence] = torch.cat([self.seen.get(sequence, vector[:0]), vector])
            rows, out = out[: len(new)], out[len(new) :]
            self.worst = max(
                self.worst, float((rows - self.by_hand(sequence, len(new))).abs().max())
            )
        return out

    def by_hand(self, sequence: int, new: int) -> Tensor:
        """The same on this sequence's plain tensors."""
        x = self.seen[sequence]
        q = x[-new:].view(-1, HEADS, SIZE).transpose(0, 1)
        k, v = (part.reshape(-1, 2, SIZE).transpose(0, 1) for part in (x[:, :32], x[:, 32:]))
        mask = torch.ones(new, len(x), dtype=torch.bool, device=x.device).tril(len(x) - new)
        attend = torch.nn.functional.scaled_dot_product_attention
        return attend(q[None], k[None], v[None], attn_mask=mask, enable_gqa=True)[0].transpose(0, 1)

    def show(self, names: dict[str, int]) -> None:
        """Each sequence's pages, with how many sequences have them."""
        for name, sequence in names.items():
            pages = [
                f"{page}" + ("*" if self.cache.references(page) > 1 else "")
                for page in self.cache.pages_of(sequence)
            ]
            print(f"   {name}: {self.cache.length(sequence):2} words in pages {' '.join(pages)}")
        print(f"   {self.cache.free_pages} pages are free (* is shared)")


def embed(words: list[str], device: torch.device) -> Tensor:
    """A vector for each word, the same each time [words, HEADS * SIZE]."""
    generators = [torch.Generator().manual_seed(sum(map(ord, word))) for word in words]
    return torch.stack([torch.randn(HEADS * SIZE, generator=g) for g in generators]).to(device)


@torch.no_grad()
def main() -> None:
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    layer = Attention(device)
    names = {name: layer.cache.add() for name in PROMPTS}
    print(f"1. Two prompts of different lengths, in one call. A page has room for {PAGE} words.")
    layer.step({names[name]: prompt.split() for name, prompt in PROMPTS.items()})
    layer.show(names)
    print("\n2. C begins as a copy of A. It shares A's pages, so nothing is copied yet.")
    names["C"] = layer.cache.add(prefix_of=names["A"])
    layer.seen[names["C"]] = layer.seen[names["A"]]
    layer.show(names)
    print("\n3. All three get a word, in one call. The last page of A and C is not full: whoever")
    print("   writes first gets a copy of it, and the full page stays shared.")
    layer.step({names["A"]: ["slept"], names["B"]: ["barked"], names["C"]: ["purred"]})
    layer.show(names)
    print("\n4. A ends; what only it had is free again. B reads a longer text, C gets one word.")
    layer.cache.free(names.pop("A"))
    layer.step({names["B"]: "at the moon all night".split(), names["C"]: ["."]})
    layer.show(names)
    print(f"\n5. Largest difference to one sequence at a time on plain tensors: {layer.worst:.1e}")


if __name__ == "__main__":
    main()
