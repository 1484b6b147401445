"""Resuming: the choice of a save, which is the same on all ranks, and its verification
and loading."""

import pickle
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from corral.domain.errors import CorralError, Refusal
from corral.domain.store_url import StoreUrl
from corral.train.process_group import ProcessGroup
from corral.train.rank_settings import Settings
from corral.train.save.checkpoint_dir import put_aside
from corral.train.save.checkpoint_store import CheckpointStore
from corral.train.save.manifest import Broken
from corral.train.save.object_restore import StoredSave, fetch_together, release
from corral.train.save.object_store import ObjectShelf
from corral.train.save.saver import say
from corral.train.save.storage import SaveReader, fill
from corral.train.save.training_state import StateHolder
from corral.train.save.verify import verify
from corral.train.save_path import SavePath


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
    starts. `folder`: the directory of this machine that has the files, once they are
    verified; None if `path` is that directory."""

    attempt: int
    step: int
    path: SavePath
    manifest_sha256: str | None
    origin: str = ""
    folder: Path | None = None

    @property
    def directory(self) -> Path:
        """Return the directory from which the save is read."""
        directory = self.path if self.folder is None else self.folder
        assert isinstance(directory, Path), f"{directory} is not on this machine"
        return directory


def candidates(settings: Settings, shelf: CheckpointStore) -> list[RestoreCandidate]:
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
    starts, does not verify; SaveUnreachable on all ranks if an object store does not
    answer.
    """
    for candidate in found:
        usable, reason = _make_usable(candidate, gang)
        if usable is not None:
            return usable
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
    reader = SaveReader(candidate.directory)
    try:
        metadata = reader.read_metadata()
        template = holder.template(metadata)
        fill(template, reader, metadata, weights_only=not _is_trusted(candidate))
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


def _make_usable(
    candidate: RestoreCandidate, gang: ProcessGroup
) -> tuple[RestoreCandidate | None, str]:
    """Return the candidate once its files are verified in a directory of this machine;
    else None and the reason. All ranks get the same answer."""
    if isinstance(candidate.path, StoreUrl) and candidate.folder is None:
        save = StoredSave(
            url=candidate.path,
            attempt=candidate.attempt,
            step=candidate.step,
            manifest_sha256=candidate.manifest_sha256,
        )
        try:
            folder = fetch_together(save, gang)
        except Broken as error:
            return None, error.message
        return replace(candidate, folder=folder), ""
    troubles = list(filter(None, gang.gather(_verify_candidate(candidate, gang))))
    reason = gang.share(troubles[0] if troubles else "")
    return (None, reason) if reason else (candidate, "")


def release_fetched(candidate: RestoreCandidate, gang: ProcessGroup) -> None:
    """Remove the fetched files of a save that all ranks have loaded. All ranks must call
    this."""
    if isinstance(candidate.path, StoreUrl) and candidate.folder is not None:
        release(candidate.folder, gang)


def _verify_candidate(candidate: RestoreCandidate, gang: ProcessGroup) -> str:
    try:
        verify(
            candidate.directory,
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
    if isinstance(candidate.path, StoreUrl):
        _quarantine_in_store(candidate.path, why)
        return
    try:
        aside = put_aside(candidate.directory, why)
    except OSError as error:
        say(
            f"the damaged save could not be renamed: {error.strerror}; the save before it "
            "is used"
        )
    else:
        say(f"the damaged save was renamed to {aside.name}; the save before it is used")


def _quarantine_in_store(url: StoreUrl, why: str) -> None:
    root = url.parent.parent
    try:
        ObjectShelf(root=root, job="", attempt=0).put_aside(url, why)
    except CorralError as error:
        say(
            f"the damaged save could not be marked: {error.message}; the save before it "
            "is used"
        )
    else:
        say("the damaged save is not read again; the save before it is used")


def _is_trusted(candidate: RestoreCandidate) -> bool:
    """Return whether only this job can have written the save. Everyone with the
    credentials of a bucket can write a save that no head has recorded."""
    is_recorded = candidate.manifest_sha256 is not None
    return is_recorded or not isinstance(candidate.path, StoreUrl)
