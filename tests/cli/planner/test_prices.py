"""plan prices: lists that come with Corral, of one's own, and of the clouds through gpuhunt."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corral.cli.main import run

OWN = """subject,quantity,value,unit,source,date
acme:h100-sxm,on_demand,1.11,USD a GPU-hour,our offer of May,2026-05-01
"""


def offer(gpu: str, memory: float, price: float, count: int = 1, *, spot: bool = False) -> Any:
    return SimpleNamespace(
        provider="acme", gpu_name=gpu, gpu_memory=memory, price=price, gpu_count=count, spot=spot
    )


@pytest.fixture
def gpuhunt(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., list[Any]]], None]:
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
    fresh = [row for row in listed(capsys, "--prices", str(file)) if row["cloud"] == "acme"]
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
    assert "gpuhunt could not be asked: no route" in capsys.readouterr().err
    assert file.read_text() == OWN


def test_without_gpuhunt_its_extra_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "gpuhunt", None)
    assert run(["plan", "prices", "--fetch", str(tmp_path / "p.csv")]) == 3
    assert "pip install 'corral[prices]'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a,b\n", "not in order"),
        (OWN.replace("1.11", "-1"), "is -1"),
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
    assert said in capsys.readouterr().err
