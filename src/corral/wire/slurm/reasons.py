"""Why a job waits or has failed, in Slurm's terms. No I/O."""

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
    """Return Slurm's reason for a job, from Corral's state and reason code. If Slurm
    has no such reason, return the code itself; if the job does not wait, return "None".
    """
    if state == "SUSPENDED":
        return "JobHeldUser"
    if state in ("RUNNING", "STARTING", "STOPPING", "DONE"):
        return "None"
    return _REASONS.get(code, code)
