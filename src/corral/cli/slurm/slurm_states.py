"""Slurm's names for Corral's job states. No I/O."""

from collections.abc import Mapping
from typing import Any, Final

from corral.wire.slurm.reasons import slurm_reason
from corral.wire.slurm.slurm_errors import SlurmRefusal

COMPACT: Final = {
    "PENDING": "PD",
    "CONFIGURING": "CF",
    "RUNNING": "R",
    "COMPLETING": "CG",
    "REQUEUED": "RQ",
    "COMPLETED": "CD",
    "CANCELLED": "CA",
    "FAILED": "F",
    "TIMEOUT": "TO",
    "NODE_FAIL": "NF",
    "PREEMPTED": "PR",
    "DEADLINE": "DL",
    "OUT_OF_MEMORY": "OOM",
    "SUSPENDED": "S",
    "BOOT_FAIL": "BF",
}
ACTIVE: Final = frozenset(
    {"PENDING", "CONFIGURING", "RUNNING", "COMPLETING", "REQUEUED"}
)
_STATES: Final = {
    "HELD": "PENDING",
    "QUEUED": "PENDING",
    "SUSPENDED": "PENDING",
    "STARTING": "CONFIGURING",
    "RUNNING": "RUNNING",
    "STOPPING": "COMPLETING",
    "RECOVERING": "REQUEUED",
    "DONE": "COMPLETED",
    "CANCELLED": "CANCELLED",
}
_FAILURES: Final = {
    "TimeLimit": "TIMEOUT",
    "NodeFail": "NODE_FAIL",
    "Deadline": "DEADLINE",
    "OutOfMemory": "OUT_OF_MEMORY",
}


def state_of(job: Mapping[str, Any]) -> str:
    """Return the long name of the job's state in Slurm."""
    if job["state"] == "FAILED":
        return _FAILURES.get(job["reason_code"], "FAILED")
    return _STATES[job["state"]]


def reason_of(job: Mapping[str, Any]) -> str:
    """Return why the job waits or failed, as Slurm's reason where Slurm has one."""
    return slurm_reason(job["state"], str(job["reason_code"]))


def states_named(text: str) -> frozenset[str] | None:
    """Parse states such as pd,RUNNING, and return their long names; None for all
    states.

    Raises: SlurmRefusal for an unknown state.
    """
    by_short = {short_state: state for state, short_state in COMPACT.items()}
    state_names: set[str] = set()
    for state_text in text.upper().split(","):
        if state_text == "ALL":
            return None
        state = by_short.get(state_text, state_text)
        if state not in COMPACT:
            raise SlurmRefusal(
                f"Invalid job state specified: {state_text}",
                f"Valid job states include: {', '.join(COMPACT)}",
            )
        state_names.add(state)
    return frozenset(state_names)


def exit_text(job: Mapping[str, Any]) -> str:
    """Return code:signal of the job, as sacct prints it."""
    code = job["exit_code"]
    if state_of(job) == "OUT_OF_MEMORY":
        return "0:125"  # Slurm's own code for it, whatever signal ended the process
    if code is None:
        return "0:15" if job["state"] == "CANCELLED" and job["started_at"] else "0:0"
    return f"{code}:0" if code >= 0 else f"0:{-code}"
