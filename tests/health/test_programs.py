"""Ends of programs that nobody here wrote: class, culprit, payer, evidence and advice.

Each table was written down before the reader saw it, except for h
(benchmarks/results/causes-2026-11-25.md and causes-2026-11-28.md have how it read them
at first). `is`: the classes that are right, "none" for no failure; `quote`: any of
these stands in the evidence, "" for none at all; `next`: any of these stands in the
advice. A row "@repeat N TEXT" stands for N rows.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from corral.agent.failure_output import tail_of
from corral.domain.attempt import Exit
from corral.domain.diagnosis import RankEnd
from corral.domain.failure_class import Failure
from corral.domain.ids import NodeId
from corral.health.gang_failure import failure_of
from corral.health.pattern_form import LINE_CHARACTERS
from corral.health.patterns import PATTERNS

Cell = Mapping[str, Any]
TABLES: Final = ("found", "more", "classes", *"abcdefghi")
CELLS: Final[list[Cell]] = [
    cell
    for table in TABLES
    for cell in yaml.load(  # the C loader reads the tables ten times as fast
        Path(__file__).with_name(f"programs_{table}.yaml").read_text(),
        Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader),
    )
]
REPEAT: Final = re.compile(r"@repeat (\d+) (.*)")


def rows_of(tail: str) -> Iterator[str]:
    for row in tail.replace("\\t", "\t").split("\n"):
        repeat = REPEAT.match(row)
        yield from [row] if repeat is None else [repeat[2]] * int(repeat[1])


def ends_of(cell: Cell, folder: Path) -> list[RankEnd]:
    """The ends as the agent sends them: with what is left of each log."""
    ends = []
    for rank, one in enumerate(cell["ends"]):
        log = folder / f"rank-{rank}.log"
        log.write_text("\n".join(rows_of(one.get("tail", ""))))
        exit = Exit(
            code=one.get("code"),
            signal=one.get("signal"),
            at=one.get("at", 1.0),
            out_of_memory=one.get("oom", False),
        )
        node = NodeId(f"n{rank + 1}")
        ends.append(RankEnd(rank=rank, node=node, exit=exit, tail=tail_of(log)))
    return ends


def faults(cell: Cell, failure: Failure) -> Iterator[str]:
    """What of it is not right."""
    if failure.kind not in cell["is"]:
        yield f"class {failure.kind}"
    if cell["rank"] not in ("any", failure.rank):
        yield f"rank {failure.rank}"
    if cell["pays"] not in ("any", "cluster" if failure.meaning.is_infra else "user"):
        yield "payer"
    quotes = cell.get("quote", [failure.quote])
    if not any(
        one.lower() in failure.quote.lower() if one else not failure.quote
        for one in quotes
    ):
        yield f"evidence {failure.quote!r}"
    if cell.get("place", failure.place) != failure.place:
        yield f"place {failure.place!r}"
    if not any(words in failure.next for words in cell.get("next", [""])):
        yield f"advice {failure.next!r}"


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell["name"])
def test_a_program_is_read_as_one_who_knows_it_would(
    cell: Cell, tmp_path: Path
) -> None:
    failure = failure_of(ends_of(cell, tmp_path))
    if failure is None:
        assert cell["is"] == ["none"]
        return
    assert list(faults(cell, failure)) == []


def test_no_name_is_there_twice() -> None:
    assert len({cell["name"] for cell in CELLS}) == len(CELLS) >= 450


def test_the_hints_of_a_pattern_leave_out_no_line_that_it_matches() -> None:
    lines = {
        row.strip()[:LINE_CHARACTERS]
        for cell in CELLS
        for end in cell["ends"]
        for row in rows_of(end.get("tail", ""))
    }
    for pattern in PATTERNS:
        for line in lines if pattern.hints else ():
            found = pattern.words.search(line) is not None
            assert found == pattern.matches(line, line.lower()), line
