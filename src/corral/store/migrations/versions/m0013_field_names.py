"""Names of fields and kinds in records: those of the field in place of Corral's own."""

import json
import zlib
from typing import Any, Final

import msgspec
from sqlalchemy import text

from corral.store.migrations.operations import op

revision = "0013"
down_revision = "0012"

NODE: Final = {"ailments": "conditions", "barred_at": "health_cordoned_at"}
CONDITION: Final = {"bar": "restriction"}
TREE: Final = {
    "guard_seconds": "min_runtime_seconds",
    "rack_patience_seconds": "rack_locality_delay_seconds",
    "pod_patience_seconds": "pod_locality_delay_seconds",
}
FIELDS_OF_REQUESTS: Final = {
    "set_queues": TREE,
    "check_nodes": {"patience_seconds": "max_wait_seconds"},
}
CAUSES: Final = {"wish": "request"}
KINDS_OF_CONDITIONS: Final = {"blame": "lemon"}
KINDS_OF_EVENTS: Final = {
    "blamed": "lemon",
    "signal_blame": "signal_lemon",
    "ailment": "condition",
    "wish_failed": "request_failed",
}
KINDS_OF_REQUESTS: Final = {"bar_suspects": "cordon_suspects"}

# keys of each table, and which of its rows may have an old name
TABLES: Final = {
    "nodes": (("id",), "1 = 1"),
    "queues": (("id",), "1 = 1"),
    "attempts": (("job", "number"), "record LIKE '%\"wish\"%'"),
    "receipts": (("number",), "record LIKE '%\"wish\"%'"),
    "events": (
        ("number",),
        "record LIKE '%\"ailment\"%' OR record LIKE '%blame%' "
        "OR record LIKE '%\"wish_failed\"%'",
    ),
    "wishes": (("sequence",), "kind IN ('bar_suspects', 'set_queues', 'check_nodes')"),
}
BATCH: Final = 1_000


def upgrade() -> None:
    """Rewrite the rows that hold an old name, a batch at a time."""
    for table, (keys, may_need) in TABLES.items():
        last: dict[str, Any] | None = {}
        while last is not None:
            last = _rewrite_batch(table, keys, may_need, last)


def _rewrite_batch(
    table: str, keys: tuple[str, ...], may_need: str, last: dict[str, Any]
) -> dict[str, Any] | None:
    """Rewrite the rows after a key; {}: the first ones. Returns: the last key, or None
    at the end."""
    ask = op.get_bind().execute
    order = ", ".join(keys)
    after = f"AND ({order}) > ({', '.join(f':{key}' for key in keys)})" if last else ""
    query = (
        f"SELECT * FROM {table} WHERE ({may_need}) {after} ORDER BY {order} LIMIT {BATCH}"
    )
    rows = [dict(row) for row in ask(text(query), last).mappings()]
    for row in rows:
        new = renamed(table, row)
        if new is not row:
            names = [name for name in ("kind", "record", "crc") if name in new]
            sets = ", ".join(f"{name} = :{name}" for name in names)
            where = " AND ".join(f"{key} = :{key}" for key in keys)
            update = text(f"UPDATE {table} SET {sets} WHERE {where}")
            ask(update, {name: new[name] for name in (*names, *keys)})
    return {key: rows[-1][key] for key in keys} if len(rows) == BATCH else None


def renamed(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """Return the row of this table with the new names; the same row if it has them.

    A damaged row stays as it is, for its reader to refuse. Restores of backups that an
    older version wrote call this function too.
    """
    if table not in TABLES or row["crc"] != _checksum(table, row):
        return row
    record = json.loads(row["record"])
    before = json.dumps(record)
    new = dict(row)
    if table == "nodes":
        _rename_node(record)
    elif table == "queues":
        _rename(record, TREE)
    elif table in ("attempts", "receipts"):
        if record.get("cause") in CAUSES:
            record["cause"] = CAUSES[record["cause"]]
    elif table == "events":
        record["kind"] = KINDS_OF_EVENTS.get(record["kind"], record["kind"])
    else:
        _rename(record, FIELDS_OF_REQUESTS.get(row["kind"], {}))
        new["kind"] = KINDS_OF_REQUESTS.get(row["kind"], row["kind"])
    if json.dumps(record) != before:
        new["record"] = json.dumps(record, ensure_ascii=False, separators=(",", ":"))
    return row if new == row else new | {"crc": _checksum(table, new)}


def _checksum(table: str, row: dict[str, Any]) -> int:
    if table != "wishes":
        return zlib.crc32(row["record"].encode())
    names = ("sequence", "by", "at", "kind", "record")
    return zlib.crc32(msgspec.json.encode([row[name] for name in names]))


def _rename_node(node: dict[str, Any]) -> None:
    _rename(node, NODE)
    for condition in node.get("conditions", ()):
        _rename(condition, CONDITION)
        kind = condition["kind"]
        condition["kind"] = KINDS_OF_CONDITIONS.get(kind, kind)


def _rename(fields: dict[str, Any], names: dict[str, str]) -> None:
    """Give fields their new names, in place and in their order."""
    values = {names.get(name, name): value for name, value in fields.items()}
    fields.clear()
    fields.update(values)
