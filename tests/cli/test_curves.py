"""Curves in a terminal: what is drawn is what was measured, whatever moments it was
measured at."""

import csv
import io
import json
from collections.abc import Iterator
from dataclasses import replace
from math import nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cli import metrics
from corral.cli.curves.output import as_json, print_csv, show
from corral.cli.curves.rows import (
    MOST_NODES,
    POINTS,
    CurveRow,
    Gathered,
    Grid,
    Picture,
    job_asks,
    job_picture,
    node_picture,
    rises,
)
from corral.cli.curves.sparkline import BLOCKS, narrowed, sparkline, value_text
from corral.cli.head_options import Common
from corral.cli.main import run
from corral.domain.ids import NodeId
from corral.store.series import SeriesFile
from corral.wire.api import JobDetail
from corral.wire.job_parts import AttemptView, ShapeView
from corral.wire.time_series import SeriesView
from tests.api.heads import TOKENS, Agent, Head, eventually, serving, up

values = st.lists(st.none() | st.floats(-1e6, 1e6), max_size=200)


@given(line=values, width=st.integers(1, 80))
def test_a_line_is_no_wider_than_asked_and_blank_just_where_nothing_is_known(
    line: list[float | None], width: int
) -> None:
    drawn = sparkline(line, width)
    assert len(drawn) == min(width, len(line))
    for mark, value in zip(drawn, narrowed(line, width), strict=True):
        assert (mark == " ") == (value is None)
        assert mark in BLOCKS + " "


def test_the_least_is_the_lowest_block_and_the_most_the_highest() -> None:
    assert sparkline([0, 1, 2, 3, 4, 5, 6, 7], 8) == BLOCKS
    assert sparkline([5, 5, None], 8) == "██ "
    assert sparkline([100.0, 99.9, 95.0], 8) == "██▁", "a thousandth of it is no valley"
    assert sparkline([0, 0], 8) == "▁▁"
    assert sparkline([0.0, 0.5, 1.0], 8, low=0.0, high=1.0) == "▁▅█"
    assert sparkline([0.25, 9.0], 8, low=0.0, high=1.0) == "▃█", (
        "beyond the scale is at its end"
    )
    assert narrowed([1, 3, None, 5], 2) == [2, 5]


def test_values_are_told_in_their_units() -> None:
    told = [value_text(0.934, "share"), value_text(None, "W"), value_text(612.34, "W")]
    assert told == ["93 %", "-", "612"]
    assert value_text(16000, "") == "16000"
    assert value_text(2.0**20, "bytes/s").endswith("/s")


@given(
    points=st.lists(
        st.tuples(st.floats(0, 1000), st.floats(-5, 5)), min_size=1, max_size=60
    ),
    until=st.floats(30, 1000),
)
def test_cells_lie_between_the_least_and_the_most_that_was_measured(
    points: list[tuple[float, float]], until: float
) -> None:
    grid = Grid.over(0.0, until)
    row = grid.row(points)
    inside = [value for at, value in points if at <= until]
    known = [value for value in row if value is not None]
    assert len(row) == len(grid.times) <= POINTS
    assert bool(known) == bool(inside)
    if known:
        assert min(inside) - 1e-9 <= min(known) <= max(known) <= max(inside) + 1e-9


def test_a_value_holds_until_the_next_is_due_and_no_longer() -> None:
    grid = Grid(since=0.0, until=100.0, cells=10)
    assert grid.row([(5, 1.0), (25, 2.0), (95, 3.0)])[:4] == (1.0, 1.0, 2.0, 2.0)
    regular = [(float(at), 1.0) for at in range(0, 50, 10)]
    assert grid.row(regular) == (1.0,) * 6 + (None,) * 4


def test_what_only_rises_is_told_as_its_rise_and_a_new_beginning_is_no_fall() -> None:
    assert rises([(10, 100), (20, 150), (30, 5), (40, 25)]) == [(20, 5.0), (40, 2.0)]
    assert rises([]) == []


def series(key: str, times: list[float], **fields: list[float | None]) -> SeriesView:
    return SeriesView(
        key=key,
        times=times,
        fields={k.replace("__", "."): v for k, v in fields.items()},
    )


