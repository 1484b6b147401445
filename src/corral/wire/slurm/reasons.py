"""Reasons in Slurm's words: why a job waits or has failed. Pure."""

from typing import Final

_REASONS: Final = {
    "": "None",
    "Requeued": "None",
    "RetryDelay": "BeginTime",
    "Preempting": "Resources",
    "Engine": "Resources",
    "ArrayLimit": "JobArrayTaskLimit",
    "QueueLimit": "AssocGrpGRES",
    "NothingToBorrow": "AssocGrpGRES",
    "UserLimit": "QOSMaxGRESPerUser",
    "Order": "Priority",
    "Stopped": "PartitionDown",
    "Promised": "Priority",
    "Topology": "Resources",
    "Pinned": "ReqNodeNotAvail",
    "NoNodes": "PartitionNodeLimit",
    "NeverFits": "BadConstraints",
    "BadTopology": "BadConstraints",
    "NoAccount": "BadConstraints",
    "Quarantined": "JobHeldAdmin",
    "Suspend": "JobHeldUser",
    "NonZeroExit": "NonZeroExitCode",
    "CrashLoop": "NonZeroExitCode",
    "NodeFail": "NodeDown",
    "Deadline": "DeadLine",
    "Cancel": "None",
    "OutOfMemory": "OutOfMemory",
}


def slurm_reason(state: str, code: str) -> str:
    """The word of Slurm's for a job in a state of Corral's, by its reason's code; the
    code itself where Slurm has none, and None where it waits for nothing."""
    if state == "SUSPENDED":
        return "JobHeldUser"
    if state in ("RUNNING", "STARTING", "STOPPING", "DONE"):
        return "None"
    return _REASONS.get(code, code)
