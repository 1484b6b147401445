"""The account of ranks is named where it may explain a failure, and nowhere else."""

from dataclasses import replace

import pytest

from corral.control.rank_accounts import rank_account_text
from corral.domain.failure_class import FailureKind
from tests.worlds import Cluster, gang, node


@pytest.mark.parametrize(
    ("account", "failure", "is_named"),
    [
        ("nobody", FailureKind.COMMAND, True),
        ("nobody", FailureKind.MODULE, True),
        ("nobody", FailureKind.GPU_MEMORY, False),
        ("nobody", None, False),
        ("", FailureKind.COMMAND, False),
    ],
)
def test_an_account_that_is_not_the_owners_is_named_for_what_it_may_explain(
    account: str, failure: FailureKind | None, is_named: bool
) -> None:
    one = node("n1")
    cluster = Cluster(
        replace(one, inventory=replace(one.inventory, shared_account=account))
    )
    id = cluster.submit(gang("train"))
    cluster.up(id)
    job, attempt = cluster.world.jobs[id], cluster.world.attempts[id]
    text = rank_account_text(cluster.world, job, replace(attempt, failure=failure))
    assert (
        text.startswith(f"the ranks ran as nobody on n1, not as {job.owner}")
        == is_named
    )
    assert bool(text) == is_named
