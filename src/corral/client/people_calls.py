"""Calls about users, tokens and the audit log, as values; and both clients' methods for them."""

from typing import TYPE_CHECKING, Any, TypeVar

from corral.client.calls import Call, quoted, read_as

if TYPE_CHECKING:
    from corral.wire import people

T = TypeVar("T")


def users() -> "Call[list[people.User]]":
    return Call(
        method="GET", path="/v1/users", read=lambda body: read_as("people.Users")(body).users
    )


def user(name: str) -> "Call[people.User]":
    return Call(method="GET", path=_user(name), read=read_as("people.User"))


def add_user(name: str, role: str) -> "Call[people.User]":
    body = {"name": name, "role": role}
    return Call(
        method="POST", path="/v1/users", json=body, read=read_as("people.User"), repeatable=False
    )


def set_user(name: str, role: str | None, disabled: bool | None) -> "Call[people.User]":
    body = {"role": role, "disabled": disabled}
    given = {key: value for key, value in body.items() if value is not None}
    return Call(method="PATCH", path=_user(name), json=given, read=read_as("people.User"))


def remove_user(name: str) -> Call[None]:
    return Call(method="DELETE", path=_user(name), read=lambda body: None, repeatable=False)


def tokens() -> "Call[list[people.Token]]":
    return Call(
        method="GET", path="/v1/tokens", read=lambda body: read_as("people.Tokens")(body).tokens
    )


def create_token(
    user: str | None, role: str | None, expires_seconds: float | None
) -> "Call[people.TokenMade]":
    body = {"user": user, "role": role, "expires_seconds": expires_seconds}
    given = {key: value for key, value in body.items() if value is not None}
    read = read_as("people.TokenMade")
    return Call(method="POST", path="/v1/tokens", json=given, read=read, repeatable=False)


def revoke_token(id: str) -> "Call[people.Token]":
    path = f"/v1/tokens/{quoted('token', id, 'corral token ls')}"
    return Call(method="DELETE", path=path, read=read_as("people.Token"))


def create_link() -> "Call[people.LinkMade]":
    read = read_as("people.LinkMade")
    return Call(method="POST", path="/v1/session/links", read=read, repeatable=False)


def audit(
    user: str | None, since: float, before: int | None, limit: int
) -> "Call[list[people.AuditEntry]]":
    query: dict[str, Any] = {"user": user, "since": since, "before": before, "limit": limit}
    given = {key: value for key, value in query.items() if value is not None}
    return Call(
        method="GET",
        path="/v1/audit",
        query=given,
        read=lambda body: read_as("people.Audit")(body).entries,
    )


def _user(name: str) -> str:
    return f"/v1/users/{quoted('user', name, 'corral user ls')}"


class SyncPeople:
    """What `Client` can say about users, tokens and the audit log."""

    def _call(self, call: Call[T]) -> T:
        raise NotImplementedError

    def users(self) -> "list[people.User]":
        """All, or to those who may not see others, themselves."""
        return self._call(users())

    def user(self, name: str) -> "people.User":
        return self._call(user(name))

    def add_user(self, name: str, *, role: str = "user") -> "people.User":
        return self._call(add_user(name, role))

    def set_user(
        self, name: str, *, role: str | None = None, disabled: bool | None = None
    ) -> "people.User":
        """What is left out stays. A disabled user is let in no more; their jobs run on."""
        return self._call(set_user(name, role, disabled))

    def remove_user(self, name: str) -> None:
        """Forget the user and revoke their tokens."""
        self._call(remove_user(name))

    def tokens(self) -> "list[people.Token]":
        """All, or to those who may not see others', their own; never a secret."""
        return self._call(tokens())

    def create_token(
        self,
        *,
        user: str | None = None,
        role: str | None = None,
        expires_seconds: float | None = None,
    ) -> "people.TokenMade":
        """A new token, of the caller where no user is named. Its secret is answered this once."""
        return self._call(create_token(user, role, expires_seconds))

    def revoke_token(self, id: str) -> "people.Token":
        return self._call(revoke_token(id))

    def create_link(self) -> "people.LinkMade":
        """An address that logs a browser in, once."""
        return self._call(create_link())

    def audit(
        self,
        *,
        user: str | None = None,
        since: float = 0.0,
        before: int | None = None,
        limit: int = 1_000,
    ) -> "list[people.AuditEntry]":
        """Who asked for what, newest first; `since` in wall-clock seconds since 1970."""
        return self._call(audit(user, since, before, limit))


class AsyncPeople:
    """The same methods, awaited."""

    async def _call(self, call: Call[T]) -> T:
        raise NotImplementedError

    async def users(self) -> "list[people.User]":
        return await self._call(users())

    async def user(self, name: str) -> "people.User":
        return await self._call(user(name))

    async def add_user(self, name: str, *, role: str = "user") -> "people.User":
        return await self._call(add_user(name, role))

    async def set_user(
        self, name: str, *, role: str | None = None, disabled: bool | None = None
    ) -> "people.User":
        return await self._call(set_user(name, role, disabled))

    async def remove_user(self, name: str) -> None:
        await self._call(remove_user(name))

    async def tokens(self) -> "list[people.Token]":
        return await self._call(tokens())

    async def create_token(
        self,
        *,
        user: str | None = None,
        role: str | None = None,
        expires_seconds: float | None = None,
    ) -> "people.TokenMade":
        return await self._call(create_token(user, role, expires_seconds))

    async def revoke_token(self, id: str) -> "people.Token":
        return await self._call(revoke_token(id))

    async def create_link(self) -> "people.LinkMade":
        return await self._call(create_link())

    async def audit(
        self,
        *,
        user: str | None = None,
        since: float = 0.0,
        before: int | None = None,
        limit: int = 1_000,
    ) -> "list[people.AuditEntry]":
        return await self._call(audit(user, since, before, limit))
