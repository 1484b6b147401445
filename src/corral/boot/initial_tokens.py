"""Tokens of nodes and parts, registered by the engines that start them. What was
revoked or changed since stays so."""

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
    """Let the node's agent in, by its own token."""
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
    """Tokens of nodes and of parts. There is one of each attempt on each of its nodes,
    so that of a part nothing may stay when its attempt is forgotten; nor of a node that
    was taken away."""

    def __init__(
        self,
        store: Store,
        wall: Callable[[], float],
        lasting_seconds: float | None = None,
    ) -> None:
        """`lasting_seconds`: after which the tokens end that are registered; agents
        renew them. None: they last until they are forgotten."""
        self._store = store
        self._wall = wall
        self._lasting_seconds = lasting_seconds
        self._known: dict[NodeId, set[TokenId]] | None = None

    async def register(self, node: NodeId, sha256: str) -> None:
        """Let it in by this token. Raises: StoreTrouble."""
        now = self._wall()
        expires_at = (
            None if self._lasting_seconds is None else now + self._lasting_seconds
        )
        await admit_node(self._store, node, sha256, now, until=expires_at)
        if self._known is not None:
            self._known.setdefault(node, set()).add(token_id(sha256))

    def renewed(self, node: NodeId, id: TokenId) -> None:
        """Note the token that an agent has taken in place of its own: it is forgotten
        with it."""
        if self._known is not None:
            self._known.setdefault(node, set()).add(id)

    async def forget(self, node: NodeId) -> None:
        """Keep none of its tokens: it is let in no more. Raises: StoreTrouble."""
        if self._known is None:
            self._known = await self._left()
        for id in self._known.get(node, set()).copy():
            entry = _head_audit_entry("token.forget", id, f"node {node}", self._wall())
            await self._store.forget_token(id, entry=entry)
            self._known[node].discard(id)
        self._known.pop(node, None)

    async def _left(self) -> dict[NodeId, set[TokenId]]:
        """Return the tokens that an earlier head admitted; pilots that it has revoked
        are removed.

        A token that its part has replaced stays as long as the part: while the answer
        to that was lost, the agent still shows it.
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
