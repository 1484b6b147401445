"""Codes of the reasons why a job is in its state: waiting, held, stopping or ended."""

from collections.abc import Mapping
from typing import Final

from corral.domain.coded import Coded
from corral.domain.job_states import StopWhy


class ReasonCode(Coded):
    """Code for the reason why a job is in its state. The sentence with the code is for
    people and may change."""

    NONE = "", "there is nothing to explain"

    # -- it waits for the scheduler ----------------------------------------------------
    NEW = "New", "the job was submitted after the last scheduling pass"
    STOPPED = (
        "Stopped",
        "the head places no jobs now",
        "see the warnings of: corral status",
    )
    RESOURCES = (
        "Resources",
        "too few nodes have enough free GPUs, CPUs or memory for the job",
        "to see what would start sooner: corral why JOB",
    )
    TOPOLOGY = (
        "Topology",
        "no single rack, pod or other domain has enough free nodes",
        "write: topology: {mode: prefer}",
    )
    EXCLUSIVE = (
        "Exclusive",
        "the job needs empty nodes (exclusive), and too few are empty",
        "remove exclusive",
    )
    APART_FROM = (
        "ApartFrom",
        "the nodes with room run jobs that may not share a node with it (apart_from)",
        "remove apart_from, or wait until those jobs end",
    )
    LENT_ROOM = (
        "LentRoom",
        "the free GPUs are lent by a sleeping replica, and the job may stop too slowly",
        "write a shorter grace, in which the job saves and stops: grace: 5s",
    )
    PRIORITY = "Priority", "nodes are being kept for a job that goes first"
    PREEMPTING = "Preempting", "other jobs are being stopped to make room for the job"
    PROMISED = "Promised", "nodes or GPUs are kept for the job until its latest start"
    ORDER = "Order", "the queue starts jobs strictly in order; an earlier job waits"
    ENGINE = "Engine", "the job waits in Slurm, Kubernetes or Ray and has not started"
    FETCHING_MODEL = (
        "FetchingModel",
        "a node of the job is fetching its model",
        "to fetch it beforehand: corral model pull MODEL --all --pin",
    )

    # -- it waits for a limit ----------------------------------------------------------
    QUEUE_LIMIT = (
        "QueueLimit",
        "the job's queue already uses all GPUs that it may use",
        "see: corral queue show QUEUE",
    )
    NOTHING_TO_BORROW = (
        "NothingToBorrow",
        "the queue's own GPUs are in use, and no other queue can lend any",
        "see: corral queue ls",
    )
    USER_LIMIT = (
        "UserLimit",
        "the job's user already uses all GPUs that one user of the queue may use",
        "see: corral queue show QUEUE",
    )
    ARRAY_LIMIT = (
        "ArrayLimit",
        "the job's array already runs as many jobs at once as its limit (%N) allows",
        "submit the array with a higher limit: --array 0-99%N",
    )

    # -- it can never start as things are ----------------------------------------------
    NEVER_FITS = (
        "NeverFits",
        "the cluster is too small for the job, even if all nodes were free",
        "request less; to see what fits: corral run --dry-run",
    )
    NO_NODES = (
        "NoNodes",
        "the cluster has no node yet",
        "add a node: corral join",
    )
    NO_ACCOUNT = (
        "NoAccount",
        "the nodes do not run jobs of the job's user",
        "see: corral node show NODE",
    )
    BAD_CONSTRAINTS = (
        "BadConstraints",
        "too few nodes have the labels that the job requires",
        "see the labels: corral node ls --json",
    )
    BAD_TOPOLOGY = (
        "BadTopology",
        "no rack, pod or other domain is large enough",
        "write: topology: {mode: prefer}",
    )
    PINNED = (
        "Pinned",
        "the job's checkpoints are on one node only, which has no room now",
        "see: corral node show NODE",
    )

    # -- it is held --------------------------------------------------------------------
    DEPENDENCY = (
        "Dependency",
        "the job waits for other jobs (its dependencies)",
        "run corral why for each of those jobs",
    )
    DEPENDENCY_NEVER_SATISFIED = (
        "DependencyNeverSatisfied",
        "a dependency of the job can no longer be met",
        "submit the job again without this dependency",
    )
    BEGIN_TIME = "BeginTime", "the job's begin time is in the future"
    RETRY_DELAY = (
        "RetryDelay",
        "faults of the cluster ended the job several times; the next attempt waits",
        "to begin now: corral resume JOB",
    )
    QUARANTINED = (
        "Quarantined",
        "the job is held because of a bug in Corral",
        "report the bug with the replay file; then: corral resume JOB",
    )
    UNRECORDABLE = (
        "Unrecordable",
        "values that the job's ranks report cannot be stored",
        "see the warnings of: corral status",
    )

    # -- it is placed, stops or begins again -------------------------------------------
    PLACED = "Placed", "the job was placed on nodes and starts"
    RESUMED = "Resumed", "the job is being stopped, and will be resumed afterwards"
    REQUEUED = "Requeued", "the job starts again after an interruption"
    RESTARTED_IN_PLACE = (
        "RestartedInPlace",
        "a rank failed or hung, and the job starts again at once on the same nodes",
        "see why it failed: corral why JOB",
    )
    CANCEL = "Cancel", "a user cancelled the job"
    SUSPEND = (
        "Suspend",
        "a user suspended the job, or submitted it held",
        "run: corral resume JOB",
    )
    PREEMPT = "Preempt", "the job was preempted and waits to be started again"
    PREEMPTED = "Preempted", "the job was stopped to make room for another job"
    REQUEUE = "Requeue", "a user requeued the job, to run it again"
    DRAIN = "Drain", "a node of the job is being drained"
    IDLE = (
        "Idle",
        "the job's GPUs were idle for longer than its queue allows",
        "run: corral resume JOB",
    )
    SLEEP = (
        "Sleep",
        "the replica sleeps until its service needs it",
        "see: corral service show SERVICE",
    )
    TIME = "Time", "the job reached its max_duration and is being stopped"
    RANKS_FAILED = "RanksFailed", "a rank failed; the rest of the attempt is stopped"
    HANG = (
        "Hang",
        "the ranks of the job made no step for too long",
        "to see where they stand: corral debug stacks JOB",
    )
    NODE_LOST = "NodeLost", "a node of the attempt was lost"
    NODE_FAULT = (
        "NodeFault",
        "a node of the attempt has a fault that ends the attempt",
        "see: corral node show NODE",
    )
    CHECK_FAILED = (
        "CheckFailed",
        "a node of the job failed its check before the start",
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
        "the job failed several times in a row without progress",
        "see: corral why JOB, corral logs JOB",
    )
    OUT_OF_MEMORY = (
        "OutOfMemory",
        "a rank exceeded its memory limit, and no retry is left",
        "request more memory: resources: {memory: ...}",
    )
    NODE_FAIL = (
        "NodeFail",
        "faults of the cluster ended the job, and no retry is left",
        "see: corral why JOB; submit the job again",
    )
    TIME_LIMIT = (
        "TimeLimit",
        "the job reached its max_duration",
        "raise max_duration and continue from the last save: corral run --from JOB",
    )
    DEADLINE = (
        "Deadline",
        "the job did not start by its start_by",
        "submit the job again",
    )

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
# the start depends on a change of the job or of a service, not on the queue
NOT_PREDICTED: Final = UNSATISFIABLE | {ReasonCode.LENT_ROOM}
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
