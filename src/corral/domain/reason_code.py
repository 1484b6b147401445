"""Codes of the reasons why a job is in its state: waiting, held, stopping or ended."""

from collections.abc import Mapping
from typing import Final

from corral.domain.coded import Coded
from corral.domain.job_states import StopWhy


class ReasonCode(Coded):
    """Code of a job's reason. Its sentence is for people and may change."""

    NONE = "", "nothing has to be explained"

    # -- it waits for the scheduler ----------------------------------------------------
    NEW = "New", "the job was submitted after the last scheduling pass"
    STOPPED = (
        "Stopped",
        "the head places no jobs now",
        "see the warnings of: corral status",
    )
    RESOURCES = (
        "Resources",
        "too few nodes have free room for it",
        "corral why JOB says what would start sooner",
    )
    TOPOLOGY = (
        "Topology",
        "no single rack, pod or other domain has enough free nodes",
        "write: topology: {mode: prefer}",
    )
    EXCLUSIVE = (
        "Exclusive",
        "it asks for empty nodes, and too few are empty",
        "leave exclusive out",
    )
    APART_FROM = (
        "ApartFrom",
        "it must not share a node with jobs that run on the free ones",
        "leave apart_from out, or wait for these jobs",
    )
    PRIORITY = "Priority", "nodes are being kept for a job that goes first"
    PREEMPTING = "Preempting", "other jobs are being stopped to make room for it"
    PROMISED = "Promised", "its start is planned for a later moment"
    ORDER = "Order", "its queue starts jobs in order, and an earlier one waits"
    ENGINE = "Engine", "Slurm, Kubernetes or Ray has it and has not started it yet"

    # -- it waits for a limit ----------------------------------------------------------
    QUEUE_LIMIT = (
        "QueueLimit",
        "its queue holds all GPUs that it may hold",
        "see: corral queue show QUEUE",
    )
    NOTHING_TO_BORROW = (
        "NothingToBorrow",
        "its queue's own GPUs are in use, and no other queue can lend any",
        "see: corral queue ls",
    )
    USER_LIMIT = (
        "UserLimit",
        "its user holds all GPUs that one user of the queue may hold",
        "see: corral queue show QUEUE",
    )
    ARRAY_LIMIT = (
        "ArrayLimit",
        "as many jobs of its array run as may run at once",
        "submit the array with a higher limit",
    )

    # -- it can never start as things are ----------------------------------------------
    NEVER_FITS = (
        "NeverFits",
        "no set of nodes of the cluster could hold it, even if all were free",
        "ask for less: corral run --dry-run says what fits",
    )
    NO_NODES = (
        "NoNodes",
        "the cluster has no node yet",
        "let a machine join: corral join",
    )
    NO_ACCOUNT = (
        "NoAccount",
        "the nodes do not run jobs of its user",
        "see: corral node show NODE",
    )
    BAD_CONSTRAINTS = (
        "BadConstraints",
        "too few nodes have the labels that it asks for",
        "see the labels: corral node ls --json",
    )
    BAD_TOPOLOGY = (
        "BadTopology",
        "no rack, pod or other domain is large enough",
        "write: topology: {mode: prefer}",
    )
    PINNED = (
        "Pinned",
        "it must run on one node, which cannot take it now",
        "see: corral node show NODE",
    )

    # -- it is held --------------------------------------------------------------------
    DEPENDENCY = "Dependency", "it waits for other jobs", "see: corral why of these"
    DEPENDENCY_NEVER_SATISFIED = (
        "DependencyNeverSatisfied",
        "a job that it waited for ended in another way",
        "submit it again without this dependency",
    )
    BEGIN_TIME = "BeginTime", "its begin time has not come"
    RETRY_DELAY = (
        "RetryDelay",
        "faults of the cluster ended it several times, so the next attempt waits",
        "to begin now: corral resume JOB",
    )
    QUARANTINED = (
        "Quarantined",
        "a bug in Corral was met while deciding on it",
        "report it with the replay file; then: corral resume JOB",
    )
    UNRECORDABLE = (
        "Unrecordable",
        "what its ranks report cannot be stored",
        "see the warnings of: corral status",
    )

    # -- it is placed, stops or begins again -------------------------------------------
    PLACED = "Placed", "it was given its nodes and starts"
    RESUMED = "Resumed", "it stops, and goes on afterwards"
    REQUEUED = "Requeued", "it begins again after an interruption"
    CANCEL = "Cancel", "a user cancelled it"
    SUSPEND = (
        "Suspend",
        "a user suspended it, or submitted it held",
        "corral resume JOB",
    )
    PREEMPT = "Preempt", "it was stopped and waits to go on"
    PREEMPTED = "Preempted", "it was stopped to make room for another job"
    REQUEUE = "Requeue", "a user asked for it to begin again"
    DRAIN = "Drain", "its node is being drained"
    IDLE = (
        "Idle",
        "its GPUs were idle for longer than its queue allows",
        "corral resume JOB",
    )
    TIME = "Time", "its max_duration is over, and it stops"
    RANKS_FAILED = "RanksFailed", "a rank failed; the rest of the attempt is stopped"
    NODE_LOST = "NodeLost", "a node of the attempt is lost"
    NODE_FAULT = (
        "NodeFault",
        "a node of the attempt has a fault that ends it",
        "see: corral node show NODE",
    )
    CHECK_FAILED = (
        "CheckFailed",
        "a node of the gang did not pass its check",
        "see: corral node show NODE",
    )

    # -- it has ended ------------------------------------------------------------------
    NON_ZERO_EXIT = (
        "NonZeroExit",
        "a rank exited with an error and no retry is left",
        "see: corral why JOB, corral logs JOB",
    )
    CRASH_LOOP = (
        "CrashLoop",
        "it failed several times in a row without progress",
        "see: corral why JOB, corral logs JOB",
    )
    OUT_OF_MEMORY = (
        "OutOfMemory",
        "a rank used more memory than it may, and no retry is left",
        "ask for more memory",
    )
    NODE_FAIL = (
        "NodeFail",
        "faults of the cluster ended it, and no retry is left",
        "see: corral why JOB; submit it again",
    )
    TIME_LIMIT = (
        "TimeLimit",
        "it ran as long as its max_duration allows",
        "submit it with a higher max_duration, from its last save: corral run --from",
    )
    DEADLINE = "Deadline", "it did not start by its start_by", "submit it again"

    @classmethod
    def _missing_(cls, value: object) -> "ReasonCode":
        """Return NONE for a code of another version, so that the store can be read. The
        sentence states the reason."""
        return cls.NONE


# codes of requests that no set of nodes can meet now or later
UNSATISFIABLE: Final = frozenset(
    {
        ReasonCode.NEVER_FITS,
        ReasonCode.NO_NODES,
        ReasonCode.NO_ACCOUNT,
        ReasonCode.BAD_CONSTRAINTS,
        ReasonCode.BAD_TOPOLOGY,
    }
)
# there is not enough free room now; a limit or a rule is another matter
NO_ROOM: Final = frozenset(
    {
        ReasonCode.RESOURCES,
        ReasonCode.TOPOLOGY,
        ReasonCode.PRIORITY,
        ReasonCode.PREEMPTING,
    }
)
CODE_OF_STOP: Final[Mapping[StopWhy, ReasonCode]] = {
    StopWhy.CANCEL: ReasonCode.CANCEL,
    StopWhy.SUSPEND: ReasonCode.SUSPEND,
    StopWhy.PREEMPT: ReasonCode.PREEMPT,
    StopWhy.REQUEUE: ReasonCode.REQUEUE,
    StopWhy.DRAIN: ReasonCode.DRAIN,
    StopWhy.TIME: ReasonCode.TIME_LIMIT,
}
