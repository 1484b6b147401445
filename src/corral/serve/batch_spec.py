"""Spec of the job that runs a batch, and what its command says of the batch."""

import re
import secrets
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from corral.serve.batch_options import GATEWAY_VARIABLE

INPUT: Final = "input.jsonl"
NAME_PREFIX: Final = "batch-"
# kills of the program itself; faults of the cluster are counted apart
RETRIES: Final = {"user": 20, "infra": 1000}
_MODULE: Final = "corral.serve.batch"
_STEM_LETTERS: Final = 40


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchJob:
    """A batch as the command of its job describes it.

    Args:
        folder: Name of the folder in which its answers are kept.
        deadline: Seconds since 1970; None: no deadline.
        concurrency: Most requests at once; None: chosen by the program.
        batch: Id of the batch, whose input the program fetches, and whose progress and
            results it reports.
    """

    service: str
    model: str
    lines: int
    folder: str
    deadline: float | None = None
    concurrency: int | None = None
    batch: str | None = None

    @property
    def command(self) -> str:
        """Shell command of the job. It runs with the Python of the node's agent, which
        has Corral."""
        options = {
            "service": self.service,
            "model": self.model,
            "id": self.folder,
            "lines": self.lines,
            "deadline": None if self.deadline is None else f"{self.deadline:.0f}",
            "concurrency": self.concurrency,
            "batch": self.batch,
        }
        words = [
            word
            for name, value in options.items()
            if value is not None
            for word in (f"--{name}", str(value))
        ]
        return f'exec "$CORRAL_PYTHON" -P -m {_MODULE} {INPUT} {shlex.join(words)}'


def batch_of(command: str | None) -> BatchJob | None:
    """Return the batch that a job's command runs; None for other jobs, and for those
    whose command may not be seen."""
    try:
        words = shlex.split(command or "")
        begin = words.index(_MODULE) + 2
    except ValueError:
        return None
    options = dict(zip(words[begin::2], words[begin + 1 :: 2], strict=False))
    try:
        return BatchJob(
            service=options["--service"],
            model=options["--model"],
            lines=int(options["--lines"]),
            folder=options["--id"],
            deadline=float(options["--deadline"]) if "--deadline" in options else None,
            concurrency=int(options["--concurrency"])
            if "--concurrency" in options
            else None,
            batch=options.get("--batch"),
        )
    except (KeyError, ValueError):  # a command that a person has written
        return None


def spec_of_batch(
    batch: BatchJob,
    *,
    name: str,
    gateway_url: str,
    queue: str | None,
    checkpoint: str | None,
) -> dict[str, Any]:
    """Return the spec of the job of a batch.

    Args:
        checkpoint: Path for the answers; None: the cluster's shared path.
    """
    fields: Mapping[str, Any] = {
        "name": name,
        "run": batch.command,
        "resources": {"cpu": 1},
        "queue": queue,
        "priority": "low",
        "preemptible": True,
        "token": "own",
        "env": {GATEWAY_VARIABLE: f"{gateway_url}/v1"},
        "checkpoint": {"path": checkpoint} if checkpoint else None,
        "retry": dict(RETRIES),
        "disconnect": "replace",
    }
    return {key: value for key, value in fields.items() if value is not None}


def name_of_batch(file: str) -> str:
    """Return a name for the batch of a file. Four random digits make it unique."""
    stem = re.sub(r"[^A-Za-z0-9]+", "-", Path(file).stem).strip("-")[:_STEM_LETTERS]
    return f"{NAME_PREFIX}{stem or 'input'}-{secrets.token_hex(2)}"
