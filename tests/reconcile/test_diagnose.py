"""Whose budget pays is read from what the ranks printed last, whatever code they ended
with."""

from dataclasses import replace

import pytest

from corral.domain.attempt import Attempt, Exit
from corral.domain.cause import Cause
from corral.domain.desired_state import Version
from corral.domain.failure_advice import NextStep
from corral.domain.failure_class import FailureKind
from corral.domain.ids import JobId, NodeId
from corral.domain.job import CheckpointRule, Retry
from corral.domain.job_states import JobState
from corral.domain.observed_state import AttemptKey, Phase
from corral.reconcile.await_node_faults import SETTLES_SECONDS
from corral.reconcile.desired_state import wanted_of
from tests.worlds import Cluster, gang, node

RAISED = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'


def job_that_ended(exit: Exit, tail: str) -> tuple[Cluster, JobId]:
    """Return a job whose only rank has ended this way. Each of its budgets pays for one
    retry."""
    cluster = Cluster(node("n1"))
    job = cluster.submit(gang(retry=Retry(infra=1, user=1)))
    cluster.up(job)
    exit = replace(exit, at=cluster.wall)
    cluster.say(job, Phase.ENDED, exits=((0, exit),), tails=((0, tail),))
    return cluster, job


@pytest.mark.parametrize(
    ("line", "kind", "cause"),
    [
        (
            "OSError: [Errno 5] Input/output error: '/data/a'",
            FailureKind.STORAGE,
            Cause.INFRA,
        ),
        ("ModuleNotFoundError: No module named 'yaml'", FailureKind.MODULE, Cause.USER),
    ],
)
def test_the_cluster_pays_for_what_is_wrong_with_a_machine(
    line: str, kind: FailureKind, cause: Cause
) -> None:
    cluster, job = job_that_ended(Exit(code=1), RAISED + line)
    cluster.tick()
    assert cluster.outcome is not None
    attempt = next(one for one in cluster.outcome.changes.attempts if one.number == 1)
    paid = cluster.world.jobs[job]
    assert (attempt.failure, attempt.cause, attempt.quote) == (kind, cause, line)
    assert (paid.infra_retries, paid.user_retries) == (
        (1, 0) if cause == Cause.INFRA else (0, 1)
    )


@pytest.mark.parametrize(
    ("disk_full", "tail", "cause"),
    [
        (True, "", Cause.INFRA),
        (
            True,
            RAISED + "FileNotFoundError: No usable temporary directory found",
            Cause.INFRA,
        ),
        (True, RAISED + "OSError: [Errno 28] No space left on device", Cause.INFRA),
        (True, RAISED + "OSError: [Errno 122] Disk quota exceeded", Cause.INFRA),
        (False, RAISED + "OSError: [Errno 122] Disk quota exceeded", Cause.USER),
        (True, RAISED + "ModuleNotFoundError: No module named 'yaml'", Cause.USER),
        (False, RAISED + "OSError: [Errno 28] No space left on device", Cause.USER),
        (False, "", Cause.USER),
    ],
)
def test_the_cluster_pays_where_the_disk_of_the_node_was_full(
    disk_full: bool, tail: str, cause: Cause
) -> None:
    cluster, job = job_that_ended(Exit(code=1, disk_full=disk_full), tail)
    texts = []
    for seconds in (0.5, SETTLES_SECONDS):
        texts += [event.text for event in cluster.tick(seconds=seconds).changes.events]
    paid, full = cluster.world.jobs[job], "exit code 1: the disk of node n1 was full"
    assert (paid.infra_retries, paid.user_retries) == (
        (1, 0) if cause == Cause.INFRA else (0, 1)
    )
    assert any(full in text for text in texts) == (cause == Cause.INFRA)


@pytest.mark.parametrize(
    ("exit", "tail", "words"),
    [
        (Exit(code=1), RAISED + "MemoryError", "exit code 1: the job's memory is full"),
        (Exit(code=139), "", "exit code 139: the program crashed"),
        (Exit(signal=11), "", "killed by signal 11"),
        (Exit(code=3), "", "exit code 3"),
    ],
)
def test_a_reason_has_the_text_of_its_class_if_the_exit_does_not_say_it(
    exit: Exit, tail: str, words: str
) -> None:
    cluster, job = job_that_ended(exit, tail)
    texts = []
    for seconds in (0.5, SETTLES_SECONDS):
        texts += [event.text for event in cluster.tick(seconds=seconds).changes.events]
    assert any(text.endswith(f"rank 0 on n1: {words}") for text in texts), texts


def test_a_job_that_is_done_with_an_error_as_its_last_output_says_so() -> None:
    for marked in (True, False):
        error = "ValueError: 7" if marked else ""
        cluster, job = job_that_ended(
            Exit(code=0, ends_in_error=marked, error=error), ""
        )
        changes = cluster.tick().changes
        ended = next(one for one in changes.jobs if one.id == job)
        assert ended.state == JobState.DONE
        assert ("set -e" in ended.reason) == marked
        assert next(one for one in changes.attempts if one.job == job).quote == error


