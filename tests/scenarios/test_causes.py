"""Real programs fail in a real cluster in each of these ways: the class and the culprit
are right, and told within seconds. What injects touches the machine alone; what reads
knows no names of it."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from corral.wire import api
from tests.scenarios.house import House, house

pytestmark = [pytest.mark.xdist_group("causes"), pytest.mark.train]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A program, and what its end is to be read as (causes.yaml says of each field)."""

    name: str
    failure: str
    culprit: str = "rank 0"
    setup: str = ""
    before: str = ""
    run: str = ""
    python: str = ""
    gang: str = ""

    @property
    def ranks(self) -> int:
        return 2 if self.gang else 1

    @property
    def command(self) -> str:
        """Programs are files, so that their tracebacks are real."""
        if self.run:
            return self.run
        code = self.python or f"{HEAD}{self.gang}{LOOP}"
        before = f"{self.before}; " if self.before else ""
        return f"{before}cat > p.py <<'END'\n{code}\nEND\n$CORRAL_PYTHON p.py"


HEAD = """
import os, sys, time, signal, datetime
import torch, torch.distributed as dist
dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=6))
rank, one = dist.get_rank(), torch.ones(1)
dist.all_reduce(one)
"""
LOOP = """
for _ in range(1000):
    dist.all_reduce(one)
    time.sleep(0.02)
"""
CELLS = [
    Cell(**row)
    for row in yaml.safe_load(Path(__file__).with_name("causes.yaml").read_text())
]


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    with house("--nodes", "2", "--gpus", "2") as made:
        yield made


@pytest.fixture(scope="module")
def ended(here: House) -> dict[str, api.JobDetail]:
    """All of them, side by side as the cluster has room."""
    jobs = {}
    for cell in CELLS:
        more = {"setup": cell.setup} if cell.setup else {}
        jobs[cell.name] = here.submit(
            cell.name,
            cell.command,
            nodes=cell.ranks,
            resources={"gpu": 1},
            retry={"user": 0, "infra": 0},
            max_duration="5m",
            **more,
        )
    return {name: here.until_over(job, 600) for name, job in jobs.items()}


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.name)
def test_the_class_and_the_culprit_are_right_and_told_soon(
    here: House, ended: dict[str, api.JobDetail], cell: Cell
) -> None:
    job = ended[cell.name]
    attempt = job.attempts[-1]
    assert attempt.failure == cell.failure, attempt.quote
    assert attempt.culprit.startswith(cell.culprit), attempt.culprit
    assert attempt.next
    assert attempt.ended_at is not None


def test_why_tells_cause_culprit_evidence_and_what_to_do(
    here: House, ended: dict[str, api.JobDetail]
) -> None:
    said = here.ok("why", ended["rank-memory"].id)
    assert "gpu-out-of-memory, rank 1 on n" in said
    assert "its log: " in said
    assert "to do: use a smaller micro batch" in " ".join(said.split())
    failed = json.loads(here.ok("why", ended["rank-memory"].id, "--json"))["failed"]
    assert failed["failure"] == "gpu-out-of-memory"
