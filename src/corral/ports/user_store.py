"""Durable memory of who may ask, and of what was asked."""

from collections.abc import Collection, Mapping
from collections.abc import Sequence as Seq
from typing import Protocol

from corral.domain.ids import TokenId, UserName
from corral.domain.users import AuditEntry, ProviderIdentity, Removed, Role, Token, User

Identity = tuple[Token, User | None]  # a node's token has no user; nor has one whose user is gone


class UserStore(Protocol):
    """A part of the Store. What changes something is one transaction with its `entry`, which is
    appended only when something has changed.

    Every method raises StoreTrouble when the store cannot be read or written.
    """

    async def add_user(self, user: User, *, entry: AuditEntry) -> bool:
        """False when there is a user of this name: that one stays as it is. Jobs that were
        submitted before belong to an earlier user of the name (`User.jobs_after`).

        Raises: Conflict when the user's identity logs in as another.
        """
        ...

    async def change_user(
        self,
        name: UserName,
        *,
        role: Role | None = None,
        disabled: bool | None = None,
        limits: Mapping[str, int | None] | None = None,
        entry: AuditEntry,
    ) -> User | None:
        """The user afterwards; None when there is none of this name. `limits`: quotas of their own
        by name; None takes one away, and others stay. Another role, and being disabled, revokes
        the user's sessions and links.

        Raises: Conflict when nobody would be left who is an admin.
        """
        ...

    async def link_user(
        self, name: UserName, *, identity: ProviderIdentity | None, entry: AuditEntry
    ) -> User | None:
        """The user, who logs in by this identity and no other; None when there is none.

        Raises: Conflict when the identity logs in as another user.
        """
        ...

    async def remove_user(self, name: UserName, *, at: float, entry: AuditEntry) -> Removed | None:
        """Forget the user, revoke their tokens and remove their secrets; None when there is none.
        Secrets for everybody stay, and belong to whom the entry names. The counts are the detail of
        the entry.

        Raises: Conflict when nobody would be left who is an admin.
        """
        ...

    async def users(self) -> Seq[User]:
        """Return the users by name."""
        ...

    async def add_token(self, token: Token, *, entry: AuditEntry) -> bool:
        """False when the token is known: it stays as it is, also revoked."""
        ...

    async def revoke_token(self, id: TokenId, *, at: float, entry: AuditEntry) -> Token | None:
        """The token afterwards; None when there is none of this id. Again is harmless. Sessions
        and links that it has opened are revoked with it."""
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

    async def renew_token(
        self, id: TokenId, made: Token, *, at: float, entry: AuditEntry
    ) -> Token | None:
        """Add a token in the place of another, which ends within a day; older ones of the same
        node are forgotten. The token that was replaced; None when there is none to replace.

        Raises: TokenRevoked when it has been replaced before, by a token that is in use.
        """
        ...

    async def use_token(self, id: TokenId, *, at: float) -> None:
        """Note that it was used then."""
        ...

    async def token(self, id: TokenId) -> Token | None:
        """The token with this id, also one that is over."""
        ...

    async def tokens(self) -> Seq[Token]:
        """Return the tokens by id, including expired ones."""
        ...

    async def token_digests(self) -> Collection[str]:
        """The SHA-256 of each token, also of those that are over."""
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
        after: int | None = None,
        limit: int,
    ) -> Seq[AuditEntry]:
        """Entries at or after `since` with a number below `before`, the newest first; or, with
        `after`, those with a number above it, the oldest first."""
        ...
