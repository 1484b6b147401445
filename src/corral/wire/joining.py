"""Requests and answers of a machine that joins as a node. Times are wall-clock seconds
since 1970."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from corral.wire.job_parts import ForecastView

__all__ = [
    "JoinNeeds",
    "JoinTokenCreate",
    "JoinTokenMade",
    "NodeJoin",
    "NodeJoined",
    "RayInvitation",
    "TokenRenew",
    "TokenRenewed",
]

USES = 1
MOST_USES = 1_000
SECONDS = 900.0
LONGEST_SECONDS = 7 * 86400.0
_ASKED = ConfigDict(extra="forbid", strict=True, frozen=True)


class JoinTokenCreate(BaseModel):
    """Request for a join token: how many machines may use it, and for how long it is
    valid."""

    model_config = _ASKED

    uses: Annotated[int, Field(ge=1, le=MOST_USES)] = USES
    expires_seconds: Annotated[float, Field(ge=1.0, le=LONGEST_SECONDS)] = SECONDS


class JoinTokenMade(ForecastView):
    """A new join token. This is the only answer that holds the secret. `fingerprint`:
    of the certificate that the head presents at `url`: sha256: and 64 hexadecimal
    digits; empty without TLS."""

    token: str
    id: str
    url: str
    fingerprint: str
    uses: int
    expires_at: float

    @property
    def line(self) -> str:
        """Return the line to type on the machine that joins."""
        pinned = f" --fingerprint {self.fingerprint}" if self.fingerprint else ""
        return f"corral join {self.url} --token {self.token}{pinned}"


class JoinNeeds(ForecastView):
    """Requirements for a joining machine, which it gets before its token is used. `ray`
    and `python`: the versions on all nodes of a Ray cluster; empty on another engine.
    """

    engine: str = "local"
    ray: str = ""
    python: str = ""


class RayInvitation(ForecastView):
    """What a machine needs to join the Ray cluster at `address`. All nodes of the Ray
    cluster present `token` ("" if it has none). `folder`: the folder that the node will
    use on that machine."""

    address: str
    token: str
    folder: str


class NodeJoin(BaseModel):
    """Request of a machine to become the node of this name. `sha256` is the hash of a
    token that the machine has created itself: the head never sees the token before its
    first use."""

    model_config = _ASKED

    node: Annotated[str, Field(max_length=1_000)]
    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TokenRenew(BaseModel):
    """Request of a node for a new token. `sha256` is the hash of a token that the node
    has created."""

    model_config = _ASKED

    sha256: Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class TokenRenewed(ForecastView):
    """Answer to a renewal of a node's token. The new token is valid from now on, until
    `expires_at` (null: until its attempt ends). The previous token stays valid until
    `earlier_until`."""

    expires_at: float | None
    earlier_until: float


class NodeJoined(ForecastView):
    """Answer to a machine that has joined. `trusted`: the certificate that verifies the
    head, as PEM; empty without TLS. `ray`: set if the nodes are those of a Ray cluster.
    """

    node: str
    cluster: str
    url: str
    trusted: str
    ray: RayInvitation | None = None
