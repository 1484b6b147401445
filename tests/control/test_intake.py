"""What a refusal tells to do."""

from dataclasses import replace

import pytest

from corral.control.intake import check_specs
from corral.domain.errors import CannotFit
from corral.domain.resources import Resources
from tests.worlds import Cluster, gang, node


def test_a_part_of_a_gpu_is_refused_with_how_to_offer_parts() -> None:
    half = replace(gang(), resources=Resources(gpu_millis=500))
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(node("n1")).world, [half], {})
    assert "corral up --gpu-shares" in refused.value.hint


def test_too_many_whole_gpus_are_refused_with_what_there_is() -> None:
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(node("n1")).world, [gang(gpus=99)], {})
    assert "--gpu-shares" not in refused.value.hint
    assert "corral node ls" in refused.value.hint


@pytest.mark.parametrize(
    ("gpus", "said", "there"),
    [
        ((0,), "no node of this cluster could", "there is 1 node without GPUs; "),
        ((0, 0), "no node of this cluster could", "there are 2 nodes without GPUs; "),
        ((1,), "no node of this cluster could", "there is 1 node with 1 GPU (h100); "),
        ((8,), "this cluster has only 1 node", "there is 1 node with 8 GPUs (h100); "),
        ((2, 8), "only 1 of the 2 nodes of this cluster could", "of up to 8 GPUs (h100); "),
    ],
)
def test_what_is_there_is_told_in_plain_words(gpus: tuple[int, ...], said: str, there: str) -> None:
    nodes = (node(f"n{number}", gpus=count) for number, count in enumerate(gpus))
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(*nodes).world, [gang(nodes=2, gpus=8)], {})
    assert said in refused.value.message
    assert there in refused.value.hint


def test_where_no_node_has_gpus_it_is_told_how_to_pretend_some() -> None:
    with pytest.raises(CannotFit) as refused:
        check_specs(Cluster(node("n1", gpus=0)).world, [gang(gpus=2)], {})
    assert refused.value.hint.endswith("run: corral down; corral up --gpus 2")
