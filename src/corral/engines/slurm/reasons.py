"""Explanations of the reasons that Slurm gives for waiting and ended jobs.

Source: squeue(1) of Slurm 22.05, "JOB REASON CODES" and "JOB STATE CODES".
"""

from datetime import UTC, datetime
from typing import Final

from corral.domain.time_point import MOMENT_FORM

_NODES_RESERVED: Final = (
    "Nodes_required_for_job_are_DOWN,"
    "_DRAINED_or_reserved_for_jobs_in_higher_priority_partitions"
)
_WAITS: Final = {
    "Resources": "its nodes are still used by other Slurm jobs",
    "Priority": "other Slurm jobs have a higher priority",
    "ReqNodeNotAvail": "one of its nodes accepts no work",
    "NodeDown": "one of its nodes is down",
    _NODES_RESERVED: "one of its nodes is down, drained or reserved",
    "Dependency": "it depends on another Slurm job",
    "BeginTime": "its begin time has not come yet",
    "Reservation": "its Slurm reservation has not begun",
    "Licenses": "no licence is free for it",
    "JobHeldUser": "its user holds it; run: scontrol release JOBID",
    "JobHeldAdmin": "an administrator holds it and must run: scontrol release JOBID",
    "JobArrayTaskLimit": "its array runs as many tasks as its limit allows",
    "JobArrayLaunchFailure": "a task of its array could not be started",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "its partition does not allow this number of nodes",
    "PartitionTimeLimit": "its partition does not allow this time limit",
    "BadConstraints": "no node meets its constraints",
    "Cleaning": "Slurm still cleans up its earlier run",
    "Prolog": "Slurm runs the prolog on its nodes",
}
# Where Slurm itself chooses the nodes, a job that waits has none yet.
_WAITS_FOR_SOME: Final = {
    "Resources": "too few suitable nodes are free of other Slurm jobs",
    "ReqNodeNotAvail": "suitable nodes accept no work",
    "NodeDown": "a suitable node is down",
    _NODES_RESERVED: "suitable nodes are down, drained or reserved",
}
_LIMITS: Final = (
    ("QOS", "a limit of its quality of service"),
    ("Assoc", "a limit of its account"),
    ("Max", "a limit of its partition"),
)
_ENDS: Final = {
    "BOOT_FAIL": ("a node of the batch job did not boot", True),
    "CANCELLED": ("the batch job was cancelled in Slurm with scancel", True),
    "DEADLINE": ("the batch job passed its deadline in Slurm", True),
    "NODE_FAIL": ("Slurm reports that a node of the batch job failed", True),
    "OUT_OF_MEMORY": ("the batch job used more memory than Slurm allows", False),
    "PREEMPTED": ("Slurm preempted the batch job for another job", True),
    "REVOKED": ("Slurm revoked the batch job", True),
    "TIMEOUT": ("the batch job reached its time limit in Slurm", True),
}
SLURM: Final = "Slurm"
_ITS_OWN: Final = frozenset(
    {"CANCELLED", "DEADLINE", "PREEMPTED", "REVOKED", "TIMEOUT"}
)
WAITING: Final = frozenset(
    {
        "PENDING",
        "REQUEUED",
        "REQUEUE_HOLD",
        "REQUEUE_FED",
        "RESV_DEL_HOLD",
        "SPECIAL_EXIT",
    }
)
OVER: Final = frozenset({"COMPLETED", "FAILED", *_ENDS})


def why_waits(reason: str, starts_at: float | None, *, slurm_places: bool) -> str:
    """Return a sentence for `corral why`. `starts_at`: the wall-clock time at which
    Slurm expects the job to start. `slurm_places`: Slurm chooses the nodes; else Corral
    has chosen them."""
    code = reason.partition(",")[0]
    wait_texts = {**_WAITS, **_WAITS_FOR_SOME} if slurm_places else _WAITS
    known_text = wait_texts.get(reason) or wait_texts.get(code.strip())
    limit = next((text for mark, text in _LIMITS if code.startswith(mark)), "")
    explanation = known_text or (
        f"{limit} is reached" if limit else "Corral does not know the reason"
    )
    reason_suffix = f" ({reason.strip()})" if reason.strip() not in ("", "None") else ""
    when = (
        ""
        if starts_at is None
        else f"; Slurm expects it to start at {_format_utc_time(starts_at)}"
    )
    return f"the job waits in Slurm: {explanation}{reason_suffix}{when}"


def whose_doing(state: str, *, restarted: bool) -> str:
    """Return SLURM if Slurm, or a user through Slurm, has ended the job; "" if a node
    or the job itself caused the end. `restarted`: Slurm has requeued the job."""
    return SLURM if restarted or state in _ITS_OWN else ""


def how_ended(state: str, *, restarted: bool) -> tuple[str, bool]:
    """Return the cause that Slurm gives for the end, and whether the cluster is at
    fault; ("", True) for a job that ended by itself. `restarted`: Slurm has requeued
    the job."""
    if restarted:
        return (
            "Slurm requeued the batch job, which ends this attempt; Corral starts a "
            "new one",
            True,
        )
    return _ENDS.get(state, ("", True))


def _format_utc_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(MOMENT_FORM)
