"""Cache of the token ids of prompts, found by the chain of hashes of their text.

Only an engine can cut a prompt into tokens as it will compute them. Prompts that begin
alike share the tokens of their beginning, so each prompt is cut once, and later ones use
what is common.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import Final, NamedTuple

from corral.route.block_index import token_block_hashes

MOST_TEXT_BLOCKS: Final = 65_536  # 32 MB of text


class CutPrompt:
    """A prompt and its tokens.

    Args:
        text_blocks: Whole and partial blocks of its text.
        tokens: Number of its tokens.
    """

    __slots__ = ("_hashes", "_tokens", "chain", "text_blocks", "tokens")

    def __init__(
        self, chain: Sequence[int], text_blocks: float, tokens: Sequence[int]
    ) -> None:
        self.chain = chain
        self.text_blocks = text_blocks
        self.tokens = len(tokens)
        self._tokens = tokens
        self._hashes: dict[int, list[int]] = {}

    def hashes(self, block_size: int) -> list[int]:
        """Return the hashes of the whole blocks of its tokens."""
        hashes = self._hashes.get(block_size)
        if hashes is None:
            hashes = token_block_hashes(self._tokens, block_size)
            self._hashes[block_size] = hashes
        return hashes


class CutPart(NamedTuple):
    """Beginning of a prompt whose tokens are in the cache.

    Args:
        prompt: Prompt that begins alike.
        text_blocks: Blocks of text that are common to both.
        is_whole: Whether it is the same prompt, as far as whole blocks go.
    """

    prompt: CutPrompt
    text_blocks: int
    is_whole: bool


class PromptTokens:
    """Tokens of the prompts that were used last."""

    __slots__ = ("_last_chain", "_last_part", "_places", "_prompts", "_text_blocks")

    def __init__(self) -> None:
        self._prompts: OrderedDict[int, CutPrompt] = OrderedDict()  # by last hash
        self._places: dict[int, int] = {}  # hash of a block -> last hash of a prompt
        self._text_blocks = 0
        self._last_chain: Sequence[int] = ()
        self._last_part: CutPart | None = None

    def has(self, chain: Sequence[int]) -> bool:
        """Return whether the tokens of this whole prompt are there."""
        return chain[-1] in self._prompts

    def find(self, chain: Sequence[int]) -> CutPart | None:
        """Return the longest beginning whose tokens are there; None without one."""
        if chain is not self._last_chain:  # the same for each replica of a choice
            self._last_chain = chain
            self._last_part = self._find(chain)
        return self._last_part

    def _find(self, chain: Sequence[int]) -> CutPart | None:
        for number in range(len(chain), 0, -1):
            last = self._places.get(chain[number - 1])
            if last is not None:
                self._prompts.move_to_end(last)
                is_whole = last == chain[-1]
                return CutPart(self._prompts[last], number, is_whole)
        return None

    def add(
        self, chain: Sequence[int], text_blocks: float, tokens: Sequence[int]
    ) -> None:
        """Add a prompt with at least one whole block of text. Those that were not used
        for the longest time are dropped beyond MOST_TEXT_BLOCKS.

        Args:
            text_blocks: Size of its text in blocks.
        """
        last = chain[-1]
        self._last_chain = ()
        if last in self._prompts:
            self._drop(last)
        self._prompts[last] = CutPrompt(chain, text_blocks, tokens)
        for block in chain:
            self._places[block] = last
        self._text_blocks += len(chain)
        while self._text_blocks > MOST_TEXT_BLOCKS and len(self._prompts) > 1:
            self._drop(next(iter(self._prompts)))

    def _drop(self, last: int) -> None:
        prompt = self._prompts.pop(last)
        self._text_blocks -= len(prompt.chain)
        for block in prompt.chain:
            if self._places.get(block) == last:
                del self._places[block]
