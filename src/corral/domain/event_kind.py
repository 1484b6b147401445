"""Kinds of events: their names in `corral events`, the API and its streams."""

from collections.abc import Mapping
from typing import Final

from corral.domain.coded import Coded
from corral.domain.job_states import JobEvent
from corral.domain.node import Liveness
from corral.domain.node_signal import SignalKind


class EventKind(Coded):
    """Kind of an event. Its text is for people and may change."""

    # -- the life of a job, as in domain/job_states.py ---------------------------------
    RELEASED = "released", "a held job may be placed"
    NEVER = "never", "a job ended, because what it waited for can no longer happen"
    TOO_LATE = "too_late", "a job failed, because it had not run by its start_by"
    PLACED = "placed", "a job was given its nodes"
    RANKS_UP = "ranks_up", "all ranks of a job run"
    FINISHED = "finished", "a job is done: every rank exited 0"
    RANKS_FAILED = "ranks_failed", "a rank of a job failed"
    NODE_LOST = "node_lost", "a node of a job is lost"
    RETRY = "retry", "a job is queued again after a failure"
    RETRY_DELAYED = "retry_delayed", "a job begins again after a delay"
    GIVE_UP = "give_up", "a job failed, and no retry is left"
    ASKED_CANCEL = "asked_cancel", "a user cancelled a job"
    ASKED_SUSPEND = "asked_suspend", "a user, or the rule for idle jobs, suspended one"
    ASKED_RESUME = "asked_resume", "a user let a job go on"
    TIME_UP = "time_up", "a job has run as long as its max_duration allows"
    PREEMPTED = "preempted", "a job stops for another one, a drain or a requeue"
    STOPPED_CANCELLED = "stopped_cancelled", "a cancelled job is seen gone"
    STOPPED_SUSPENDED = "stopped_suspended", "a suspended job is seen gone"
    STOPPED_PREEMPTED = "stopped_preempted", "a preempted job is seen gone and waits"
    STOPPED_TIME = "stopped_time", "a job whose time was up is seen gone"
    QUARANTINED = (
        "quarantined",
        "a bug in Corral was met while deciding on a job, which is held",
    )

    # -- more about jobs ---------------------------------------------------------------
    SUBMITTED = "submitted", "a job was submitted"
    CHANGED = "changed", "a user changed a waiting job"
    PINNED = "pinned", "a job must run on the only node that sees its save"
    RECEIPT = "receipt", "an interruption of a job ended; the text is its receipt"
    CHECKPOINT = "checkpoint", "a save of a job was committed"
    QUARANTINE = "quarantine", "a save of a job does not verify and is not used"
    WARNED = "warned", "a job was warned that its time ends soon"
    IDLE_WARNED = "idle_warned", "a job's GPUs are idle, and it may be suspended"
    LOSS_NAN = "loss_nan", "the loss of a training job is not a number any more"
    STRAGGLER = "straggler", "one rank of a job is slower than the others"
    GATED = "gated", "a gang waits for the check of its nodes"
    RESERVED = "reserved", "GPUs are kept for a waiting job"
    SPARED = "spared", "a job that was to be stopped for another one goes on"
    PROMISED = "promised", "the start of a job was planned"
    PROMISE_MOVED = "promise_moved", "the planned start of a job has changed"
    PROMISE_ENDED = "promise_ended", "the start of a job is planned no more"

    # -- nodes -------------------------------------------------------------------------
    NODE_JOINED = "node_joined", "a node is new"
    NODE_REBOOTED = "node_rebooted", "a node was started again"
    NODE_ALIVE = "node_alive", "a node answers again"
    NODE_SILENT = "node_silent", "a node does not answer"
    NODE_DEAD = "node_dead", "a node is known to be down"
    NODE_GONE = "node_gone", "the engine has taken a node away"
    NODE_REMOVED = "node_removed", "a user removed a node"
    NOT_REMOVED = "not_removed", "a node could not be removed"
    CORDON = "cordon", "a node takes no new jobs"
    DRAIN = "drain", "a node takes no new jobs, and gives its jobs back"
    UNCORDON = "uncordon", "a node takes jobs again"
    LABEL = "label", "a user changed the labels of a node"
    SUSPECT = "suspect", "a node has a fault, and a person decides whether to cordon it"
    LEMON = "lemon", "an unusual share of failures happened on a node"
    CONDITION = "condition", "a node has a fault that restricts it"
    MENDED = "mended", "a fault of a node is over"
    FAULT = "fault", "a fault of a node ended an attempt"
    CHECKED = "checked", "a check of a node is over"
    UNCHECKED = "unchecked", "a node was not checked"

    # -- what sensors of a node have noticed, as in domain/node_signal.py --------------
    SIGNAL_XID = "signal_xid", "an error of NVIDIA's driver"
    SIGNAL_SXID = "signal_sxid", "an error of an NVSwitch"
    SIGNAL_ECC = "signal_ecc", "errors of a GPU's memory"
    SIGNAL_REMAP = "signal_remap", "a row of a GPU's memory is, or must be, remapped"
    SIGNAL_NVLINK = "signal_nvlink", "errors of an NVLink"
    SIGNAL_PCIE = "signal_pcie", "a PCIe link is slower or narrower than it could be"
    SIGNAL_THROTTLE = "signal_throttle", "a GPU is slowed by heat or its power brake"
    SIGNAL_GPU_LOST = "signal_gpu-lost", "a GPU is off the bus"
    SIGNAL_SILENT = "signal_silent", "a driver or file system does not answer"
    SIGNAL_PORT_DOWN = "signal_port-down", "a network port has no link"
    SIGNAL_PORT_ERRORS = "signal_port-errors", "a network port counts errors"
    SIGNAL_PORT_SLOW = "signal_port-slow", "a network port is slower than it could be"
    SIGNAL_DISK_FULL = "signal_disk-full", "a disk is full, or nearly"
    SIGNAL_DISK_ERRORS = "signal_disk-errors", "a disk has errors"
    SIGNAL_CLOCK = "signal_clock", "a node's clock is off"
    SIGNAL_MEMORY = "signal_memory", "errors of a machine's memory, or it is full"
    SIGNAL_LEMON = "signal_lemon", "an unusual share of failures happened on a node"
    SIGNAL_CHECK = "signal_check", "a result of an active check"

    # -- queues and requests -----------------------------------------------------------
    QUEUES = "queues", "the queues were changed"
    QUEUES_REFUSED = "queues_refused", "a change of the queues could not be made"
    BUDGET_SPENT = "budget_spent", "the budget of a queue is spent or over"
    BUDGET_RENEWED = "budget_renewed", "a queue has a budget again"
    REQUEST_FAILED = "request_failed", "a request could not be carried out"
    OTHER = "other", "an event that another version of Corral has written"
    DROPPED = "dropped", "data of ranks or nodes was out of bounds and was not taken"

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