def test_gpus_of_several_nodes_make_one_mean_and_a_row_each() -> None:
    grid = Grid(since=0.0, until=20.0, cells=2)
    found = node_picture(
        "n1",
        grid,
        [
            series(
                "node:n1", [1.0, 11.0], gpu0__utilisation=[0.2, 0.4], cpu=[0.5, None]
            ),
            series("node:n2", [6.0, 16.0], gpu3__utilisation=[0.6, 0.8]),
        ],
    )
    rows = {row.name: row for row in found.rows}
    assert rows["GPU busy"].values == pytest.approx((0.4, 0.6))
    assert rows["CPU busy"].low == 0.5
    assert [row.name for row in found.gpus] == ["n1 GPU 0", "n2 GPU 3"]
    assert (found.gpus[1].low, found.gpus[1].mean, found.gpus[1].last) == (
        0.6,
        0.7,
        0.8,
    )


def picture(gpus: int = 2) -> Picture:
    rows = tuple(
        CurveRow(name=f"n1 GPU {at}", unit="share", values=(0.5, None, 1.0))
        for at in range(gpus)
    )
    power = CurveRow(name="GPU power", unit="W", values=(300.0, None, 612.5))
    grid = Grid(since=1000.0, until=1030.0, cells=3)
    return Picture(what="gpt (j1)", grid=grid, rows=(power,), gpus=rows)


