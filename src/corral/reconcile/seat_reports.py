"""The nodes' reports about an attempt, for each seat of its gang."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from corral.domain.attempt import Allocation, Attempt, Exit
from corral.domain.ids import NodeId
from corral.domain.observed_state import AttemptKey, Phase, Progress, Seen
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


def with_progress(attempt: Attempt, parts: list[SeatReport]) -> Attempt:
    """Return the attempt with what its nodes report about its steps: the newest one and
    its time, and for how long loading and saving took. What no node reports any more
    stays as it was."""
    beats = [
        seat_report.seen.progress
        for seat_report in parts
        if seat_report.seen and seat_report.seen.progress
    ]
    return with_beats(attempt, beats)


def with_beats(attempt: Attempt, beats: Iterable[Progress]) -> Attempt:
    """Return the attempt with the values of these reports, as with_progress does."""
    measured = attempt
    for beat in beats:
        has_stepped_here = beat.step > beat.first_step
        measured = replace(
            measured,
            last_step=max(measured.last_step or 0, beat.step),
            last_step_at=max(measured.last_step_at or 0.0, beat.at)
            if has_stepped_here and beat.at
            else measured.last_step_at,
            restore_seconds=max(measured.restore_seconds or 0.0, beat.restore_seconds),
            save_seconds=max(measured.save_seconds or 0.0, beat.save_seconds),
        )
    return measured
