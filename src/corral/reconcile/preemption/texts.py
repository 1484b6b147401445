"""Texts of preemption: which job stops for which other job, and how long a victim is
still within its minimum run time."""

from collections.abc import Sequence

from corral.domain.attempt import Attempt, Seat
from corral.domain.ids import JobId
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.reason_code import ReasonCode
from corral.domain.units import MILLIS_PER_GPU, counted_gpus, duration_text
from corral.domain.usage import PreemptWhy, Reservation, Victim
from corral.reconcile.attained_service import attempt_seconds
from corral.reconcile.attempts import ran_seconds
from corral.reconcile.changeset import Draft
from corral.reconcile.usage import owing_now
from corral.schedule import Reserved
from corral.schedule.waiting import Reason


def min_runtime_left_seconds(draft: Draft, job: Job, attempt: Attempt) -> float:
    """Return the seconds until the job has run for its minimum run time, before which
    it may not be stopped for another job. The result is negative once that time has
    passed.

    The time counts from when the job's ranks were up or, before that, from the job's
    placement.
    """
    if job.state == JobState.RUNNING:
        return draft.tree.min_runtime_seconds - ran_seconds(draft, attempt)
    return draft.tree.min_runtime_seconds - max(0.0, draft.now.wall - attempt.placed_at)


def is_untold(draft: Draft, victim: Victim) -> bool:
    job = draft.job(victim.job)
    return job is not None and job.attempt == victim.attempt and job.state.is_live


def left_seconds(draft: Draft, victim: Victim) -> float:
    job, attempt = draft.job(victim.job), draft.attempt(victim.job)
    return (
        0.0
        if job is None or attempt is None
        else min_runtime_left_seconds(draft, job, attempt)
    )


def stopped_text(draft: Draft, id: JobId, why: PreemptWhy) -> str:
    """Return a text about a job that will be stopped, with its queue, the reason and
    the time. For example: j3 of queue b (train, on borrowed GPUs), in 40 s, after its
    minimum run time."""
    job, attempt = draft.job(id), draft.attempt(id)
    if job is None or attempt is None:
        return str(id)
    served_text = duration_text(
        job.served_seconds + attempt_seconds(attempt, draft.now.wall)
    )
    because = {
        PreemptWhy.RECLAIM: "its queue used more than its share"
        if _is_owed(draft, job)
        else "on borrowed GPUs",
        PreemptWhy.PRIORITY: f"priority {job.spec.priority}",
        PreemptWhy.SERVICE: f"{served_text} of service",
        PreemptWhy.PREEMPTIBLE: "preemptible",
        PreemptWhy.ROOM: "to be moved",
        PreemptWhy.LENT: "on lent GPUs",
    }[why]
    seconds = min_runtime_left_seconds(draft, job, attempt)
    when = (
        f"in {seconds:.0f} s, after its minimum run time" if seconds > 0 else "at once"
    )
    return f"{id} of queue {job.spec.queue} ({job.spec.name}, {because}), {when}"


def right_text(draft: Draft, by: Job, job: Job, why: PreemptWhy) -> str:
    of = f"of queue {by.spec.queue}"
    if why == PreemptWhy.RECLAIM:
        reservation = draft.reservations.get(by.id) or draft.world.reservations[by.id]
        return f"{of}, which reclaimed its own {counted_gpus(reservation.shape.gpu_millis)}"
    if why == PreemptWhy.PRIORITY:
        own_priority, victim_priority = by.spec.priority, job.spec.priority
        return (
            f"{of}, whose priority {own_priority} is above that of this job "
            f"({victim_priority})"
        )
    if why == PreemptWhy.SERVICE:
        justification = "has waited for as long as the preemption costs"
        if by.spec.queue != job.spec.queue:
            owed = _is_owed(draft, job)
            why_its = (
                "has recently used more than its share"
                if owed
                else "had borrowed the GPUs"
            )
            justification += f"; queue {job.spec.queue} {why_its}"
        return f"{of}, which {_service_text(draft, by, job)} and {justification}"
    if why == PreemptWhy.ROOM:
        return f"{of}, which fits nowhere else"
    if why == PreemptWhy.LENT:
        return f"{of}, which takes back the GPUs that it had lent"
    return f"{of}, because this job is preemptible"


def _is_owed(draft: Draft, job: Job) -> bool:
    """Return whether the job's queue, or a queue above it, owes GPU time although the
    job itself borrows nothing. Only for this reason may its place be taken."""
    attempt, owing = draft.attempt(job.id), owing_now(draft)
    borrows = attempt is not None and attempt.borrowed_gpu_millis > 0
    return not borrows and any(
        queue.name in owing for queue in draft.tree.path(job.spec.queue)
    )


