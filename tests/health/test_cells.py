"""Ends of ranks that others met, in cells that were written before the classifier read
them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral.domain.attempt import Exit
from corral.domain.diagnosis import RankEnd
from corral.domain.failure_class import FailureKind
from corral.domain.ids import NodeId
from corral.health.gang_failure import failure_of

Cell = Mapping[str, Any]
CELLS: list[Cell] = yaml.safe_load(Path(__file__).with_name("cells.yaml").read_text())


def ends_of(cell: Cell) -> list[RankEnd]:
    return [
        RankEnd(
            rank=rank,
            node=NodeId(f"n{rank + 1}"),
            exit=None if one.get("still") else exit_of(one),
            tail=one.get("tail", ""),
        )
        for rank, one in enumerate(cell["ends"])
    ]


def exit_of(one: Mapping[str, Any]) -> Exit:
    return Exit(
        code=one.get("code"),
        signal=one.get("signal"),
        at=one.get("at", 1.0),
        out_of_memory=one.get("oom", False),
    )


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell["name"])
def test_class_culprit_and_payer_are_right(cell: Cell) -> None:
    failure = failure_of(ends_of(cell))
    assert failure is not None
    kinds = cell["is"] if isinstance(cell["is"], list) else [cell["is"]]
    assert failure.kind in map(FailureKind, kinds), failure.quote
    rank = cell.get("rank", "any" if len(cell["ends"]) > 1 else 0)
    assert rank in ("any", failure.rank)
    assert cell.get("node") in (None, failure.node)
    pays = "cluster" if failure.meaning.is_infra else "user"
    assert cell.get("pays", "any") in ("any", pays)


def test_no_cell_is_there_twice() -> None:
    assert len({cell["name"] for cell in CELLS}) == len(CELLS) >= 250
