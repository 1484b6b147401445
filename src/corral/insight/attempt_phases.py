"""Phases of an attempt: the moments that divide its time into start, restore, steps,
lost steps and hang (0174)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from corral.domain.attempt import Attempt, Save
from corral.domain.receipt import Receipt, ReceiptKind

# of a failed attempt without a step before its end; less is the time to notice the end
LEAST_STALL_SECONDS: Final = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptPhases:
    """Moments of an attempt (wall clock), each at or after the one before.

    Args:
        placed_at: Its start-up begins.
        restored_from: It begins to load a save.
        stepped_from: Its first step is made.
        kept_until: Work until here was not lost.
        stalled_from: Its last step was made, although more were to follow.
        ended_at: Its end, or the present moment.
        save_share: Share of the kept time in which a save stopped the steps.
        hung_share: Share of the kept time in hangs that ended with another step.
        is_stopping: What follows the kept time was spent stopping, after a save.
    """

    placed_at: float
    restored_from: float
    stepped_from: float
    kept_until: float
    stalled_from: float
    ended_at: float
    save_share: float = 0.0
    hung_share: float = 0.0
    is_stopping: bool = False


def phases_of(
    attempt: Attempt,
    saves: Iterable[Save],
    *,
    until: float,
    receipt: Receipt | None = None,
    reports_steps: bool = False,
    redone_from: float | None = None,
) -> AttemptPhases:
    """Return the phases of an attempt that has ended, or runs at `until`.

    Args:
        saves: The usable saves of its job.
        receipt: The cost of its end; None: it has lost nothing, or still runs.
        reports_steps: The attempts of its job report steps. One without a step has
            then only started.
        redone_from: From this moment on its steps were made again later; None: none of
            them, as far as that does not follow from the receipt.
    """
    own_saves = [save for save in saves if save.attempt == attempt.number]
    ended_at = min(until, until if attempt.ended_at is None else attempt.ended_at)
    ended_at = max(ended_at, attempt.placed_at)
    begun = _begun_at(attempt, reports_steps=reports_steps)
    begun = ended_at if begun is None else _within(begun, attempt.placed_at, ended_at)
    stalled_from = max(
        attempt.placed_at, min(ended_at, _stalled_from(attempt, receipt, begun))
    )
    begun = min(begun, stalled_from)
    kept_until, is_stopping = _kept_until(own_saves, receipt, ended_at)
    if redone_from is not None and redone_from < kept_until:
        kept_until, is_stopping = redone_from, False
    kept_until = _within(kept_until, begun, stalled_from)
    kept_seconds = kept_until - begun
    stall_seconds = max(
        sum(save.stall_seconds for save in own_saves), attempt.save_seconds or 0.0
    )
    save_share = hung_share = 0.0
    if kept_seconds > 0:
        save_share = min(1.0, stall_seconds / kept_seconds)
        hung_share = min(1.0 - save_share, attempt.hung_seconds / kept_seconds)
    return AttemptPhases(
        placed_at=attempt.placed_at,
        restored_from=max(attempt.placed_at, begun - (attempt.restore_seconds or 0.0)),
        stepped_from=begun,
        kept_until=kept_until,
        stalled_from=stalled_from,
        ended_at=ended_at,
        save_share=save_share,
        hung_share=hung_share,
        is_stopping=is_stopping,
    )


def has_made_steps(attempt: Attempt) -> bool:
    """Return whether a step of the attempt was reported."""
    reached = attempt.last_step if attempt.last_step is not None else -1
    return attempt.first_step_at is not None or reached > (attempt.resume_step or 0)


def _begun_at(attempt: Attempt, *, reports_steps: bool) -> float | None:
    if attempt.first_step_at is not None:
        return attempt.first_step_at
    watched = reports_steps or attempt.hang is not None
    return None if watched and not has_made_steps(attempt) else attempt.running_at


def _stalled_from(attempt: Attempt, receipt: Receipt | None, begun: float) -> float:
    """Return when the attempt hung, or made its last step well before it failed; the
    end of time if it did neither."""
    if attempt.hang is not None:
        return attempt.hang.at - attempt.hang.stalled_seconds
    last, ended = attempt.last_step_at, attempt.ended_at
    has_failed = receipt is not None and receipt.kind is ReceiptKind.FAILURE
    if not has_failed or last is None or ended is None or last < begun:
        return float("inf")
    return last if ended - last >= LEAST_STALL_SECONDS else float("inf")


def _kept_until(
    own_saves: Iterable[Save], receipt: Receipt | None, ended_at: float
) -> tuple[float, bool]:
    """Return until when work was kept, and whether what follows it was no work: the
    attempt was stopping after a save of its last step."""
    if receipt is None or not receipt.kind.has_loss:
        return ended_at, False
    newest = [save for save in own_saves if save.step == receipt.resumed_from_step]
    if receipt.steps_lost == 0:
        return (min(ended_at, newest[-1].at), True) if newest else (ended_at, False)
    kept_until = ended_at - (receipt.seconds_lost or 0.0)
    # steps made while the save was being written are lost, too
    return min([kept_until, *(save.at - save.seconds for save in newest)]), False


def _within(moment: float, least: float, most: float) -> float:
    return min(max(moment, least), most)
