"""Rules of the index of prompt blocks."""

import random
from collections import OrderedDict
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.prompt_index import BLOCK_BYTES, PromptIndex, block_hashes


class Engine:
    """LRU cache of an engine, from which leaves go first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.blocks: OrderedDict[int, None] = OrderedDict()

    def serve(self, hashes: Sequence[int]) -> int:
        cached = 0
        while cached < len(hashes) and hashes[cached] in self.blocks:
            cached += 1
        for block in reversed(hashes):
            self.blocks[block] = None
            self.blocks.move_to_end(block)
        while len(self.blocks) > self.capacity:
            self.blocks.popitem(last=False)
        return cached


# A path of branches is a prompt: equal leading branches are equal leading blocks.
paths = st.lists(st.integers(0, 2), min_size=1, max_size=6)


def hashes_of(path: Sequence[int]) -> list[int]:
    return [hash(tuple(path[: end + 1])) for end in range(len(path))]


def replay(
    index: PromptIndex, engine: Engine, prompt: Callable[[], Sequence[int]], count: int
) -> None:
    for _ in range(count):
        hashes = prompt()
        index.add(hashes)
        index.correct(hashes, engine.serve(hashes))


def conversations(seed: int) -> Callable[[], Sequence[int]]:
    """Prompts of conversations that grow, over one common system prompt."""
    chance = random.Random(seed)
    open_ones = [[0, 1, 2] for _ in range(400)]
    number = 1000

    def prompt() -> Sequence[int]:
        nonlocal number
        place = min(int(chance.expovariate(1 / 60)), len(open_ones) - 1)
        conversation = open_ones.pop(place)
        if len(conversation) > 30:
            conversation = [0, 1, 2]
        conversation = [*conversation, *range(number, number + 3)]
        number += 3
        open_ones.insert(0, conversation)
        return conversation

    return prompt


@given(st.binary(max_size=3000), st.binary(max_size=3000), st.binary(max_size=3000))
def test_prompts_have_as_many_equal_hashes_as_equal_leading_blocks(
    common: bytes, first: bytes, second: bytes
) -> None:
    prompts = (common + first, common + second)
    hashes = [block_hashes(prompt) for prompt in prompts]
    blocks = [
        [
            prompt[start : start + BLOCK_BYTES]
            for start in range(0, len(prompt) - BLOCK_BYTES + 1, BLOCK_BYTES)
        ]
        for prompt in prompts
    ]
    assert [len(chain) for chain in hashes] == [len(parts) for parts in blocks]
    pairs = zip(blocks[0], blocks[1], hashes[0], hashes[1], strict=False)
    is_equal = True
    for first_block, second_block, first_hash, second_hash in pairs:
        is_equal = is_equal and first_block == second_block
        assert (first_hash == second_hash) is is_equal


def test_hashes_are_the_same_in_every_process() -> None:
    prompt = bytes(range(256)) * 4
    assert block_hashes(prompt) == [-4198594802619603230, 3539818651555407307]


def test_equal_blocks_at_different_places_have_different_hashes() -> None:
    assert len(set(block_hashes(b"x" * BLOCK_BYTES * 50))) == 50


@given(prompts=st.lists(paths, max_size=60), capacity=st.integers(1, 12))
def test_an_index_of_the_right_size_is_the_cache_of_the_engine(
    prompts: list[list[int]], capacity: int
) -> None:
    index = PromptIndex(capacity)
    engine = Engine(capacity)
    for path in prompts:
        hashes = hashes_of(path)
        assert index.count_cached(hashes) == engine.serve(hashes)
        index.add(hashes)


@given(
    steps=st.lists(st.tuples(paths, st.integers(0, 6), st.booleans()), max_size=80),
    capacity=st.integers(1, 40),
)
def test_any_reports_leave_a_prefix_of_each_prompt_within_the_capacity(
    steps: list[tuple[list[int], int, bool]], capacity: int
) -> None:
    index = PromptIndex(capacity)
    for path, cached, is_reported in steps:
        hashes = hashes_of(path)
        index.add(hashes)
        if is_reported:
            index.correct(hashes, cached)
        for other, _, _ in steps:
            chain = hashes_of(other)
            present = [index.count_cached([block]) for block in chain]
            assert present == sorted(present, reverse=True)
            assert index.count_cached(chain) == sum(present)
        distinct = {block for other, _, _ in steps for block in hashes_of(other)}
        assert sum(index.count_cached([block]) for block in distinct) <= (
            index.capacity_blocks
        )


def test_an_unknown_prompt_and_an_empty_one_have_no_cached_blocks() -> None:
    index = PromptIndex(10)
    index.add([1, 2, 3])
    assert index.count_cached([]) == 0
    assert index.count_cached([7, 2, 3]) == 0
    index.add([])
    index.correct([], 3)
    assert index.count_cached([1, 2, 3]) == 3


def test_a_smaller_capacity_drops_the_oldest_and_a_larger_one_brings_them_back() -> (
    None
):
    index = PromptIndex(10)
    for block in range(10):
        index.add([block])
    index.capacity_blocks = 4
    assert [index.count_cached([block]) for block in range(10)] == [0] * 6 + [1] * 4
    index.capacity_blocks = 8
    assert [index.count_cached([block]) for block in range(10)] == [0] * 2 + [1] * 8


@pytest.mark.parametrize("blocks", [0, -1])
def test_a_cache_has_at_least_one_block(blocks: int) -> None:
    with pytest.raises(ValueError, match="at least 1 block"):
        PromptIndex(blocks)


@pytest.mark.parametrize("factor", [1 / 8, 1.0, 8.0])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_capacity_is_learned_from_cached_tokens(factor: float, seed: int) -> None:
    real = 1000
    index = PromptIndex(round(real * factor))
    replay(index, Engine(real), conversations(seed), 3000)
    assert 0.75 * real <= index.capacity_blocks <= 1.35 * real


@pytest.mark.parametrize("real", [100, 400, 1000])
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_an_unknown_capacity_begins_large_and_is_corrected(
    real: int, seed: int
) -> None:
    index = PromptIndex()
    assert index.capacity_blocks >= 10_000
    replay(index, Engine(real), conversations(seed), 600)
    assert index.capacity_blocks <= 2 * real
    replay(index, Engine(real), conversations(seed), 2400)
    assert 0.7 * real <= index.capacity_blocks <= 1.5 * real


def test_a_learned_capacity_follows_a_change_of_the_engine() -> None:
    index = PromptIndex(1000)
    prompt = conversations(4)
    replay(index, Engine(1000), prompt, 2000)
    replay(index, Engine(250), prompt, 2000)
    assert index.capacity_blocks <= 400


def test_an_engine_without_a_prefix_cache_is_expected_to_have_little() -> None:
    index = PromptIndex(1000)
    prompt = conversations(5)
    for _ in range(500):
        hashes = prompt()
        index.add(hashes)
        index.correct(hashes, 0)
    assert index.capacity_blocks < 50


def test_blocks_are_forgotten_after_a_restart_and_the_capacity_is_learned_again() -> (
    None
):
    index = PromptIndex(1000)
    prompt = conversations(6)
    replay(index, Engine(1000), prompt, 2000)
    before = index.capacity_blocks
    older = [prompt() for _ in range(60)]
    replay(index, Engine(1000), iter(older).__next__, 60)
    restarted = Engine(1000)
    replay(index, restarted, prompt, 60)
    expected = sum(index.count_cached(hashes) for hashes in older)
    real = sum(
        next((n for n, block in enumerate(h) if block not in restarted.blocks), len(h))
        for h in older
    )
    assert expected <= 1.15 * real
    replay(index, restarted, prompt, 1000)
    assert 0.7 * before <= index.capacity_blocks <= 1.4 * before


def test_three_lost_prompts_in_a_row_show_that_all_older_ones_are_lost() -> None:
    index = PromptIndex(1000)
    prompts = [[number, number + 1, number + 2] for number in range(0, 900, 3)]
    for hashes in prompts:
        index.add(hashes)
        index.correct(hashes, 0)
    for hashes in (prompts[250], prompts[240], prompts[230]):
        index.add(hashes)
        index.correct(hashes, 0)
    assert [index.count_cached(prompts[place]) for place in (0, 100, 200)] == [0] * 3
    assert [index.count_cached(prompts[place]) for place in (230, 250, 299)] == [3] * 3


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_capacity_that_is_much_too_small_is_soon_raised(seed: int) -> None:
    index = PromptIndex(125)
    replay(index, Engine(1000), conversations(seed), 150)
    assert index.capacity_blocks >= 600


def test_a_capacity_without_evidence_stays() -> None:
    for capacity in (1, 75, 375, 600, 3000, 24_000, 10**6):
        index = PromptIndex(capacity)
        for number in range(50):  # always the same prompt
            index.add([1, 2, 3])
            index.correct([1, 2, 3], 3 if number else 0)
        assert capacity <= index.capacity_blocks <= max(capacity, 8 * 3)


def test_one_surprising_report_changes_nothing() -> None:
    index = PromptIndex(1000)
    for block in range(0, 900, 3):
        index.add([block, block + 1, block + 2])
        index.correct([block, block + 1, block + 2], 0)
    index.add([450, 451, 452])
    index.correct([450, 451, 452], 0)
    index.add([897, 898, 899])
    index.correct([897, 898, 899], 3)
    assert index.capacity_blocks == 1000
    assert index.count_cached([0, 1, 2]) == 3


def test_the_first_report_of_a_prompt_belongs_to_its_first_request() -> None:
    index = PromptIndex(1000)
    for number in range(20):  # sent twice before the first answer: no block was cached
        hashes = [number * 10 + block for block in range(10)]
        index.add(hashes)
        index.add(hashes)
        index.correct(hashes, 0)
        index.correct(hashes, 10)
    assert index.capacity_blocks == 1000
    assert index.count_cached(list(range(10))) == 10


def test_the_history_is_bounded() -> None:
    index = PromptIndex(100)
    for block in range(100_000):
        index.add([block])
    assert index.count_cached([0]) == 0
    index.capacity_blocks = 50_000
    present = sum(index.count_cached([block]) for block in range(100_000))
    assert present <= 100 + 15 * 100
