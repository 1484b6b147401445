"""Users, tokens and the audit log in the tables.

Each operation is a function of a connection and runs in one of the store's threads. A
change of a user's rights and its entry in the audit log are written in one transaction.
"""

import hmac
from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, Row, bindparam, delete, select, update

from corral.domain.ids import TokenId, UserName
from corral.domain.users import AuditEntry, ProviderIdentity, Removed, Role, Token, User
from corral.ports.user_store import Identity
from corral.store import batch_rows
from corral.store.audit import add_entry
from corral.store.row_codec import Codec
from corral.store.schema import head, secrets
from corral.store.sql_dialects import Put, put
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
from corral.store.users_schema import tokens, users

USER: Final = Codec("user", User)
TOKEN: Final = Codec("token", Token)

_ADD_USER: Final = Put(users, only_new=True)
_SET_USER: Final = (
    update(users)
    .where(users.c.name == bindparam("of_name"))
    .values(record=bindparam("new_record"), crc=bindparam("new_crc"))
)
_ADD_TOKEN: Final = Put(tokens, only_new=True)
_SET_TOKEN: Final = (
    update(tokens)
    .where(tokens.c.id == bindparam("of_id"))
    .values(record=bindparam("new_record"), crc=bindparam("new_crc"))
)
_FORGET_TOKEN: Final = delete(tokens).where(tokens.c.id == bindparam("of_id"))
_NEWEST_REQUEST: Final = select(head.c.newest_wish)
_USERS: Final = select(users.c.record, users.c.crc).order_by(users.c.name)
_TOKENS: Final = select(tokens.c.record, tokens.c.crc).order_by(tokens.c.id)
_DIGESTS: Final = select(tokens.c.sha256)
_WHO: Final = select(
    tokens.c.sha256, tokens.c.record, tokens.c.crc, users.c.record, users.c.crc
).select_from(tokens.outerjoin(users, users.c.name == tokens.c.user))
_IDENTITY: Final = _WHO.where(tokens.c.sha256 == bindparam("digest"))
_IDENTITIES: Final = _WHO.where(
    tokens.c.sha256.in_(bindparam("digests", expanding=True))
)
_AT_ONCE: Final = 500  # a statement has no end of parameters on no engine


def all_users(connection: Connection) -> list[User]:
    return [USER.read(record, crc) for record, crc in connection.execute(_USERS).all()]


def add_user(connection: Connection, user: User, entry: AuditEntry) -> bool:
    if user.identity is not None:
        check_identity_free(all_users(connection), user.name, user.identity)
    user = replace(user, jobs_after=connection.execute(_NEWEST_REQUEST).scalar_one())
    record, crc = USER.write(user)
    row = dict(name=user.name, record=record, crc=crc)
    added = put(connection, _ADD_USER, [row]) > 0
    if added:
        add_entry(connection, entry)
    return added


def change_user(
    connection: Connection,
    name: UserName,
    role: Role | None,
    disabled: bool | None,
    limits: Mapping[str, int | None] | None,
    entry: AuditEntry,
) -> User | None:
    users_by_user_name = {user.name: user for user in all_users(connection)}
    old_user = users_by_user_name.get(name)
    if old_user is None:
        return None
    new_user = changed(old_user, role, disabled, limits)
    check_governed(users_by_user_name.values(), old_user, new_user)
    _set_user(connection, new_user)
    for token in ended_with_user(old_user, new_user, all_tokens(connection), entry.at):
        _set_token(connection, token)
    add_entry(connection, entry)
    return new_user


def link_user(
    connection: Connection,
    name: UserName,
    identity: ProviderIdentity | None,
    entry: AuditEntry,
) -> User | None:
    users_by_user_name = {user.name: user for user in all_users(connection)}
    if name not in users_by_user_name:
        return None
    if identity is not None:
        check_identity_free(users_by_user_name.values(), name, identity)
    linked_user = replace(users_by_user_name[name], identity=identity)
    _set_user(connection, linked_user)
    add_entry(connection, entry)
    return linked_user


def _set_user(connection: Connection, user: User) -> None:
    record, crc = USER.write(user)
    connection.execute(
        _SET_USER, dict(of_name=user.name, new_record=record, new_crc=crc)
    )


