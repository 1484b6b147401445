"""Handling of a commit with rows that the store cannot encode: search for the job or
node that each bad row belongs to, and removal of the row from the commit."""

from collections.abc import Awaitable, Callable, Iterable
from collections.abc import Sequence as Seq
from dataclasses import replace
from itertools import count
from typing import Any, Final, NamedTuple

from corral.control.gpu_usage import with_news
from corral.domain.bounds import SENTENCE_LETTERS, cut
from corral.domain.errors import Unrecordable
from corral.domain.ids import JobId
from corral.domain.ledger import UsageRecord
from corral.domain.node import Node
from corral.domain.observed_state import Facts
from corral.domain.world import Changes, Event
from corral.ports.log import HeadLogger
from corral.reconcile import PassOutcome

log = HeadLogger("corral.control")

MOST_ROUNDS: Final = 8  # of one tick; then the world is loaded again


class Decided(NamedTuple):
    """The outcome of a pass, the changes that were committed, and their events.
    `events` is None if nothing was committed."""

    outcome: PassOutcome
    changes: Changes
    events: Seq[Event] | None


async def decided(
    reconcile: Callable[[bool], PassOutcome],
    commit: Callable[[Changes], Awaitable[Seq[Event] | None]],
    news: Changes,
    facts: Facts,
) -> Decided:
    """Reconcile and commit. If the store cannot hold a row, reconcile again without
    this row.

    The job that the row belongs to fails. If the row belongs to a node, the node's
    heartbeats are ignored. Both are noted in `facts`. Everything else is committed.

    Args:
        reconcile: Makes the decision. With True, it decides for every job and does not
            reuse what the last tick has kept.
        commit: Writes the changes. It returns None if there was nothing to write.
        news: Events and accounts that are committed together with the decision.
    Raises: what `commit` raises; Unrecordable if another try would end the same way.
    """
    left_out = LeftOut()
    for round in count():
        outcome = reconcile(round > 0)
        changes = left_out.without(with_news(outcome.changes, news))
        try:
            return Decided(outcome, changes, await commit(changes))
        except Unrecordable as error:
            if not left_out.take(error, facts) or round == MOST_ROUNDS:
                raise
    raise AssertionError("the rounds have a bound")


class LeftOut:
    """Rows that no store can record. The commit of one tick leaves them out if no job
    or node depends on them."""

    def __init__(self) -> None:
        self._rows: set[str] = set()

    def take(self, error: Unrecordable, facts: Facts) -> bool:
        """Process the rows that the store could not record. A job that owns such a row
        is noted as failed. A node that owns such a row is noted, and its heartbeats are
        ignored. Any other row is left out.

        Return False if nothing new was noted, so that another try would end the same
        way.
        """
        previous_counts = (len(self._rows), len(facts.unrecordable), len(facts.unheard))
        for row, reason in error.rows:
            log.error(
                "unrecordable",
                row=type(row).__name__,
                of=_row_owner(row),
                why=reason[:400],
            )
            if isinstance(row, Node):
                facts.unheard[row.id] = cut(reason, SENTENCE_LETTERS)
            elif (job := _job_of(row)) is not None:
                facts.unrecordable[job] = cut(reason, SENTENCE_LETTERS)
            else:
                self._rows.add(_row_key(row))
        return previous_counts != (
            len(self._rows),
            len(facts.unrecordable),
            len(facts.unheard),
        )

    def without(self, changes: Changes) -> Changes:
        """Return the changes without the rows that are left out."""
        if not self._rows:
            return changes
        return replace(
            changes,
            events=self._kept(changes.events),
            accounts=self._kept(changes.accounts),
            uses=self._kept(changes.uses),
            spent=self._kept(changes.spent),
            debts=self._kept(changes.debts),
            gateway_counts=self._kept(changes.gateway_counts),
        )

    def _kept(self, rows: Iterable[Any]) -> tuple[Any, ...]:
        return tuple(row for row in rows if _row_key(row) not in self._rows)


def _row_key(row: object) -> str:
    return repr(row.numbered(0) if isinstance(row, Event) else row)


def _job_of(row: object) -> JobId | None:
    """Return the job that the row belongs to. None for a row that no job depends on."""
    if isinstance(row, Event | UsageRecord):
        return None
    return getattr(row, "job", None) or getattr(row, "id", None)


def _row_owner(row: object) -> str:
    return str(
        getattr(row, "job", None)
        or getattr(row, "node", None)
        or getattr(row, "id", "")
    )
