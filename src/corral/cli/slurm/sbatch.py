"""sbatch: submission of a batch script as a job."""

import getpass
import os
import secrets
import socket
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from corral.boot.clock import SystemClock
from corral.cli.slurm.http_client import HeadClient
from corral.cli.slurm.job_columns import moment
from corral.domain.errors import Refusal, Unreachable
from corral.wire.slurm.ids import number_of
from corral.wire.slurm.sbatch import BatchSubmission, Here, read_batch
from corral.wire.slurm.sbatch_options import SBATCH
from corral.wire.slurm.slurm_errors import SlurmRefusal

MOST_SCRIPT_BYTES = 4 * 1024 * 1024


def main(words: Sequence[str]) -> int:
    typed = SBATCH.read(words)
    if typed.has("help") or typed.has("usage"):
        print(SBATCH.usage())
        return 0
    script, name = (None, "") if typed.has("wrap") else read_script(typed.rest[:1])
    is_file = not typed.has("wrap") and bool(typed.rest)
    path = os.path.abspath(typed.rest[0]) if is_file else ""
    batch = read_batch(words, script, here(), name=name, path=path)
    if not batch.read.has("quiet"):
        for note in batch.notes:
            print(f"sbatch: {note}", file=sys.stderr)
    head = HeadClient()
    if batch.read.has("test-only"):
        return _print_dry_run(head, batch)
    return _submitted(head, batch)


def here() -> Here:
    """Return where and when this process submits: its directory, host, time and
    environment."""
    now = datetime.fromtimestamp(SystemClock().wall(), UTC).astimezone()
    directory = os.environ.get("PWD", "")
    if (
        not directory
        or not os.path.isdir(directory)
        or not os.path.samefile(directory, ".")
    ):
        directory = os.getcwd()
    return Here(
        directory=directory,
        host=socket.gethostname(),
        now=now,
        environment=dict(os.environ),
    )


def read_script(rest: Sequence[str]) -> tuple[str, str]:
    """Read the script that is named, else standard input. Return (text, name).

    Raises: SlurmRefusal if the script cannot be read.
    """
    if not rest:
        return sys.stdin.read(), "sbatch"
    path = Path(rest[0])
    try:
        with path.open("rb") as file:
            data = file.read(MOST_SCRIPT_BYTES)
        return data.decode(), path.name
    except OSError:
        raise SlurmRefusal(f"Unable to open file {rest[0]}") from None
    except UnicodeDecodeError:
        raise SlurmRefusal(f"{rest[0]} is not a text file in UTF-8") from None


def _submitted(head: HeadClient, batch: BatchSubmission) -> int:
    spec = with_singleton(head, batch)
    jobs = submit(head, spec, hold=batch.read.has("hold"))
    number = number_of(jobs[0]["array"] or jobs[0]["id"])
    if batch.read.has("parsable"):
        print(number)
    elif not batch.read.has("quiet"):
        print(f"Submitted batch job {number}")
    sys.stdout.flush()
    if not batch.read.has("wait"):
        return 0
    codes = [_code_of(head.until_over(job["id"])) for job in jobs]
    return max(codes)


def submit(
    head: HeadClient, spec: dict[str, Any], *, hold: bool
) -> list[dict[str, Any]]:
    """Submit the spec and return its jobs. With `hold`, no job starts before it is
    released.

    Raises: SlurmRefusal, in Slurm's words.
    """
    body = {
        "specs": [spec],
        "key": secrets.token_hex(16),
        **({"held": True} if hold else {}),
    }
    try:
        return list(head.ask("POST", "/v1/jobs", body=body)["jobs"])
    except Unreachable as error:
        raise SlurmRefusal(
            "Batch job submission failed: Unable to contact slurm controller (connect failure)",
            hint=f"{error.message}; {error.hint}",
        ) from None
    except Refusal as error:
        raise SlurmRefusal(
            f"Batch job submission failed: {error.message}", hint=error.hint
        ) from None


def with_singleton(head: HeadClient, batch: BatchSubmission) -> dict[str, Any]:
    """Return the spec of the batch job. With --dependency=singleton, the spec also
    waits for the end of the user's other unfinished jobs of the same name."""
    if not batch.singleton:
        return batch.spec
    own_name = getpass.getuser()
    other_job_ids = [
        job["array"] or job["id"]
        for job in head.jobs(everything=False)
        if job["owner"] == own_name and batch.spec["name"] == _base_job_name(job)
    ]
    dependencies = [{"job": id, "on": "ended"} for id in dict.fromkeys(other_job_ids)]
    return {**batch.spec, "after": [*batch.spec.get("after", []), *dependencies]}


def _base_job_name(job: dict[str, Any]) -> str:
    index = job["array_index"]
    return (
        str(job["name"]).removesuffix(f"_{index}")
        if index is not None
        else str(job["name"])
    )


def _code_of(job: dict[str, Any]) -> int:
    return 0 if job["state"] == "DONE" else (job["exit_code"] or 1)


def _print_dry_run(head: HeadClient, batch: BatchSubmission) -> int:
    """Print the plan of a submission with --test-only, to standard error as Slurm does.
    Return the exit code."""
    body = {"specs": [batch.spec], "key": "plan"}
    try:
        planned = head.ask("POST", "/v1/jobs", {"dry_run": 1}, body)["plan"][0]
    except Refusal as error:
        raise SlurmRefusal(
            f"allocation failure: {error.message}", hint=error.hint
        ) from None
    now = SystemClock().wall()
    starts = planned["forecast"]["starts"] if planned["forecast"] else None
    later = (starts["high_seconds"] or starts["low_seconds"]) if starts else 0.0
    nodes = ",".join(seat["node"] for seat in planned["seats"])
    cpus = max(1, round(planned["shape"]["cpus_per_node"])) * planned["shape"]["nodes"]
    nodes_text = f"on nodes {nodes} " if nodes else ""
    start_text = (
        moment(now + later) if planned["starts_now"] or starts else "an unknown time"
    )
    print(
        f"sbatch: Job to start at {start_text} using {cpus} processors {nodes_text}in partition "
        f"{batch.plan.partition}",
        file=sys.stderr,
    )
    return 0