def remove_user(
    connection: Connection, name: UserName, at: float, entry: AuditEntry
) -> Removed | None:
    users_by_user_name = {user.name: user for user in all_users(connection)}
    if name not in users_by_user_name:
        return None
    check_governed(users_by_user_name.values(), users_by_user_name[name], None)
    ended_tokens = ended_with_user(
        users_by_user_name[name], None, all_tokens(connection), at
    )
    for token in ended_tokens:
        _set_token(connection, token)
    column_element = secrets.c.by == name
    removed = Removed(
        tokens_revoked=len(ended_tokens),
        secrets_removed=connection.execute(
            delete(secrets).where(column_element, secrets.c.everybody == 0)
        ).rowcount,
        secrets_kept=connection.execute(
            update(secrets).where(column_element).values(by=entry.by)
        ).rowcount,
    )
    connection.execute(delete(users).where(users.c.name == name))
    batch_rows.drop_owner(connection, name)
    add_entry(connection, replace(entry, detail=removed.text))
    return removed


def all_tokens(connection: Connection) -> list[Token]:
    return [
        TOKEN.read(record, crc) for record, crc in connection.execute(_TOKENS).all()
    ]


def add_token(connection: Connection, token: Token, entry: AuditEntry) -> bool:
    record, crc = TOKEN.write(token)
    row = dict(
        sha256=token.sha256, id=token.id, user=token.user, record=record, crc=crc
    )
    added = put(connection, _ADD_TOKEN, [row]) > 0
    if added:
        add_entry(connection, entry)
    return added


def _set_token(connection: Connection, token: Token) -> None:
    record, crc = TOKEN.write(token)
    connection.execute(_SET_TOKEN, dict(of_id=token.id, new_record=record, new_crc=crc))


def token_of_id(connection: Connection, id: TokenId) -> Token | None:
    query = select(tokens.c.record, tokens.c.crc).where(tokens.c.id == id)
    row = connection.execute(query).one_or_none()
    return TOKEN.read(*row) if row is not None else None


def revoke_token(
    connection: Connection, id: TokenId, at: float, entry: AuditEntry
) -> Token | None:
    token = token_of_id(connection, id)
    if token is None or token.revoked_at is not None:
        return token
    revoked = replace(token, revoked_at=at)
    for token_row in (revoked, *ended_with_token(revoked, all_tokens(connection), at)):
        _set_token(connection, token_row)
    add_entry(connection, entry)
    return revoked


def forget_token(connection: Connection, id: TokenId, entry: AuditEntry) -> bool:
    is_removed = connection.execute(_FORGET_TOKEN, dict(of_id=id)).rowcount > 0
    if is_removed:
        add_entry(connection, entry)
    return is_removed


def spend_token(
    connection: Connection, id: TokenId, made: Token, at: float, entry: AuditEntry
) -> Token | None:
    token = spent(token_of_id(connection, id), at)
    if token is None:
        return None
    check_name_free(all_tokens(connection), made)
    _set_token(connection, token)
    add_token(connection, made, entry)
    return token


def renew_token(
    connection: Connection, id: TokenId, made: Token, at: float, entry: AuditEntry
) -> Token | None:
    renewal = renewed(all_tokens(connection), id, made, at)
    if renewal is None:
        return None
    old_token, forgotten = renewal
    _set_token(connection, old_token)
    for token_id in forgotten:
        connection.execute(_FORGET_TOKEN, dict(of_id=token_id))
    add_token(connection, made, entry)
    return old_token


def use_token(connection: Connection, id: TokenId, at: float) -> None:
    token = token_of_id(connection, id)
    if token is not None and (used_token := used_later(token, at)) is not token:
        _set_token(connection, used_token)


def token_digests(connection: Connection) -> list[str]:
    return list(connection.execute(_DIGESTS).scalars())


def identity(connection: Connection, sha256: str) -> Identity | None:
    row = connection.execute(_IDENTITY, {"digest": sha256}).one_or_none()
    if row is None or not hmac.compare_digest(row[0].encode(), sha256.encode()):
        return None
    return _identity_from_row(row)


def identities(connection: Connection, digests: Seq[str]) -> list[Identity | None]:
    """Return the identity for each token digest; None for an unknown digest. All are
    read with as few statements as possible, because a thousand agents are checked each
    second."""
    identity_by_digest: dict[str, Identity] = {}
    for batch_start in range(0, len(digests), _AT_ONCE):
        parameters = {"digests": list(digests[batch_start : batch_start + _AT_ONCE])}
        identity_by_digest.update(
            (row[0], _identity_from_row(row))
            for row in connection.execute(_IDENTITIES, parameters)
        )
    return [identity_by_digest.get(digest) for digest in digests]


def _identity_from_row(row: Row[str, str, int, str | None, int]) -> Identity:
    user = None if row[3] is None else USER.read(row[3], row[4])
    return TOKEN.read(row[1], row[2]), user