def job_at_its_limit(tail: str, *, waits: int | None = None) -> tuple[str, Attempt]:
    """Return the reason of a job that is stopped at its time limit, and its attempt."""
    cluster = Cluster(node("n1"))
    job = cluster.submit(gang(max_duration_seconds=60.0))
    cluster.up(job)
    cluster.say(job, Phase.UP, waits_for_input=waits)
    cluster.tick(seconds=61.0)
    assert cluster.world.jobs[job].state == JobState.STOPPING
    exit = Exit(signal=15, at=cluster.wall)
    cluster.say(job, Phase.ENDED, exits=((0, exit),), tails=((0, tail),))
    changes = cluster.tick().changes
    ended = next(one for one in changes.jobs if one.id == job)
    assert ended.state == JobState.FAILED
    return ended.reason, next(one for one in changes.attempts if one.job == job)


def test_a_time_limit_that_is_reached_while_it_waits_for_input_says_so() -> None:
    reason, attempt = job_at_its_limit("Go on? [y/N]", waits=0)
    assert (
        reason
        == "the job reached its max_duration of 60 s; the program waited for standard input"
    )
    assert (attempt.failure, attempt.cause) == (FailureKind.INPUT, Cause.REQUEST)
    assert attempt.quote == "Go on? [y/N]"


@pytest.mark.parametrize(
    ("tail", "failure"),
    [
        ("step 1\nProcess P-1:\n" + RAISED + "KeyError: 'frame'\n", FailureKind.CHILD),
        ("Process P-1:\n" + RAISED + "KeyError: 'frame'\nstep 2\n", None),
        (RAISED + "KeyboardInterrupt\n", None),
        (RAISED + "BrokenPipeError: [Errno 32] Broken pipe\n", None),
        ("step 1\n", None),
        ("", None),
    ],
)
def test_a_time_limit_that_is_reached_after_a_child_failed_says_so(
    tail: str, failure: FailureKind | None
) -> None:
    reason, attempt = job_at_its_limit(tail)
    assert attempt.failure == failure
    assert ("a child process failed" in reason) == (failure is not None)
    assert attempt.quote == ("KeyError: 'frame'" if failure else "")
    assert attempt.failed_at == ("train.py:3" if failure else "")


def test_advice_and_place_of_a_failure_are_kept_with_its_attempt() -> None:
    cluster, job = job_that_ended(
        Exit(code=1), RAISED + "EOFError: EOF when reading a line"
    )
    cluster.tick()
    assert cluster.outcome is not None
    attempt = next(one for one in cluster.outcome.changes.attempts if one.number == 1)
    assert (attempt.failed_at, attempt.next_step) == (
        "train.py:3",
        NextStep.STANDARD_INPUT,
    )


READ_ONLY = "OSError: [Errno 30] Read-only file system: '{}'"


@pytest.mark.parametrize(
    ("image", "kept", "path", "cause"),
    [
        (None, None, "/data/out", Cause.INFRA),
        (None, None, "/usr/lib/x", Cause.USER),
        ("a.sif", None, "/data/out", Cause.USER),
        ("a.sif", "/ckpt", "/ckpt/step-3", Cause.INFRA),
    ],
)
def test_who_writes_into_what_is_read_only_by_its_nature_pays(
    image: str | None, kept: str | None, path: str, cause: Cause
) -> None:
    cluster = Cluster(node("n1"))
    rule = CheckpointRule(path=kept) if kept else None
    job = cluster.submit(replace(gang(), image=image, checkpoint=rule))
    cluster.up(job)
    ended = Exit(code=1, at=cluster.wall)
    line = READ_ONLY.format(path)
    cluster.say(job, Phase.ENDED, exits=((0, ended),), tails=((0, RAISED + line),))
    cluster.tick()
    assert cluster.outcome is not None
    attempt = next(one for one in cluster.outcome.changes.attempts if one.number == 1)
    assert attempt.cause == cause


def test_no_node_is_let_go_before_the_last_rank_of_its_gang_is_gone() -> None:
    """And so who raised, would not leave and was killed is read by what it printed."""
    cluster = Cluster(node("n1", gpus=1), node("n2", gpus=1))
    job = cluster.submit(gang(nodes=2))
    cluster.up(job)
    first, second = cluster.world.attempts[job].nodes
    waited = Exit(code=1, at=cluster.wall)
    timed_out = RAISED + "TimeoutError: timed out"
    cluster.say(
        job, Phase.ENDED, on=first, exits=((0, waited),), tails=((0, timed_out),)
    )
    cluster.tick()
    assert settled_on(cluster, first) == ()
    killed, own = Exit(signal=9, at=cluster.wall + 1.0), RAISED + "KeyError: 'text'"
    cluster.say(job, Phase.ENDED, on=second, exits=((1, killed),), tails=((1, own),))
    cluster.tick()
    assert cluster.outcome is not None
    attempt = next(one for one in cluster.outcome.changes.attempts if one.number == 1)
    assert (attempt.failure, attempt.culprit) == (
        FailureKind.PROGRAM,
        f"rank 1 on {second}",
    )
    assert [len(settled_on(cluster, one)) for one in (first, second)] == [1, 1]


def settled_on(cluster: Cluster, node: NodeId) -> tuple[AttemptKey, ...]:
    held = [one for one in cluster.world.allocations.values() if one.seat.node == node]
    version = Version(term=1, counter=1)
    return wanted_of(
        cluster.world, node, held, cluster.facts.nodes[node], version
    ).settled
