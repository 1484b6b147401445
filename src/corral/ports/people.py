"""Durable memory of who may ask, and of what was asked."""

from collections.abc import Sequence as Seq
from typing import Protocol

from corral.domain.ids import TokenId, UserName
from corral.domain.people import AuditEntry, Role, Token, User

Identity = tuple[Token, User | None]  # a node's token has no user; nor has one whose user is gone


class People(Protocol):
    """A part of the Store. What changes something is one transaction with its `entry`, which is
    appended only when something has changed.

    Every method raises StoreTrouble when the store cannot be read or written.
    """

    async def add_user(self, user: User, *, entry: AuditEntry) -> bool:
        """False when there is a user of this name: that one stays as it is."""
        ...

    async def change_user(
        self,
        name: UserName,
        *,
        role: Role | None = None,
        disabled: bool | None = None,
        entry: AuditEntry,
    ) -> User | None:
        """The user afterwards; None when there is none of this name.

        Raises: Conflict when nobody would be left who is an admin.
        """
        ...

    async def remove_user(self, name: UserName, *, at: float, entry: AuditEntry) -> bool:
        """Forget the user and revoke what tokens they have; False when there is none.

        Raises: Conflict when nobody would be left who is an admin.
        """
        ...

    async def users(self) -> Seq[User]:
        """By name."""
        ...

    async def add_token(self, token: Token, *, entry: AuditEntry) -> bool:
        """False when the token is known: it stays as it is, also revoked."""
        ...

    async def revoke_token(self, id: TokenId, *, at: float, entry: AuditEntry) -> Token | None:
        """The token afterwards; None when there is none of this id. Again is harmless."""
        ...

    async def forget_token(self, id: TokenId, *, entry: AuditEntry) -> bool:
        """Keep nothing of the token: it lets in nobody. False when there is none of this id."""
        ...

    async def spend_token(
        self, id: TokenId, made: Token, *, at: float, entry: AuditEntry
    ) -> Token | None:
        """Take one use of a join token, and add the node's token that it was used for. Answers with
        the join token afterwards; None when it lets in nobody (any more).

        Raises: Conflict when another token that is valid names the same node.
        """
        ...

    async def use_token(self, id: TokenId, *, at: float) -> None:
        """Note that it was used then."""
        ...

    async def tokens(self) -> Seq[Token]:
        """By id; also those that are over."""
        ...

    async def identity(self, sha256: str) -> Identity | None:
        """The token with this hash, and its user."""
        ...

    async def identities(self, digests: Seq[str]) -> Seq[Identity | None]:
        """The same for many, in their order."""
        ...

    async def record(self, entry: AuditEntry) -> None:
        """Append to the audit log what changes no row of the store: a refusal, an end."""
        ...

    async def audit(
        self,
        *,
        by: UserName | None = None,
        since: float = 0.0,
        before: int | None = None,
        limit: int,
    ) -> Seq[AuditEntry]:
        """Entries at or after `since` with a number below `before`, newest first."""
        ...
