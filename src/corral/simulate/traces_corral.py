"""Corral's own history: what `corral ps --all --json` prints."""

import json
from collections.abc import Iterable, Iterator

from corral.simulate.traces_job import LoggedJob


def jobs_of_corral(lines: Iterable[str]) -> Iterator[LoggedJob]:
    """Every job of the listing; how long it ran is told from its first start to its end."""
    for job in json.loads("".join(lines))["jobs"]:
        begun, ended = job["started_at"], job["ended_at"]
        yield LoggedJob(
            name=job["id"],
            queue=job["queue"],
            submitted=job["submitted_at"],
            duration=-1.0 if begun is None or ended is None else max(0.0, ended - begun),
            gpus=job["shape"]["nodes"] * job["shape"]["gpus_per_node"],
            limit=job.get("max_duration_seconds") or 0.0,
            user=job["owner"],
            kind=job["name"],
        )
