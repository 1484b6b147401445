"""Events of an engine's KV cache, as the engine publishes them."""

from collections.abc import Sequence
from typing import NamedTuple

BlockHash = bytes | int


class BlocksStored(NamedTuple):
    """Blocks of one prompt, one after the other, that are in the cache now.

    Args:
        parent: Hash of the block before the first one; None: they begin the prompt.
        tokens: Token ids of all these blocks.
        block_size: Tokens of a block.
        keys: What else decides whether a block can be used again, such as an adapter,
            one for each block; None for text alone.
        group: Number of the group of layers that they belong to.
        is_windowed: Whether these layers see only the last tokens.
    """

    hashes: Sequence[BlockHash]
    parent: BlockHash | None
    tokens: Sequence[int]
    block_size: int
    keys: Sequence[str | None] = ()
    group: int = 0
    is_windowed: bool = False


class BlocksRemoved(NamedTuple):
    """Blocks of which the cache has one copy less."""

    hashes: Sequence[BlockHash]
    group: int = 0


class BlocksCleared(NamedTuple):
    """The end of all blocks."""


KvEvent = BlocksStored | BlocksRemoved | BlocksCleared


class KvBatch(NamedTuple):
    """Events of one step of an engine.

    Args:
        number: Its sequence number.
        at: When the engine made it, by the clock of its node, in seconds.
    """

    number: int
    at: float
    events: Sequence[KvEvent]