def _service_text(draft: Draft, by: Job, job: Job) -> str:
    """Return why the job `by` may preempt `job`, with the service of both. For example:
    has had less service (3 min against 2 h)."""
    attempt = draft.attempt(job.id)
    served_seconds = job.served_seconds
    served_seconds += (
        attempt_seconds(attempt, draft.now.wall) if attempt is not None else 0.0
    )
    amounts = (
        f"{duration_text(by.served_seconds)} against {duration_text(served_seconds)}"
    )
    if by.served_seconds < served_seconds:
        return f"has had less service ({amounts})"
    return f"is expected to end sooner, as similar jobs did (service: {amounts})"


def where_text(seats: Sequence[Seat]) -> str:
    """Return the nodes of the seats. For example: n1, n2."""
    return ", ".join(sorted({str(seat.node) for seat in seats}))


def moved_text(draft: Draft, by: Job, victim: Victim) -> str:
    """Return the reason of a relocation. For example: moved to n2 to make room for big
    (j7) of queue a."""
    name = name_of(draft, by.id)
    return f"moved to {where_text(victim.to)} to make room for {name} of queue {by.spec.queue}"


def given_text(draft: Draft, by: Job, victim: Victim, right: str) -> str:
    """Return the reason why an elastic job gives nodes. For example: gives 2 of 4 nodes
    to big (j7) of queue a, because this job is preemptible, and goes on with 2."""
    rest = victim.of_nodes - victim.given_nodes
    return (
        f"gives {victim.given_nodes} of {victim.of_nodes} nodes to "
        f"{name_of(draft, by.id)} {right}, and goes on with {rest}"
    )


def kept_text(draft: Draft, one: Reservation) -> str:
    victims = [victim for victim in one.victims if victim.gone_at is None]
    millis = one.shape.gpu_millis
    verb = "are" if millis > MILLIS_PER_GPU else "is"
    reservation_text = (
        f"{counted_gpus(millis) if millis else one.shape} {verb} kept for the job"
    )
    if not victims:
        if not one.victims and one.moved_for is not None:
            attempt = draft.attempt(one.job)
            if attempt is not None and attempt.resized_to is not None:
                node_count = len(attempt.seats) - attempt.resized_to
                return (
                    f"{reservation_text}, which gave {node_count} of {len(attempt.seats)} "
                    f"nodes to {name_of(draft, one.moved_for)}"
                )
            return (
                f"{reservation_text}, which was moved to make room for "
                f"{name_of(draft, one.moved_for)}"
            )
        return f"{reservation_text}; other jobs are still stopping there"
    names = ", ".join(name_of(draft, victim.job) for victim in victims)
    if all(victim.why == PreemptWhy.ROOM for victim in victims):
        verb = "saves and is" if len(victims) == 1 else "save and are"
        destination_text = where_text(
            [seat for victim in victims for seat in victim.to]
        )
        return f"{reservation_text}; {names} {verb} moved to {destination_text} to make room"
    seconds = max(
        left_seconds(draft, victim) if is_untold(draft, victim) else 0.0
        for victim in victims
    )
    when = f"in {seconds:.0f} s, after its minimum run time" if seconds > 0 else "now"
    if all(victim.given_nodes for victim in victims):
        given_texts = ", ".join(
            f"{name_of(draft, victim.job)} saves and gives {victim.given_nodes} of "
            f"{victim.of_nodes} nodes"
            for victim in victims
        )
        return f"{reservation_text}; {given_texts} {when}"
    return (
        f"{reservation_text}; {names} {'has' if len(victims) == 1 else 'have'} to save and "
        f"stop {when}"
    )


def to_come(draft: Draft, one: Reserved) -> Reason:
    """Return why the job waits for reserved seats: the GPUs kept for it, and the
    victims that must first leave them."""
    millis = sum(seat.gpu_millis for seat in one.seats)
    verbs = ("are", "are") if millis > MILLIS_PER_GPU else ("is", "is")
    victims_text = (
        ", ".join(name_of(draft, victim) for victim in one.victims)
        or "jobs that are stopping"
    )
    sentence = (
        f"{counted_gpus(millis)} {verbs[0]} kept for the job, and {verbs[1]} being freed "
        f"by {victims_text}"
    )
    return Reason(code=ReasonCode.PREEMPTING, sentence=sentence)


def name_of(draft: Draft, id: JobId) -> str:
    job = draft.job(id)
    return f"{job.spec.name} ({id})" if job is not None else str(id)
