"""Resuming: the choice of a save, which is the same on all ranks, and its verification
and loading."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from corral.domain.errors import Refusal
from corral.train.process_group import ProcessGroup
from corral.train.rank_settings import Settings
from corral.train.save.checkpoint_dir import Shelf, put_aside
from corral.train.save.manifest import Broken
from corral.train.save.saver import say
from corral.train.save.storage import SaveReader, fill
from corral.train.save.training_state import StateHolder
from corral.train.save.verify import verify


class DoesNotFit(Refusal):
    """The error for an intact save whose model or optimizer differs from those of the
    script."""

    code = "checkpoint_does_not_fit"


class OriginBroken(Refusal):
    """The error for a save of another job that fails verification, where this job is to
    start from that save."""

    code = "origin_broken"


class NotTrusted(Refusal):
    """The error for an intact save that other accounts can change, and that would run
    code when it is loaded."""

    code = "checkpoint_not_trusted"


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreCandidate:
    """A save from which the job might resume. `manifest_sha256` None: no head has
    recorded the save. `origin`: the other job that wrote the save, from which this job
    starts."""

    attempt: int
    step: int
    path: Path
    manifest_sha256: str | None
    origin: str = ""


def candidates(settings: Settings, shelf: Shelf) -> list[RestoreCandidate]:
    """Return the saves from which the job may resume, the best first.

    With a head, these are first the saves of this same attempt, then the saves that the
    head has recorded. An attempt can have earlier saves because a launcher such as
    torchrun may restart its ranks. Without a head, every complete save is a candidate.
    """
    restore_candidates = [
        RestoreCandidate(
            attempt=slot.attempt, step=slot.step, path=slot.path, manifest_sha256=None
        )
        for slot in shelf.saves()
        if settings.resume is None or slot.attempt == shelf.attempt
    ]
    recorded = [
        RestoreCandidate(
            attempt=committed.attempt,
            step=committed.step,
            path=committed.path,
            manifest_sha256=committed.manifest_sha256,
            origin="" if settings.is_own(committed) else committed.job,
        )
        for committed in settings.resume or ()
    ]
    return restore_candidates + recorded


def choose(
    found: Sequence[RestoreCandidate],
    gang: ProcessGroup,
    report: Callable[[RestoreCandidate, str], None],
) -> RestoreCandidate | None:
    """Return the first candidate that verifies; None if none does. Rank 0 quarantines
    and reports the candidates before it.

    Every rank must call this with the same candidates; each rank hashes only its part
    of the files.
    Raises: OriginBroken on all ranks if the save of another job, from which this job
    starts, does not verify.
    """
    for candidate in found:
        troubles = [
            trouble
            for trouble in gang.gather(_verify_candidate(candidate, gang))
            if trouble
        ]
        reason = gang.share(troubles[0] if troubles else "")
        if not reason:
            return candidate
        if candidate.origin:
            raise OriginBroken(
                f"the save of step {candidate.step} of {candidate.origin}, which this job starts "
                f"from, does not verify: {reason} ({candidate.path}); name another: "
                f"--from {candidate.origin}@STEP",
                hint=f"run: corral checkpoints {candidate.origin}",
            )
        if gang.leads:
            _quarantine(candidate, reason)
            report(candidate, reason)
    if found and gang.leads:
        say("no usable save was found: training starts at step 0")
    return None


def load(candidate: RestoreCandidate, holder: StateHolder) -> dict[str, Any]:
    """Load a verified save into the objects of the holder. Return the state that is
    common to all ranks.

    Raises: DoesNotFit if the model or the optimizer differs; NotTrusted if the save
    would run code that other accounts may have put there.
    """
    reader = SaveReader(candidate.path)
    try:
        metadata = reader.read_metadata()
        template = holder.template(metadata)
        fill(template, reader, metadata)
        return holder.restore(template)
    except pickle.UnpicklingError as error:
        raise NotTrusted(
            f"the save of step {candidate.step} is not loaded: other accounts can change its "
            "files, and it contains more than tensors and plain values: "
            f"{str(error).splitlines()[0]}",
            hint="resume as its owner, or inspect it and copy it to a directory of your own: "
            f"cp -r {candidate.path} DIR",
        ) from error
    except (RuntimeError, ValueError, KeyError) as error:
        raise DoesNotFit(
            f"the save of step {candidate.step} is complete, but does not fit this model: "
            f"{error}",
            hint="set another checkpoint path for this job than "
            f"{candidate.path.parent.parent}",
        ) from error


def _verify_candidate(candidate: RestoreCandidate, gang: ProcessGroup) -> str:
    try:
        verify(
            candidate.path,
            attempt=candidate.attempt,
            step=candidate.step,
            manifest_sha256=candidate.manifest_sha256,
            part=gang.rank,
            parts=gang.world_size,
        )
    except Broken as error:
        return error.message
    return ""


def _quarantine(candidate: RestoreCandidate, why: str) -> None:
    say(f"THE SAVE OF STEP {candidate.step} DOES NOT VERIFY: {why} ({candidate.path})")
    try:
        aside = put_aside(candidate.path, why)
    except OSError as error:
        say(
            f"the damaged save could not be renamed: {error.strerror}; the save before it "
            "is used"
        )
    else:
        say(f"the damaged save was renamed to {aside.name}; the save before it is used")
