"""Choice, opening and listing of the place in which this attempt saves."""

from typing import Final

from corral.domain.errors import CorralError, Trouble
from corral.domain.keep_rule import SaveKey
from corral.domain.store_url import StoreUrl
from corral.train.process_group import ProcessGroup
from corral.train.rank_settings import Settings
from corral.train.save.checkpoint_dir import Shelf, attempts, claim
from corral.train.save.checkpoint_store import CheckpointStore
from corral.train.save.object_store import ObjectShelf, claim_prefix
from corral.train.save.object_target import StoreLimits
from corral.train.save.restore import RestoreCandidate, candidates
from corral.train.save_path import SavePath

RETRY_SECONDS: Final = 120.0  # of a save that the library itself times
LONGEST_RETRY_SECONDS: Final = 600.0


class CannotSave(Trouble):
    """The error for a place of saves that cannot be used."""

    code = "cannot_save"


def open_checkpoint_store(settings: Settings) -> CheckpointStore:
    """Return the place of this attempt's saves, opened: older attempts are fenced.

    Raises: OSError, Fenced, StoreRefused, StoreUnavailable, Unsupported without obstore.
    """
    place = settings.checkpoint_path
    assert place is not None
    if isinstance(place, StoreUrl):
        limits = StoreLimits(
            retry_seconds=min(
                settings.interval_seconds or RETRY_SECONDS, LONGEST_RETRY_SECONDS
            ),
            bytes_per_second=settings.bytes_per_second,
        )
        root = claim_prefix(place, settings.job, limits)
        number = 0 if settings.attempt is None else settings.attempt
        store = ObjectShelf(root=root, job=settings.job, attempt=number, limits=limits)
        store.open()
        return store
    directory = claim(place, settings.job)
    attempt = settings.attempt
    if attempt is None:  # no head: each run is an attempt of its own
        attempt = max(attempts(directory), default=0) + 1
    shelf = Shelf(
        root=directory,
        job=settings.job,
        attempt=attempt,
        bytes_per_second=settings.bytes_per_second,
    )
    shelf.open()
    return shelf


def open_together(
    settings: Settings, gang: ProcessGroup
) -> tuple[CheckpointStore, set[SaveKey]]:
    """Open the place of this attempt's saves on rank 0. Return it, and the saves there
    that count as recorded because there is no head. All ranks must call this together.

    Raises: CannotSave on all ranks.
    """
    opened: tuple[CheckpointStore, set[SaveKey]] | str = ""
    if gang.leads:
        try:
            store = open_checkpoint_store(settings)
            slots = store.saves() if settings.resume is None else ()
            opened = store, {slot.age_key for slot in slots}
        except (OSError, CorralError) as error:
            opened = _describe_failure(error)
    shared: tuple[CheckpointStore, set[SaveKey]] | str = gang.share(opened)
    if isinstance(shared, str):
        place = settings.checkpoint_path
        raise CannotSave(
            f"saves cannot be written to {place}: {shared}", hint=_hint_of(place)
        )
    return shared


def list_together(
    settings: Settings, store: CheckpointStore, gang: ProcessGroup
) -> list[RestoreCandidate]:
    """Return the saves from which the job may resume, the best first. All ranks must
    call this together.

    Raises: CannotSave on all ranks.
    """
    listed: list[RestoreCandidate] | str = []
    if gang.leads:
        try:
            listed = candidates(settings, store)
        except (OSError, CorralError) as error:
            listed = _describe_failure(error)
    shared: list[RestoreCandidate] | str = gang.share(listed)
    if isinstance(shared, str):
        place = settings.checkpoint_path
        raise CannotSave(
            f"the saves in {place} cannot be listed: {shared}", hint=_hint_of(place)
        )
    return shared


def _describe_failure(error: Exception) -> str:
    """Return why saves cannot be written, in a few words."""
    if isinstance(error, OSError):
        file_text = f" ({error.filename})" if error.filename else ""
        return f"{error.strerror or error}{file_text}"
    return str(error)


def _hint_of(place: SavePath | None) -> str:
    """Return what to do if saves cannot be written to this place."""
    if isinstance(place, StoreUrl):
        return (
            f"check that {place.scheme}://{place.bucket} exists and the credentials in the "
            "job's env and secrets, or set checkpoint.path in the spec"
        )
    return f"make {place} writable for this user, or set checkpoint.path in the spec"
