"""Each sample once an epoch, whatever happens to the ranks."""

from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.train.data.sampler import DataChanged, Sampler

lives = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 4), st.integers(0, 9)), max_size=6
)


@given(length=st.integers(1, 60), seed=st.integers(0, 99), lives=lives)
def test_each_sample_comes_once_an_epoch_across_restarts_and_world_sizes(
    length: int, seed: int, lives: list[tuple[int, int, int]]
) -> None:
    state = Sampler(length, 1, seed, rank=0, world_size=1).state_dict()
    seen: list[int] = []
    for world_size, batch_size, steps in lives:
        ranks = [
            Sampler(length, batch_size, seed, rank=rank, world_size=world_size)
            for rank in range(world_size)
        ]
        for rank in ranks:
            rank.load_state_dict(state)
        streams = [list(islice(rank, steps)) for rank in ranks]
        seen += [
            index
            for step in zip(*streams, strict=True)
            for part in step
            for index in part
        ]
        if steps:
            assert len({rank.consumed for rank in ranks}) == 1
            state = ranks[-1].state_dict()
    assert state["consumed"] == len(seen)
    whole = Sampler(length, 1, seed, rank=0, world_size=1)
    assert seen == [index for batch in islice(whole, len(seen)) for index in batch]
    for epoch in range(len(seen) // length):
        assert sorted(seen[epoch * length : (epoch + 1) * length]) == list(
            range(length)
        )


def test_epochs_and_seeds_are_shuffled_differently() -> None:
    batches = islice(Sampler(50, 50, 1, rank=0, world_size=1), 2)
    first, second = batches
    other = next(iter(Sampler(50, 50, 2, rank=0, world_size=1)))
    assert len({tuple(first), tuple(second), tuple(other), tuple(range(50))}) == 4


def test_the_order_never_changes_with_the_version_of_numpy() -> None:
    """Named values: a change here would repeat and lose samples of every running
    job."""
    assert next(iter(Sampler(10, 10, 3, rank=0, world_size=1))) == [
        1,
        5,
        9,
        0,
        4,
        7,
        2,
        8,
        3,
        6,
    ]


def test_what_a_loader_fetched_ahead_is_not_consumed() -> None:
    sampler = Sampler(100, 2, rank=0, world_size=3)
    sampler.count_on_delivery()
    ahead = iter(sampler)
    fetched = [next(ahead) for _ in range(4)]
    sampler.delivered()
    assert sampler.consumed == 6
    again = Sampler(100, 2, rank=0, world_size=3)
    again.load_state_dict(sampler.state_dict())
    assert next(iter(again)) == fetched[1]


def test_a_position_in_other_data_is_refused() -> None:
    state = Sampler(100, 2, 1, rank=0, world_size=1).state_dict()
    for other in (
        Sampler(99, 2, 1, rank=0, world_size=1),
        Sampler(100, 2, 2, rank=0, world_size=1),
    ):
        with pytest.raises(DataChanged):
            other.load_state_dict(state)


def test_its_epoch_counts_whole_passes() -> None:
    sampler = Sampler(10, 5, rank=0, world_size=1)
    stream = iter(sampler)
    epochs = []
    for _ in range(5):
        next(stream)
        epochs.append(sampler.epoch)
    assert epochs == [0, 1, 1, 2, 2]
