"""Loaders of other libraries keep their position in a save, for one number of ranks."""

from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from corral.train.data.adapters.choose_adapter import fits_any_ranks, position_of
from corral.train.data.adapters.webdataset_pipeline import WebDatasetPosition
from corral.train.data.sampler import Sampler
from corral.train.data.stream_position import DataChanged


class Pipeline:
    """A pipeline without state, whose order is `names`."""

    def __init__(self, names: str) -> None:
        self.names = names

    def __iter__(self) -> Iterator[Any]:
        return iter([{"__key__": name} for name in self.names])


def test_a_pipeline_without_state_resumes_at_its_next_batch() -> None:
    before = WebDatasetPosition(Pipeline("abcdef"))
    list(islice(before, 3))
    after = WebDatasetPosition(Pipeline("abcdef"))
    after.load_state_dict(before.state_dict())
    assert after.state_dict() == before.state_dict()
    assert [batch["__key__"] for batch in after] == ["d", "e", "f"]


def test_a_pipeline_whose_order_does_not_repeat_is_refused() -> None:
    before = WebDatasetPosition(Pipeline("abcdef"))
    list(islice(before, 3))
    after = WebDatasetPosition(Pipeline("bacfed"[::-1]))
    after.load_state_dict(before.state_dict())
    with pytest.raises(DataChanged, match="does not repeat"):
        next(iter(after))


@pytest.mark.parametrize(
    ("package", "name"),
    [
        ("torchdata", "StatefulDataLoader"),
        ("litdata", "StreamingDataLoader"),
        ("webdataset", "DataPipeline"),
        ("datasets", "IterableDataset"),
    ],
)
def test_loaders_of_libraries_have_a_position_for_one_number_of_ranks(
    package: str, name: str
) -> None:
    loader_class = type(name, (Pipeline,), {"__module__": f"{package}.part"})
    loader = type("Subclass", (loader_class,), {})("abc")
    position = position_of(loader)
    assert position.source is loader
    assert not fits_any_ranks(position)


def test_a_sampler_is_its_own_position_for_any_number_of_ranks() -> None:
    sampler = Sampler(10, 2, rank=0, world_size=1)
    assert position_of(sampler) is sampler
    assert fits_any_ranks(sampler)
    assert fits_any_ranks(None)
