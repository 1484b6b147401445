"""Rules for jobs in the batch system's own queue, used where the batch system places
jobs itself. No I/O."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from corral.domain.external_candidate import ExternalCandidate
from corral.domain.ids import NodeId
from corral.domain.observed_state import AttemptKey
from corral.engines.batch.attempt_state import MISSED_LOOKS, BatchAttemptState
from corral.engines.batch.interfaces import BatchSnapshot, Ticket, TicketState

# that stand in the batch system's line at once; the others follow
MOST_WAITING: Final = 1000
# after which what the batch system has refused or ended is asked again
AGAIN_SECONDS: Final = 60.0
MOST_INDEX: Final = 1000  # the default of Slurm's MaxArraySize allows no higher one


@dataclass(slots=True, kw_only=True)
class QueuedAttempt(BatchAttemptState):
    """One attempt that was submitted to the batch system for placement. `excluded`: the
    nodes that the submission excluded. `is_withdrawn`: it must be cancelled there."""

    excluded: tuple[NodeId, ...] = ()
    is_withdrawn: bool = False

    @property
    def is_over(self) -> bool:
        """Return whether the batch system no longer has the attempt, or has refused it."""
        return bool(self.refusal) or self.is_gone

    @property
    def is_left(self) -> bool:
        """Return whether the batch system may still have a job of the attempt."""
        return self.submitted and not self.is_over

    @property
    def chosen(self) -> tuple[NodeId, ...]:
        """The nodes that the batch system has given to the attempt; empty until its
        ticket is RUNNING."""
        is_granted = (
            self.ticket is not None and self.ticket.state == TicketState.RUNNING
        )
        return self.ticket.nodes if self.ticket is not None and is_granted else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DueAsking:
    """Actions that are due in the batch system's own queue: `ask`, groups to submit,
    each as one array or one job; `cancel` and `forget`, attempts to cancel or to delete
    there."""

    ask: tuple[tuple[ExternalCandidate, ...], ...] = ()
    cancel: tuple[AttemptKey, ...] = ()
    forget: tuple[AttemptKey, ...] = ()


@dataclass(slots=True)
class Asking:
    """Bookkeeping of the attempts that wait for a placement by the batch system.
    `asked`: all attempts that were submitted, or are to be, and have not begun.

    An attempt that the head no longer offers is withdrawn. An attempt that has begun is
    kept by the Desk instead. Times are by a monotonic clock.
    """

    asked: dict[AttemptKey, QueuedAttempt] = field(default_factory=dict)
    _offered: dict[AttemptKey, ExternalCandidate] | None = None
    _has_looked: bool = False
    # not before, why
    _again: dict[AttemptKey, tuple[float, str]] = field(default_factory=dict)

    # -- what comes in ---------------------------------------------------------------------------

    def offer(self, waiting: Sequence[ExternalCandidate]) -> None:
        """Store the head's complete list of waiting jobs, in queue order. Attempts that
        are no longer in it are withdrawn. None of the jobs is wanted on a node yet."""
        self._offered = {
            external_candidate.key: external_candidate for external_candidate in waiting
        }
        self._again = {
            key: refusal for key, refusal in self._again.items() if key in self._offered
        }
        for key, queued_attempt in self.asked.items():
            queued_attempt.is_withdrawn |= key not in self._offered

    def look(self, look: BatchSnapshot, begun: Iterable[AttemptKey]) -> None:
        """Process `look`, the result of a poll, for the waiting attempts. Those in
        `begun` belong to the Desk."""
        self._has_looked = True
        tickets = {ticket.key: ticket for ticket in look.tickets}
        for key in {*tickets, *look.kept} - set(begun):
            self.asked.setdefault(key, QueuedAttempt(key=key)).submitted = True
        for key, queued_attempt in self.asked.items():
            if ticket := tickets.get(key):
                queued_attempt.ticket, queued_attempt.missed = ticket, 0
            else:
                queued_attempt.missed += queued_attempt.submitted
                if queued_attempt.missed >= MISSED_LOOKS:
                    queued_attempt.ticket = None
            queued_attempt.is_withdrawn |= self._must_be_asked_anew(queued_attempt)

    def submitted(self, group: Iterable[ExternalCandidate]) -> None:
        """Record that the group was submitted; later snapshots will show its attempts."""
        for candidate in group:
            queued_attempt = self.asked.setdefault(
                candidate.key, QueuedAttempt(key=candidate.key)
            )
            queued_attempt.submitted, queued_attempt.excluded = True, candidate.excluded

    def refused(self, group: Iterable[ExternalCandidate], why: str) -> None:
        """Record that the batch system does not accept the attempts of the group as
        they are."""
        for candidate in group:
            queued_attempt = self.asked.setdefault(
                candidate.key, QueuedAttempt(key=candidate.key)
            )
            queued_attempt.refusal = why

    def begins(self, key: AttemptKey) -> Ticket | None:
        """Remove an attempt from the waiting ones, because it begins on its nodes.
        Return its newest report from the batch system; None if it was not waiting or
        has no report."""
        queued_attempt = self.asked.pop(key, None)
        return None if queued_attempt is None else queued_attempt.ticket

    def forgotten(self, key: AttemptKey, at: float) -> None:
        """Remove an attempt whose folder has been deleted. If the head still wants it,
        it is submitted again after a pause."""
        queued_attempt = self.asked.pop(key, None)
        if (
            queued_attempt is not None
            and not queued_attempt.is_withdrawn
            and (retry_reason := _why_over(queued_attempt))
        ):
            self._again[key] = (at + AGAIN_SECONDS, retry_reason)

    # -- what follows ----------------------------------------------------------------------------

    def due(self, at: float) -> DueAsking:
        """Return the actions that are due; none until the head has offered jobs and a
        poll has arrived."""
        if self._offered is None or not self._has_looked:
            return DueAsking()
        all_asked = self.asked.items()
        withdrawn = [
            key
            for key, queued_attempt in all_asked
            if queued_attempt.is_withdrawn and not queued_attempt.is_over
        ]
        ended_keys = [
            key for key, queued_attempt in all_asked if queued_attempt.is_over
        ]
        never = [
            key
            for key, queued_attempt in all_asked
            if queued_attempt.is_withdrawn and not queued_attempt.submitted
        ]
        return DueAsking(
            ask=tuple(self._groups(at)),
            cancel=tuple(
                key for key in withdrawn if self.asked[key].ticket is not None
            ),
            forget=tuple(dict.fromkeys([*ended_keys, *never])),
        )

    def chosen(self) -> Mapping[AttemptKey, tuple[NodeId, ...]]:
        """Return the nodes that the batch system has given to attempts that are not
        withdrawn. They may begin there."""
        nodes_by_attempt = {
            key: queued_attempt.chosen
            for key, queued_attempt in self.asked.items()
            if not queued_attempt.is_withdrawn
        }
        return {key: nodes for key, nodes in nodes_by_attempt.items() if nodes}

    def says(self) -> Mapping[AttemptKey, str]:
        """Return the reasons why attempts without nodes wait, as far as they are known."""
        reasons = {key: retry_reason for key, (_, retry_reason) in self._again.items()}
        for key, queued_attempt in self.asked.items():
            if queued_attempt.ticket is not None and queued_attempt.ticket.reason:
                reasons[key] = queued_attempt.ticket.reason
            elif queued_attempt.refusal:
                reasons[key] = queued_attempt.refusal
        return reasons

    # -- the rules -------------------------------------------------------------------------------

    def _must_be_asked_anew(self, one: QueuedAttempt) -> bool:
        """Return whether the attempt must be submitted again: it was given a node that
        is now excluded, or it still waits and may now use a node that its submission
        excluded."""
        candidate = (self._offered or {}).get(one.key)
        if candidate is None or one.ticket is None:
            return False
        excluded = set(candidate.excluded)
        if one.ticket.state == TicketState.WAITING:
            return not excluded >= set(one.excluded)
        return bool(excluded & set(one.chosen))

    def _groups(self, at: float) -> Iterable[tuple[ExternalCandidate, ...]]:
        """Yield the groups of attempts to submit now. Jobs of one array that can be
        submitted alike form one group."""
        room = MOST_WAITING - sum(
            not queued_attempt.chosen for queued_attempt in self.asked.values()
        )
        fresh_candidates = [
            candidate
            for candidate in (self._offered or {}).values()
            if self._is_fresh(candidate.key, at)
        ]
        groups: dict[object, list[ExternalCandidate]] = {}
        for external_candidate in fresh_candidates[: max(room, 0)]:
            groups.setdefault(_group_key(external_candidate), []).append(
                external_candidate
            )
        for group in groups.values():
            if allowed := self._allowed(group):
                yield tuple(group[:allowed])

    def _is_fresh(self, key: AttemptKey, at: float) -> bool:
        queued_attempt = self.asked.get(key)
        not_before, _ = self._again.get(key, (at, ""))
        return not_before <= at and (
            queued_attempt is None
            or not (queued_attempt.submitted or queued_attempt.refusal)
        )

    def _allowed(self, group: Sequence[ExternalCandidate]) -> int:
        """Return how many attempts of the group may be submitted now. An array's limit
        on running jobs counts all its groups, so jobs that run or are already submitted
        are subtracted."""
        first_candidate = group[0]
        limit = first_candidate.spec.array_limit
        if limit is None or first_candidate.array is None:
            return len(group)
        offered = self._offered or {}
        beside = first_candidate.running + sum(
            offered[key].array == first_candidate.array and queued_attempt.submitted
            for key, queued_attempt in self.asked.items()
            if key in offered
        )
        return len(group) if beside == 0 else max(limit - beside, 0)


def _group_key(one: ExternalCandidate) -> object:
    index = one.spec.array_index
    if one.array is None or index is None or index > MOST_INDEX:
        return one.key
    spec = one.spec
    return (
        one.array,
        one.key[1],
        one.shape,
        spec.place.exclusive,
        one.excluded,
        spec.max_duration_seconds,
    )


def _why_over(one: QueuedAttempt) -> str:
    """Return why an attempt will not begin from its present submission: it was refused,
    or its batch job ended too early. "" if the batch system never had a job for it."""
    if one.refusal:
        return one.refusal
    if one.ticket is None:
        return ""
    blame = one.ticket.blame or "its batch job ended before the attempt began"
    return f"{blame}; it is submitted again within a minute"
