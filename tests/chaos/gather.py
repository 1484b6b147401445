"""Reads what is left after a chaos run: evidence files, the head's records, stores,
backups."""

import json
import re
import sqlite3
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import corral
from tests.chaos.clients import all_jobs
from tests.chaos.history import AttemptRecord, JobRecord, RankEvidence

_END: Final = re.compile(r"\S+ is (DONE|FAILED|CANCELLED)\b")  # as the text of an event


def read_evidence(folder: Path) -> tuple[tuple[RankEvidence, ...], tuple[str, ...]]:
    """Evidence of all ranks that have begun, and what they found wrong."""
    found, wrong = [], []
    for file in sorted(folder.glob("*.jsonl")):
        lines = [json.loads(line) for line in file.read_text().splitlines()]
        wrong += [
            f"{file.name}: {one['text']}" for one in lines if one["what"] == "wrong"
        ]
        lines = [one for one in lines if one["what"] != "wrong"]
        if lines:
            found.append(evidence_of(lines))
    return tuple(found), tuple(wrong)


def evidence_of(lines: Sequence[Mapping[str, Any]]) -> RankEvidence:
    """`lines` of one file, the first of them its begin."""
    begin = lines[0]
    steps = {kind: 0 for kind in ("committed", "step")}
    for one in lines:
        if one["what"] in steps:
            steps[one["what"]] = max(steps[one["what"]], int(one["step"]))
    end = next((int(one["code"]) for one in lines if one["what"] == "end"), None)
    return RankEvidence(
        job=begin["job"],
        attempt=begin["attempt"],
        node=begin["node"],
        rank=begin["rank"],
        gpus=tuple(begin["gpus"]),
        beats=tuple(float(one["at"]) for one in lines),
        resumed_step=begin["resumed_step"],
        committed_step=steps["committed"],
        last_step=steps["step"],
        was_asked_to_stop=any(one["what"] == "stop" for one in lines),
        end=end,
    )


def read_jobs(root: Path) -> tuple[JobRecord, ...]:
    """The head's records of all jobs. Raises: CorralError."""
    ends: dict[str, list[str]] = defaultdict(list)
    with corral.Client(dir=root) as client:
        jobs = all_jobs(client)
        # after the jobs: an end that is listed has its event
        for event in client.events():
            if event.job and (end := _END.match(event.text)):
                ends[event.job].append(end.group(1))
        return tuple(_record(client, job.id, ends[job.id]) for job in reversed(jobs))


def _record(client: "corral.Client", id: str, ends: Sequence[str]) -> JobRecord:
    job = client.job(id)
    attempts = tuple(
        AttemptRecord(
            number=one.number,
            nodes=tuple(one.nodes),
            placed_at=one.placed_at,
            ended_at=one.ended_at,
            cause=one.cause,
            evidence=f"{one.culprit}: {one.evidence}",
            exit_code=one.exit_code,
            resume_step=one.resume_step,
        )
        for one in job.attempts
    )
    saves = [one for one in client.checkpoints(id) if not one.quarantined]
    return JobRecord(
        job=id,
        name=job.name,
        state=job.state,
        reason=job.reason,
        exit_code=job.exit_code,
        attempt=job.attempt,
        ended_at=job.ended_at,
        attempts=attempts,
        saves=tuple((one.attempt, one.step) for one in saves),
        ends=tuple(ends),
    )


def check_store(database: Path) -> tuple[str, tuple[str, ...]]:
    """("ok" or what SQLite finds wrong, ids of its jobs) of a store that no head has
    open."""
    with closing(sqlite3.connect(database)) as store:
        words = [str(row[0]) for row in store.execute("PRAGMA integrity_check")]
        jobs = tuple(str(row[0]) for row in store.execute("SELECT id FROM jobs"))
    return "; ".join(words), jobs
