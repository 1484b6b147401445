"""Texts about the accounts under which ranks ran, if the account may explain a failure."""

from typing import Final

from corral.domain.attempt import Attempt
from corral.domain.failure_class import FailureKind
from corral.domain.job import Job
from corral.domain.user_isolation import separation_of
from corral.domain.world import World

OF_ACCOUNTS: Final = frozenset(
    {FailureKind.COMMAND, FailureKind.MODULE, FailureKind.FILES, FailureKind.PERMISSION}
)


def rank_account_text(world: World, job: Job, attempt: Attempt) -> str:
    """Return a text about the account that the ranks of an attempt ran as.

    For example: the ranks ran as guest on n1, not as ann: PATH, home directory and file
    permissions were those of guest. Return "" if the failure has another cause, or if
    the account is the job owner's.
    """
    if attempt.failure not in OF_ACCOUNTS:
        return ""
    for seat in attempt.seats:
        node = world.nodes.get(seat.node)
        account = "" if node is None else separation_of(node.inventory).account
        if account and account != job.owner:
            return (
                f"the ranks ran as {account} on {seat.node}, not as {job.owner}: PATH, home "
                f"directory and file permissions were those of {account}"
            )
    return ""
