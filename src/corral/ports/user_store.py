"""Durable memory of who may ask, and of what was asked."""

from collections.abc import Collection, Mapping
from collections.abc import Sequence as Seq
from typing import Protocol

from corral.domain.ids import TokenId, UserName
from corral.domain.users import AuditEntry, ProviderIdentity, Removed, Role, Token, User

# a node's token has no user; nor has one whose user is gone
Identity = tuple[Token, User | None]


class UserStore(Protocol):
    """A part of the Store. What changes something is one transaction with its `entry`,
    which is appended only when something has changed.

    Every method raises StoreTrouble when the store cannot be read or written.
    """

    async def add_user(self, user: User, *, entry: AuditEntry) -> bool:
        """False when there is a user of this name: that one stays as it is. Jobs that
        were submitted before belong to an earlier user of the name (`User.jobs_after`).

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
        """Change a user and return the result; None if the name does not exist.

        `limits`: the user's own quotas by name. None removes a quota; others are
        unchanged. A new role, or disabling the user, revokes the user's sessions and
        links.

        Raises: Conflict if no admin would remain.
        """
        ...

    async def link_user(
        self, name: UserName, *, identity: ProviderIdentity | None, entry: AuditEntry
    ) -> User | None:
        """Link the user to this identity only, and return the user.

        Return None if the name does not exist.

        Raises: Conflict if another user logs in by the identity.
        """
        ...

    async def remove_user(
        self, name: UserName, *, at: float, entry: AuditEntry
    ) -> Removed | None:
        """Remove the user, revoke their tokens and delete their secrets.

        Return None if the name does not exist. Secrets for all users remain, and then
        belong to the user named in the entry. The counts are the detail of the entry.

        Raises: Conflict if no admin would remain.
        """
        ...

    async def users(self) -> Seq[User]:
        """Return the users by name."""
        ...

    async def add_token(self, token: Token, *, entry: AuditEntry) -> bool:
        """False when the token is known: it stays as it is, also revoked."""
        ...

    async def revoke_token(
        self, id: TokenId, *, at: float, entry: AuditEntry
    ) -> Token | None:
        """Revoke a token and return the result; None if the id does not exist.

        Repeated calls are harmless. Sessions and links opened by the token are revoked
        with it.
        """
        ...

    async def forget_token(self, id: TokenId, *, entry: AuditEntry) -> bool:
        """Delete the token completely, so that it is invalid.

        Return False if the id does not exist.
        """
        ...

    async def spend_token(
        self, id: TokenId, made: Token, *, at: float, entry: AuditEntry
    ) -> Token | None:
        """Take one use of a join token, and add the node's token that it was used for.

        Return the join token afterwards; None if it is no longer valid.

        Raises: Conflict if another valid token names the same node.
        """
        ...

    async def renew_token(
        self, id: TokenId, made: Token, *, at: float, entry: AuditEntry
    ) -> Token | None:
        """Replace a token with a new one.

        The old token ends within a day, and older tokens of the node are deleted.
        Return the replaced token; None if the id does not exist.

        Raises: TokenRevoked if it was replaced before, by a token that is in use.
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
        """Append to the audit log what changes no row of the store: a refusal, an
        end."""
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
        """Entries at or after `since` with a number below `before`, the newest first;
        or, with `after`, those with a number above it, the oldest first."""
        ...
