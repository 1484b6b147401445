"""The manifest of a save: the list of its files, and the hashes that prove that it is
complete and unchanged."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Any, Final

from corral.domain.errors import Trouble
from corral.domain.keep_rule import Metrics

FORMAT: Final = 1
MANIFEST: Final = "manifest.json"


class Broken(Trouble):
    """The error for a save that differs from what was written. Such a save must not be
    loaded."""

    code = "checkpoint_broken"


@dataclass(frozen=True, slots=True, kw_only=True)
class FileEntry:
    """One file of a save. `name` is relative to the save's directory."""

    name: str
    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Manifest:
    """List of the files of a save. `world_size` and `torch` (its version) describe how
    the save was written. `metrics` are the newest values that the script had logged, and
    `saved_at` is the wall clock; both are empty in saves of older versions."""

    job: str
    attempt: int
    step: int
    world_size: int
    torch: str
    files: tuple[FileEntry, ...]
    metrics: Metrics = ()
    saved_at: float = 0.0

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.files)


def encode(manifest: Manifest) -> bytes:
    """Return the canonical JSON of the manifest with a seal, so that a reader without
    the head detects any change."""
    body = {"format": FORMAT, **asdict(manifest)}
    return _encode_manifest({**body, "seal": digest(_encode_manifest(body))})


def decode(data: bytes) -> Manifest:
    """Decode a manifest from `encode`.

    Raises: Broken if even a single bit differs.
    """
    try:
        body = json.loads(data)
        seal = body.pop("seal")
        if body["format"] != FORMAT:
            raise Broken(
                f"the manifest has format {body['format']}; this version of Corral reads "
                f"format {FORMAT}"
            )
        if (
            _encode_manifest({**body, "seal": seal}) != data
            or digest(_encode_manifest(body)) != seal
        ):
            raise Broken("the manifest was changed: its seal does not match")
        return _manifest_of(body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Broken(f"the manifest cannot be read: {error!r}") from error


def digest(data: bytes) -> str:
    """Return the SHA-256 of the bytes in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def _manifest_of(body: dict[str, Any]) -> Manifest:
    return Manifest(
        job=body["job"],
        attempt=body["attempt"],
        step=body["step"],
        world_size=body["world_size"],
        torch=body["torch"],
        files=tuple(FileEntry(**entry) for entry in body["files"]),
        metrics=tuple((name, value) for name, value in body.get("metrics", ())),
        saved_at=body.get("saved_at", 0.0),
    )


def _encode_manifest(body: dict[str, Any]) -> bytes:
    return json.dumps(body, sort_keys=True, separators=(",", ":")).encode() + b"\n"
