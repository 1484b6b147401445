"""Files that a command is to write, looked at before the work that makes them."""

from os import W_OK, access
from pathlib import Path

from corral.domain.errors import Conflict, CorralError


def check_writable(*paths: Path | None) -> None:
    """Raises: Conflict."""
    for path in filter(None, paths):
        if path.is_dir():
            raise unwritable(path, "it is a directory")
        if not path.parent.is_dir():
            raise unwritable(path, f"there is no directory {path.parent}")
        if not access(path if path.exists() else path.parent, W_OK):
            raise unwritable(path, "you may not")


def unwritable(path: Path, why: str | None) -> CorralError:
    hint = f"name a file in a directory of yours, for example: ./{path.name or 'page.html'}"
    return Conflict(f"{path} cannot be written: {(why or 'it is refused').lower()}", hint=hint)


def write(path: Path, text: str) -> None:
    """Raises: Conflict."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise unwritable(path, error.strerror) from error
