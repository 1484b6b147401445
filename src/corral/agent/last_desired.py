"""The last desired state from the head and the time of the head's last acknowledgement,
kept across restarts of the agent.

So a restarted agent still refuses an older desired state, and counts the head's silence
from the same time as its predecessor.
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from corral.domain.desired_state import DesiredState, Version
from corral.domain.ids import ClusterId

RECORD_BYTES: Final = 256  # written in one piece


class _Record(msgspec.Struct, frozen=True):
    cluster: ClusterId
    version: Version


@dataclass(slots=True)
class LastDesired:
    """Newest desired state, saved in `wanted.json` before it is applied.

    The file `head_contact` holds the time of the head's last contact, valid until a reboot.

    Raises: OSError when the node's folder cannot be read or written; ValueError when
    wanted.json has an unexpected format, because its content is not trusted then.
    """

    node_dir: Path
    # seconds since the boot: an agent without a past counts the silence from here
    now: float
    _newest: _Record | None = None
    _head_contact: Path = field(init=False)
    _file: int = field(init=False)

    def __post_init__(self) -> None:
        self._head_contact = self.node_dir / "head_contact"
        is_of_earlier_boot = (
            not self._head_contact.exists() or self.heard_at() > self.now
        )
        if is_of_earlier_boot:
            self._head_contact.touch(mode=0o600)
            self.hear(self.now)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._file = os.open(self.node_dir / "wanted.json", flags, 0o600)
        if text := os.pread(self._file, RECORD_BYTES, 0):
            self._newest = msgspec.json.decode(text, type=_Record)

    @property
    def version(self) -> Version | None:
        return self._newest.version if self._newest else None

    def why_not(self, wanted: DesiredState) -> str:
        """Return the reason why a desired state must not be applied; "" if it is new or
        repeated and may be applied."""
        if self._newest is None:
            return ""
        if wanted.cluster != self._newest.cluster:
            own_cluster = self._newest.cluster
            return f"it is for cluster {wanted.cluster}; this node is in {own_cluster}"
        if wanted.version < self._newest.version:
            return (
                f"its version {wanted.version} is older than the current "
                f"{self._newest.version}"
            )
        return ""

    def keep(self, wanted: DesiredState) -> None:
        """Store the version of the desired state. When this returns, it survives the
        death of this process; a new term also survives a power cut.

        A head never repeats an older counter within its own term, so losing a counter
        in a power cut does no harm, and the start of a job does not wait for the disk.
        """
        record = _Record(cluster=wanted.cluster, version=wanted.version)
        if record == self._newest:
            return
        text = msgspec.json.encode(record)
        os.pwrite(self._file, text.ljust(RECORD_BYTES - 1) + b"\n", 0)
        if self._newest is None or record.version.term != self._newest.version.term:
            os.fsync(self._file)
        self._newest = record

    def close(self) -> None:
        os.close(self._file)

    def heard_at(self) -> float:
        """Return when the newest desired state that the head has acknowledged was sent,
        in seconds since the boot."""
        return self._head_contact.stat().st_mtime_ns / 1e9

    def hear(self, sent_at: float) -> None:
        nanoseconds = int(sent_at * 1e9)
        os.utime(self._head_contact, ns=(nanoseconds, nanoseconds))
