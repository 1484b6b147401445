"""plan prices: lists that come with Corral, of one's own, and of the clouds through
gpuhunt."""

import gzip
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corral.catalog.prices import EXAMPLE, prices, read_prices
from corral.cli.main import run

OWN = """subject,quantity,value,unit,source,date
acme:h100-sxm,on_demand,1.11,USD a GPU-hour,our offer of May,2026-05-01
"""


def offer(
    gpu: str, memory: float, price: float, count: int = 1, *, spot: bool = False
) -> Any:
    return SimpleNamespace(
        provider="acme",
        gpu_name=gpu,
        gpu_memory=memory,
        price=price,
        gpu_count=count,
        spot=spot,
    )


@pytest.fixture
def gpuhunt(
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[[Callable[..., list[Any]]], None]:
    def answer(query: Callable[..., list[Any]]) -> None:
        monkeypatch.setitem(sys.modules, "gpuhunt", SimpleNamespace(query=query))

    return answer


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    assert run(["plan", "prices", *words, "--json"]) == 0
    told: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["prices"]
    return told


def test_each_price_has_its_cloud_its_date_and_its_source(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = listed(capsys, "h100")
    assert {row["gpu"] for row in rows} == {"h100-sxm"}
    assert all(row["cloud"] and row["date"] and row["source"] for row in rows)
    assert {"on_demand", "spot"} <= {row["kind"] for row in rows}


def test_a_list_of_ones_own_goes_before_the_catalogs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text(OWN)
    rows = listed(capsys, "h100", "--prices", str(mine))
    assert rows[0]["cloud"] == "acme"
    assert rows[0]["usd_per_gpu_hour"] == 1.11
    assert len(rows) == len(listed(capsys, "h100")) + 1


def test_offers_are_fetched_by_the_gpu_hour_and_the_cheapest_is_kept(
    gpuhunt: Callable[[Callable[..., list[Any]]], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    offers = [
        offer("H100", 80, 24.0, 8),  # 3.00 a GPU
        offer("H100", 80, 3.5),
        offer("H100", 80, 1.2, spot=True),
        offer("Unheard", 1, 1.0),
        offer("L4", 24, 0.0),  # an offer without a price is none
    ]
    gpuhunt(lambda **_: offers)
    file = tmp_path / "fresh.csv"
    assert run(["plan", "prices", "--fetch", str(file)]) == 0
    told = capsys.readouterr()
    assert "2 offers" in told.out
    assert "Unheard 1GB" in told.err
    fresh = [
        row for row in listed(capsys, "--prices", str(file)) if row["cloud"] == "acme"
    ]
    assert [(row["gpu"], row["kind"], row["usd_per_gpu_hour"]) for row in fresh] == [
        ("h100-sxm", "on_demand", 3.0),
        ("h100-sxm", "spot", 1.2),
    ]


def test_clouds_that_cannot_be_reached_leave_the_list_as_it_was(
    gpuhunt: Callable[[Callable[..., list[Any]]], None],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def query(**_: Any) -> list[Any]:
        raise ConnectionError("no route")

    gpuhunt(query)
    file = tmp_path / "fresh.csv"
    file.write_text(OWN)
    assert run(["plan", "prices", "--fetch", str(file)]) == 4
    assert "gpuhunt could not fetch offers: no route" in capsys.readouterr().err
    assert file.read_text() == OWN


def test_the_printed_list_is_one_that_can_be_planned_with(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["plan", "prices", "--csv"]) == 0
    mine = tmp_path / "mine.csv"
    mine.write_text(capsys.readouterr().out)
    again = read_prices(mine.read_text().splitlines())
    bare = [replace(one, instance="", region="") for one in prices().rents]
    assert sorted(again.rents, key=str) == sorted(bare, key=str)
    assert again.sales == prices().sales
    assert run(["plan", "prices", "h100", "--csv"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "subject,quantity,value,unit,source,date"
    assert all(":h100-sxm," in line for line in lines[1:])
    assert any(line.startswith("buy:h100-sxm,server,") for line in lines)


def test_what_gpus_cost_to_buy_is_listed_too(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["plan", "prices", "gaudi-3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["prices"] == []
    assert [(one["what"], one["usd"]) for one in told["sales"]] == [("gpu", 15_625.0)]
    assert run(["plan", "prices", "gaudi-3"]) == 0
    assert "15,625" in capsys.readouterr().out


def test_a_gpu_without_any_price_is_told_what_is_taken(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(["plan", "prices", "h800"]) == 0
    told = capsys.readouterr().out
    assert "no price of h800-sxm is known" in told
    assert "corral plan cost --gpu h800-sxm" in told


def test_the_example_of_a_list_is_in_order() -> None:
    (rent,) = read_prices([OWN.splitlines()[0], EXAMPLE]).rents
    assert (rent.cloud, rent.device, rent.usd_per_gpu_hour) == ("aws", "h100-sxm", 3.1)


def test_without_gpuhunt_its_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gpuhunt", None)
    assert run(["plan", "prices", "--fetch", str(tmp_path / "p.csv")]) == 3
    assert "pip install 'corral[prices]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n", "is not valid"),
        (OWN.replace("1.11", "-1"), "above 0, not -1"),
        (OWN.replace("1.11", "dear"), "is 'dear', not a number"),
        (OWN.replace("1.11", "nan"), "above 0, not nan"),
        (OWN.replace("on_demand", "weekly"), "unknown kind of price, weekly"),
        (OWN.replace("h100-sxm", "h1000"), "there is no GPU 'h1000'"),
    ],
)
def test_a_list_that_is_not_in_order_is_refused(
    text: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    mine = tmp_path / "mine.csv"
    mine.write_text(text)
    assert run(["plan", "prices", "--prices", str(mine)]) == 3
    told = capsys.readouterr().err
    assert said in told
    assert str(mine) in told


def test_a_list_that_is_not_there_is_told_with_where_to_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.csv").write_text(OWN)
    assert run(["plan", "prices", "--prices", "min.csv"]) == 3
    assert "did you mean mine.csv? run: ls ." in capsys.readouterr().err
    assert run(["plan", "cost", "--prices", "mine.csv", "--html", "./mine.csv"]) == 3
    assert "name another file" in capsys.readouterr().err
    assert (tmp_path / "mine.csv").read_text() == OWN


def test_a_packed_list_is_read_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed = tmp_path / "mine.csv"
    packed.write_bytes(gzip.compress(OWN.encode()))
    clouds = {row["cloud"] for row in listed(capsys, "--prices", str(packed))}
    assert "acme" in clouds
