"""Regions and their electricity; bands of error, written and read."""

from dataclasses import replace
from datetime import date

import pytest

from corral.catalog.bands import ErrorBand, band, bands, bands_of, gpu_band, written
from corral.catalog.carbon import region, usual_pue
from corral.catalog.facts import by_subject, read_facts, table
from corral.domain.errors import NotFound

DAY = date(2026, 11, 22)


def test_each_region_is_plausible() -> None:
    for one in (
        region(name) for name, facts in table("carbon").items() if "carbon" in facts
    ):
        assert 10 <= one.carbon_g_per_kwh <= 900
        price = one.electricity_usd_per_kwh
        assert price is None or 0.03 <= price <= 0.4
    assert all(1 <= pue <= 2 for pue in usual_pue().values())


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("fr", "fr"),
        ("France", "fr"),
        ("Texas", "us-tx"),
        ("eu-north-1", "se"),
        ("us_tx", "us-tx"),
    ],
)
def test_a_region_is_found_by_any_of_its_names(spelling: str, name: str) -> None:
    assert region(spelling).name == name


def test_a_misspelt_region_gets_the_nearest() -> None:
    with pytest.raises(NotFound) as refused:
        region("Germny")
    assert "Germany" in refused.value.hint


def made(name: str, mean: float = 0.061) -> ErrorBand:
    return ErrorBand(
        name=name,
        mean=mean,
        median=0.05,
        p90=0.125,
        rows=812,
        sources=2,
        source="make validate",
        date=DAY,
    )


def test_bands_are_read_as_they_were_written() -> None:
    own = [made("training.step_time"), made("inference.decode", 0.2)]
    assert bands_of(by_subject(read_facts(written(own).splitlines()))) == {
        one.name: one for one in own
    }
    assert written(own) == written(reversed(own))


def test_a_band_without_its_rows_is_refused() -> None:
    lines = [
        line for line in written([made("a.b")]).splitlines() if ",rows," not in line
    ]
    with pytest.raises(ValueError, match="no rows"):
        bands_of(by_subject(read_facts(lines)))


def test_an_error_below_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 0"):
        made("a", -0.1)


def test_a_part_without_a_band_has_that_of_its_whole(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    known = {"training.step_time": made("training.step_time")}
    monkeypatch.setattr("corral.catalog.bands.bands", lambda: known)
    assert band("training.step_time.gb200") == known["training.step_time"]
    assert band("serving.ttft") is None


def test_the_bands_of_the_catalog_can_be_read() -> None:
    assert all(one.name == name for name, one in bands().items())


def test_a_chip_that_was_not_measured_has_the_wider_band(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = replace(made("a.h100", 0.05), sources=2)
    other = replace(made("a.other", 0.2), sources=3)
    lone = replace(made("a.b200", 0.01), sources=1, p90=0.02)
    known = {one.name: one for one in (own, other, lone)}
    monkeypatch.setattr("corral.catalog.bands.bands", lambda: known)
    assert gpu_band("a", "h100") == own
    assert gpu_band("a", "v100") == other
    assert gpu_band("a", "b200") == other, (
        "one source alone is not believed to be better"
    )
    assert gpu_band("b", "h100") is None


def test_a_kind_of_one_source_quotes_its_largest_errors() -> None:
    lone = [replace(made(name, 0.1), sources=1) for name in ("a", "a.h100")]
    read = bands_of(by_subject(read_facts(written(lone).splitlines())))
    assert (read["a"].quoted, read["a.h100"].quoted) == (0.125, 0.125)
    assert "nine in ten of 812 measured rows from 1 source" in read["a"].sentence(
        "the step"
    )
    with_others = [made("a", 0.1), replace(made("a.h100", 0.1), sources=1)]
    read = bands_of(by_subject(read_facts(written(with_others).splitlines())))
    assert (read["a"].quoted, read["a.h100"].quoted) == (0.1, 0.1)
