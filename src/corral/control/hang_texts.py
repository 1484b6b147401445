"""Sentences about a job whose ranks make no steps."""

from collections.abc import Sequence

from corral.domain.attempt import Attempt
from corral.domain.failure_class import FailureKind
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.observed_state import Facts
from corral.domain.world import World
from corral.reconcile.changeset import Draft, Now
from corral.reconcile.hangs import gang_verdict, hang_record


def hang_text(world: World, facts: Facts, job: Job, now: Now, *, whole: bool) -> str:
    """Return a sentence about the hang of a running job, also before it is acted on; ""
    if no node reports one. `whole`: with places in the program, for those who may read
    the job's log."""
    attempt = world.attempts.get(job.id)
    if job.state is not JobState.RUNNING or attempt is None:
        return ""
    if attempt.hang is not None:
        return attempt.hang.text(now.wall, whole=whole)
    if (job.id, attempt.number) not in facts.hung:
        return ""
    draft = Draft(world, facts, now)
    verdict = gang_verdict(draft, attempt, is_final=False)
    if verdict is None:
        return ""
    return hang_record(draft, job, attempt, verdict).text(whole=whole)


def earlier_hang_text(attempts: Sequence[Attempt], *, whole: bool) -> str:
    """Return a sentence about the newest ended attempt, if it hung; else ""."""
    ended = [attempt for attempt in attempts if attempt.ended_at is not None]
    record = ended[-1].hang if ended else None
    if record is None or ended[-1].failure is not FailureKind.STALL:
        return ""
    text = f"attempt {ended[-1].number} hung and was ended: {record.text(whole=whole)}"
    if record.times == 1:
        return text
    return f"{text}; it was hang {record.times} in a row at this step"
