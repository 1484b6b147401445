"""Bounds of what one submission may unfold to."""

import pytest

from corral.domain.errors import SpecInvalid
from corral.wire.read import MAX_ENVIRONMENT
from corral.wire.reading import parse_values
from corral.wire.submission import to_domain


def spec(characters: int, **more: object) -> dict[str, object]:
    """A spec with so many characters of variables."""
    values = {f"V{place}": "x" * 50_000 for place in range(characters // 50_000)}
    return {"name": "sweep", "run": "true", "env": values, **more}


def test_jobs_of_an_array_share_everything_but_name_and_index() -> None:
    first, second = to_domain(parse_values([spec(100_000, array="3,5")]))
    assert (first.name, first.array_index) == ("sweep_3", 3)
    assert (second.name, second.array_index) == ("sweep_5", 5)
    assert first.env is second.env
    assert first.resources is second.resources


def test_an_environment_is_bounded_as_a_whole() -> None:
    with pytest.raises(SpecInvalid) as refused:
        parse_values([spec(1_100_000)])
    assert "22 variables have 1,100," in refused.value.message
    assert f"{MAX_ENVIRONMENT:,} are taken" in refused.value.message
    assert "workdir" in refused.value.hint


def test_a_spec_times_its_indices_is_bounded() -> None:
    parsed = parse_values([spec(1_000_000, array="0-599")])
    with pytest.raises(SpecInvalid) as refused:
        to_domain(parsed)
    assert "600 jobs" in refused.value.message
    assert "512,000,000 are taken at once" in refused.value.message
    assert refused.value.hint.startswith("submit at most 51")
    assert len(to_domain(parse_values([spec(1_000_000, array="0-499")]))) == 500
