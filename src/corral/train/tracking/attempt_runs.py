"""Continuation of a job's tracked runs by its next attempt."""

import os
import time
from collections.abc import Mapping, MutableMapping
from contextlib import suppress
from pathlib import Path
from typing import Final

from corral.train.save.saver import say
from corral.train.tracking.event_file import hide_from_step

MLFLOW_RUN: Final = "MLFLOW_RUN_ID"
_RUN_FILE: Final = "mlflow_run_id"


def continue_mlflow_run(env: MutableMapping[str, str], rank: int) -> None:
    """Set the MLflow run of the attempt before in the environment, so that
    `mlflow.start_run()` continues it. Only rank 0 has a run."""
    folder = env.get("CORRAL_TRACKING_DIR")
    if folder is None or rank != 0 or MLFLOW_RUN in env:
        return
    with suppress(OSError):
        env[MLFLOW_RUN] = (Path(folder) / _RUN_FILE).read_text().strip()


def record_mlflow_run(env: Mapping[str, str], run_id: str) -> None:
    """Record the MLflow run of this attempt for the next one."""
    folder = env.get("CORRAL_TRACKING_DIR")
    if folder is None or env.get(MLFLOW_RUN) == run_id:
        return
    with suppress(OSError):
        Path(folder).mkdir(parents=True, exist_ok=True)
        new_file = Path(folder) / f"{_RUN_FILE}.{os.getpid()}"
        new_file.write_text(run_id)
        new_file.replace(Path(folder) / _RUN_FILE)


def hide_lost_steps(env: Mapping[str, str], step: int) -> None:
    """Hide in TensorBoard what earlier attempts wrote from `step` on, the step from
    which this attempt resumes."""
    folder = env.get("CORRAL_TENSORBOARD_DIR")
    if folder is None:
        return
    now = time.clock_gettime(time.CLOCK_REALTIME)
    attempt = env.get("CORRAL_ATTEMPT", "1")
    try:
        hide_from_step(Path(folder), step, now=now, name=f"attempt-{attempt}")
    except OSError as error:
        say(f"TensorBoard shows steps that were lost; {folder}: {error.strerror}")
