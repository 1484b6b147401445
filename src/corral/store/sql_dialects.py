"""SQL statements that differ between SQLite and PostgreSQL.

Each statement is built once for each of the two, because building a statement costs
more than running it.
"""

from collections.abc import Mapping
from collections.abc import Sequence as Seq
from dataclasses import dataclass
from functools import cache
from typing import Any

import msgspec
from sqlalchemy import (
    JSON,
    Column,
    Connection,
    Dialect,
    Executable,
    Integer,
    Table,
    Text,
    bindparam,
    cast,
    column,
    func,
    select,
)
from sqlalchemy.ext.compiler import compiles
from sqlalchemy.sql.compiler import SQLCompiler
from sqlalchemy.sql.functions import FunctionElement

from corral.store.database import driver


@dataclass(frozen=True, slots=True)
class Put:
    """Description of an insert into a table. A row with an existing `key` gets the new
    values of all other columns; without a key, rows are only added.

    `fixed`: columns that never change, so that their indexes are not updated.
    `only_new`: an existing row stays unchanged.
    """

    table: Table
    key: tuple[str, ...] = ()
    fixed: frozenset[str] = frozenset()
    only_new: bool = False


def put(connection: Connection, what: Put, rows: Seq[Mapping[str, Any]]) -> int:
    """Write the rows to the table of `what`. Return how many were inserted or changed."""
    if not rows:
        return 0
    statement = _compile_put(what, connection.dialect.name, frozenset(rows[0]))
    if connection.dialect.name == "sqlite":
        return connection.exec_driver_sql(statement, list(rows)).rowcount
    return connection.exec_driver_sql(
        statement, {"rows": _as_json(what, rows)}
    ).rowcount


def _as_json(what: Put, rows: Seq[Mapping[str, Any]]) -> str:
    """Return all rows as one JSON parameter. If two rows have the same key, only the
    later one is kept, as if the rows were written one by one."""
    if what.key and not what.only_new:
        rows = list(
            {tuple(row[name] for name in what.key): row for row in rows}.values()
        )
    return msgspec.json.encode([_hex_encode_row(row) for row in rows]).decode()


def _hex_encode_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row with bytes as hexadecimal text, which PostgreSQL reads."""
    return {
        name: f"\\x{value.hex()}" if isinstance(value, bytes) else value
        for name, value in row.items()
    }


@cache
def _compile_put(what: Put, dialect: str, columns: frozenset[str]) -> str:
    """Return the compiled SQL of the insert. SQLAlchemy compiles it only once, because
    its work for each of thousands of rows would cost as much as SQLite's work."""
    names = sorted(columns)
    spoken, statement = (
        _sqlite_insert(what.table)
        if dialect == "sqlite"
        else _postgresql(what.table, names)
    )
    if what.only_new:
        statement = statement.on_conflict_do_nothing()
    elif what.key:
        kept_columns = {
            *what.key,
            *what.fixed,
            *(key_column.name for key_column in what.table.primary_key),
        }
        changing = {
            name: statement.excluded[name] for name in sorted(columns - kept_columns)
        }
        statement = statement.on_conflict_do_update(
            index_elements=what.key, set_=changing
        )
    return str(statement.compile(dialect=spoken, column_keys=names))


def _sqlite_insert(table: Table) -> tuple[Dialect, Any]:
    from sqlalchemy.dialects.sqlite import dialect, insert

    return dialect(paramstyle="named"), insert(table)


def _postgresql(table: Table, names: list[str]) -> tuple[Dialect, Any]:
    """Return an insert of all rows by one statement, because each separate statement
    would be another wait for the server."""
    from sqlalchemy.dialects.postgresql import insert

    shape: list[Column[Any]] = [column(name, table.c[name].type) for name in names]  # type: ignore[misc]
    rows = func.json_to_recordset(cast(bindparam("rows", type_=Text), JSON))
    table_rows = rows.table_valued(*shape).render_derived(with_types=True)
    return _psycopg_dialect(), insert(table).from_select(
        names, select(*table_rows.columns)
    )


