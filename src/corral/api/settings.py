"""What the API is told by whoever starts it."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol

from corral.domain.ids import NodeId
from corral.domain.leadership import HeadNow
from corral.domain.people import User
from corral.domain.sign_on import SignOnRule
from corral.wire.joining import JoinNeeds, RayInvitation

MEGABYTE: Final = 1000**2


class Seals(Protocol):
    """Secrets at rest: each value is bound to its name."""

    def seal(self, name: str, value: bytes) -> bytes: ...

    def open(self, name: str, sealed: bytes) -> bytes: ...

    def sign(self, text: str) -> str: ...


class SignOn(Protocol):
    """Who else than a token says who somebody is: an OpenID Connect provider."""

    @property
    def rule(self) -> SignOnRule: ...

    @property
    def name(self) -> str: ...

    async def address(self, *, redirect: str, state: str, nonce: str, challenge: str) -> str: ...

    async def claims(
        self, *, code: str, verifier: str, nonce: str, redirect: str
    ) -> Mapping[str, Any]: ...


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
    kept_out: Callable[[Collection[User]], str] = lambda users: ""  # from here, and what to do
    trusted: Callable[[], str] = lambda: ""  # what vouches for the head, as PEM; with TLS
    fingerprint: Callable[[], str] = lambda: ""  # of the certificate that it shows now
    own_nodes: Callable[[], Collection[NodeId]] = lambda: ()  # of the head's own machine
    needs: Callable[[], JoinNeeds] = JoinNeeds  # what a machine must have to join
    invite: Callable[[NodeId], RayInvitation | None] = lambda node: None  # as this node
    shared: Path | None = None  # with several heads: what all of them read lies there
    heads: Callable[[], Sequence[HeadNow]] = lambda: ()  # of several, the one that leads first
    sign_on: SignOn | None = None  # None: tokens alone let in
    too_few_files: Callable[[int], str] = lambda nodes: ""  # to be open at once, for so many nodes
    snapshot_bytes: int = 512 * MEGABYTE
    log_bytes: int = 64 * MEGABYTE  # of one rank

    @property
    def snapshots(self) -> Path:
        return (self.shared or self.root) / "snapshots"

    @property
    def logs(self) -> Path:
        return (self.shared or self.root) / "logs"
