"""Writing of a staged part of a save into the place of the save."""

from corral.train.save.checkpoint_dir import FolderTarget
from corral.train.save.checkpoint_store import SaveTarget
from corral.train.save.copy_helper import CopyHelper
from corral.train.save.copy_program import FileCopy
from corral.train.save.manifest import FileEntry
from corral.train.save.staging import StagedFile, StagedPart
from corral.train.save.storage import Written


def write_part(target: SaveTarget, part: StagedPart, helper: CopyHelper) -> Written:
    """Write one rank's part into the place of a save, and make its files durable. The
    helper process writes what goes into a directory.

    Raises: OSError, Trouble; the files then stay as they are.
    """
    if not isinstance(target, FolderTarget):
        entries = tuple(_write_file(target, file) for file in part.files)
        return Written(files=entries, places=part.places)
    rate = target.bytes_per_second or 0.0
    copies = [
        FileCopy(file.path, file.size, str(target.directory / file.name), rate)
        for file in part.files
    ]
    return _written(part, helper.copy(copies))


def hash_part(part: StagedPart, helper: CopyHelper) -> Written:
    """Hash one rank's part where it is staged. Raises: OSError."""
    copies = [FileCopy(file.path, file.size) for file in part.files]
    return _written(part, helper.copy(copies))


def _written(part: StagedPart, digests: list[str]) -> Written:
    entries = tuple(
        FileEntry(name=file.name, size_bytes=file.size, sha256=sha256)
        for file, sha256 in zip(part.files, digests, strict=True)
    )
    return Written(files=entries, places=part.places)


def _write_file(target: SaveTarget, staged: StagedFile) -> FileEntry:
    file = target.create(staged.name)
    try:
        file.append(staged.data)
        return file.finish()
    except BaseException:
        file.close()
        raise
