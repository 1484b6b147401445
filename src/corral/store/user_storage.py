"""Storage of one user in the tables, and the owner of each uploaded snapshot."""

from collections.abc import Sequence as Seq
from typing import Final

from sqlalchemy import BindParameter, Connection, bindparam, delete, func, select

from corral.domain.ids import UserName
from corral.domain.quota import UserHoldings
from corral.domain.users import AuditEntry
from corral.store import row_codec
from corral.store.audit import add_entry
from corral.store.schema import files, secrets, specs, uploads
from corral.store.sql_dialects import Put, put, texts_of

_USER: Final[BindParameter[str]] = bindparam("user")
_HOLDINGS: Final = select(
    select(func.coalesce(func.sum(specs.c.bytes), 0))
    .where(specs.c.owner == _USER)
    .scalar_subquery(),
    select(func.coalesce(func.sum(uploads.c.bytes), 0))
    .where(uploads.c.owner == _USER)
    .scalar_subquery(),
    select(func.coalesce(func.sum(files.c.bytes), 0))
    .where(files.c.owner == _USER)
    .scalar_subquery(),
    select(func.count())
    .select_from(secrets)
    .where(secrets.c.by == _USER)
    .scalar_subquery(),
    select(func.coalesce(func.sum(func.length(secrets.c.sealed)), 0))
    .where(secrets.c.by == _USER)
    .scalar_subquery(),
)
_ADD: Final = Put(uploads, ("sha256",), only_new=True)
_digests: Final = texts_of(bindparam("digests")).table_valued("value")
_DROP: Final = delete(uploads).where(uploads.c.sha256.in_(select(_digests.c.value)))


def holdings(connection: Connection, owner: UserName) -> UserHoldings:
    """Return how much storage this user's data occupies."""
    row = connection.execute(_HOLDINGS, {"user": owner}).one()
    spec_bytes, upload_bytes, file_bytes, secret_count, secret_bytes = map(int, row)
    return UserHoldings(
        spec_bytes=spec_bytes,
        upload_bytes=upload_bytes + file_bytes,
        secrets=secret_count,
        secret_bytes=secret_bytes,
    )


def add_upload(
    connection: Connection,
    sha256: str,
    size_bytes: int,
    owner: UserName,
    at: float,
    entry: AuditEntry,
) -> None:
    """Count the snapshot towards this user's storage, and add the audit entry. Do
    nothing if the snapshot already counts for a user."""
    row = dict(sha256=sha256, owner=owner, bytes=size_bytes, at=at)
    if put(connection, _ADD, [row]):
        add_entry(connection, entry)


def drop_uploads(connection: Connection, digests: Seq[str]) -> None:
    """Stop counting these snapshots against any quota."""
    connection.execute(_DROP, {"digests": row_codec.text_of(digests)})
