"""Whose budget pays is read from what the ranks printed last, whatever code they ended with."""

import pytest

from corral.domain.attempt import Cause, Exit
from corral.domain.facts import Phase
from corral.domain.failure import FailureKind
from corral.domain.job import Retry
from tests.worlds import Cluster, gang, node

RAISED = 'Traceback (most recent call last):\n  File "train.py", line 3, in <module>\n'


@pytest.mark.parametrize(
    ("line", "kind", "cause"),
    [
        ("OSError: [Errno 5] Input/output error: '/data/a'", FailureKind.STORAGE, Cause.INFRA),
        ("ModuleNotFoundError: No module named 'yaml'", FailureKind.MODULE, Cause.USER),
    ],
)
def test_the_cluster_pays_for_what_is_wrong_with_a_machine(
    line: str, kind: FailureKind, cause: Cause
) -> None:
    cluster = Cluster(node("n1"))
    job = cluster.submit(gang(retry=Retry(infra=1, user=1)))
    cluster.up(job)
    ended = Exit(code=1, at=cluster.wall)
    cluster.say(job, Phase.ENDED, exits=((0, ended),), tails=((0, RAISED + line),))
    cluster.tick()
    assert cluster.outcome is not None
    attempt = next(one for one in cluster.outcome.changes.attempts if one.number == 1)
    paid = cluster.world.jobs[job]
    assert (attempt.failure, attempt.cause, attempt.quote) == (kind, cause, line)
    assert (paid.infra_retries, paid.user_retries) == ((1, 0) if cause == Cause.INFRA else (0, 1))
