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
    "Resources": "the nodes that it was given are taken by other jobs of Slurm's",
    "Priority": "other jobs of Slurm's go first",
    "ReqNodeNotAvail": "a node that it was given takes no work",
    "NodeDown": "a node that it was given is down",
    _NODES_RESERVED: "a node that it was given is down, drained or kept for others",
    "Dependency": "it waits for another job of Slurm's",
    "BeginTime": "its time has not come",
    "Reservation": "its reservation has not begun",
    "Licenses": "there is no licence for it",
    "JobHeldUser": "it is held: scontrol release",
    "JobHeldAdmin": "an administrator holds it: scontrol release",
    "JobArrayTaskLimit": "as many of its array run as may at once",
    "JobArrayLaunchFailure": "a task of its array could not be started",
    "PartitionDown": "its partition is down",
    "PartitionInactive": "its partition is inactive",
    "PartitionNodeLimit": "its partition allows no job of this number of nodes",
    "PartitionTimeLimit": "its partition allows no job of this length",
    "BadConstraints": "no node can ever do what it asks for",
    "Cleaning": "Slurm cleans up after it",
    "Prolog": "the nodes are being made ready",
}
# Where Slurm itself chooses the nodes, a job that waits has none yet.
_WAITS_FOR_SOME: Final = {
    "Resources": "too few nodes that would do are free of other jobs of Slurm's",
    "ReqNodeNotAvail": "nodes that would do take no work",
    "NodeDown": "a node that would do is down",
    _NODES_RESERVED: "nodes that would do are down, drained or kept for others",
}
_LIMITS: Final = (
    ("QOS", "a limit of its quality of service"),
    ("Assoc", "a limit of its account"),
    ("Max", "a limit of its partition"),
)
_ENDS: Final = {
    "BOOT_FAIL": ("a node did not boot", True),
    "CANCELLED": ("it was cancelled in Slurm, by scancel", True),
    "DEADLINE": ("its deadline in Slurm has passed", True),
    "NODE_FAIL": ("a node of it has failed, says Slurm", True),
    "OUT_OF_MEMORY": ("it took more memory than Slurm allows it", False),
    "PREEMPTED": ("Slurm has preempted it for another job", True),
    "REVOKED": ("Slurm has taken it back", True),
    "TIMEOUT": ("its time limit in Slurm has passed", True),
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
        f"{limit} is reached" if limit else "Slurm names no reason that Corral knows"
    )
    reason_suffix = f" ({reason.strip()})" if reason.strip() not in ("", "None") else ""
    when = (
        ""
        if starts_at is None
        else f"; Slurm expects it to start at {_format_utc_time(starts_at)}"
    )
    return f"it waits in Slurm: {explanation}{reason_suffix}{when}"


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
            "Slurm has requeued it: an attempt is begun once, the next is another",
            True,
        )
    return _ENDS.get(state, ("", True))


def _format_utc_time(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime(MOMENT_FORM)
