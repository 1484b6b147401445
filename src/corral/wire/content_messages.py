"""Answers of the head about the content that nodes keep, and requests to nodes."""

from typing import Final, Literal

import msgspec

from corral.domain.ids import NodeId

PEERS: Final = "/v1/agents/content/"

ContentAction = Literal["pull", "remove", "pin", "unpin"]


class ContentPeer(msgspec.Struct, frozen=True, kw_only=True):
    """A node from which another one may fetch content.

    Args:
        access_key: Secret of the node, from which the key of each request is derived.
        is_complete: It has the content completely; otherwise it is fetching it.
        is_from_outside: It is fetching it from its source, since `outside_at`.
        done_bytes: Bytes that it has fetched so far.
    """

    node: NodeId
    address: str
    port: int
    access_key: str
    is_complete: bool
    is_from_outside: bool = False
    outside_at: float = 0.0
    done_bytes: int = 0


class ContentPeers(msgspec.Struct, frozen=True, kw_only=True):
    """The other nodes that have content, and the limit of a node's cache in bytes; None:
    the default. `is_announced`: the other nodes see that this one fetches it from its
    source."""

    peers: tuple[ContentPeer, ...] = ()
    most_bytes: int | None = None
    is_announced: bool = True


class ContentNow(msgspec.Struct, tag="content", frozen=True, kw_only=True):
    """Request to fetch content and to keep it, to remove it, or to pin it.

    Args:
        request: Id of the request, which its result names.
        source: As a spec writes it, or the name of content that the node has.
        user: User who may read it afterwards.
        env: Variables that the source reads, such as a token.
    """

    request: str
    action: ContentAction
    source: str
    user: str = ""
    env: dict[str, str] = {}
    is_pinned: bool = False
