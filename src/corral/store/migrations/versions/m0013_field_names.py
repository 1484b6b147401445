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
KINDS_OF_EVENTS: Final = {"ailment": "condition"}
KINDS_OF_REQUESTS: Final = {"bar_suspects": "cordon_suspects"}

# key of each table, and the text of its rows (a pattern of LIKE) that may need a change
TABLES: Final = {
    "nodes": ("id", "record LIKE '%'"),
    "events": ("number", "record LIKE '%\"ailment\"%'"),
    "queues": ("id", "record LIKE '%'"),
    "wishes": ("sequence", "kind IN ('bar_suspects', 'set_queues', 'check_nodes')"),
}
BATCH: Final = 1_000


def upgrade() -> None:
    """Rewrite the rows that hold an old name, a batch at a time."""
    for table, (key, may_need) in TABLES.items():
        last: Any = None
        while (last := _rewrite_batch(table, key, may_need, last)) is not None:
            pass


def _rewrite_batch(table: str, key: str, may_need: str, last: Any) -> Any:
    """Rewrite the rows after a key. Returns: the key of the last one, or None."""
    ask = op.get_bind().execute
    after = f" AND {key} > :last" if last is not None else ""
    query = f"SELECT * FROM {table} WHERE {may_need}{after} ORDER BY {key} LIMIT {BATCH}"
    values = {} if last is None else {"last": last}
    rows = [dict(row) for row in ask(text(query), values).mappings()]
    for row in rows:
        new = renamed(table, row)
        if new is not row:
            names = [name for name in ("kind", "record", "crc") if name in new]
            sets = ", ".join(f"{name} = :{name}" for name in names)
            update = text(f"UPDATE {table} SET {sets} WHERE {key} = :{key}")
            ask(update, {name: new[name] for name in (*names, key)})
    return rows[-1][key] if len(rows) == BATCH else None


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


def _rename(fields: dict[str, Any], names: dict[str, str]) -> None:
    """Give fields their new names, in place and in their order."""
    values = {names.get(name, name): value for name, value in fields.items()}
    fields.clear()
    fields.update(values)
