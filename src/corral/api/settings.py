"""What the API is told by whoever starts it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

MEGABYTE: Final = 1000**2


class Seals(Protocol):
    """Secrets at rest: each value is bound to its name."""

    def seal(self, name: str, value: bytes) -> bytes: ...

    def open(self, name: str, sealed: bytes) -> bytes: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """`root` is the cluster's directory; `stop` ends this head (its jobs run on).

    `hosts` are names that a request may come under beside the loopback ones and that of `url`.
    """

    root: Path
    url: str
    pid: int
    started_at: float
    version: str
    seals: Seals
    stop: Callable[[], None]
    hosts: tuple[str, ...] = ()
    account: str | None = None  # that the ranks of all users run as; None: each as its owner's
    snapshot_bytes: int = 512 * MEGABYTE
    log_bytes: int = 64 * MEGABYTE  # of one rank

    @property
    def snapshots(self) -> Path:
        return self.root / "snapshots"

    @property
    def logs(self) -> Path:
        return self.root / "logs"
