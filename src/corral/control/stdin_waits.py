"""Advice about a rank that waits for standard input and holds GPUs meanwhile."""

from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.observed_state import Facts
from corral.domain.world import World


def input_text(world: World, facts: Facts, job: Job) -> str:
    """Return a sentence about the job's first rank that waits for standard input; "" if
    no rank does."""
    if job.state is not JobState.RUNNING:
        return ""
    attempt, key = world.attempts.get(job.id), (job.id, job.attempt)
    heard = [facts.nodes.get(node) for node in (attempt.nodes if attempt else ())]
    waiting_ranks = [
        attempt_report.waits_for_input
        for node_facts in heard
        for attempt_report in (node_facts.seen if node_facts is not None else ())
        if attempt_report.key == key and attempt_report.waits_for_input is not None
    ]
    if not waiting_ranks:
        return ""
    rank = min(waiting_ranks)
    which = f" --rank {rank}" if rank else ""
    return (
        f"rank {rank} waits for standard input: to type it, run: corral attach {job.id} "
        f"--stdin{which}; or run: corral stop {job.id}, and submit again with the input in "
        "run: (< FILE, < /dev/null, --yes)"
    )
