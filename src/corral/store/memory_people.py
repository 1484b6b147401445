"""Users, tokens and the audit log of the store in memory: the model of the tables."""

import hmac
from collections.abc import Sequence as Seq
from dataclasses import replace

from corral.domain.ids import TokenId, UserName
from corral.domain.people import AuditEntry, Role, Token, User
from corral.ports.people import Identity
from corral.store.people_rules import check_governed, check_name_free, spent, used_later


class MemoryPeople:
    """Keeps ports.People's contract but for durability."""

    def __init__(self) -> None:
        self._users: dict[UserName, User] = {}
        self._tokens: dict[TokenId, Token] = {}
        self._audit: list[AuditEntry] = []

    async def add_user(self, user: User, *, entry: AuditEntry) -> bool:
        if user.name in self._users:
            return False
        self._users[user.name] = user
        self._add_entry(entry)
        return True

    async def change_user(
        self,
        name: UserName,
        *,
        role: Role | None = None,
        disabled: bool | None = None,
        entry: AuditEntry,
    ) -> User | None:
        before = self._users.get(name)
        if before is None:
            return None
        after = replace(
            before,
            role=before.role if role is None else role,
            disabled=before.disabled if disabled is None else disabled,
        )
        check_governed(self._users.values(), before, after)
        self._users[name] = after
        self._add_entry(entry)
        return after

    async def remove_user(self, name: UserName, *, at: float, entry: AuditEntry) -> bool:
        if name not in self._users:
            return False
        check_governed(self._users.values(), self._users[name], None)
        for token in list(self._tokens.values()):
            if token.user == name and token.node is None and token.revoked_at is None:
                self._tokens[token.id] = replace(token, revoked_at=at)
        del self._users[name]
        self._add_entry(entry)
        return True

    async def users(self) -> Seq[User]:
        return [user for _, user in sorted(self._users.items())]

    async def add_token(self, token: Token, *, entry: AuditEntry) -> bool:
        if token.id in self._tokens:
            return False
        self._tokens[token.id] = token
        self._add_entry(entry)
        return True

    async def revoke_token(self, id: TokenId, *, at: float, entry: AuditEntry) -> Token | None:
        token = self._tokens.get(id)
        if token is None or token.revoked_at is not None:
            return token
        self._tokens[id] = replace(token, revoked_at=at)
        self._add_entry(entry)
        return self._tokens[id]

    async def forget_token(self, id: TokenId, *, entry: AuditEntry) -> bool:
        if self._tokens.pop(id, None) is None:
            return False
        self._add_entry(entry)
        return True

    async def spend_token(
        self, id: TokenId, made: Token, *, at: float, entry: AuditEntry
    ) -> Token | None:
        left = spent(self._tokens.get(id), at)
        if left is None:
            return None
        check_name_free(self._tokens.values(), made)
        self._tokens[id] = left
        await self.add_token(made, entry=entry)
        return left

    async def use_token(self, id: TokenId, *, at: float) -> None:
        if id in self._tokens:
            self._tokens[id] = used_later(self._tokens[id], at)

    async def tokens(self) -> Seq[Token]:
        return [token for _, token in sorted(self._tokens.items())]

    async def identity(self, sha256: str) -> Identity | None:
        return (await self.identities((sha256,)))[0]

    async def identities(self, digests: Seq[str]) -> Seq[Identity | None]:
        return [self._identity(one) for one in digests]

    def _identity(self, sha256: str) -> Identity | None:
        for token in self._tokens.values():
            if hmac.compare_digest(token.sha256.encode(), sha256.encode()):
                return token, self._users.get(token.user)
        return None

    async def record(self, entry: AuditEntry) -> None:
        self._add_entry(entry)

    async def audit(
        self,
        *,
        by: UserName | None = None,
        since: float = 0.0,
        before: int | None = None,
        limit: int,
    ) -> Seq[AuditEntry]:
        found = [
            one
            for one in reversed(self._audit)
            if by in (None, one.by) and one.at >= since and (before is None or one.number < before)
        ]
        return found[: max(0, limit)]

    def _add_entry(self, entry: AuditEntry) -> None:
        self._audit.append(replace(entry, number=len(self._audit) + 1))
