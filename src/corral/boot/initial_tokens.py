"""Tokens of nodes and parts (agents of single attempts), registered by the engines that
start them. If a token was revoked or changed since then, that is kept."""

from collections.abc import Callable

from corral import __version__
from corral.domain.ids import NodeId, TokenId, UserName
from corral.domain.pilot import is_part
from corral.domain.users import HEAD, AuditEntry, Role, SpeakerKind, Token, token_id
from corral.ports.store import Store


async def record_start(store: Store, name: str, key: str, now: float) -> None:
    """Record that a head has started.

    After an upgrade, this entry begins the chain of the audit log.
    """
    detail = f"corral {__version__}, key {key}"
    await store.record(_head_audit_entry("head.start", name, detail, now))


async def admit_node(
    store: Store, node: NodeId, sha256: str, now: float, *, until: float | None = None
) -> None:
    """Register the token of the node's agent, valid until `until`."""
    id = token_id(sha256)
    token = Token(
        id=id,
        sha256=sha256,
        user=UserName(node),
        role=Role.NODE,
        node=node,
        created_at=now,
        expires_at=until,
    )
    await store.add_token(
        token, entry=_head_audit_entry("token.create", id, f"node {node}", now)
    )


class NodeTokens:
    """Registry of the tokens of nodes and of parts. A part is the agent of one attempt
    on one of its nodes. The tokens of a part are deleted when its attempt is deleted,
    and those of a node when the node is removed."""

    def __init__(
        self,
        store: Store,
        wall: Callable[[], float],
        lasting_seconds: float | None = None,
    ) -> None:
        """Create the registry. `lasting_seconds` is the lifetime of the tokens that are
        registered; agents renew them. None: the tokens are valid until they are
        deleted."""
        self._store = store
        self._wall = wall
        self._lasting_seconds = lasting_seconds
        self._known: dict[NodeId, set[TokenId]] | None = None

    async def register(self, node: NodeId, sha256: str) -> None:
        """Register the token of a node or part.

        Raises: StoreTrouble.
        """
        now = self._wall()
        expires_at = (
            None if self._lasting_seconds is None else now + self._lasting_seconds
        )
        await admit_node(self._store, node, sha256, now, until=expires_at)
        if self._known is not None:
            self._known.setdefault(node, set()).add(token_id(sha256))

    def renewed(self, node: NodeId, id: TokenId) -> None:
        """Record the token by which an agent has replaced its own, so that it is
        deleted together with the node."""
        if self._known is not None:
            self._known.setdefault(node, set()).add(id)

    async def forget(self, node: NodeId) -> None:
        """Delete all tokens of the node, so that its requests are refused.

        Raises: StoreTrouble.
        """
        if self._known is None:
            self._known = await self._left()
        for id in self._known.get(node, set()).copy():
            entry = _head_audit_entry("token.forget", id, f"node {node}", self._wall())
            await self._store.forget_token(id, entry=entry)
            self._known[node].discard(id)
        self._known.pop(node, None)

    async def _left(self) -> dict[NodeId, set[TokenId]]:
        """Return the valid tokens that an earlier head registered, by node. Revoked
        tokens of pilots (parts) are deleted.

        A revoked token that its part has replaced is kept as long as the part has a
        valid one. The agent still uses the old token if the response with the new one
        was lost.
        """
        token_ids_by_node: dict[NodeId, set[TokenId]] = {}
        revoked: list[tuple[NodeId, TokenId]] = []
        for token in await self._store.tokens():
            if token.node is not None and token.revoked_at is None:
                token_ids_by_node.setdefault(token.node, set()).add(token.id)
            elif token.node is not None and is_part(token.node):
                revoked.append((token.node, token.id))
        for part_node, id in revoked:
            if part_node in token_ids_by_node:
                token_ids_by_node[part_node].add(id)
            else:
                entry = _head_audit_entry(
                    "token.forget", id, f"node {part_node}", self._wall()
                )
                await self._store.forget_token(id, entry=entry)
        return token_ids_by_node


def _head_audit_entry(what: str, on: str, detail: str, now: float) -> AuditEntry:
    return AuditEntry(
        at=now,
        by=HEAD,
        token=None,
        what=what,
        on=on,
        detail=detail,
        kind=SpeakerKind.HEAD,
    )
