"""How long a report of 10,000 jobs takes, over HTTP, by each of what it can be by.

Run: .venv/bin/python benchmarks/reports.py [--jobs 10000] [--write]

The store of an embedded cluster is filled with so many jobs that are over, of 50 users in 20
queues, with accounts over the last seven days; then the head is asked for reports as a page would
ask. To reach (issue 6): 200 ms.
"""

import argparse
import asyncio
import json
import random
import statistics
import subprocess
import time
import urllib.request
from pathlib import Path

from embedded import CORRAL, cluster, keep, report

from corral.domain.ids import AttemptNumber, QueueName, UserName, job_id
from corral.domain.job import Job, JobSpec
from corral.domain.job_states import JobState
from corral.domain.ledger import AMOUNTS, UsageAmounts, UsageRecord, day_of
from corral.domain.resources import Resources
from corral.domain.world import Changes
from corral.store.sqlite import SqliteStore

ASKS = (("usage", "job"), ("goodput", "user"), ("cost", "queue"), ("waste", "gpu-type"))
TIMES, AT_ONCE = 20, 1000


def rows(number: int, dice: random.Random) -> tuple[Job, UsageRecord]:
    queue, user = (
        QueueName(f"q{dice.randrange(20)}"),
        UserName(f"u{dice.randrange(50)}"),
    )
    spec = JobSpec(
        name=f"train-{number}",
        run="true",
        queue=queue,
        resources=Resources(gpu_millis=8000),
    )
    now = time.time()
    job = Job(
        id=job_id(number), spec=spec, owner=user, submitted=number, submitted_at=now,
        state=JobState.DONE, since=now,
    )  # fmt: skip
    account = UsageRecord(
        day=day_of(now) - dice.randrange(7),
        queue=queue,
        user=user,
        gpu_type=dice.choice(["h100", "a100", "b200"]),
        amounts=UsageAmounts(**{name: dice.uniform(0, 1e5) for name in AMOUNTS}),
        job=job.id,
        attempt=AttemptNumber(1),
        name=spec.name,
    )
    return job, account


async def fill(path: Path, jobs: int) -> None:
    store, dice = SqliteStore(path), random.Random(6)
    world = await store.lead()
    for first in range(1_000_000, 1_000_000 + jobs, AT_ONCE):
        made = [
            rows(number, dice) for number in range(first, first + min(AT_ONCE, jobs))
        ]
        changes = Changes(
            jobs=tuple(job for job, _ in made),
            accounts=tuple(account for _, account in made),
        )
        await store.commit(world.term, changes)
    await store.close()


def ask(root: Path, kind: str, by: str) -> tuple[float, int]:
    """(seconds, bytes) of one answer."""
    url = json.loads((root / "head.json").read_text())["url"]
    request = urllib.request.Request(f"{url}/v1/reports/{kind}?by={by}")
    request.add_header(
        "Authorization", f"Bearer {(root / 'token').read_text().strip()}"
    )
    began = time.perf_counter()
    with urllib.request.urlopen(request) as answer:
        size = len(answer.read())
    return time.perf_counter() - began, size


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--jobs", type=int, default=10_000)
    options.add_argument("--write", action="store_true")
    asked = options.parse_args()
    shape = ("--nodes", "1", "--gpus", "1", "--pretend")
    with cluster(*shape) as (root, _):
        subprocess.run([CORRAL, "down", "--dir", str(root), "-y"], check=True)
        asyncio.run(fill(root / "corral.db", asked.jobs))
        subprocess.run([CORRAL, "up", "--dir", str(root), *shape], check=True)
        told = [row(root, kind, by) for kind, by in ASKS]
    page = report(f"Reports of {asked.jobs:,} jobs", told)
    keep("reports", page, asked.write)


def row(root: Path, kind: str, by: str) -> tuple[str, str, str]:
    found = [ask(root, kind, by) for _ in range(TIMES)]
    seconds = sorted(one for one, _ in found)
    middle, worst = statistics.median(seconds), seconds[-1]
    figure = f"{middle * 1000:.0f} ms, {worst * 1000:.0f} at most of {TIMES}"
    return f"{kind} by {by} ({found[0][1] / 1e6:.2f} MB)", figure, "200 ms"


if __name__ == "__main__":
    main()
