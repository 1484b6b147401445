"""Who is let in without having been added by anybody: whoever holds the cluster's directory, and
its nodes. What was revoked or changed since stays so."""

import getpass

from corral.api import token_digest
from corral.domain.ids import NodeId, UserName
from corral.domain.people import HEAD, AuditEntry, Role, Token, User, token_id
from corral.ports.store import Store


async def admit_admin(store: Store, secret: str, now: float) -> None:
    """Let the account that the head runs under be an admin, by the token of the directory."""
    name, digest = UserName(getpass.getuser()), token_digest(secret)
    user = User(name=name, role=Role.ADMIN, created_at=now)
    await store.add_user(user, entry=_entry("user.add", name, "admin", now))
    id = token_id(digest)
    token = Token(id=id, sha256=digest, user=name, role=Role.ADMIN, created_at=now)
    await store.add_token(token, entry=_entry("token.create", id, f"admin of {name}", now))


async def admit_node(store: Store, node: NodeId, sha256: str, now: float) -> None:
    """Let the node's agent in, by its own token."""
    id = token_id(sha256)
    token = Token(
        id=id, sha256=sha256, user=UserName(node), role=Role.NODE, node=node, created_at=now
    )
    await store.add_token(token, entry=_entry("token.create", id, f"node {node}", now))


def _entry(what: str, on: str, detail: str, now: float) -> AuditEntry:
    return AuditEntry(at=now, by=HEAD, token=None, what=what, on=on, detail=detail)
