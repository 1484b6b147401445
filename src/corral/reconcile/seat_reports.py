"""The nodes' reports about an attempt, for each seat of its gang."""

from dataclasses import dataclass

from corral.domain.attempt import Allocation, Attempt, Exit
from corral.domain.ids import NodeId
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.reconcile.changeset import Draft


@dataclass(frozen=True, slots=True)
class SeatReport:
    """A gang's seat on one node, with what the node's agent reports about the attempt
    (`seen`); None if it reports nothing about the attempt."""

    allocation: Allocation
    seen: Seen | None

    @property
    def is_over(self) -> bool:
        return self.seen is not None and self.seen.phase.is_over

    @property
    def is_clean(self) -> bool:
        attempt_report = self.seen
        if (
            attempt_report is None
            or attempt_report.phase != Phase.ENDED
            or attempt_report.trouble
        ):
            return False
        return bool(attempt_report.exits) and all(
            exit.clean for _, exit in attempt_report.exits
        )

    @property
    def has_failed(self) -> bool:
        attempt_report = self.seen
        if attempt_report is None:
            return False
        bad = any(not exit.clean for _, exit in attempt_report.exits)
        return (
            bad or bool(attempt_report.trouble) or (self.is_over and not self.is_clean)
        )


def seen_at(draft: Draft, node: NodeId, key: AttemptKey) -> Seen | None:
    """Return the node's newest report about the attempt. Return None if the node has
    not reported the attempt. Also return None from the moment at which the node is
    proven dead until it reports again."""
    heard = draft.facts.nodes.get(node)
    if heard is None or node in draft.facts.proofs or node in draft.facts.awaited:
        return None
    # no generator: thousands of seats are looked at each second
    for attempt_report in heard.seen:
        if attempt_report.key == key:
            bare = key[0] in draft.facts.unrecordable
            return Seen(key=key, phase=attempt_report.phase) if bare else attempt_report
    return None


def has_stepped(parts: list[SeatReport]) -> bool:
    beats = [
        seat_report.seen.progress
        for seat_report in parts
        if seat_report.seen and seat_report.seen.progress
    ]
    return any(beat.step > beat.first_step for beat in beats)


def rank_exits(part: SeatReport) -> tuple[tuple[int, Exit], ...]:
    return part.seen.exits if part.seen is not None else ()


def start_time_of(part: SeatReport) -> float:
    started_at = part.seen.started_at if part.seen is not None else None
    return started_at if started_at is not None else part.allocation.since


def last_step_of(parts: list[SeatReport], attempt: Attempt) -> int | None:
    steps = [
        seat_report.seen.progress.step
        for seat_report in parts
        if seat_report.seen and seat_report.seen.progress
    ]
    steps += [attempt.last_step] if attempt.last_step is not None else []
    return max(steps, default=None)
