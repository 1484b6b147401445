"""Users that the provider authenticates, and the tokens that their log-ins create."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from corral.api.app_state import House
from corral.api.auth import Caller
from corral.api.quotas import is_valid
from corral.api.route_rights import Key
from corral.api.users import fresh_token
from corral.domain.errors import Conflict, UserDisabled
from corral.domain.ids import TokenId, UserName
from corral.domain.quota import Quota
from corral.domain.sign_on import SignOnRule, identity_in, role_in, user_for
from corral.domain.users import AuditEntry, Role, Token, TokenKind, User

# A day's work: whoever leaves a group at the provider loses its role here by then.
PROVIDER_SECONDS: Final = 12 * 3600.0
_ENTRIES: Final[Mapping[TokenKind, Key]] = {
    TokenKind.SESSION: ("POST", "/v1/session"),
    TokenKind.BEARER: ("POST", "/v1/tokens"),
}


async def user_by_claims(
    house: House, claims: Mapping[str, Any], rule: SignOnRule, source: str
) -> tuple[User, Role]:
    """Return the user and the role for the identity in the claims. The user is linked
    to the identity, or is created at its first log-in; the role follows from the groups
    at the provider.

    The user's role is updated from the groups at each log-in. A user who was made an
    admin in this cluster stays an admin, but the token of the log-in has the role of
    the groups.

    Raises: Forbidden, IdentityNotLinked, UserDisabled.
    """
    store, now = house.control.store, house.control.clock.wall()
    identity, role = identity_in(claims, rule), role_in(claims, rule)
    users = await store.users()
    name = user_for(users, identity, claims, rule)
    known_user = next((user for user in users if user.name == name), None)
    by_groups = f"{role}, by the groups at the provider"
    if known_user is None:
        creation_detail = f"{by_groups}; {identity.subject} of {identity.issuer}"
        entry = _provider_audit_entry(
            name,
            role,
            source,
            ("POST", "/v1/users"),
            now,
            on=name,
            detail=creation_detail,
        )
        user = User(name=name, role=role, created_at=now, identity=identity)
        if not await store.add_user(user, entry=entry):
            raise Conflict(
                f"another log-in has just created the user {name}", hint="log in again"
            )
        await house.name_users()
        return user, role
    check_enabled(known_user)
    if known_user.role not in (role, Role.ADMIN):
        key = ("PATCH", "/v1/users/{user}")
        entry = _provider_audit_entry(
            name, role, source, key, now, on=name, detail=by_groups
        )
        known_user = await store.change_user(name, role=role, entry=entry) or known_user
        await house.name_users()
    return known_user, role


def check_enabled(user: User) -> None:
    """Check that the user is not disabled.

    Raises: UserDisabled.
    """
    if user.disabled:
        raise UserDisabled(
            f"the user {user.name} is disabled",
            hint=f"an admin may run: corral user set {user.name} --enable",
        )


async def add_token(
    house: House,
    user: User,
    role: Role,
    seconds: float,
    *,
    source: str,
    kind: TokenKind,
    detail: str,
    page_secret: str = "",
) -> tuple[str, Token]:
    """Add a token for a user who has just logged in. Return its secret, and the token
    record that is stored.

    Raises: OverQuota.
    """
    store, now = house.control.store, house.control.clock.wall()
    secret, token = fresh_token(
        user.name, role, now, now + seconds, kind=kind, page_secret=page_secret
    )
    entry = _provider_audit_entry(
        user.name, role, source, _ENTRIES[kind], now, on=token.id, detail=detail
    )
    tokens = sum(
        is_valid(user_token, user.name, now) for user_token in await store.tokens()
    )
    with house.quotas.taking(
        house.quotas.of_user(user), Quota.TOKENS, used=tokens, asked=1
    ):
        await store.add_token(token, entry=replace(entry, token=token.id))
    return secret, token


def _provider_audit_entry(
    name: UserName,
    role: Role,
    source: str,
    key: Key,
    at: float,
    *,
    on: str,
    detail: str,
) -> AuditEntry:
    """Return an audit log entry about a user that the provider has just identified. The
    entry names no token."""
    caller = Caller(
        name=name, role=role, token=TokenId(""), sha256="", source=source, key=key
    )
    return replace(caller.entry(at, on=on, detail=detail), token=None)
