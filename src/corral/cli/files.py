"""Files that a command reads or will write; they are checked before the work begins."""

import gzip
import zlib
from collections.abc import Iterable
from itertools import islice
from os import W_OK, access
from pathlib import Path
from shlex import quote
from typing import Final

from corral.domain.errors import Conflict, CorralError, NotFound, Refusal

PACKED: Final = b"\x1f\x8b"  # how each gzip begins, whatever the file's name
NEIGHBOURS: Final = 1000  # files of a directory that a misspelt one is held against


class FileUnreadable(Refusal):
    """A file exists but cannot be read."""

    code = "file_unreadable"


def read_text(path: Path, kind: str, *, hint: str) -> str:
    """Return the text of a file, plain or gzip. `kind`: what the file is expected to
    be; `hint`: which file to give instead.

    Raises: NotFound, FileUnreadable.
    """
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if raw[:2] == PACKED else raw).decode("utf-8-sig")
    except (FileNotFoundError, NotADirectoryError) as error:
        raise missing(path) from error
    except UnicodeDecodeError as error:
        reason = f"byte {error.start + 1} is not valid UTF-8"
    except (OSError, EOFError, zlib.error) as error:
        reason = (getattr(error, "strerror", None) or str(error)).lower()
    raise FileUnreadable(f"{path} cannot be read as {kind}: {reason}", hint=hint)


def missing(path: Path) -> NotFound:
    """Return the error for a missing file.

    The error suggests files in the same directory with a similar name, and says where
    to look.
    """
    existing_dir = next(
        parent_dir for parent_dir in (*path.parents, Path()) if parent_dir.is_dir()
    )
    neighbours = [
        str(neighbour) for neighbour in islice(existing_dir.iterdir(), NEIGHBOURS)
    ]
    return NotFound("file", str(path), neighbours, see=f"ls {quote(str(existing_dir))}")


def check_apart(made: Path | None, read: Iterable[Path | None]) -> None:
    """Check that the output does not overwrite an input file, even if its path is
    written differently. Raises: Conflict."""
    for path in read:
        if made and path and made.exists() and path.exists() and made.samefile(path):
            hint = (
                f"name another file, for example: {made.with_stem(made.stem + '-made')}"
            )
            raise Conflict(
                f"{made} is the input file: the output would overwrite it", hint=hint
            )


def check_writable(*paths: Path | None) -> None:
    """Check that each of the files can be written. Raises: Conflict if one cannot."""
    for path in filter(None, paths):
        if path.is_dir():
            raise unwritable(path, "it is a directory")
        if not path.parent.is_dir():
            raise unwritable(path, f"there is no directory {path.parent}")
        if not access(path if path.exists() else path.parent, W_OK):
            raise unwritable(path, "permission denied")


def unwritable(path: Path, why: str | None) -> CorralError:
    hint = (
        f"name a file in another directory, for example: ./{path.name or 'page.html'}"
    )
    return Conflict(
        f"{path} cannot be written: {(why or 'unknown error').lower()}", hint=hint
    )


def write(path: Path, text: str) -> None:
    """Write the text to the file. Raises: Conflict if the file cannot be written."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error.strerror) from error
