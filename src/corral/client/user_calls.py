"""API calls about users, tokens and the audit log, each as an ApiCall value, and the
methods of Client and AsyncClient for them."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from corral.client.api_calls import ApiCall, quoted, read_as

if TYPE_CHECKING:
    from corral.wire import users as people

T = TypeVar("T")


def users() -> "ApiCall[list[people.UserView]]":
    return ApiCall(
        method="GET",
        path="/v1/users",
        read=lambda body: read_as("users.UsersView")(body).users,
    )


def user(name: str) -> "ApiCall[people.UserDetail]":
    return ApiCall(
        method="GET", path=_user_path(name), read=read_as("users.UserDetail")
    )


def add_user(name: str, role: str) -> "ApiCall[people.UserView]":
    body = {"name": name, "role": role}
    return ApiCall(
        method="POST",
        path="/v1/users",
        json=body,
        read=read_as("users.UserView"),
        repeatable=False,
    )


def set_user(
    name: str,
    role: str | None,
    disabled: bool | None,
    limits: Mapping[str, int | str | None] | None,
) -> "ApiCall[people.UserView]":
    body = {"role": role, "disabled": disabled, "limits": limits or None}
    body_fields = {key: value for key, value in body.items() if value is not None}
    return ApiCall(
        method="PATCH",
        path=_user_path(name),
        json=body_fields,
        read=read_as("users.UserView"),
    )


def link_user(
    name: str, issuer: str | None, subject: str | None, pending: str | None
) -> "ApiCall[people.UserView]":
    body = {"issuer": issuer, "subject": subject, "pending": pending}
    body_fields = {key: value for key, value in body.items() if value is not None}
    path = f"{_user_path(name)}/identity"
    return ApiCall(
        method="PUT", path=path, json=body_fields, read=read_as("users.UserView")
    )


def unlink_user(name: str) -> "ApiCall[people.UserView]":
    return ApiCall(
        method="DELETE",
        path=f"{_user_path(name)}/identity",
        read=read_as("users.UserView"),
    )


def pending_log_ins() -> "ApiCall[list[people.PendingLogInView]]":
    body_reader = read_as("users.PendingLogInsView")
    return ApiCall(
        method="GET", path="/v1/log-ins", read=lambda body: body_reader(body).pending
    )


def remove_user(name: str) -> "ApiCall[people.UserRemoved]":
    body_reader = read_as("users.UserRemoved")
    return ApiCall(
        method="DELETE", path=_user_path(name), read=body_reader, repeatable=False
    )


def rotate_key() -> "ApiCall[people.KeyRotated]":
    return ApiCall(
        method="POST",
        path="/v1/keys/rotate",
        read=read_as("users.KeyRotated"),
        repeatable=False,
    )


def tokens() -> "ApiCall[list[people.TokenView]]":
    return ApiCall(
        method="GET",
        path="/v1/tokens",
        read=lambda body: read_as("users.TokensView")(body).tokens,
    )


def create_token(
    user: str | None,
    role: str | None,
    expires_seconds: float | None,
    never_expires: bool = False,
    tokens_per_month: int | None = None,
) -> "ApiCall[people.TokenMade]":
    body = {
        "user": user,
        "role": role,
        "expires_seconds": expires_seconds,
        "tokens_per_month": tokens_per_month,
    }
    body_fields: dict[str, Any] = {
        key: value for key, value in body.items() if value is not None
    }
    if never_expires:
        body_fields["never_expires"] = True
    body_reader = read_as("users.TokenMade")
    return ApiCall(
        method="POST",
        path="/v1/tokens",
        json=body_fields,
        read=body_reader,
        repeatable=False,
    )


def revoke_token(id: str) -> "ApiCall[people.TokenView]":
    path = f"/v1/tokens/{quoted('token', id, 'corral token ls')}"
    return ApiCall(method="DELETE", path=path, read=read_as("users.TokenView"))


def create_link() -> "ApiCall[people.LinkMade]":
    body_reader = read_as("users.LinkMade")
    return ApiCall(
        method="POST", path="/v1/session/links", read=body_reader, repeatable=False
    )


def audit(
    user: str | None, since: float, before: int | None, after: int | None, limit: int
) -> "ApiCall[list[people.AuditEntryView]]":
    query: dict[str, Any] = {"user": user, "since": since, "limit": limit}
    query |= {"before": before, "after": after}
    query_fields = {key: value for key, value in query.items() if value is not None}
    return ApiCall(
        method="GET",
        path="/v1/audit",
        query=query_fields,
        read=lambda body: read_as("users.Audit")(body).entries,
    )


def _user_path(name: str) -> str:
    return f"/v1/users/{quoted('user', name, 'corral user ls')}"


class SyncPeople:
    """Methods of `Client` for users, tokens and the audit log."""

    def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    def users(self) -> "list[people.UserView]":
        """Return all users. A caller who may not see other users gets only their own
        entry."""
        return self._call(users())

    def user(self, name: str) -> "people.UserDetail":
        return self._call(user(name))

    def add_user(self, name: str, *, role: str = "user") -> "people.UserView":
        return self._call(add_user(name, role))

    def set_user(
        self,
        name: str,
        *,
        role: str | None = None,
        disabled: bool | None = None,
        limits: Mapping[str, int | str | None] | None = None,
    ) -> "people.UserView":
        """Change a user. Arguments that are left out change nothing. A disabled user
        has no access; their running jobs continue. `limits`: quotas by name; None
        removes a quota."""
        return self._call(set_user(name, role, disabled, limits))

    def rotate_key(self) -> "people.KeyRotated":
        """Encrypt all secrets with a new key. Tokens of running jobs stay valid for 30
        days."""
        return self._call(rotate_key())

    def link_user(
        self,
        name: str,
        *,
        issuer: str | None = None,
        subject: str | None = None,
        pending: str | None = None,
    ) -> "people.UserView":
        """Let one identity of the identity provider log in as the user. The identity is
        given by `issuer` and `subject`, or by `pending`, the refused log-in of
        `pending_log_ins`."""
        return self._call(link_user(name, issuer, subject, pending))

    def unlink_user(self, name: str) -> "people.UserView":
        """Remove the link of the user to an identity of the identity provider, so that
        no identity can log in as the user."""
        return self._call(unlink_user(name))

    def pending_log_ins(self) -> "list[people.PendingLogInView]":
        """Return the refused log-ins of the last day whose identity is not linked to a
        user."""
        return self._call(pending_log_ins())

    def remove_user(self, name: str) -> "people.UserRemoved":
        """Remove the user, revoke their tokens and remove their secrets."""
        return self._call(remove_user(name))

    def tokens(self) -> "list[people.TokenView]":
        """Return all tokens, without their secrets. A caller who may not see other
        users' tokens gets only their own."""
        return self._call(tokens())

    def create_token(
        self,
        *,
        user: str | None = None,
        role: str | None = None,
        expires_seconds: float | None = None,
        never_expires: bool = False,
        tokens_per_month: int | None = None,
    ) -> "people.TokenMade":
        """Create a token, by default for the caller. Its secret is returned only once.
        Without `expires_seconds`, the token is valid for the time of the cluster's
        setting (30 days). `tokens_per_month` is a budget of tokens of services."""
        return self._call(
            create_token(user, role, expires_seconds, never_expires, tokens_per_month)
        )

    def revoke_token(self, id: str) -> "people.TokenView":
        return self._call(revoke_token(id))

    def create_link(self) -> "people.LinkMade":
        """Create an address that logs a browser in as the caller. It works once."""
        return self._call(create_link())

    def audit(
        self,
        *,
        user: str | None = None,
        since: float = 0.0,
        before: int | None = None,
        after: int | None = None,
        limit: int = 1_000,
    ) -> "list[people.AuditEntryView]":
        """Return audit entries, newest first. `since` is in wall-clock seconds since
        1970. With `after`, the number of an entry, return the entries after it, oldest
        first."""
        return self._call(audit(user, since, before, after, limit))


