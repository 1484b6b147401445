"""What the tables say, in which order, and which row stays chosen."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.cli.top import gpus, jobs, nodes
from corral.cli.top.header import header, watts_text
from corral.cli.top.row_order import Order, ordered
from corral.cli.top.state import HeadLink, TopState
from corral.cli.top.styled_text import Cell, plain
from corral.cli.top.table import AnyListing, RowTable
from corral.domain.natural_order import natural
from corral.wire import gpus as answers
from tests.cli.top.town import NOW, Town, job, node, sensed, status


def known(town: Town, **more: object) -> TopState:
    plain = TopState(
        status=status(town.nodes, town.listed),
        gpus=answers.GpusNow(cost_per_hour=12.5, unpriced_gpus=2.0, nodes=town.sensed),
        jobs=town.listed,
        at=NOW,
    )
    return replace(plain, **more)  # type: ignore[arg-type]


def text(cells: object) -> list[str]:
    told: list[Cell] = list(cells)  # type: ignore[call-overload]
    return [plain(cell) for cell in told]


def test_a_node_is_told_by_what_its_gpus_do() -> None:
    town = Town(
        [node("n1", free=5.0, health="XID 79: it fell off the bus", suspect=True)]
    )
    one = sensed(
        "n1", ["j1", "j1", "j2", "", "", "", "", ""], [1.0, 0.5, 0.0] + [0.0] * 5
    )
    town.sensed = [
        one.model_copy(
            update={"signs": ["", "", "", "", "lost", "silent", "taken", ""]}
        )
    ]
    (row,) = nodes.rows(known(town))
    told = text(nodes.cells(row))
    assert told[:5] == ["n1", "alive", "3/8", "█▅▁·×?o·", "50 %"]
    assert told[8].startswith(
        "suspect: cordon it with: corral node cordon --suspects; XID 79"
    )
    tones = [part.tone for part in nodes.heat_bar(town.sensed[0])]
    assert tones == ["good", "good", "bad", "dim", "bad", "warn", "dim", "dim"]


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({}, "alive"),
        ({"liveness": "dead", "cordoned": True}, "dead"),
        ({"cordoned": True}, "cordoned"),
        ({"cordoned": True, "draining": True}, "draining"),
        ({"closed": "drained by Slurm"}, "closed"),
    ],
)
def test_a_node_has_one_word_for_its_state(more: dict[str, Any], state: str) -> None:
    (row,) = nodes.rows(TopState(status=status([node("n1", **more)], [])))
    assert (row.state, row.busy, row.watts, row.heat) == (state, None, None, None)
    assert text(nodes.cells(row))[1] == state


def test_a_gpu_is_told_with_its_job_and_one_that_is_held_in_vain_is_red() -> None:
    town = Town([node("n1")], [job(1)])
    town.sensed = [sensed("n1", ["j1", "j9", "j1,j9", ""], [0.0, 0.9, 0.4, 0.0])]
    rows = gpus.rows(known(town))
    told = [text(gpus.cells(row)) for row in rows]
    assert [one[8] for one in told] == [
        "train-1 j1",
        "j9",
        "train-1 j1 and 1 more",
        "free",
    ]
    assert told[0][9] == "user-1"
    assert [gpus.cells(row)[4][0].tone for row in rows] == [
        "bad",
        "good",
        "warn",
        "dim",
    ]
    idle = ordered(rows, gpus.ORDERS["held but idle"], turned=False)
    assert [row.index for row in idle] == [0, 2, 1, 3]


def test_a_job_is_told_with_its_progress_use_and_reason() -> None:
    beat = {
        "step": 30, "first_step": 0, "until": 120, "loss": 1.0, "samples_per_second": 1.0,
        "data_seconds": 0.0, "compute_seconds": 0.0, "save_seconds": 0.0, "at": NOW,
    }  # fmt: skip
    town = Town(
        [node("n1")],
        [
            job(1, progress=beat, started_at=NOW - 90, held_gpus=4),
            job(2, "QUEUED", reason="2 nodes\nare \x1b[31mtaken"),
        ],
    )
    town.sensed = [sensed("n1", ["j1", "j1"], [0.5, 1.0])]
    told = [text(jobs.cells(row)) for row in jobs.rows(known(town), NOW)]
    assert told[0][:3] == ["j1", "train-1", "RUNNING"]
    assert told[0][5:7] == ["4", "1m"]
    assert told[0][7].split() == ["█▌", "25", "%"]
    assert told[0][8:] == ["75 %", "n1"]
    assert told[1][8:] == ["-", "2 nodes are \ufffd[31mtaken"], (
        "nothing moves the terminal"
    )


def test_names_are_in_the_order_of_their_numbers() -> None:
    assert sorted(["n10", "n2", "gpu-3-a", "n1"], key=natural) == [
        "gpu-3-a",
        "n1",
        "n2",
        "n10",
    ]


@given(
    values=st.lists(st.none() | st.integers(0, 9), max_size=30), turned=st.booleans()
)
def test_what_is_unknown_is_last_either_way_and_equals_stay(
    values: list[int | None], turned: bool
) -> None:
    rows = list(enumerate(values))
    found = ordered(rows, Order("", lambda row: row[1], down=True), turned=turned)
    assert sorted(found) == rows
    told = [value for _, value in found if value is not None]
    assert told == sorted(told, reverse=not turned)
    assert all(value is None for _, value in found[len(told) :])
    places = [at for at, value in found if value is None]
    assert places == sorted(places)


def listing(count: int) -> RowTable[nodes.TopNodeRow]:
    made: RowTable[nodes.TopNodeRow] = RowTable(
        nodes.COLUMNS, nodes.cells, nodes.ORDERS, lambda row: row.words
    )
    made.take(nodes.rows(known(Town.of(count, 0))))
    return made


@given(
    count=st.integers(0, 60),
    height=st.integers(1, 40),
    moves=st.lists(st.integers(-70, 70), max_size=8),
)
def test_the_chosen_row_is_in_sight_wherever_one_goes(
    count: int, height: int, moves: list[int]
) -> None:
    made = listing(count)
    for by in moves:
        made.move(by)
        lines = made.lines(90, height)
        assert len(lines) <= max(2, height)
        assert all(sum(len(part.text) for part in line) <= 90 for line in lines)
        chosen = [line for line in lines if any(part.tone == "chosen" for part in line)]
        assert len(chosen) == bool(count)
        if made.chosen is not None:
            assert plain(chosen[0]).split()[0] == made.chosen.key
            y = lines.index(chosen[0])
            assert made.at(y) == made.cursor


def test_the_chosen_row_stays_chosen_when_rows_come_move_and_go() -> None:
    made = listing(5)
    made.to(3)
    assert made.key == "n3"
    made.turn()
    assert (made.key, made.cursor) == ("n3", 1)
    made.take(nodes.rows(known(Town.of(9, 0))))
    assert (made.key, made.cursor) == ("n3", 5)
    made.take(nodes.rows(known(Town.of(2, 0))))
    assert made.key == "n0", "it is gone: the last of those that are left"
    made.filter("nothing like it")
    assert made.chosen is None
    made.filter("N1")
    assert made.key == "n1"


def test_each_order_sorts_and_has_its_own_arrow() -> None:
    town = Town.of(12, 30, running=40)
    full = known(town)
    tables: tuple[Any, ...] = (
        (nodes.ORDERS, nodes.rows(full), nodes.COLUMNS, nodes.cells),
        (gpus.ORDERS, gpus.rows(full), gpus.COLUMNS, gpus.cells),
        (jobs.ORDERS, jobs.rows(full, NOW), jobs.COLUMNS, jobs.cells),
    )
    for orders, rows, columns, cells in tables:
        titles = {column.title for column in columns}
        assert {order.title for order in orders.values()} <= titles
        made: AnyListing = RowTable(columns, cells, orders)
        made.take(rows)
        seen = set()
        for _ in orders:
            seen.add(made.sort_by_next())
            arrows = plain(made.lines(200, 20)[0])
            assert arrows.count("▲") + arrows.count("▼") == 1
        assert seen == set(orders)


def test_only_rows_in_sight_are_made_into_text() -> None:
    made = listing(1000)
    drawn = []
    cells = made.cells
    made.cells = lambda row: cells(drawn.append(row) or row)  # type: ignore[func-returns-value]
    made.to(500)
    made.lines(100, 30)
    assert len(drawn) == 29


def test_the_header_tells_use_work_money_and_the_worst_of_the_news() -> None:
    town = Town.of(2, 5, running=3)
    town.nodes[1] = node("n1", liveness="dead")
    full = known(town)
    lines = [plain(line) for line in header(full, 120, NOW)]
    assert "16 of 16 used, 0 free" in lines[0]
    assert "busy 1 %" in lines[0]
    assert lines[1].startswith(
        "nodes 1 of 2 alive  jobs 3 running, 2 waiting  12.50 USD an hour"
    )
    assert "2 GPUs without a price" in lines[1]
    assert "local, http://127.0.0.1:1" in lines[2]
    assert "it is done" in plain(header(full, 120, NOW, "it is done")[2])
    full = replace(
        full, link=HeadLink(False, NOW - 65, "no head answers", "run: corral up")
    )
    lost = plain(header(full, 120, NOW, "it is done")[2])
    assert lost.startswith("no answer for 1m: no head answers; shown is ")
    assert lost.endswith("; trying again; run: corral up")
    assert plain(header(TopState(), 80, NOW)[0]) == "asking the head"
    assert (watts_text(999.4), watts_text(13_400), watts_text(2.5e6)) == (
        "999 W",
        "13.4 kW",
        "2.50 MW",
    )


def test_the_header_has_the_words_of_the_status_for_gpus_that_no_job_can_use() -> None:
    town = known(Town(nodes=[node("n1")]))
    assert town.status is not None
    gpus = town.status.gpus.model_copy(update={"taken": 2, "away": 1})
    town = replace(town, status=town.status.model_copy(update={"gpus": gpus}))
    first = plain(header(town, 160, NOW)[0])
    assert ", 1 unavailable now, 2 used by programs outside Corral" in first
