"""Users, tokens and the audit log of the store in memory, as a reference for the
tables."""

import hmac
from collections.abc import Collection, Iterable, Mapping, Set
from collections.abc import Sequence as Seq
from dataclasses import dataclass, replace

from corral.domain.audit_chain import UnchainedDigest, next_link
from corral.domain.ids import Sequence, TokenId, UserName
from corral.domain.users import AuditEntry, ProviderIdentity, Removed, Role, Token, User
from corral.ports.user_store import Identity
from corral.store.audit import ENTRY
from corral.store.users_rules import (
    changed,
    check_governed,
    check_identity_free,
    check_name_free,
    ended_with_token,
    ended_with_user,
    renewed,
    spent,
    used_later,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSecret:
    """A stored secret, in encrypted form."""

    name: str
    sealed: bytes
    by: UserName
    at: float
    for_everybody: bool


class MemoryPeople:
    """Users, tokens, the audit log and secrets in memory: an implementation of
    ports.People that is not durable."""

    def __init__(self) -> None:
        self._newest_request = Sequence(0)
        self._secrets: dict[str, KeptSecret] = {}
        self._users: dict[UserName, User] = {}
        self._tokens: dict[TokenId, Token] = {}
        self._audit: list[AuditEntry] = []

    async def add_user(self, user: User, *, entry: AuditEntry) -> bool:
        if user.identity is not None:
            check_identity_free(self._users.values(), user.name, user.identity)
        if user.name in self._users:
            return False
        self._users[user.name] = replace(user, jobs_after=self._newest_request)
        self._add_entry(entry)
        return True

    async def change_user(
        self,
        name: UserName,
        *,
        role: Role | None = None,
        disabled: bool | None = None,
        limits: Mapping[str, int | None] | None = None,
        entry: AuditEntry,
    ) -> User | None:
        old_user = self._users.get(name)
        if old_user is None:
            return None
        new_user = changed(old_user, role, disabled, limits)
        check_governed(self._users.values(), old_user, new_user)
        self._users[name] = new_user
        self._keep_tokens(
            ended_with_user(old_user, new_user, self._tokens.values(), entry.at)
        )
        self._add_entry(entry)
        return new_user

    async def link_user(
        self, name: UserName, *, identity: ProviderIdentity | None, entry: AuditEntry
    ) -> User | None:
        if name not in self._users:
            return None
        if identity is not None:
            check_identity_free(self._users.values(), name, identity)
        self._users[name] = replace(self._users[name], identity=identity)
        self._add_entry(entry)
        return self._users[name]

    async def remove_user(
        self, name: UserName, *, at: float, entry: AuditEntry
    ) -> Removed | None:
        if name not in self._users:
            return None
        check_governed(self._users.values(), self._users[name], None)
        ended_tokens = ended_with_user(
            self._users[name], None, self._tokens.values(), at
        )
        self._keep_tokens(ended_tokens)
        kept_secrets = [
            secret for secret in self._secrets.values() if secret.by == name
        ]
        for kept_secret in kept_secrets:
            if kept_secret.for_everybody:
                self._secrets[kept_secret.name] = replace(kept_secret, by=entry.by)
            else:
                del self._secrets[kept_secret.name]
        shared_count = sum(secret.for_everybody for secret in kept_secrets)
        removed = Removed(
            secrets_removed=len(kept_secrets) - shared_count,
            secrets_kept=shared_count,
            tokens_revoked=len(ended_tokens),
        )
        del self._users[name]
        self._add_entry(replace(entry, detail=removed.text))
        return removed

    async def users(self) -> Seq[User]:
        return [user for _, user in sorted(self._users.items())]

    async def add_token(self, token: Token, *, entry: AuditEntry) -> bool:
        if token.id in self._tokens:
            return False
        self._tokens[token.id] = token
        self._add_entry(entry)
        return True

    async def revoke_token(
        self, id: TokenId, *, at: float, entry: AuditEntry
    ) -> Token | None:
        token = self._tokens.get(id)
        if token is None or token.revoked_at is not None:
            return token
        revoked = replace(token, revoked_at=at)
        self._keep_tokens(
            [revoked, *ended_with_token(revoked, self._tokens.values(), at)]
        )
        self._add_entry(entry)
        return revoked

    def _keep_tokens(self, changed: Iterable[Token]) -> None:
        self._tokens.update((token.id, token) for token in changed)

    async def forget_token(self, id: TokenId, *, entry: AuditEntry) -> bool:
        if self._tokens.pop(id, None) is None:
            return False
        self._add_entry(entry)
        return True

    async def spend_token(
        self, id: TokenId, made: Token, *, at: float, entry: AuditEntry
    ) -> Token | None:
        token = spent(self._tokens.get(id), at)
        if token is None:
            return None
        check_name_free(self._tokens.values(), made)
        self._tokens[id] = token
        await self.add_token(made, entry=entry)
        return token

    async def renew_token(
        self, id: TokenId, made: Token, *, at: float, entry: AuditEntry
    ) -> Token | None:
        renewal = renewed(self._tokens.values(), id, made, at)
        if renewal is None:
            return None
        old_token, forgotten = renewal
        self._tokens[id] = old_token
        for token_id in forgotten:
            del self._tokens[token_id]
        await self.add_token(made, entry=entry)
        return old_token

    async def use_token(self, id: TokenId, *, at: float) -> None:
        if id in self._tokens:
            self._tokens[id] = used_later(self._tokens[id], at)

    async def token(self, id: TokenId) -> Token | None:
        return self._tokens.get(id)

    async def tokens(self) -> Seq[Token]:
        return [token for _, token in sorted(self._tokens.items())]

    async def token_digests(self) -> Collection[str]:
        return [token.sha256 for token in self._tokens.values()]

    async def identity(self, sha256: str) -> Identity | None:
        return (await self.identities((sha256,)))[0]

    async def identities(self, digests: Seq[str]) -> Seq[Identity | None]:
        return [self._find_identity(digest) for digest in digests]

    def _find_identity(self, sha256: str) -> Identity | None:
        for token in self._tokens.values():
            if hmac.compare_digest(token.sha256.encode(), sha256.encode()):
                return token, self._users.get(token.user)
        return None

    async def put_secret(
        self,
        name: str,
        sealed: bytes,
        *,
        by: UserName,
        at: float,
        for_everybody: bool | None = None,
        entry: AuditEntry | None = None,
    ) -> None:
        if for_everybody is None:
            for_everybody = name in self._secrets and self._secrets[name].for_everybody
        self._secrets[name] = KeptSecret(
            name=name, sealed=sealed, by=by, at=at, for_everybody=for_everybody
        )
        if entry is not None:
            self._add_entry(entry)

    async def secret(self, name: str) -> bytes | None:
        return self._secrets[name].sealed if name in self._secrets else None

    async def secrets(self) -> Seq[tuple[str, UserName, float]]:
        return [
            (name, kept_secret.by, kept_secret.at)
            for name, kept_secret in sorted(self._secrets.items())
        ]

    async def secrets_for_everybody(self) -> Set[str]:
        return {
            name
            for name, kept_secret in self._secrets.items()
            if kept_secret.for_everybody
        }

    async def seal_anew(self, name: str, *, was: bytes, now: bytes) -> bool:
        if await self.secret(name) != was:
            return False
        self._secrets[name] = replace(self._secrets[name], sealed=now)
        return True

    async def drop_secret(self, name: str, *, entry: AuditEntry | None = None) -> bool:
        is_removed = self._secrets.pop(name, None) is not None
        if is_removed and entry is not None:
            self._add_entry(entry)
        return is_removed

    async def record(self, entry: AuditEntry) -> None:
        self._add_entry(entry)

    async def audit(
        self,
        *,
        by: UserName | None = None,
        since: float = 0.0,
        before: int | None = None,
        after: int | None = None,
        limit: int,
    ) -> Seq[AuditEntry]:
        audit_entries = [
            audit_entry
            for audit_entry in (reversed(self._audit) if after is None else self._audit)
            if by in (None, audit_entry.by)
            and audit_entry.at >= since
            and (before is None or audit_entry.number < before)
            and audit_entry.number > (after or 0)
        ]
        return audit_entries[: max(0, limit)]

    def _add_entry(self, entry: AuditEntry) -> None:
        number = len(self._audit) + 1
        previous_link = (
            self._audit[-1].link if self._audit else UnchainedDigest().link()
        )
        link = next_link(previous_link, number, ENTRY.write(entry)[0])
        self._audit.append(replace(entry, number=number, link=link))
