"""Tokens in files of the cluster's directory, which the head renews each day.

Anyone who can read the directory is an admin. The token of the directory's Prometheus
allows only reading.
"""

import asyncio
import getpass
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from corral.api import token_digest
from corral.boot.settings import once, write_atomically
from corral.domain.errors import Trouble
from corral.domain.ids import TokenId, UserName
from corral.domain.users import (
    HEAD,
    NODE_TOKEN_SECONDS,
    RENEW_SECONDS,
    AuditEntry,
    Role,
    SpeakerKind,
    Token,
    User,
    token_id,
)
from corral.ports.log import HeadLogger
from corral.ports.store import Store

LOOK_SECONDS: Final = 600.0
log = HeadLogger("corral.boot")


@dataclass(slots=True, kw_only=True)
class DirectoryToken:
    """One token in a file, and the user that authenticates with it.

    Args:
        hide: Is called with each secret to keep it out of the head's log.
    """

    store: Store
    file: Path
    user: UserName
    role: Role
    wall: Callable[[], float]
    hide: Callable[[str], None]
    secret: str = ""
    _earlier: list[tuple[float, TokenId]] = field(default_factory=list)

    @classmethod
    def of_admin(
        cls,
        store: Store,
        file: Path,
        wall: Callable[[], float],
        hide: Callable[[str], None],
    ) -> "DirectoryToken":
        """Return the admin's token. The admin is the account under which the head runs."""
        name = UserName(getpass.getuser())
        return cls(
            store=store, file=file, user=name, role=Role.ADMIN, wall=wall, hide=hide
        )

    @classmethod
    def of_monitor(
        cls,
        store: Store,
        file: Path,
        wall: Callable[[], float],
        hide: Callable[[str], None],
    ) -> "DirectoryToken":
        """Return the token of the Prometheus of the directory, which allows only
        reading."""
        name = UserName("monitoring")
        return cls(
            store=store, file=file, user=name, role=Role.VIEWER, wall=wall, hide=hide
        )

    async def begin(self, *, afresh: bool = False) -> None:
        """Register the user and the token of the file in the store; create the file if
        it does not exist. With `afresh`, the previous head's token is deleted, and a
        new one is created.

        If the store already has the user or token, that stays unchanged, even if it is
        disabled or revoked.

        Raises: StoreTrouble, OSError.
        """
        if afresh and self.file.exists():
            last_token_id = token_id(token_digest(self.file.read_text().strip()))
            await self.store.forget_token(
                last_token_id,
                entry=self._token_audit_entry("token.forget", last_token_id),
            )
            self.file.unlink()
        self._set_secret(
            once(self.file, secrets.token_urlsafe(32).encode()).decode().strip()
        )
        user = User(name=self.user, role=self.role, created_at=self.wall())
        await self.store.add_user(
            user, entry=self._token_audit_entry("user.add", self.user)
        )
        new_token = self._token(self.secret)
        await self.store.add_token(
            new_token, entry=self._token_audit_entry("token.create", new_token.id)
        )
        await self.look()

    async def look(self) -> None:
        """Renew the token once half of its day is over. Delete replaced tokens that
        have expired. Raises: StoreTrouble, OSError."""
        now = self.wall()
        while self._earlier and self._earlier[0][0] <= now:
            _, id = self._earlier.pop(0)
            await self.store.forget_token(
                id, entry=self._token_audit_entry("token.forget", id)
            )
        token = await self.store.token(token_id(token_digest(self.secret)))
        if token is None or token.revoked_at is not None:
            return
        if token.expires_at is not None and now < token.expires_at - RENEW_SECONDS:
            return
        new_secret = secrets.token_urlsafe(32)
        new_token = self._token(new_secret)
        entry = self._token_audit_entry("token.renew", new_token.id)
        earlier = await self.store.renew_token(token.id, new_token, at=now, entry=entry)
        if earlier is None or earlier.expires_at is None:
            return
        write_atomically(self.file, new_secret)
        self._earlier.append((earlier.expires_at, earlier.id))
        self._set_secret(new_secret)

    def _set_secret(self, secret: str) -> None:
        self.hide(secret)
        self.secret = secret

    def _token(self, secret: str) -> Token:
        digest, now = token_digest(secret), self.wall()
        return Token(
            id=token_id(digest),
            sha256=digest,
            user=self.user,
            role=self.role,
            created_at=now,
            expires_at=now + NODE_TOKEN_SECONDS,
        )

    def _token_audit_entry(self, what: str, on: str) -> AuditEntry:
        detail_text = f"{self.role} {self.user} of the head's directory"
        return AuditEntry(
            at=self.wall(),
            by=HEAD,
            token=None,
            what=what,
            on=on,
            detail=detail_text,
            kind=SpeakerKind.HEAD,
        )


async def keep_fresh(tokens: list[DirectoryToken]) -> None:
    """Check the tokens every ten minutes until cancelled. If a token cannot be renewed,
    the next check tries again."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        for token in tokens:
            try:
                await token.look()
            except (Trouble, OSError) as trouble:
                log.warning("token_not_renewed", of=token.user, error=str(trouble))
