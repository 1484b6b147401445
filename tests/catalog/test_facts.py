"""Every number of the catalog has a unit, a source and a date."""

from importlib.resources import files

import pytest

from corral.catalog.devices import device, devices
from corral.catalog.facts import read_facts, table
from corral.catalog.links import links
from corral.domain.errors import NotFound

FILES = sorted(
    path.name.removesuffix(".csv")
    for path in files("corral.catalog").joinpath("data").iterdir()
    if path.name.endswith(".csv")
)
HEAD = "subject,quantity,value,unit,source,date"


@pytest.mark.parametrize("name", FILES)
def test_each_fact_of_the_catalog_is_whole(name: str) -> None:
    assert all(table(name).values())


@pytest.mark.parametrize("name", FILES)
def test_each_source_can_be_looked_up_or_is_an_assumption_with_its_reason(
    name: str,
) -> None:
    for fact in (fact for facts in table(name).values() for fact in facts.values()):
        told = fact.source.lower()
        assert not any(words in told for words in ("from memory", "own choice")), fact
        assert "no source" not in told, fact
        if "assum" in told:
            assert len(fact.source.split()) >= 6, fact  # what was assumed, and why


@pytest.mark.parametrize(
    "line",
    [
        "a,b,1,GB,,2026-01-01",
        "a,b,1,GB,book,soon",
        "a,b,one,GB,book,2026-01-01",
        "a,b,1",
    ],
)
def test_a_number_without_source_or_date_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        read_facts([HEAD, line])


def test_all_devices_and_links_can_be_read() -> None:
    assert {one.name for one in devices()} == set(table("devices"))
    assert {one.name for one in links()} == set(table("links"))


@pytest.mark.parametrize("name", ["h100-sxm", "H100 SXM 80GB", "h100_sxm", "H100"])
def test_a_device_is_found_by_any_of_its_names(name: str) -> None:
    assert device(name).name == "h100-sxm"


def test_a_misspelt_device_gets_the_nearest_name() -> None:
    with pytest.raises(NotFound) as refused:
        device("h10-sxm")
    assert "h100-sxm" in refused.value.hint