@cache
def _psycopg_dialect() -> Dialect:
    from sqlalchemy.dialects.postgresql.psycopg import dialect

    spoken: Dialect = dialect(paramstyle="pyformat")  # type: ignore[no-untyped-call]
    return spoken


class StatementBatch:
    """Statements whose results are not needed. `send` sends them to the server
    together, because waiting for each result would cost a round trip and delay the busy
    head."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._waiting: list[str] = []

    def put(self, what: Put, rows: Seq[Mapping[str, Any]]) -> None:
        if self._connection.dialect.name == "sqlite":
            put(self._connection, what, rows)
        elif rows:
            text = _compile_put(what, "postgresql", frozenset(rows[0]))
            self._say(text, {"rows": _as_json(what, rows)})

    def run(self, statement: Executable, values: Mapping[str, Any]) -> None:
        if self._connection.dialect.name == "sqlite":
            self._connection.execute(statement, values)
        else:
            self._say(_compile_statement(statement), values)

    def send(self) -> None:
        if self._waiting:
            driver(self._connection).execute(";".join(self._waiting))
            self._waiting = []

    def _say(self, text: str, values: Mapping[str, Any]) -> None:
        from psycopg import ClientCursor

        raw: Any = driver(self._connection)
        self._waiting.append(ClientCursor(raw).mogrify(text, values))


@cache
def _compile_statement(statement: Executable) -> str:
    return str(statement.compile(dialect=_psycopg_dialect()))  # type: ignore[attr-defined]


class larger_of(FunctionElement[int]):  # noqa: N801 - it reads as SQL's functions do
    """SQL function that returns the larger of two numbers."""

    type = Integer()
    inherit_cache = True


class smaller_of(FunctionElement[int]):  # noqa: N801
    """SQL function that returns the smaller of two numbers."""

    type = Integer()
    inherit_cache = True


class texts_of(FunctionElement[str]):  # noqa: N801
    """SQL function that returns the texts of a JSON list as rows, in the column
    `value`."""

    inherit_cache = True


class text_at(FunctionElement[str]):  # noqa: N801
    """SQL function that returns the value at a path in a record. The path is names
    separated by dots."""

    type = Text()
    inherit_cache = False  # the path is no part of SQLAlchemy's key

    def __init__(self, record: Any, path: str) -> None:
        super().__init__(record)
        self.path = path


@compiles(larger_of, "sqlite")
def _larger_in_sqlite(element: larger_of, compiler: SQLCompiler, **kw: Any) -> str:
    return f"max({compiler.process(element.clauses, **kw)})"


@compiles(larger_of, "postgresql")
def _larger_in_postgresql(element: larger_of, compiler: SQLCompiler, **kw: Any) -> str:
    return f"greatest({compiler.process(element.clauses, **kw)})"


@compiles(smaller_of, "sqlite")
def _smaller_in_sqlite(element: smaller_of, compiler: SQLCompiler, **kw: Any) -> str:
    return f"min({compiler.process(element.clauses, **kw)})"


@compiles(smaller_of, "postgresql")
def _smaller_in_postgresql(
    element: smaller_of, compiler: SQLCompiler, **kw: Any
) -> str:
    return f"least({compiler.process(element.clauses, **kw)})"


@compiles(texts_of, "sqlite")
def _texts_in_sqlite(element: texts_of, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_each({compiler.process(element.clauses, **kw)})"


@compiles(texts_of, "postgresql")
def _texts_in_postgresql(element: texts_of, compiler: SQLCompiler, **kw: Any) -> str:
    return f"json_array_elements_text(CAST({compiler.process(element.clauses, **kw)} AS JSON))"


@compiles(text_at, "sqlite")
def _text_in_sqlite(element: text_at, compiler: SQLCompiler, **kw: Any) -> str:
    return (
        f"json_extract({compiler.process(element.clauses, **kw)}, '$.{element.path}')"
    )


@compiles(text_at, "postgresql")
def _text_in_postgresql(element: text_at, compiler: SQLCompiler, **kw: Any) -> str:
    names = element.path.replace(".", ",")
    return (
        f"(CAST({compiler.process(element.clauses, **kw)} AS JSON) #>> '{{{names}}}')"
    )
