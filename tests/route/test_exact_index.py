"""Rules of the index that knows the engine's blocks, and of the cache of tokens."""

from collections.abc import Sequence

import pytest

from corral.route import prompt_tokens
from corral.route.exact_index import MOST_BATCHES_UNDER_WAY, ExactPromptIndex
from corral.route.kv_events import BlocksCleared, BlocksStored, KvBatch
from corral.route.prompt_index import BLOCK_BYTES, block_hashes
from corral.route.prompt_tokens import PromptTokens

SIZE = 16
TOKENS_OF_BLOCK = 128


def text_of(*blocks: str) -> bytes:
    return b"".join((letter * BLOCK_BYTES).encode() for letter in blocks)


def tokens_of(text: bytes) -> list[int]:
    """One token for four bytes, as in the estimate."""
    return [text[start] for start in range(0, len(text), 4)]


class World:
    """Replicas that publish what they store, and one cache of tokens."""

    def __init__(self, replicas: int = 2) -> None:
        self.tokens = PromptTokens()
        self.replicas = [ExactPromptIndex(self.tokens) for _ in range(replicas)]
        self._numbers = [0] * replicas
        for replica in self.replicas:
            replica.view.begin_replay()
            replica.view.end_replay()

    def cut(self, text: bytes) -> Sequence[int]:
        hashes = block_hashes(text)
        self.tokens.add(hashes, len(text) / BLOCK_BYTES, tokens_of(text))
        return hashes

    def compute(self, replica: int, text: bytes, blocks: int | None = None) -> None:
        """Let a replica store the first blocks of tokens of a prompt; None: all."""
        tokens = tokens_of(text)
        count = len(tokens) // SIZE if blocks is None else blocks
        hashes = [hash((text, number)) for number in range(count)]
        self._publish(replica, BlocksStored(hashes, None, tokens, SIZE))

    def forget_all(self, replica: int) -> None:
        self._publish(replica, BlocksCleared())

    def _publish(self, replica: int, event: BlocksStored | BlocksCleared) -> None:
        number = self._numbers[replica]
        self._numbers[replica] += 1
        self.replicas[replica].view.take(KvBatch(number, float(number), [event]))

    def counts(self, hashes: Sequence[int]) -> list[int]:
        return [replica.count_cached(hashes) for replica in self.replicas]


def test_a_replica_counts_as_cached_what_its_engine_has() -> None:
    world = World()
    text = text_of("a", "b", "c")
    hashes = world.cut(text)
    world.compute(0, text)
    world.compute(1, text, blocks=TOKENS_OF_BLOCK // SIZE)
    assert world.counts(hashes) == [3, 1]
    world.forget_all(0)
    assert world.counts(hashes) == [0, 1]


def test_a_prompt_that_was_sent_and_forgotten_by_the_engine_is_not_cached() -> None:
    world = World()
    text = text_of("a", "b")
    hashes = world.cut(text)
    world.replicas[0].add(hashes)
    world.compute(0, text)
    world.replicas[0].correct(hashes, 0)
    world.forget_all(0)
    assert world.counts(hashes) == [0, 0]


def test_a_prompt_under_way_counts_until_it_is_answered() -> None:
    world = World()
    hashes = world.cut(text_of("a", "b"))
    world.compute(0, text_of("x"))
    world.replicas[0].add(hashes)
    assert world.counts(hashes)[0] == 2
    world.replicas[0].correct(hashes, 0)
    assert world.counts(hashes)[0] == 0


def test_a_prompt_that_never_arrives_counts_for_a_limited_time() -> None:
    world = World(1)
    hashes = world.cut(text_of("a", "b"))
    world.compute(0, text_of("x"))
    world.replicas[0].add(hashes)
    for _ in range(MOST_BATCHES_UNDER_WAY + 1):
        world.compute(0, text_of("x"))
    world.replicas[0].add(world.cut(text_of("y")))
    assert world.counts(hashes) == [0]


def test_a_common_beginning_is_enough() -> None:
    world = World()
    first = text_of("a", "b", "c")
    world.cut(first)
    world.compute(0, first)
    longer = block_hashes(text_of("a", "b", "z", "z"))
    assert world.counts(longer) == [2, 0]


@pytest.mark.parametrize("has_tokens", [False, True])
def test_without_tokens_or_events_the_sent_prompts_count(has_tokens: bool) -> None:
    world = World(1)
    text = text_of("a", "b")
    hashes = world.cut(text) if has_tokens else block_hashes(text)
    world.compute(0, text_of("x"))
    world.replicas[0].add(hashes)
    world.replicas[0].correct(hashes, 2)
    if has_tokens:
        assert world.counts(hashes) == [0]
        world.replicas[0].view.lose()
    assert world.counts(hashes) == [2]


def test_an_index_that_began_late_also_counts_what_was_sent() -> None:
    world = World(1)
    text = text_of("a", "b")
    hashes = world.cut(text)
    view = world.replicas[0].view
    view.skip_to(KvBatch(7, 7.0, [BlocksStored([5], None, [1] * SIZE, SIZE)]))
    world.replicas[0].add(hashes)
    world.replicas[0].correct(hashes, 2)
    assert world.counts(hashes) == [2]


def test_tokens_of_prompts_that_were_not_used_for_long_are_dropped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(prompt_tokens, "MOST_TEXT_BLOCKS", 4)
    cache = PromptTokens()
    chains = [block_hashes(text_of(letter, letter)) for letter in "abc"]
    for chain in chains[:2]:
        cache.add(chain, 2.0, [1, 2])
    assert cache.find(list(chains[0])) is not None  # used again
    cache.add(chains[2], 2.0, [1, 2])
    assert [cache.has(chain) for chain in chains] == [True, False, True]
    assert cache.find(chains[1]) is None
