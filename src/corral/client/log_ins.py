"""Tokens that `corral login` obtained: one file for each head, readable only by its
owner."""

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Final

from corral.domain.errors import Conflict

FOLDER: Final = "log-ins"
LOG_IN_SUFFIX: Final = ".corral-log-in"
_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True, kw_only=True)
class LogIn:
    """A token of a user for one head. `id` is the id of the token at this head."""

    url: str
    token: str
    id: str
    user: str
    expires_at: float


def log_in_at(root: Path, url: str) -> LogIn | None:
    """Return the log-in at this head. Raises: Conflict when others may read its
    file."""
    return _read_log_in(_log_in_path(root, url))


def all_log_ins(root: Path) -> list[LogIn]:
    """Return the log-ins at all heads, by address. Raises: Conflict."""
    return sorted(_log_ins(root), key=lambda log_in: log_in.url)


def keep_log_in(root: Path, log_in: LogIn) -> Path:
    """Store the log-in in place of an earlier log-in at the same head. Return the path
    of the file.

    Raises: Conflict if the file cannot be written.
    """
    path = _log_in_path(root, log_in.url)
    temporary_path = path.with_name(f".{secrets.token_hex(8)}{LOG_IN_SUFFIX}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(
            temporary_path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600
        )
        with os.fdopen(descriptor, "w") as file:
            json.dump(asdict(log_in), file)
        temporary_path.replace(path)
    except OSError as error:
        with suppress(OSError):
            temporary_path.unlink()
        raise Conflict(
            f"the log-in cannot be saved in {path.parent}: {error.strerror}",
            hint="set CORRAL_DIR to another directory",
        ) from error
    return path


def drop_log_in(root: Path, url: str) -> None:
    """Remove the log-in at this head, if there is one."""
    _log_in_path(root, url).unlink(missing_ok=True)


def _log_ins(root: Path) -> Iterator[LogIn]:
    for path in (root / FOLDER).glob(f"[!.]*{LOG_IN_SUFFIX}"):
        if (log_in := _read_log_in(path)) is not None:
            yield log_in


def _log_in_path(root: Path, url: str) -> Path:
    name = hashlib.sha256(url.encode()).hexdigest()[:24]
    return root / FOLDER / f"{name}{LOG_IN_SUFFIX}"


def _read_log_in(path: Path) -> LogIn | None:
    try:
        with path.open() as file:
            if os.fstat(file.fileno()).st_mode & _OTHERS:
                raise Conflict(
                    f"other users can read {path}, which contains a token",
                    hint=f"run: chmod 600 {path}; then log in again: corral login --oidc",
                )
            content = json.load(file)
            return LogIn(**{field.name: content[field.name] for field in fields(LogIn)})
    except (OSError, ValueError, KeyError, TypeError):
        return None
