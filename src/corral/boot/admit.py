"""Who is let in without having been added by anybody: whoever holds the cluster's directory, and
its nodes. What was revoked or changed since stays so."""

import getpass
from collections.abc import Callable

from corral.api import token_digest
from corral.domain.ids import NodeId, TokenId, UserName
from corral.domain.part import is_part
from corral.domain.people import HEAD, AuditEntry, Role, Token, User, token_id
from corral.ports.store import Store


async def admit_admin(store: Store, secret: str, now: float) -> None:
    """Let the account that the head runs under be an admin, by the token of the directory."""
    name = UserName(getpass.getuser())
    await _admit(store, name, Role.ADMIN, secret, now, why=f"admin of {name}")


async def admit_monitor(store: Store, secret: str, now: float) -> None:
    """Let the Prometheus of the directory read, and no more."""
    await _admit(store, UserName("monitoring"), Role.VIEWER, secret, now, why="Prometheus")


async def _admit(
    store: Store, name: UserName, role: Role, secret: str, now: float, *, why: str
) -> None:
    """A user of this role, and the token for it."""
    user, digest = User(name=name, role=role, created_at=now), token_digest(secret)
    await store.add_user(user, entry=_entry("user.add", name, role, now))
    id = token_id(digest)
    token = Token(id=id, sha256=digest, user=name, role=role, created_at=now)
    await store.add_token(token, entry=_entry("token.create", id, why, now))


async def admit_node(store: Store, node: NodeId, sha256: str, now: float) -> None:
    """Let the node's agent in, by its own token."""
    id = token_id(sha256)
    token = Token(
        id=id, sha256=sha256, user=UserName(node), role=Role.NODE, node=node, created_at=now
    )
    await store.add_token(token, entry=_entry("token.create", id, f"node {node}", now))


class NodeTokens:
    """Tokens of nodes and of parts. There is one of each attempt on each of its nodes, so that of a
    part nothing may stay when its attempt is forgotten; nor of a node that was taken away."""

    def __init__(self, store: Store, wall: Callable[[], float]) -> None:
        self._store = store
        self._wall = wall
        self._known: dict[NodeId, set[TokenId]] | None = None

    async def register(self, node: NodeId, sha256: str) -> None:
        """Let it in by this token. Raises: StoreTrouble."""
        await admit_node(self._store, node, sha256, self._wall())
        if self._known is not None:
            self._known.setdefault(node, set()).add(token_id(sha256))

    async def forget(self, node: NodeId) -> None:
        """Keep none of its tokens: it is let in no more. Raises: StoreTrouble."""
        if self._known is None:
            self._known = await self._left()
        for id in self._known.get(node, set()).copy():
            entry = _entry("token.forget", id, f"node {node}", self._wall())
            await self._store.forget_token(id, entry=entry)
            self._known[node].discard(id)
        self._known.pop(node, None)

    async def _left(self) -> dict[NodeId, set[TokenId]]:
        """What an earlier head has let in; parts that it has only revoked are forgotten."""
        found: dict[NodeId, set[TokenId]] = {}
        for token in await self._store.tokens():
            if token.node is not None:
                if token.revoked_at is None:
                    found.setdefault(token.node, set()).add(token.id)
                elif is_part(token.node):
                    entry = _entry("token.forget", token.id, f"node {token.node}", self._wall())
                    await self._store.forget_token(token.id, entry=entry)
        return found


def _entry(what: str, on: str, detail: str, now: float) -> AuditEntry:
    return AuditEntry(at=now, by=HEAD, token=None, what=what, on=on, detail=detail)
