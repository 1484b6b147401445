"""Bounds of what one submission may unfold to."""

import pytest

from corral.domain.errors import SpecInvalid
from corral.wire import spec_reader
from corral.wire.field_readers import MAX_ENVIRONMENT
from corral.wire.spec_reader import parse_values
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
    assert "the 22 variables have 1,100," in refused.value.message
    assert f"at most {MAX_ENVIRONMENT:,} are allowed" in refused.value.message
    assert "workdir" in refused.value.hint


def test_a_spec_times_its_indices_is_bounded() -> None:
    parsed = parse_values([spec(1_000_000, array="0-599")])
    with pytest.raises(SpecInvalid) as refused:
        to_domain(parsed)
    assert "600 jobs" in refused.value.message
    assert "at most 512,000,000 are allowed" in refused.value.message
    assert refused.value.hint.startswith("submit at most 51")
    assert len(to_domain(parse_values([spec(1_000_000, array="0-499")]))) == 500


def test_jobs_are_counted_before_any_array_is_unfolded() -> None:
    sweeps = [
        {"name": f"s{place}", "run": "x", "array": "0-5999"} for place in range(2)
    ]
    with pytest.raises(SpecInvalid, match="more than 10,000 jobs"):
        parse_values(sweeps)


def test_an_array_that_names_an_index_over_and_over_is_refused() -> None:
    with pytest.raises(SpecInvalid, match="repeats the same indices"):
        parse_values([{"name": "s", "run": "x", "array": ",".join(["0-9999"] * 11)}])
    with pytest.raises(SpecInvalid, match="200,000 characters; at most 100,000 are"):
        parse_values([{"name": "s", "run": "x", "array": "1," * 100_000}])


@pytest.mark.parametrize(
    "more",
    [
        {f"field{place}": 1 for place in range(20_001)},
        {"resources": {f"field{place}": 1 for place in range(20_001)}},
        {"constraints": ["x"] * 20_001},
        {"max_duration": "1h" * 250_001},
        {"x" * 500_001: 1},
    ],
    ids=["fields", "section", "list", "text", "name"],
)
def test_a_spec_beyond_all_fields_is_refused_before_it_is_read(
    more: dict[str, object],
) -> None:
    with pytest.raises(SpecInvalid, match="20,000 entries or 500,000 characters"):
        parse_values([{"name": "s", "run": "x", **more}])


def test_of_very_many_problems_the_first_are_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []

    def look(word: str, known: object, **how: object) -> list[str]:
        looked.append(word)
        return []

    monkeypatch.setattr(spec_reader, "get_close_matches", look)
    fields = {f"field{place}": 1 for place in range(1_000)}
    with pytest.raises(SpecInvalid, match="field0: there is no such field"):
        parse_values([{"name": "s", "run": "x", **fields}])
    assert len(looked) == spec_reader.MOST_PROBLEMS
