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
