"""What happens to each token in a mixture-of-experts layer: `python examples/moe_layer.py`.

Runs on the CPU in a second, or on a GPU if there is one. Ten words go through a layer of four
experts, of which each word takes two; the script prints the router's choice, the rows sorted by
expert, and what comes out.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anyshape.moe import MoE, Routing

WORDS = "the cat sat on the mat and the dog ran".split()
HIDDEN, EXPERT_SIZE, EXPERTS, TOP_K = 32, 64, 4, 2


def embed(words: list[str], device: torch.device) -> Tensor:
    """A random vector for each different word [words, HIDDEN]."""
    names = sorted(set(words))
    generator = torch.Generator().manual_seed(1)
    table = torch.randn(len(names), HIDDEN, generator=generator)
    return table[[names.index(word) for word in words]].to(device)


def print_choices(layer: MoE, tokens: Tensor) -> None:
    """Each token's experts and their weights."""
    plan = layer.router(tokens, layer.routing)
    print("1. The router gives every token two experts and a weight for each.")
    experts, owners = plan.expert_indices.tolist(), plan.token_indices.tolist()
    weights = plan.row_weights().tolist()
    for token, word in enumerate(WORDS):
        chosen = [
            f"expert {expert} ({weight:.2f})"
            for expert, owner, weight in zip(experts, owners, weights, strict=True)
            if owner == token
        ]
        print(f"   token {token} {word:>4}: {' + '.join(chosen)}")


def print_rows(layer: MoE, tokens: Tensor) -> None:
    """The rows that the experts work on: sorted by expert, then by token, nothing padded."""
    plan = layer.router(tokens, layer.routing)
    counts, owners = plan.token_counts.tolist(), plan.token_indices.tolist()
    print(f"\n2. Sorted by expert: {len(owners)} rows, no padding; the counts stay on the device.")
    start = 0
    for expert, count in enumerate(counts):
        words = " ".join(WORDS[owner] for owner in owners[start : start + count])
        rows = f"rows {start} to {start + count - 1}" if count else "no rows"
        print(f"   expert {expert}: {rows:<14} {words}")
        start += count


def print_results(layer: MoE, tokens: Tensor) -> None:
    """What comes out, against the same computed one token and one expert at a time."""
    out = layer(tokens)
    gate_up, down = layer.experts.weights()
    plan = layer.router(tokens, layer.routing)
    by_hand = layer.shared(tokens)
    for expert, owner, weight in zip(
        plan.expert_indices.tolist(), plan.token_indices.tolist(), plan.row_weights(), strict=True
    ):
        gate, up = (gate_up[expert] @ tokens[owner]).chunk(2)
        by_hand[owner] += weight * (down[expert] @ (torch.nn.functional.silu(gate) * up))
    print("\n3. Two grouped products and a scatter-add give every token its weighted sum,")
    print("   on top of the shared expert that every token passes.")
    for token, word in enumerate(WORDS):
        sizes = f"|in| {tokens[token].norm():.2f} -> |out| {out[token].norm():.2f}"
        print(f"   token {token} {word:>4}: {sizes}")
    print(f"   largest difference to one token at a time: {(out - by_hand).abs().max():.1e}")


def print_lengths(layer: MoE, tokens: Tensor) -> None:
    """One recording serves every number of tokens."""
    graphed = layer.graphed(len(WORDS))
    same = [
        torch.allclose(graphed(tokens[:count]), layer(tokens[:count]), atol=1e-6)
        for count in range(len(WORDS) + 1)
    ]
    where = "one CUDA graph" if tokens.is_cuda else "one set of buffers (a CUDA graph on a GPU)"
    print(f"\n4. {where}, 0 to {len(WORDS)} tokens: {sum(same)} of {len(same)} results agree.")


@torch.no_grad()
def main() -> None:
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    routing = Routing(EXPERTS, TOP_K, renormalize=True)
    layer = MoE(HIDDEN, EXPERT_SIZE, routing, shared_size=EXPERT_SIZE, device=device)
    tokens = embed(WORDS, device)
    print_choices(layer, tokens)
    print_rows(layer, tokens)
    print_results(layer, tokens)
    print_lengths(layer, tokens)


if __name__ == "__main__":
    main()
