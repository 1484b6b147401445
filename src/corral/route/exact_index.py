"""Index of the prompt blocks of a replica whose engine publishes the events of its cache.

The number of cached blocks is exact for prompts whose tokens are in the cache of tokens.
The approximate index answers for others, and while events are missing.
"""

from collections import OrderedDict
from collections.abc import Sequence
from itertools import takewhile
from typing import Final

from corral.route.block_index import KvCacheView
from corral.route.prompt_index import PromptIndex
from corral.route.prompt_tokens import CutPart, PromptTokens

# a prompt that was sent, and is neither answered nor stored after as many batches, was
# lost on its way
MOST_BATCHES_UNDER_WAY: Final = 256
MOST_UNDER_WAY: Final = 1024


class ExactPromptIndex(PromptIndex):
    """Prompt blocks of one replica by the events of its engine.

    Attributes:
        view: What the engine's events say.
    """

    __slots__ = ("_sent", "_sent_blocks", "_tokens", "view")

    def __init__(self, tokens: PromptTokens) -> None:
        super().__init__()
        self.view = KvCacheView()
        self._tokens = tokens
        self._sent: OrderedDict[int, tuple[Sequence[int], int]] = OrderedDict()
        self._sent_blocks: dict[int, int] = {}

    def count_cached(self, hashes: Sequence[int]) -> int:
        """Return the number of leading blocks of text whose tokens the replica has, or
        computes for a prompt that is under way."""
        view = self.view
        if not hashes:
            return 0
        part = None
        if view.is_live and view.index.block_size:
            part = self._tokens.find(hashes)
        if part is None:
            return super().count_cached(hashes)
        blocks = self._count_stored(part)
        is_open = blocks >= part.text_blocks and not part.is_whole
        if is_open or not view.index.is_complete:
            blocks = max(blocks, super().count_cached(hashes))
        if self._sent_blocks and blocks < len(hashes):
            sent = takewhile(self._sent_blocks.__contains__, hashes)
            blocks = max(blocks, sum(1 for _ in sent))
        return min(blocks, len(hashes))

    def _count_stored(self, part: CutPart) -> int:
        """Return the number of blocks of text whose tokens are stored, at most those
        of the part."""
        index = self.view.index
        prompt = part.prompt
        hashes = prompt.hashes(index.block_size)
        cached_tokens = index.count_cached(hashes) * index.block_size
        # the last block of a prompt is never whole, and is always computed
        if prompt.tokens - cached_tokens <= index.block_size:
            cached_tokens = prompt.tokens
        text_blocks = int(cached_tokens * prompt.text_blocks / max(1, prompt.tokens))
        return min(part.text_blocks, text_blocks)

    def add(self, hashes: Sequence[int]) -> None:
        """Record that a prompt was sent to the replica."""
        super().add(hashes)
        if not hashes:
            return
        self._forget_sent(hashes[-1])
        self._sent[hashes[-1]] = (hashes, self.view.batches)
        for block in hashes:
            self._sent_blocks[block] = self._sent_blocks.get(block, 0) + 1
        oldest, (_, batches) = next(iter(self._sent.items()))
        is_late = self.view.batches - batches > MOST_BATCHES_UNDER_WAY
        if is_late or len(self._sent) > MOST_UNDER_WAY:
            self._forget_sent(oldest)

    def correct(self, hashes: Sequence[int], cached_blocks: int) -> None:
        """Take note that a prompt was answered, with this many cached blocks."""
        super().correct(hashes, cached_blocks)
        if hashes:
            self._forget_sent(hashes[-1])

    def _forget_sent(self, last: int) -> None:
        sent = self._sent.pop(last, None)
        if sent is None:
            return
        for block in sent[0]:
            count = self._sent_blocks[block] - 1
            if count:
                self._sent_blocks[block] = count
            else:
                del self._sent_blocks[block]
