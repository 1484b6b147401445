"""The manifest of a save: what belongs to it, and the proof that it is whole."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from corral.domain.errors import Trouble

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"


class Broken(Trouble):
    """A save that is not what was written. It must not be loaded."""

    code = "checkpoint_broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a save, by its name within the save's directory."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """All that a save consists of. `world_size` and `torch` say how it was written."""

    job: str
    attempt: int
    step: int
    world_size: int
    torch: str
    files: tuple[FileEntry, ...]

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.files)


def encode(manifest: Manifest) -> bytes:
    """The manifest's one spelling as JSON, sealed: a reader without the head sees any
    change."""
    body = {"format": FORMAT, **asdict(manifest)}
    return _encode_manifest({**body, "seal": digest(_encode_manifest(body))})


def decode(data: bytes) -> Manifest:
    """Read what `encode` wrote.

    Raises: Broken for anything else, down to a single bit.
    """
    try:
        body = json.loads(data)
        seal = body.pop("seal")
        if body["format"] != FORMAT:
            raise Broken(
                f"its manifest has format {body['format']}, this Corral reads {FORMAT}"
            )
        if (
            _encode_manifest({**body, "seal": seal}) != data
            or digest(_encode_manifest(body)) != seal
        ):
            raise Broken("its manifest is not what was written: the seal does not fit")
        return _manifest_of(body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Broken(f"its manifest cannot be read: {error!r}") from error


def digest(data: bytes) -> str:
    """SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _manifest_of(body: dict[str, Any]) -> Manifest:
    return Manifest(
        job=body["job"],
        attempt=body["attempt"],
        step=body["step"],
        world_size=body["world_size"],
        torch=body["torch"],
        files=tuple(FileEntry(**entry) for entry in body["files"]),
    )


def _encode_manifest(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode() + b"\n"
