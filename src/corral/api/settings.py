"""Settings of the API, supplied by the process that starts it."""

import sys
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from shutil import which
from typing import Any, Final, Protocol

from corral.api.disk_reserve import Room, room_of
from corral.domain.ids import NodeId
from corral.domain.kept_work import WorkLimits
from corral.domain.leader_election import HeadNow
from corral.domain.quota import ClusterLimits
from corral.domain.sign_on import SignOnRule
from corral.domain.units import DAY_SECONDS
from corral.domain.users import AuditEntry, User
from corral.ingress.connections import ConnectionTable
from corral.wire.joining import JoinNeeds, RayInvitation
from corral.wire.users import KeyRotated

MEGABYTE: Final = 1000**2


def own_python() -> str:
    """Return the Python on this process's PATH, which local agents inherit."""
    return which("python") or which("python3") or sys.executable


class Seals(Protocol):
    """Encryption and signatures by the cluster's keys. Each encrypted value is bound to
    its name."""

    def seal(self, name: str, value: bytes) -> bytes: ...

    def open(self, name: str, sealed: bytes) -> bytes: ...

    def sign(self, text: str) -> str: ...

    def signatures(self, text: str, made_at: float = 0.0) -> Sequence[str]:
        """Return the text's signature by the newest key, then by each earlier key that
        was in use at the time `made_at`."""
        ...


class SignOnSettings(Protocol):
    """Settings of an OpenID Connect provider, the alternative to tokens."""

    @property
    def rule(self) -> SignOnRule: ...

    @property
    def name(self) -> str: ...

    async def address(
        self, *, redirect: str, state: str, nonce: str, challenge: str
    ) -> str: ...

    async def claims(
        self, *, code: str, verifier: str, nonce: str, redirect: str
    ) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Settings of the API.

    `root` is the cluster's directory. `stop` ends this head; its jobs continue to run.
    `hosts` are accepted host names of requests, in addition to the loopback names and
    the host of `url`.
    """

    root: Path
    url: str
    pid: int
    started_at: float
    version: str
    seals: Seals
    stop: Callable[[], None]
    rotate: Callable[[AuditEntry], Awaitable[KeyRotated]]
    hosts: tuple[str, ...] = ()
    # base URL of the gateway for clients; "" while no gateway runs
    gateway_url: Callable[[], str] = lambda: ""
    # from here, and what to do
    kept_out: Callable[[Collection[User]], str] = lambda users: ""
    # what vouches for the head, as PEM; with TLS
    trusted: Callable[[], str] = lambda: ""
    fingerprint: Callable[[], str] = lambda: ""  # of the certificate that it shows now
    # of the head's own machine
    own_nodes: Callable[[], Collection[NodeId]] = lambda: ()
    needs: Callable[[], JoinNeeds] = JoinNeeds  # what a machine must have to join
    invite: Callable[[NodeId], RayInvitation | None] = lambda node: None  # as this node
    shared: Path | None = None  # with several heads: what all of them read lies there
    # of several, the one that leads first
    heads: Callable[[], Sequence[HeadNow]] = lambda: ()
    sign_on: SignOnSettings | None = None  # None: tokens alone let in
    # Return a warning if the limit of open files is too low for N nodes; "" if it is
    # not.
    too_few_files: Callable[[int], str] = lambda nodes: ""
    # of the server; None: it has no such table
    connections: ConnectionTable | None = None
    audit_trouble: Callable[[], str] = lambda: ""  # of sending the audit log elsewhere
    # of jobs that have none of their own
    python: str = field(default_factory=own_python)
    snapshot_bytes: int = 512 * MEGABYTE
    # of a token that is made without an end of its own
    token_seconds: float = 30 * DAY_SECONDS
    # a machine is given the secrets of the jobs placed on it
    operators_add_machines: bool = False
    fallback_private_ok: bool = (
        False  # fallbacks of services may have private addresses
    )
    log_bytes: int = 64 * MEGABYTE  # of one rank
    work: WorkLimits = field(default_factory=WorkLimits)  # of kept work folders
    limits: ClusterLimits = field(default_factory=ClusterLimits)
    disk_room: Callable[[Path], Room] = room_of

    @property
    def is_tls(self) -> bool:
        return self.url.startswith("https")

    @property
    def snapshots(self) -> Path:
        return (self.shared or self.root) / "snapshots"

    @property
    def files(self) -> Path:
        return (self.shared or self.root) / "files"

    @property
    def logs(self) -> Path:
        return (self.shared or self.root) / "logs"
