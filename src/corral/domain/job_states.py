"""The complete life cycle of a job. The table covers every state and event;
docs/reference/states.md is generated from it."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from corral.domain.coded import Coded
from corral.domain.errors import IllegalMove


class JobState(StrEnum):
    """The state that a job is in, from its submission to its end."""

    # by `after`, `begin`, the delay of a retry, or a fault of Corral itself
    HELD = "HELD"
    QUEUED = "QUEUED"
    STARTING = "STARTING"  # has nodes; not every rank is up yet
    RUNNING = "RUNNING"
    STOPPING = "STOPPING"  # StopWhy says why
    # failed; wanted nowhere; its last ranks are being seen gone
    RECOVERING = "RECOVERING"
    SUSPENDED = "SUSPENDED"
    DONE = "DONE"
    FAILED = "FAILED"
    CANCELLED = "CANCELLED"

    @property
    def is_live(self) -> bool:
        """Whether the job has nodes and is not being stopped."""
        return self in LIVE

    @property
    def is_leaving(self) -> bool:
        """Return whether the job is being stopped and still holds its nodes."""
        return self in LEAVING

    @property
    def is_on_nodes(self) -> bool:
        """Whether the job has nodes, or may still run on some."""
        return self in ON_NODES

    @property
    def is_waiting(self) -> bool:
        """Whether the job is on no node, and not over."""
        return self in WAITING

    @property
    def is_final(self) -> bool:
        """Whether the job is over for good."""
        return self in FINAL


class StopWhy(Coded):
    """The reason why a job is STOPPING. A later cancel replaces every other reason."""

    CANCEL = "cancel", "a user cancelled the job"
    SUSPEND = "suspend", "a user, or the rule for idle GPUs, suspended the job"
    PREEMPT = "preempt", "the job makes room for another job, or is moved"
    REQUEUE = "requeue", "a user requeued the job, to run it again"
    DRAIN = "drain", "a node of the job is being drained"
    TIME = "time", "the job reached its max_duration"

    @property
    def is_requeue(self) -> bool:
        """Return whether the job goes back into its queue once it has stopped."""
        return self in _REQUEUES


_REQUEUES: Final = frozenset({StopWhy.PREEMPT, StopWhy.REQUEUE, StopWhy.DRAIN})


class JobEvent(StrEnum):
    """Event that moves a job to another state."""

    RELEASED = "released"  # nothing holds it any more
    NEVER = "never"  # what it waits for can no longer happen
    TOO_LATE = "too_late"  # it has not run by its start_by
    PLACED = "placed"
    RANKS_UP = "ranks_up"
    FINISHED = "finished"  # every rank exited 0
    RANKS_FAILED = "ranks_failed"
    NODE_LOST = "node_lost"
    RETRY = "retry"  # all stopped, and a budget pays for another attempt
    RETRY_DELAYED = "retry_delayed"  # as retry, but not at once
    RESTARTED_IN_PLACE = "restarted_in_place"  # as retry, on the seats that it has
    GIVE_UP = "give_up"  # all stopped, and no budget is left
    ASKED_CANCEL = "asked_cancel"
    ASKED_SUSPEND = "asked_suspend"
    ASKED_RESUME = "asked_resume"
    TIME_UP = "time_up"
    PREEMPTED = "preempted"
    STOPPED_CANCELLED = "stopped_cancelled"
    STOPPED_SUSPENDED = "stopped_suspended"
    STOPPED_PREEMPTED = "stopped_preempted"
    STOPPED_TIME = "stopped_time"
    QUARANTINED = "quarantined"  # a bug of ours was met while deciding on it


S, E = JobState, JobEvent
FINAL: Final = frozenset({S.DONE, S.FAILED, S.CANCELLED})
ON_NODES: Final = frozenset({S.STARTING, S.RUNNING, S.STOPPING, S.RECOVERING})
WAITING: Final = frozenset({S.HELD, S.QUEUED, S.SUSPENDED})  # on no node, and not over
LIVE: Final = (S.STARTING, S.RUNNING)
LEAVING: Final = (S.STOPPING, S.RECOVERING)
_WAITING = (S.HELD, S.QUEUED)

MOVES: Final[Mapping[tuple[JobState, JobEvent], JobState]] = {
    (S.HELD, E.RELEASED): S.QUEUED,
    (S.HELD, E.NEVER): S.CANCELLED,
    (S.SUSPENDED, E.NEVER): S.CANCELLED,  # suspended while it waited for other jobs
    **{(state, E.TOO_LATE): S.FAILED for state in (*_WAITING, S.SUSPENDED)},
    (S.QUEUED, E.PLACED): S.STARTING,
    (S.QUEUED, E.QUARANTINED): S.HELD,
    (S.STARTING, E.RANKS_UP): S.RUNNING,
    (S.RECOVERING, E.RETRY): S.QUEUED,
    (S.RECOVERING, E.RETRY_DELAYED): S.HELD,
    (S.RECOVERING, E.RESTARTED_IN_PLACE): S.STARTING,
    (S.RECOVERING, E.GIVE_UP): S.FAILED,
    (S.SUSPENDED, E.ASKED_RESUME): S.QUEUED,
    (S.HELD, E.ASKED_RESUME): S.QUEUED,
    **{(state, E.FINISHED): S.DONE for state in (*LIVE, S.STOPPING)},
    **{(state, E.RANKS_FAILED): S.RECOVERING for state in LIVE},
    **{(state, E.NODE_LOST): S.RECOVERING for state in LIVE},
    **{(state, E.TIME_UP): S.STOPPING for state in LIVE},
    **{(state, E.PREEMPTED): S.STOPPING for state in LIVE},
    **{(state, E.ASKED_CANCEL): S.CANCELLED for state in (*_WAITING, S.SUSPENDED)},
    **{(state, E.ASKED_SUSPEND): S.SUSPENDED for state in _WAITING},
    **{(state, E.ASKED_CANCEL): S.STOPPING for state in ON_NODES},
    **{(state, E.ASKED_SUSPEND): S.STOPPING for state in (*LIVE, S.RECOVERING)},
    (S.STOPPING, E.STOPPED_CANCELLED): S.CANCELLED,
    (S.STOPPING, E.STOPPED_SUSPENDED): S.SUSPENDED,
    (S.STOPPING, E.STOPPED_PREEMPTED): S.QUEUED,
    (S.STOPPING, E.STOPPED_TIME): S.FAILED,
}

# True, but it changes nothing: facts that come late, twice, or from a fenced attempt,
# and requests that are already granted.
_LATE = (E.RANKS_UP, E.FINISHED, E.RANKS_FAILED, E.NODE_LOST, E.TIME_UP, E.PREEMPTED)
_REQUESTS = (E.ASKED_CANCEL, E.ASKED_SUSPEND, E.ASKED_RESUME)
MOOT: Final = (
    frozenset(
        {
            (state, event)
            for state in FINAL
            for event in (*_LATE, *_REQUESTS, E.QUARANTINED)
        }
        | {(state, event) for state in (*_WAITING, S.SUSPENDED) for event in _LATE}
        | {(state, event) for state in (S.STOPPING, S.RECOVERING) for event in _LATE}
        | {(state, E.ASKED_RESUME) for state in (S.QUEUED, *ON_NODES)}
        | {(state, E.ASKED_SUSPEND) for state in (S.STOPPING, S.SUSPENDED)}
        | {(state, E.QUARANTINED) for state in (S.HELD, S.SUSPENDED, *ON_NODES)}
        | {(state, E.RELEASED) for state in (S.QUEUED, S.SUSPENDED)}
        | {(S.RUNNING, E.RANKS_UP)}
    )
    - MOVES.keys()
)


def move(state: JobState, event: JobEvent) -> JobState:
    """Return the state after the event.

    Raises: IllegalMove if the table has no such transition. That is a bug of Corral,
    never a user's mistake.
    """
    if (state, event) not in MOVES and (state, event) not in MOOT:
        raise IllegalMove(f"a job that is {state} got the event {event}")
    return MOVES.get((state, event), state)
