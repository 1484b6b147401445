"""Probe of the replica of a service: its address, its outcome and the text of it."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from corral.domain.bounds import PROBE_LETTERS, cut

HIDDEN_KEY: Final = "***"
PATH_TEXT_LETTERS: Final = 60


class ProbeKind(StrEnum):
    """Outcome of a probe."""

    READY = "ready"
    NOT_READY = "not_ready"  # answered, but not with 2xx
    NOT_CONNECTED = "not_connected"
    NOT_ANSWERED = "not_answered"  # in time


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """Result of one probe. `text` says what has failed; "" if nothing has."""

    kind: ProbeKind
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeTarget:
    """Address at which a replica listens, its probe path, and its key."""

    host: str
    port: int
    path: str
    key: str = field(repr=False)

    @property
    def request_text(self) -> str:
        """Return the request for a message. For example: GET /health"""
        return f"GET {cut(self.path, PATH_TEXT_LETTERS)}"

    @property
    def request(self) -> bytes:
        """Return the HTTP request of a probe."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        lines = (
            f"GET {self.path} HTTP/1.1",
            f"Host: {host}:{self.port}",
            f"Authorization: Bearer {self.key}",
            "Accept: */*",
            "User-Agent: corral-probe",
            "Connection: close",
        )
        return "".join(f"{line}\r\n" for line in (*lines, "")).encode()


def failed_probe(target: ProbeTarget, kind: ProbeKind, text: str) -> ProbeResult:
    """Return the result of a probe that failed. The text is one line without control
    characters and without the key, which an engine may have sent back."""
    if target.key:
        text = text.replace(target.key, HIDDEN_KEY)
    line = "".join(
        character if character.isprintable() else "?"
        for character in " ".join(text.split())
    )
    return ProbeResult(kind, cut(line, PROBE_LETTERS))
