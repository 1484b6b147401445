"""Kinds of events: their names in `corral events`, the API and its streams."""

from collections.abc import Mapping
from typing import Final

from corral.domain.coded import Coded
from corral.domain.job_states import JobEvent
from corral.domain.node import Liveness
from corral.domain.node_signal import SignalKind


class EventKind(Coded):
    """Subject of an event. The text of the event is for people and may change; the kind
    does not."""

    # -- the life of a job, as in domain/job_states.py ---------------------------------
    RELEASED = "released", "a held job can now be placed"
    NEVER = "never", "a job ended, because its dependency can no longer be met"
    TOO_LATE = "too_late", "a job failed, because it did not start by its start_by"
    PLACED = "placed", "a job was placed on nodes"
    RANKS_UP = "ranks_up", "all ranks of a job are running"
    FINISHED = "finished", "a job is done: every rank exited with code 0"
    RANKS_FAILED = "ranks_failed", "a rank of a job failed"
    NODE_LOST = "node_lost", "a node of a job was lost"
    RETRY = "retry", "a job is queued again after a failure"
    RETRY_DELAYED = "retry_delayed", "a job will be queued again after a delay"
    RESTARTED_IN_PLACE = (
        "restarted_in_place",
        "a job starts again at once on the nodes that it has",
    )
    GIVE_UP = "give_up", "a job failed, and no retry is left"
    ASKED_CANCEL = "asked_cancel", "a user cancelled a job"
    ASKED_SUSPEND = (
        "asked_suspend",
        "a user, or the rule for idle GPUs, suspended a job",
    )
    ASKED_RESUME = "asked_resume", "a user resumed a job"
    TIME_UP = "time_up", "a job reached its max_duration"
    PREEMPTED = "preempted", "a job stops for another job, a drain or a requeue"
    STOPPED_CANCELLED = (
        "stopped_cancelled",
        "all processes of a cancelled job have ended",
    )
    STOPPED_SUSPENDED = (
        "stopped_suspended",
        "all processes of a suspended job have ended",
    )
    STOPPED_PREEMPTED = (
        "stopped_preempted",
        "all processes of a preempted job have ended, and the job waits again",
    )
    STOPPED_TIME = (
        "stopped_time",
        "all processes of a job that reached its max_duration have ended",
    )
    QUARANTINED = "quarantined", "a job is held because of a bug in Corral"

    # -- more about jobs ---------------------------------------------------------------
    SUBMITTED = "submitted", "a job was submitted"
    CHANGED = "changed", "a user changed a waiting job"
    PINNED = "pinned", "a job must run on the only node that has its checkpoint"
    RECEIPT = "receipt", "an interruption of a job ended; the text states its cost"
    CHECKPOINT = "checkpoint", "a checkpoint of a job was committed"
    QUARANTINE = "quarantine", "a checkpoint failed its verification and is not used"
    WARNED = "warned", "a job was warned that it will soon reach its max_duration"
    IDLE_WARNED = "idle_warned", "a job's GPUs are idle, and it may be suspended"
    LOSS_NAN = "loss_nan", "the loss of a training job became NaN (not a number)"
    STRAGGLER = "straggler", "one rank of a job is slower than the others"
    HUNG = "hung", "the ranks of a job made no step for too long"
    STEPS_AGAIN = "steps_again", "a job that hung makes steps again"
    GATED = "gated", "a job waits until its nodes have been checked"
    GAVE_NODES = "gave_nodes", "an elastic job gave nodes to another job"
    RESERVED = "reserved", "GPUs are kept for a waiting job"
    SPARED = "spared", "a job that was to be preempted may keep running"
    PROMISED = "promised", "a latest start was promised to a job"
    PROMISE_MOVED = "promise_moved", "the promised latest start of a job has changed"
    PROMISE_ENDED = "promise_ended", "a job no longer has a promised latest start"

    # -- nodes -------------------------------------------------------------------------
    NODE_JOINED = "node_joined", "a node joined the cluster"
    NODE_REBOOTED = "node_rebooted", "a node restarted"
    NODE_ALIVE = "node_alive", "a node answers again"
    NODE_SILENT = "node_silent", "a node does not answer"
    NODE_DEAD = "node_dead", "a node is known to be down"
    NODE_GONE = "node_gone", "the engine removed a node"
    NODE_REMOVED = "node_removed", "a user removed a node"
    NOT_REMOVED = "not_removed", "a node could not be removed"
    CORDON = "cordon", "a node gets no new jobs"
    DRAIN = "drain", "a node gets no new jobs, and its running jobs move elsewhere"
    UNCORDON = "uncordon", "a node gets jobs again"
    LABEL = "label", "a user changed the labels of a node"
    SUSPECT = (
        "suspect",
        "a node has a fault, and an operator must decide whether to cordon it",
    )
    LEMON = "lemon", "an unusually large share of failures happened on a node"
    CONDITION = "condition", "a node has a fault that limits which work it gets"
    MENDED = "mended", "a fault of a node is over"
    FAULT = "fault", "a fault of a node ended an attempt"
    CHECKED = "checked", "a check of a node has ended"
    UNCHECKED = "unchecked", "a requested check of a node was given up"

    # -- what sensors of a node have noticed, as in domain/node_signal.py --------------
    SIGNAL_XID = "signal_xid", "an error of NVIDIA's driver"
    SIGNAL_SXID = "signal_sxid", "an error of an NVSwitch"
    SIGNAL_ECC = "signal_ecc", "errors of a GPU's memory"
    SIGNAL_REMAP = "signal_remap", "a row of a GPU's memory is, or must be, remapped"
    SIGNAL_NVLINK = "signal_nvlink", "errors of an NVLink"
    SIGNAL_PCIE = "signal_pcie", "a PCIe link is slower or narrower than it can be"
    SIGNAL_THROTTLE = "signal_throttle", "a GPU is slowed by heat or its power brake"
    SIGNAL_GPU_LOST = "signal_gpu-lost", "a GPU has fallen off the PCIe bus"
    SIGNAL_SILENT = "signal_silent", "a driver or file system does not answer"
    SIGNAL_PORT_DOWN = "signal_port-down", "a network port has no link"
    SIGNAL_PORT_ERRORS = "signal_port-errors", "a network port counts errors"
    SIGNAL_PORT_SLOW = "signal_port-slow", "a network port is slower than it can be"
    SIGNAL_DISK_FULL = "signal_disk-full", "a disk is full or almost full"
    SIGNAL_DISK_ERRORS = "signal_disk-errors", "a disk has errors"
    SIGNAL_CLOCK = "signal_clock", "a node's clock is wrong"
    SIGNAL_MEMORY = "signal_memory", "a machine's memory has errors or is full"
    SIGNAL_LEMON = (
        "signal_lemon",
        "an unusually large share of failures happened on a node",
    )
    SIGNAL_CHECK = "signal_check", "a result of an active check"

    # -- services ----------------------------------------------------------------------
    SERVICE_APPLIED = "service_applied", "a user made or changed a service"
    SERVICE_SCALED = "service_scaled", "a service needs another number of replicas"
    REPLICA_MADE = "replica_made", "a service made a replica"
    REPLICA_READY = "replica_ready", "a replica takes requests"
    REPLICA_NOT_READY = "replica_not_ready", "a replica does not answer its probe"
    REPLICA_DRAINING = "replica_draining", "a replica gets no new requests, and ends"
    REPLICA_ENDED = "replica_ended", "a replica of a service has ended"
    REPLICA_ASLEEP = "replica_asleep", "a replica sleeps, and its GPUs can be lent"
    REPLICA_WAKES = "replica_wakes", "a sleeping replica is to take requests again"
    LENT_TAKEN_BACK = "lent_taken_back", "a woken replica has its lent GPUs again"
    CANARY_BEGUN = "canary_begun", "a new revision of a service gets a few requests"
    CANARY_PASSED = "canary_passed", "a new revision replaces the one that serves"
    CANARY_TURNED_BACK = (
        "canary_turned_back",
        "a new revision was worse than the one that serves, and was ended",
    )
    REVISION_SERVES = "revision_serves", "all replicas of a service are of one revision"
    ROLLED_BACK = "rolled_back", "a user went back to an earlier revision"
    SERVICE_STOPPED = "service_stopped", "a service was stopped, or has ended"

    # -- queues and requests -----------------------------------------------------------
    QUEUES = "queues", "the queues were changed"
    QUEUES_REFUSED = "queues_refused", "a change of the queues could not be made"
    BUDGET_SPENT = "budget_spent", "the budget of a queue is spent or has expired"
    BUDGET_RENEWED = "budget_renewed", "a queue has a budget again"
    REQUEST_FAILED = "request_failed", "a request could not be carried out"
    OTHER = "other", "an event that another version of Corral has written"
    DROPPED = "dropped", "values from ranks or nodes were not valid and were dropped"

    @classmethod
    def _missing_(cls, value: object) -> "EventKind":
        """Return OTHER for a kind of another version, so that the store can be read."""
        return cls.OTHER


KIND_OF_MOVE: Final[Mapping[JobEvent, EventKind]] = {
    event: EventKind(event.value) for event in JobEvent
}
KIND_OF_LIVENESS: Final[Mapping[Liveness, EventKind]] = {
    liveness: EventKind(f"node_{liveness.value}") for liveness in Liveness
}
KIND_OF_SIGNAL: Final[Mapping[SignalKind, EventKind]] = {
    kind: EventKind(f"signal_{kind.value}") for kind in SignalKind
}
SIGNAL_OF_KIND: Final[Mapping[EventKind, SignalKind]] = {
    kind: signal for signal, kind in KIND_OF_SIGNAL.items()
}
