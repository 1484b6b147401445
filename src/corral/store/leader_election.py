"""Leader election in the store: the present leader, the registered heads, and settings
on which all heads agree."""

from collections.abc import Sequence as Seq
from typing import Any, Final

from sqlalchemy import Connection, delete, select, update

from corral.domain.errors import TermLost
from corral.domain.leader_election import HeadSeen, Leader
from corral.domain.users import AuditEntry
from corral.store.audit import add_entry
from corral.store.schema import agreed, head, heads
from corral.store.schema import leader as table
from corral.store.sql_dialects import Put, StatementBatch, put

_PUT: Final = Put(table, ("id",))
_PUT_HEAD: Final = Put(heads, ("name",))
_AGREE: Final = Put(agreed, ("what",), only_new=True)
_TERM: Final = select(head.c.term).scalar_subquery()
_LEADER: Final = select(_TERM, table.c.term, table.c.name, table.c.url, table.c.beats)


def leader(connection: Connection) -> Leader:
    term, told_at, name, url, beats = connection.execute(_LEADER).one()
    if told_at < term:  # the leader has not announced itself yet
        return Leader(term=term)
    return Leader(term=term, name=name, url=url, beats=beats, vacant=not name)


def begin(connection: Connection) -> None:
    """Write the leader's row of a new store, which has no leader yet."""
    _write_leader(connection, Leader(term=0))


def keep(connection: Connection, term: int, name: str, url: str) -> None:
    now = leader(connection)
    if now.term != term:
        raise TermLost(
            f"another head leads now, in term {now.term}; this head led in term {term}"
        )
    batch = StatementBatch(connection)
    batch.put(
        _PUT,
        [_row_of_leader(Leader(term=term, name=name, url=url, beats=now.beats + 1))],
    )
    batch.put(_PUT_HEAD, [_next_heartbeat_row(connection, name, url)])
    batch.send()


def step_down(connection: Connection, term: int) -> None:
    if leader(connection).term == term:
        _write_leader(connection, Leader(term=term))


def be_there(connection: Connection, name: str, url: str) -> None:
    """Record one more heartbeat of the head `name`, reachable at `url`."""
    put(connection, _PUT_HEAD, [_next_heartbeat_row(connection, name, url)])


def _next_heartbeat_row(connection: Connection, name: str, url: str) -> dict[str, Any]:
    beats = connection.execute(
        select(heads.c.beats).where(heads.c.name == name)
    ).scalar()
    return dict(name=name, url=url, beats=(beats or 0) + 1)


def leave(connection: Connection, name: str) -> None:
    connection.execute(delete(heads).where(heads.c.name == name))


def all_heads(connection: Connection) -> Seq[HeadSeen]:
    rows = connection.execute(
        select(heads.c.name, heads.c.url, heads.c.beats).order_by("name")
    )
    return [HeadSeen(name=name, url=url, beats=beats) for name, url, beats in rows]


def agree(connection: Connection, what: str, said: str) -> str:
    put(connection, _AGREE, [dict(what=what, said=said)])
    agreed_text: str = connection.execute(
        select(agreed.c.said).where(agreed.c.what == what)
    ).scalar_one()
    return agreed_text


def agreed_on(connection: Connection, what: str) -> str | None:
    agreed_text: str | None = connection.execute(
        select(agreed.c.said).where(agreed.c.what == what)
    ).scalar_one_or_none()
    return agreed_text


def change_agreed(
    connection: Connection,
    what: str,
    was: str | None,
    now: str | None,
    entry: AuditEntry | None,
) -> bool:
    changed = _change_agreed(connection, what, was, now)
    if changed and entry is not None:
        add_entry(connection, entry)
    return changed


def _change_agreed(
    connection: Connection, what: str, was: str | None, now: str | None
) -> bool:
    if was is None:
        if now is None:
            return agreed_on(connection, what) is None
        return put(connection, _AGREE, [dict(what=what, said=now)]) > 0
    match_condition = (agreed.c.what == what) & (agreed.c.said == was)
    change = delete(agreed) if now is None else update(agreed).values(said=now)
    return connection.execute(change.where(match_condition)).rowcount > 0


def _write_leader(connection: Connection, now: Leader) -> None:
    put(connection, _PUT, [_row_of_leader(now)])


def _row_of_leader(now: Leader) -> dict[str, Any]:
    return dict(id=1, term=now.term, name=now.name, url=now.url, beats=now.beats)