class AsyncPeople:
    """Methods of `AsyncClient` for users, tokens and the audit log."""

    async def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    async def users(self) -> "list[people.UserView]":
        return await self._call(users())

    async def user(self, name: str) -> "people.UserDetail":
        return await self._call(user(name))

    async def rotate_key(self) -> "people.KeyRotated":
        return await self._call(rotate_key())

    async def add_user(self, name: str, *, role: str = "user") -> "people.UserView":
        return await self._call(add_user(name, role))

    async def set_user(
        self,
        name: str,
        *,
        role: str | None = None,
        disabled: bool | None = None,
        limits: Mapping[str, int | str | None] | None = None,
    ) -> "people.UserView":
        return await self._call(set_user(name, role, disabled, limits))

    async def link_user(
        self,
        name: str,
        *,
        issuer: str | None = None,
        subject: str | None = None,
        pending: str | None = None,
    ) -> "people.UserView":
        return await self._call(link_user(name, issuer, subject, pending))

    async def unlink_user(self, name: str) -> "people.UserView":
        return await self._call(unlink_user(name))

    async def pending_log_ins(self) -> "list[people.PendingLogInView]":
        return await self._call(pending_log_ins())

    async def remove_user(self, name: str) -> "people.UserRemoved":
        return await self._call(remove_user(name))

    async def tokens(self) -> "list[people.TokenView]":
        return await self._call(tokens())

    async def create_token(
        self,
        *,
        user: str | None = None,
        role: str | None = None,
        expires_seconds: float | None = None,
        never_expires: bool = False,
    ) -> "people.TokenMade":
        return await self._call(
            create_token(user, role, expires_seconds, never_expires)
        )

    async def revoke_token(self, id: str) -> "people.TokenView":
        return await self._call(revoke_token(id))

    async def create_link(self) -> "people.LinkMade":
        return await self._call(create_link())

    async def audit(
        self,
        *,
        user: str | None = None,
        since: float = 0.0,
        before: int | None = None,
        after: int | None = None,
        limit: int = 1_000,
    ) -> "list[people.AuditEntryView]":
        return await self._call(audit(user, since, before, after, limit))
