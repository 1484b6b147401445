"""What --set says to the Ray engine."""

import pytest

from corral.domain.errors import SpecInvalid
from corral.engines.ray.settings import RaySettings


def test_a_setting_is_read_as_what_it_is() -> None:
    said = {"num_gpus": "8", "pretend": "yes", "idle_seconds": "1.5", "shared": "/a,/b"}
    assert RaySettings.of(said) == RaySettings(
        num_gpus=8, pretend=True, idle_seconds=1.5, shared=("/a", "/b")
    )


@pytest.mark.parametrize(
    "said",
    [
        {"adress": "10.0.0.1:6379"},
        {"num_gpus": "many"},
        {"pretend": "perhaps"},
        {"address": "10.0.0.1"},
        {"num_gpus": "-1"},
    ],
)
def test_what_is_no_setting_is_refused_with_what_to_write(said: dict[str, str]) -> None:
    with pytest.raises(SpecInvalid) as refused:
        RaySettings.of(said)
    assert refused.value.hint
