"""Rules of the exact index: whatever is lost, repeated or restarted on the way, the view
has what the engine has, as soon as it says that it is up to date."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route import block_index
from corral.route.block_index import BlockIndex, KvCacheView, token_block_hashes
from corral.route.kv_events import (
    BlocksCleared,
    BlocksRemoved,
    BlocksStored,
    KvBatch,
    KvEvent,
)

SIZE = 2
KEPT = 6  # batches that an engine replays


def prompt_of(path: Sequence[int]) -> list[int]:
    """Tokens of a prompt: each step of the path is a block."""
    return [token for step in path for token in (step, step + 100)]


@dataclass
class Engine:
    """Engine that caches prompts, forgets leaves, and publishes what it does."""

    buffer_batches: int = KEPT
    now: float = 1000.0
    salt: int = 0
    number: int = 0
    copies: Counter[tuple[int, ...]] = field(default_factory=Counter)
    batches: list[KvBatch] = field(default_factory=list)

    def hash(self, path: tuple[int, ...]) -> int:
        return hash((self.salt, path)) & 0xFFFF_FFFF_FFFF

    def publish(self, *events: KvEvent) -> KvBatch:
        self.now += 0.01
        batch = KvBatch(self.number, self.now, events)
        self.number += 1
        self.batches = [*self.batches, batch][-self.buffer_batches :]
        return batch

    def store(self, path: tuple[int, ...]) -> KvBatch:
        """Cache the blocks of a path that are not there; a path that is there is
        computed a second time from its last block."""
        first = next(
            (at for at in range(len(path)) if not self.copies[path[: at + 1]]),
            len(path) - 1,
        )
        for end in range(first, len(path)):
            self.copies[path[: end + 1]] += 1
        return self.publish(
            BlocksStored(
                hashes=[self.hash(path[: end + 1]) for end in range(first, len(path))],
                parent=self.hash(path[:first]) if first else None,
                tokens=prompt_of(path[first:]),
                block_size=SIZE,
            )
        )

    def remove_leaf(self) -> KvBatch:
        present = [path for path, count in self.copies.items() if count]
        parents = {path[:-1] for path in present}
        leaf = next(iter(sorted(path for path in present if path not in parents)), None)
        if leaf is None:
            return self.publish()
        self.copies[leaf] -= 1
        return self.publish(BlocksRemoved([self.hash(leaf)]))

    def clear(self) -> KvBatch:
        self.copies.clear()
        return self.publish(BlocksCleared())

    def restart(self) -> None:
        self.salt += 1
        self.now += 5.0
        self.number = 0
        self.copies.clear()
        self.batches.clear()


def cached(engine: Engine, path: Sequence[int]) -> int:
    count = 0
    while count < len(path) and engine.copies[tuple(path[: count + 1])]:
        count += 1
    return count


def is_complete(view: KvCacheView) -> bool:
    return view.index.is_complete


def is_live(view: KvCacheView) -> bool:
    return view.is_live


def replay(view: KvCacheView, engine: Engine) -> None:
    while True:
        start = view.begin_replay()
        for batch in engine.batches:
            if batch.number >= start:
                view.take_replayed(batch)
        if not view.end_replay():
            return


PATHS = [(1,), (1, 2), (1, 2, 3), (1, 4), (1, 4, 5), (6,), (6, 2), (6, 2, 3)]
steps = st.lists(
    st.one_of(
        st.tuples(st.just("store"), st.sampled_from(PATHS)),
        st.tuples(st.sampled_from(["remove", "clear", "restart", "cut"]), st.just(())),
    ),
    max_size=40,
)
deliveries = st.lists(
    st.sampled_from(["pass", "pass", "pass", "lose", "twice", "older"]), min_size=40
)


def follow(
    engine: Engine, view: KvCacheView, steps_taken: list[tuple[str, tuple[int, ...]]]
) -> list[KvBatch]:
    """Let the engine do the steps; return its batches, None of which are delivered."""
    batches = []
    for kind, path in steps_taken:
        if kind == "store":
            batches.append(engine.store(path))
        elif kind == "remove":
            batches.append(engine.remove_leaf())
        elif kind == "clear":
            batches.append(engine.clear())
    return batches


@given(steps=steps, fates=deliveries)
def test_a_view_that_is_live_has_what_the_engine_has(
    steps: list[tuple[str, tuple[int, ...]]], fates: list[str]
) -> None:
    engine = Engine(buffer_batches=1000)
    view = KvCacheView()
    replay(view, engine)
    sent: list[KvBatch] = []
    for (kind, path), fate in zip(steps, fates, strict=False):
        if kind in ("restart", "cut"):
            if kind == "restart":
                engine.restart()
                sent.clear()
            view.lose()  # the connection ends with the engine
            replay(view, engine)
            continue
        (batch,) = follow(engine, view, [(kind, path)])
        sent.append(batch)
        if fate == "lose":
            continue
        arrivals = {"older": [sent[0], batch], "twice": [batch, batch]}
        for arrival in arrivals.get(fate, [batch]):
            if view.take(arrival):
                replay(view, engine)
        assert view.is_live
        assert view.index.is_complete
        for prompt in PATHS:
            hashes = token_block_hashes(prompt_of(prompt), SIZE)
            assert view.index.count_cached(hashes) == cached(engine, prompt)


@given(steps=steps, fates=deliveries)
def test_with_a_short_replay_the_view_never_has_more_than_the_engine(
    steps: list[tuple[str, tuple[int, ...]]], fates: list[str]
) -> None:
    engine = Engine()
    view = KvCacheView()
    for (kind, path), fate in zip(steps, fates, strict=False):
        if kind == "restart":
            engine.restart()
            view.lose()
            continue
        for batch in follow(engine, view, [(kind, path)]):
            if fate != "lose" and view.take(batch):
                replay(view, engine)
        if not view.is_live or fate == "lose":
            continue
        for prompt in PATHS:
            hashes = token_block_hashes(prompt_of(prompt), SIZE)
            count = view.index.count_cached(hashes)
            assert count <= cached(engine, prompt)
            if view.index.is_complete:
                assert count == cached(engine, prompt)


def test_a_restart_that_no_connection_shows_is_seen_by_the_numbers() -> None:
    engine = Engine()
    view = KvCacheView()
    replay(view, engine)
    for path in PATHS:
        view.take(engine.store(path))
    engine.restart()
    assert view.take(engine.store((6,)))
    assert not is_live(view)
    replay(view, engine)
    assert is_live(view)
    assert len(view.index) == 1


def test_blocks_that_went_during_a_gap_too_long_for_a_replay_are_dropped() -> None:
    engine = Engine()
    view = KvCacheView()
    replay(view, engine)
    view.take(engine.store((1, 2)))
    for _ in range(2 * KEPT):
        engine.remove_leaf()
    assert view.take(engine.store((6,)))
    replay(view, engine)
    hashes = token_block_hashes(prompt_of((1, 2)), SIZE)
    assert view.index.count_cached(hashes) == 0
    assert not is_complete(view)
    view.take(engine.clear())
    assert is_complete(view)


def test_without_a_replay_a_gap_drops_what_was_there() -> None:
    engine = Engine()
    view = KvCacheView()
    view.skip_to(engine.store((1, 2)))
    assert is_complete(view)
    engine.store((1, 2, 3))
    batch = engine.store((6,))
    assert view.take(batch)
    view.skip_to(batch)
    assert not is_complete(view)
    assert len(view.index) == 1


def test_blocks_of_an_adapter_are_not_those_of_the_model() -> None:
    index = BlockIndex()
    tokens = prompt_of((1, 2))
    index.store(BlocksStored([7, 8], None, tokens, SIZE, keys=["legal", "legal"]))
    assert index.count_cached(token_block_hashes(tokens, SIZE)) == 0


def test_layers_with_a_window_and_further_groups_do_not_count() -> None:
    index = BlockIndex()
    hashes = token_block_hashes([1, 2], SIZE)
    index.store(BlocksStored([7], None, [1, 2], SIZE, group=1, is_windowed=True))
    assert index.count_cached(hashes) == 0
    index.store(BlocksStored([8], None, [1, 2], SIZE, group=0))
    index.store(BlocksStored([8], None, [1, 2], SIZE, group=2))
    index.remove(BlocksRemoved([8], group=2))
    assert index.count_cached(hashes) == 1
    index.remove(BlocksRemoved([8], group=0))
    assert index.count_cached(hashes) == 0


def test_an_engine_that_stores_without_end_takes_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(block_index, "MOST_BLOCKS", 10)
    index = BlockIndex()
    for number in range(100):
        index.store(BlocksStored([number], None, [number, number], SIZE))
    assert len(index) == 10
    assert not index.is_complete
