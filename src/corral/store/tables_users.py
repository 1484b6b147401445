"""The part of the store on tables for users, tokens and the audit log."""

from collections.abc import Collection, Mapping
from collections.abc import Sequence as Seq

from corral.domain.ids import TokenId, UserName
from corral.domain.users import AuditEntry, ProviderIdentity, Removed, Role, Token, User
from corral.ports.user_store import Identity
from corral.store import audit
from corral.store import users as people
from corral.store.connection_threads import ReaderThread, Writer


class TablePeople:
    """Implementation of ports.People on the store's threads."""

    _writer: Writer
    _quick: ReaderThread
    _listing: ReaderThread

    async def add_user(self, user: User, *, entry: AuditEntry) -> bool:
        return await self._writer.ask(lambda db: people.add_user(db, user, entry))

    async def change_user(
        self,
        name: UserName,
        *,
        role: Role | None = None,
        disabled: bool | None = None,
        limits: Mapping[str, int | None] | None = None,
        entry: AuditEntry,
    ) -> User | None:
        return await self._writer.ask(
            lambda db: people.change_user(db, name, role, disabled, limits, entry)
        )

    async def link_user(
        self, name: UserName, *, identity: ProviderIdentity | None, entry: AuditEntry
    ) -> User | None:
        return await self._writer.ask(
            lambda db: people.link_user(db, name, identity, entry)
        )

    async def remove_user(
        self, name: UserName, *, at: float, entry: AuditEntry
    ) -> Removed | None:
        return await self._writer.ask(
            lambda db: people.remove_user(db, name, at, entry)
        )

    async def users(self) -> Seq[User]:
        return await self._quick.ask(people.all_users)

    async def add_token(self, token: Token, *, entry: AuditEntry) -> bool:
        return await self._writer.ask(lambda db: people.add_token(db, token, entry))

    async def revoke_token(
        self, id: TokenId, *, at: float, entry: AuditEntry
    ) -> Token | None:
        return await self._writer.ask(lambda db: people.revoke_token(db, id, at, entry))

    async def forget_token(self, id: TokenId, *, entry: AuditEntry) -> bool:
        return await self._writer.ask(lambda db: people.forget_token(db, id, entry))

    async def spend_token(
        self, id: TokenId, made: Token, *, at: float, entry: AuditEntry
    ) -> Token | None:
        return await self._writer.ask(
            lambda db: people.spend_token(db, id, made, at, entry)
        )

    async def renew_token(
        self, id: TokenId, made: Token, *, at: float, entry: AuditEntry
    ) -> Token | None:
        return await self._writer.ask(
            lambda db: people.renew_token(db, id, made, at, entry)
        )

    async def use_token(self, id: TokenId, *, at: float) -> None:
        await self._writer.ask(lambda db: people.use_token(db, id, at))

    async def token(self, id: TokenId) -> Token | None:
        return await self._quick.ask(lambda db: people.token_of_id(db, id))

    async def tokens(self) -> Seq[Token]:
        return await self._quick.ask(people.all_tokens)

    async def token_digests(self) -> Collection[str]:
        return await self._quick.ask(people.token_digests)

    async def identity(self, sha256: str) -> Identity | None:
        return await self._quick.ask(lambda db: people.identity(db, sha256))

    async def identities(self, digests: Seq[str]) -> Seq[Identity | None]:
        return await self._quick.ask(lambda db: people.identities(db, digests))

    async def record(self, entry: AuditEntry) -> None:
        await self._writer.ask(lambda db: audit.add_entry(db, entry))

    async def audit(
        self,
        *,
        by: UserName | None = None,
        since: float = 0.0,
        before: int | None = None,
        after: int | None = None,
        limit: int,
    ) -> Seq[AuditEntry]:
        return await self._listing.ask(
            lambda db: audit.entries(db, by, since, before, after, limit)
        )
