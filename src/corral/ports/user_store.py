"""Interface of durable storage of users, tokens and the audit log."""

from collections.abc import Collection, Mapping
from collections.abc import Sequence as Seq
from typing import Protocol

from corral.domain.ids import TokenId, UserName
from corral.domain.users import AuditEntry, ProviderIdentity, Removed, Role, Token, User

# a node's token has no user; nor has one whose user is gone
Identity = tuple[Token, User | None]


class UserStore(Protocol):
    """The part of the Store for users and tokens. A method that changes something does
    so in one transaction with `entry`, its entry of the audit log. The entry is
    appended only when something has changed.

    Every method raises StoreTrouble when the store cannot be read or written.
    """

    async def add_user(self, user: User, *, entry: AuditEntry) -> bool:
        """Add a user and return True. If a user of this name exists, change nothing and
        return False. Jobs that were submitted before belong to an earlier user of the
        name (`User.jobs_after`).

        Raises: Conflict when another user logs in with the user's identity.
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
        """Change a user and return the changed user; None if the name does not exist.

        `limits`: the user's own quotas by name. None removes a quota; quotas that are
        not named stay unchanged. A new role, or disabling the user, revokes the user's
        sessions and links.

        Raises: Conflict if no admin would remain.
        """
        ...

    async def link_user(
        self, name: UserName, *, identity: ProviderIdentity | None, entry: AuditEntry
    ) -> User | None:
        """Make this identity the only one with which the user logs in (None: no
        identity), and return the user.

        Return None if the name does not exist.

        Raises: Conflict if another user logs in with the identity.
        """
        ...

    async def remove_user(
        self, name: UserName, *, at: float, entry: AuditEntry
    ) -> Removed | None:
        """Remove the user, revoke their tokens and delete their secrets. Return what
        was removed, in numbers.

        Return None if the name does not exist. Secrets for all users remain, and then
        belong to the user named in the entry. The numbers are the detail of the entry.

        Raises: Conflict if no admin would remain.
        """
        ...

    async def users(self) -> Seq[User]:
        """Return the users by name."""
        ...

    async def add_token(self, token: Token, *, entry: AuditEntry) -> bool:
        """Add a token and return True. If the token is known, even as a revoked token,
        it stays unchanged and the result is False."""
        ...

    async def revoke_token(
        self, id: TokenId, *, at: float, entry: AuditEntry
    ) -> Token | None:
        """Revoke a token and return it as it is then; None if the id does not exist.

        Repeated calls are harmless. Sessions and links that were opened with the token
        are revoked with it.
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
        """Take one use of a join token, and add the node's own token `made` in
        exchange.

        Return the join token afterwards; None if it is no longer valid.

        Raises: Conflict if another valid token names the same node.
        """
        ...

    async def renew_token(
        self, id: TokenId, made: Token, *, at: float, entry: AuditEntry
    ) -> Token | None:
        """Replace a node's token with the new token `made`.

        The old token ends within a day, and older tokens of the node are deleted.
        Return the replaced token; None if the id does not exist.

        Raises: TokenRevoked if the token was replaced before, by a token that is in
        use.
        """
        ...

    async def use_token(self, id: TokenId, *, at: float) -> None:
        """Record that the token was used at this time."""
        ...

    async def token(self, id: TokenId) -> Token | None:
        """Return the token with this id, even if it is no longer valid; None if it is
        unknown."""
        ...

    async def tokens(self) -> Seq[Token]:
        """Return the tokens by id, including expired ones."""
        ...

    async def token_digests(self) -> Collection[str]:
        """Return the SHA-256 of each token, including tokens that are no longer valid."""
        ...

    async def identity(self, sha256: str) -> Identity | None:
        """Return the token with this SHA-256 hash, together with its user; None if it
        is unknown."""
        ...

    async def identities(self, digests: Seq[str]) -> Seq[Identity | None]:
        """Return, for each of these hashes in order, the token with its user; None for
        an unknown hash."""
        ...

    async def record(self, entry: AuditEntry) -> None:
        """Append an entry to the audit log for an event that changes no row of the
        store, such as a refusal or the shutdown of the head."""
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
        """Return entries of the audit log: those at or after `since` with a number
        below `before`, newest first; or, with `after`, those with a number above it,
        oldest first."""
        ...
