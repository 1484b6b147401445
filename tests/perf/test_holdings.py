"""Every layer of a model has its stage, and time and memory agree on which."""

from dataclasses import replace
from math import ceil
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.catalog.model_names import model
from corral.perf.layout import TrainLayout
from corral.perf.sharding import busiest_layers, stage_layers

LLAMA = model("llama-3.1-405b")


def layers_of(layers: int, stages: int, **more: Any) -> list[int]:
    own, layout = replace(LLAMA, layers=layers), TrainLayout(pipeline=stages, **more)
    return [sum(stage_layers(own, layout, stage)) for stage in range(stages)]


@pytest.mark.parametrize(
    ("layers", "stages", "first", "middle", "last"),
    [
        (126, 9, 14, {14}, 14),
        # arXiv:2407.21783: a layer fewer on the first and the last of 16
        (126, 16, 7, {8}, 7),
        # 128 / 8 = 16, less the embedding, less the output matrix
        (126, 8, 15, {16}, 15),
        (61, 16, 3, {4}, 2),  # 63 = 15 x 4 + 3: the last has 3, less the output matrix
        (61, 8, 7, {8}, 6),  # 63 = 7 x 8 + 7
        (6, 4, 1, {2}, 1),
    ],
)
def test_ends_of_a_model_count_as_layers_where_these_do_not_come_out_even(
    layers: int, stages: int, first: int, middle: set[int], last: int
) -> None:
    found = layers_of(layers, stages)
    assert (found[0], set(found[1:-1]), found[-1]) == (first, middle, last)
    assert sum(found) == layers


@given(layers=st.integers(2, 130), stages=st.integers(2, 64), pieces=st.integers(1, 4))
def test_all_layers_are_somewhere_and_the_busiest_stage_is_the_busiest(
    layers: int, stages: int, pieces: int
) -> None:
    if layers < stages:
        return
    found = layers_of(layers, stages)
    assert sum(found) == layers
    assert min(found) >= 1
    assert max(found) <= ceil((layers + 2) / stages)
    layout = TrainLayout(pipeline=stages)
    first, most, last = busiest_layers(replace(LLAMA, layers=layers), layout)
    assert (first, most, last) == (found[0], max(found), found[-1])
    in_pieces = replace(layout, interleave=pieces)
    assert busiest_layers(replace(LLAMA, layers=layers), in_pieces)[1] >= most


def test_stages_by_hand_stay_as_they_are() -> None:
    assert layers_of(14, 4, first_layers=4, last_layers=1) == [4, 4, 5, 1]