def test_a_table_has_a_line_for_each_curve_and_many_gpus_only_when_asked_for(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show(picture(), width=100, every_gpu=False)
    out = capsys.readouterr().out
    assert out.startswith("gpt (j1), 30.0 s up to ")
    assert "GPU power (W)  612  300   456  612  ▁ █" in out
    assert "n1 GPU 1" in out
    show(picture(17), width=100, every_gpu=False)
    told = capsys.readouterr()
    assert "n1 GPU" not in told.out
    assert "each of its 17 GPUs: --gpus" in told.err
    show(picture(17), width=100, every_gpu=True)
    assert "n1 GPU 16" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("more", "out", "err"),
    [
        ({}, "gpt (j1), 30.0 s", "no point is stored yet"),
        ({"is_over": True}, "gpt (j1), 30.0 s", "no point was stored"),
        ({"has_gpus": False}, "gpt (j1), 30.0 s", "it has no GPUs and has logged no"),
        ({"has_not_run": True}, "", ""),
    ],
)
def test_without_curves_the_reason_is_told_and_once_for_a_job_that_has_not_run(
    more: dict[str, bool], out: str, err: str, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = replace(picture(), rows=(), gpus=(), **more)  # type: ignore[arg-type]
    metrics._print_picture(empty, Common(), csv=False, every_gpu=False, clear=False)
    told = capsys.readouterr()
    assert bool(told.out) == bool(out)
    assert bool(told.err) == bool(err)
    assert out in told.out
    assert err in told.err


def test_the_last_heading_is_whole_where_a_terminal_is_narrow(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "44")
    show(picture(), width=44, every_gpu=False)
    heading = capsys.readouterr().out.splitlines()[2]
    assert heading == "CURVE          NOW  MIN  MEAN  MAX  OVER TIME"


def test_json_and_csv_hold_the_same_and_unknown_is_null_or_empty() -> None:
    plain = as_json(picture())
    assert plain["times"] == [1000.0, 1010.0, 1020.0]
    assert plain["curves"][0]["values"] == [300.0, None, 612.5]
    assert (plain["curves"][0]["min"], plain["curves"][0]["last"]) == (300.0, 612.5)
    out = io.StringIO()
    print_csv(picture(), out)
    heads, *lines = csv.reader(io.StringIO(out.getvalue()))
    assert heads == ["at", "GPU power (W)", "n1 GPU 0 (share)", "n1 GPU 1 (share)"]
    assert lines[1] == ["1010.000", "", "", ""]
    assert lines[2] == ["1020.000", "612.5", "1", "1"]


def test_what_was_never_known_is_no_row() -> None:
    found = Gathered()
    found.take(series("cluster", [1.0], utilisation=[None]))
    assert found.own == {"utilisation": []}
    assert not any(CurveRow(name="", unit="", values=(None,)).known)
    assert nan not in CurveRow(name="", unit="", values=(None, 1.0)).known


@pytest.fixture
def recorded(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Head]:
    """A head that keeps curves, found by the environment."""
    root = tmp_path_factory.mktemp("head")
    monkeypatch.delenv("CORRAL_DIR", raising=False)
    monkeypatch.setenv("COLUMNS", "120")
    with serving(root, series=SeriesFile(root / "series.db")) as head:
        monkeypatch.setenv("CORRAL_URL", head.url)
        monkeypatch.setenv("CORRAL_TOKEN", TOKENS["admin"])
        yield head


SPEC = {"name": "train", "run": "true", "resources": {"gpu": 1}}


def test_the_command_shows_what_the_head_has_kept_of_a_job_and_of_a_node(
    recorded: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    agent = Agent(recorded, "n1").hello()
    agent.beat()
    with recorded.http() as http:
        (job,) = http.post("/v1/jobs", json={"specs": [SPEC], "key": "k"}).json()[
            "jobs"
        ]
        eventually(lambda: bool(recorded.control.world.attempts))
        attempt = recorded.control.world.attempts[job["id"]]
        agent.beat(up((job["id"], 1)))
        (gpu,) = attempt.seats[0].gpus
        at = attempt.placed_at + 0.2
        assert recorded.series is not None
        busy = {
            f"gpu{gpu}.utilisation": 0.75,
            f"gpu{1 - gpu}.utilisation": 0.125,
            "cpu": 0.5,
        }
        recorded.series.put("node:n1", at, busy)
        recorded.series.put(
            f"job:{job['id']}", at, {"loss": 2.25, "loss.train": 2.5, "gpu0.x": 1.0}
        )
        eventually(lambda: recorded.control.now().wall > at + 1.0)
    assert run(["metrics", "train", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    logged = {"loss": 2.25, "loss.train": 2.5, "gpu0.x": 1.0}
    assert {row["name"]: row["last"] for row in found["curves"]} == {
        "GPU busy": 0.75,
        **logged,
    }
    assert [row["name"] for row in found["gpus"]] == [f"n1 GPU {gpu}"], (
        "its own GPU and no other"
    )
    assert run(["metrics", "--node", "n1"]) == 0
    told = capsys.readouterr().out
    assert "CPU busy" in told
    assert "12 %" in told
    assert run(["metrics", "--node", "n1", "--since", "30m", "--csv"]) == 0
    assert capsys.readouterr().out.startswith("at,GPU busy (share),CPU busy (share),")
    agent.close()


def test_what_cannot_be_shown_is_refused_with_what_to_type(
    recorded: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, code, hint in (
        (["j1", "--node", "n1"], 2, "--node and --queue cannot be combined"),
        (["--since", "lately"], 2, "--since 30m"),
        (["--json", "--csv"], 2, "leave out --csv or --json"),
        (["nobody"], 3, "corral ps --all"),
        (["--node", "nobody"], 3, "corral node ls"),
        (["--queue", "nobody"], 3, "corral queue ls"),
    ):
        assert run(["metrics", *words]) == code, words
        assert hint in capsys.readouterr().err
    assert run(["metrics"]) == 0
    assert "no point is stored yet" in capsys.readouterr().err


def test_watching_goes_on_until_the_job_is_over(
    recorded: Head, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    naps = []
    with recorded.http() as http:
        (job,) = http.post("/v1/jobs", json={"specs": [SPEC], "key": "k"}).json()[
            "jobs"
        ]

        def sleep(seconds: float) -> None:
            naps.append(seconds)
            if len(naps) == 2:
                http.post(f"/v1/jobs/{job['id']}/cancel")
                eventually(lambda: job["id"] not in recorded.control.world.jobs)

        monkeypatch.setattr(metrics, "sleep", sleep)
        assert run(["metrics", job["id"], "--watch", "--every", "3"]) == 0
    told = capsys.readouterr()
    assert naps == [3.0, 3.0]
    assert told.out.count(f"train ({job['id']})") == 3
    assert "train has not run, so it has no series; its state is QUEUED" in told.err
    assert f"run: corral why {job['id']}" in told.err


def test_of_a_wide_job_not_every_node_is_asked() -> None:
    seat = {
        "node": NodeId("n1"),
        "gpus": [0],
        "gpu_count": 1,
        "cpus": 1,
        "memory_bytes": 1,
    }
    attempt = {
        "number": 1,
        "nodes": [],
        "seats": [{**seat, "node": f"n{at}"} for at in range(MOST_NODES + 5)],
        **{"master_port": 1, "placed_at": 10.0, "running_at": None, "ended_at": 60.0},
        **dict.fromkeys(("cause", "culprit", "evidence"), ""),
        **dict.fromkeys(("exit_code", "resume_step", "last_step")),
    }
    job = JobDetail.model_construct(
        id="j1",
        name="wide",
        shape=ShapeView.model_construct(gpus_per_node=1),
        attempts=[AttemptView.model_validate(attempt)],
    )
    asks = job_asks(job, 20.0, 50.0)
    assert len(asks) == 1 + MOST_NODES
    assert {(one.since, one.until) for one in asks} == {(20.0, 50.0)}
    assert job_asks(job, 70.0, 90.0)[1:] == [], "it held nothing then"
    (said,) = job_picture(job, Grid.over(20.0, 50.0), [], is_over=False).notes
    assert f"{MOST_NODES} of its {MOST_NODES + 5} nodes" in said
