"""Prefix cache of an engine: an LRU cache of prompt blocks from which leaves go first."""

from collections import OrderedDict
from collections.abc import Sequence


class PrefixCache:
    """Prompt blocks that an engine has cached.

    Args:
        capacity: blocks that the cache holds; 0: it holds none.
    """

    __slots__ = ("_blocks", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def prefill(self, prompt: Sequence[int]) -> int:
        """Return the number of leading blocks that were cached; then all are."""
        blocks = self._blocks
        cached = 0
        while cached < len(prompt) and prompt[cached] in blocks:
            cached += 1
        for block in reversed(prompt):
            blocks[block] = None
            blocks.move_to_end(block)
        while len(blocks) > self.capacity:
            blocks.popitem(last=False)
        return cached


def pooled_hit_share(
    prompts: Sequence[tuple[int, Sequence[int]]], capacity: int, block_tokens: int
) -> float:
    """Return the share of the prompts' tokens that a single cache would have.

    Args:
        prompts: tokens and blocks of each prompt, in the order of their arrival.
        capacity: blocks that the cache holds.
    """
    cache = PrefixCache(capacity)
    hits = 0
    for tokens, blocks in prompts:
        hits += min(cache.prefill(blocks) * block_tokens, tokens)
    total = sum(tokens for tokens, _ in prompts)
    return hits / total if total else 0.0
