"""Options of a batch's program: of its command line and of its environment."""

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from corral.serve.batch_delivery import BatchDelivery

# as clients of OpenAI call it; it ends in /v1
GATEWAY_VARIABLE: Final = "OPENAI_BASE_URL"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchOptions:
    """Settings of one attempt.

    Args:
        state_folder: Folder for answers, which all attempts of the job see.
        work_folder: Work folder of the attempt, for progress and results.
        deadline: Seconds since 1970; None: no deadline.
        concurrency: Most requests at once; None: chosen by the program.
        batch: Id of the batch at the head; None: it has none.
    """

    file: Path
    service: str
    model: str
    gateway_url: str
    key: str
    state_folder: Path
    work_folder: Path
    deadline: float | None = None
    concurrency: int | None = None
    shim_path: str = ""
    batch: str | None = None

    def delivery(self, is_over: Callable[[], bool]) -> BatchDelivery | None:
        """Return the exchange with the head; None for a batch that it has not."""
        if self.batch is None:
            return None
        return BatchDelivery(
            gateway_url=self.gateway_url,
            key=self.key,
            batch=self.batch,
            is_over=is_over,
        )


def state_folder_of(batch_id: str, environment: dict[str, str]) -> Path:
    """Return the folder for the answers: below the checkpoint path of the job, else
    below the cluster's shared path, else in the work folder, which the next attempt does
    not see."""
    checkpoints = environment.get("CORRAL_CHECKPOINT_PATH")
    shared = environment.get("CORRAL_SHARED")
    if checkpoints:
        return Path(checkpoints) / f"batch-{batch_id}"
    if shared:
        return Path(shared) / f"batch-{batch_id}"
    return Path.cwd() / "batch"


def parsed_options(arguments: list[str] | None = None) -> BatchOptions:
    """Return the options of the command line and the environment."""
    parser = argparse.ArgumentParser(prog="python -m corral.serve.batch")
    parser.add_argument("file", type=Path, help="requests, one a line")
    parser.add_argument("--service", required=True, help="name of the service")
    parser.add_argument("--model", help="model of lines that name none")
    parser.add_argument("--id", default="batch", help="name of the folder of answers")
    parser.add_argument("--deadline", type=float, help="seconds since 1970")
    parser.add_argument("--concurrency", type=int, help="most requests at once")
    parser.add_argument("--batch", help="id of the batch at the head")
    parser.add_argument("--lines", type=int, help="number of requests, for listings")
    options = parser.parse_args(arguments)
    environment = dict(os.environ)
    gateway_url = environment.get(GATEWAY_VARIABLE, "")
    return BatchOptions(
        file=options.file,
        service=options.service,
        model=options.model or options.service,
        gateway_url=gateway_url.rstrip("/").removesuffix("/v1"),
        key=environment.get("CORRAL_TOKEN", ""),
        state_folder=state_folder_of(options.id, environment),
        work_folder=Path.cwd(),
        deadline=options.deadline,
        concurrency=options.concurrency,
        shim_path=environment.get("CORRAL_SOCKET", ""),
        batch=options.batch,
    )
