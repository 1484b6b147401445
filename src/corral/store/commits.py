"""Writes to the tables of the store. Each write is a function of a connection, and runs
in the writer's thread."""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Seq
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, bindparam, delete, func, select

from corral.domain.attempt import Allocation, Attempt, Save
from corral.domain.errors import InvariantBroken, TermLost, Unrecordable
from corral.domain.gateway_counts import GatewayCount
from corral.domain.ids import ClusterId, JobId, Sequence, UserName
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.node import Node
from corral.domain.queue_tree import QueueTree
from corral.domain.receipt import Receipt
from corral.domain.requests import Asked, StoredRequest, Submit
from corral.domain.run_history import StartForecastTold
from corral.domain.service import Service, ServiceState
from corral.domain.usage import BudgetSpent, Debt, QueueUsage, Reservation
from corral.domain.users import Speaker
from corral.domain.world import Changes, Event, World
from corral.store import leader_election, ledger, queries, row_codec, spec_rows
from corral.store.audit import ADD_ENTRY, entry_row
from corral.store.event_sizes import EventSizes
from corral.store.queries import StoreHead
from corral.store.schema import (
    INTEGER,
    allocations,
    attempts,
    debts,
    events,
    gateway_counts,
    head,
    jobs,
    nodes,
    queues,
    receipts,
    requests,
    reservations,
    saves,
    services,
    spending,
    told,
    usage,
)
from corral.store.schema import (
    accounts as accounts_table,
)
from corral.store.sql_dialects import Put, StatementBatch, put, smaller_of, texts_of
from corral.store.store_rules import age, check, jobs_named_in, key_of
from corral.store.submissions import folded
from corral.store.users_rules import entry_of

Row = TypeVar("Row")
Columns = dict[str, Any]

PRUNE_ROWS: Final = (
    500  # more than this many old events never go in one commit, unless it adds more
)


_PUT_JOBS: Final = Put(jobs, ("id",), fixed=frozenset({"submitted", "place", "name"}))
_PUT_ATTEMPTS: Final = Put(attempts, ("job", "number"))
_PUT_ALLOCATIONS: Final = Put(allocations, ("job", "attempt", "node"))
_PUT_NODES: Final = Put(nodes, ("id",))
_PUT_SAVES: Final = Put(saves, ("job", "step", "attempt"))
_PUT_RECEIPTS: Final = Put(receipts, ("job", "attempt", "kind"))
_PUT_QUEUES: Final = Put(queues, ("id",))
_PUT_USE: Final = Put(usage, ("queue", "user"))
_PUT_SPENT: Final = Put(spending, ("queue",))
_PUT_DEBTS: Final = Put(debts, ("queue",))
_PUT_RESERVATIONS: Final = Put(reservations, ("job",))
_PUT_SERVICES: Final = Put(services, ("id",))
_PUT_GATEWAY_COUNTS: Final = Put(gateway_counts, ("process", "service"))
_PUT_TOLD: Final = Put(told, ("job",))
_PUT_HEAD: Final = Put(head, ("id",))
_ADD_REQUEST: Final = Put(requests)
_ADD_EVENTS: Final = Put(events)

_ids: Final = texts_of(bindparam("ids")).table_valued("value")
_STATES: Final = select(jobs.c.id, jobs.c.state).where(
    jobs.c.id.in_(select(_ids.c.value))
)
_OF_JOBS: Final = (
    events,
    receipts,
    saves,
    attempts,
    allocations,
    reservations,
    told,
    accounts_table,
)
_DROP_TOLD: Final = delete(told).where(told.c.job.in_(select(_ids.c.value)))
_FORGET_JOBS: Final = (
    *(delete(table).where(table.c.job.in_(select(_ids.c.value))) for table in _OF_JOBS),
    delete(jobs).where(jobs.c.id.in_(select(_ids.c.value))),
)
_REMOVE_NODES: Final = delete(nodes).where(nodes.c.id.in_(select(_ids.c.value)))
_FORGET_PROCESSES: Final = delete(gateway_counts).where(
    gateway_counts.c.process.in_(select(_ids.c.value))
)
_HOLDING: Final = select(allocations.c.job).where(allocations.c.state != "RELEASED")
_FORGET: Final = delete(requests).where(
    requests.c.sequence > bindparam("from_granted"),
    requests.c.sequence <= bindparam("to_granted"),
    requests.c.key.is_(None),
)
_FORGET_KEYS: Final = delete(requests).where(requests.c.sequence <= bindparam("oldest"))
_FIRST_EVENT: Final = select(func.min(events.c.number)).scalar_subquery()
_PRUNE: Final = delete(events).where(
    events.c.number
    <= smaller_of(
        bindparam("oldest", type_=INTEGER),
        _FIRST_EVENT + bindparam("most", type_=INTEGER),
    )
)


def begin(connection: Connection, cluster: ClusterId) -> None:
    """Insert the rows that each store has exactly once."""
    put_head(connection, StoreHead(cluster, 0, Sequence(0), Sequence(0), 0))
    leader_election.begin(connection)


def put_head(connection: Connection, now: StoreHead) -> None:
    put(connection, _PUT_HEAD, [_row_of_store_head(now)])


def _row_of_store_head(now: StoreHead) -> dict[str, Any]:
    return now._asdict() | {"id": 1, "crc": row_codec.crc_of(row_codec.text_of(now))}


def lead(connection: Connection, known: int | None) -> World:
    now = queries.read_head(connection)
    if known is not None and now.term > known:
        raise TermLost(
            f"another head leads now, in term {now.term}; this head knew term {known}"
        )
    put_head(connection, now._replace(term=now.term + 1))
    spec_rows.forget_unmade(connection)
    return queries.world(connection)


def add_request(
    connection: Connection, asked: Asked, by: UserName, at: float, speaker: Speaker
) -> StoredRequest:
    key = key_of(asked)
    earlier_request = (
        queries.request_of_key(connection, by, key) if key is not None else None
    )
    if earlier_request is not None:
        return earlier_request
    now, tail = queries.read_head_and_tail(connection)
    sequence = Sequence(now.newest_wish + 1)
    recorded, contents = folded(asked) if isinstance(asked, Submit) else (asked, [])
    kind, record = row_codec.write_asked(recorded)
    crc = row_codec.crc_of(row_codec.text_of((sequence, by, float(at), kind, record)))
    row = dict(
        sequence=sequence, by=by, at=at, key=key, kind=kind, record=record, crc=crc
    )
    new_request = StoredRequest(sequence=sequence, by=by, at=at, asked=asked)
    batch = StatementBatch(connection)
    batch.put(_ADD_REQUEST, [row])
    spec_rows.add(batch, sequence, by, contents)
    batch.put(_PUT_HEAD, [_row_of_store_head(now._replace(newest_wish=sequence))])
    batch.put(ADD_ENTRY, [entry_row(connection, entry_of(new_request, speaker), tail)])
    batch.send()
    return new_request


def commit(
    connection: Connection,
    term: int,
    changes: Changes,
    keep_events: int,
    keep_keys: int,
    sizes: EventSizes,
) -> Seq[Event]:
    now = queries.read_head(connection)
    if term != now.term:
        raise TermLost(
            f"another head leads now, in term {now.term}; this head led in term {term}"
        )
    states = _read_job_states(connection, jobs_named_in(changes))
    holding = connection.execute(_HOLDING).scalars() if changes.forgotten else ()
    check(changes, states, granted=now.granted, newest=now.newest_wish, holding=holding)
    numbered = [
        event.numbered(now.newest_event + event_index)
        for event_index, event in enumerate(changes.events, start=1)
    ]
    granted = now.granted if changes.granted is None else changes.granted
    next_head = now._replace(
        granted=granted, newest_event=now.newest_event + len(numbered)
    )
    batch = StatementBatch(connection)
    _write_changes(batch, changes, numbered)
    ledger.add(
        connection,
        batch,
        changes.accounts,
        states.keys() | {j.id for j in changes.jobs},
    )
    _move_on(batch, now, next_head, keep_keys)
    if numbered:
        too_large = sizes.oldest(connection, now.newest_event, len(numbered))
        too_old = max(next_head.newest_event - keep_events, too_large)
        _prune_oldest_events(batch, too_old, len(numbered))
    batch.send()
    return numbered


def _move_on(
    batch: StatementBatch, now: StoreHead, then: StoreHead, keep_keys: int
) -> None:
    if then != now:
        batch.put(_PUT_HEAD, [_row_of_store_head(then)])
    if then.granted > now.granted:
        batch.run(_FORGET, dict(from_granted=now.granted, to_granted=then.granted))
        batch.run(
            _FORGET_KEYS, {"oldest": min(then.granted, now.newest_wish - keep_keys)}
        )


def _read_job_states(
    connection: Connection, named: set[JobId]
) -> dict[JobId, JobState]:
    if not named:
        return {}
    ids = row_codec.text_of(sorted(named))
    return {
        JobId(id): queries.state_of(state)
        for id, state in connection.execute(_STATES, {"ids": ids})
    }


def _write_changes(
    batch: StatementBatch, changes: Changes, numbered: Seq[Event]
) -> None:
    """Write the rows of a commit. Jobs come first, because other rows refer to them.
    `numbered`: its events with their numbers.

    When jobs are deleted (forgotten), their dependent rows are deleted before them. The
    idempotency keys of their submissions are kept for a while. Raises: Unrecordable.
    """
    rows = _Rows()
    trees = (changes.queues,) if changes.queues else ()
    referenced_rows = (
        (_PUT_JOBS, rows.of(_row_of_job, changes.jobs)),
        (_PUT_ATTEMPTS, rows.of(_row_of_attempt, changes.attempts)),
        (_PUT_ALLOCATIONS, rows.of(_allocation, changes.allocations)),
        (_PUT_NODES, rows.of(_row_of_node, changes.nodes)),
    )
    dependent_rows = (
        (_PUT_SAVES, rows.of(_row_of_save, changes.saves)),
        (_PUT_RECEIPTS, rows.of(_row_of_receipt, changes.receipts)),
        (_PUT_QUEUES, rows.of(_row_of_queue_tree, trees)),
        (_PUT_USE, rows.of(_row_of_queue_usage, changes.uses)),
        (_PUT_SPENT, rows.of(_row_of_budget_spent, changes.spent)),
        (_PUT_DEBTS, rows.of(_row_of_debt, changes.debts)),
        (_PUT_RESERVATIONS, rows.of(_reservation, changes.reservations)),
        (_PUT_SERVICES, rows.of(_row_of_service, changes.services)),
        (_PUT_GATEWAY_COUNTS, rows.of(_row_of_gateway_count, changes.gateway_counts)),
    )
    of_events = rows.of(_row_of_event, numbered)
    rows.wrong.extend(ledger.check(changes.accounts))
    rows.check()
    for put_statement, table_rows in referenced_rows:
        batch.put(put_statement, table_rows)
    if changes.removed:
        batch.run(_REMOVE_NODES, {"ids": row_codec.text_of(changes.removed)})
    for put_statement, table_rows in dependent_rows:
        batch.put(put_statement, table_rows)
    if changes.forgotten_processes:
        gone = row_codec.text_of(changes.forgotten_processes)
        batch.run(_FORGET_PROCESSES, {"ids": gone})
    if changes.forgotten:
        for statement in _FORGET_JOBS:
            batch.run(statement, {"ids": row_codec.text_of(changes.forgotten)})
        spec_rows.forget(batch, changes.forgotten)
    batch.put(_ADD_EVENTS, of_events)


class _Rows:
    """Converter of rows to columns. It collects the rows that cannot be converted."""

    def __init__(self) -> None:
        self.wrong: list[tuple[object, str]] = []

    def of(
        self, columns_of: Callable[[Row], Columns], rows: Iterable[Row]
    ) -> list[Columns]:
        row_columns = []
        for row in rows:
            try:
                columns = columns_of(row)
                row_codec.check_columns(columns)
                row_columns.append(columns)
            except InvariantBroken as error:
                self.wrong.append((row, error.message))
        return row_columns

    def check(self) -> None:
        """Check that all rows could be converted. Raises: Unrecordable with the rows
        that could not."""
        if self.wrong:
            raise Unrecordable(self.wrong)


def _prune_oldest_events(batch: StatementBatch, oldest: int, added: int) -> None:
    """Delete the oldest events in small steps, so that no commit waits long."""
    if oldest > 0:
        batch.run(_PRUNE, {"oldest": oldest, "most": max(PRUNE_ROWS, 2 * added)})


def _row_of_job(row: Job) -> dict[str, Any]:
    record, crc = row_codec.JOB.write(spec_rows.stored(row))
    submitted, submit_index, id = age(row)
    columns = dict(id=id, submitted=submitted, place=submit_index, name=row.spec.name)
    return dict(
        **columns, state=row.state, final=int(row.is_final), record=record, crc=crc
    )


def _row_of_attempt(row: Attempt) -> dict[str, Any]:
    record, crc = row_codec.ATTEMPT.write(row)
    return dict(job=row.job, number=row.number, record=record, crc=crc)


def _allocation(row: Allocation) -> dict[str, Any]:
    record, crc = row_codec.ALLOCATION.write(row)
    job, attempt, node = row.key
    return dict(
        job=job, attempt=attempt, node=node, state=row.state, record=record, crc=crc
    )


def _row_of_node(row: Node) -> dict[str, Any]:
    record, crc = row_codec.NODE.write(row)
    return dict(id=row.id, record=record, crc=crc)


def _row_of_save(row: Save) -> dict[str, Any]:
    record, crc = row_codec.SAVE.write(row)
    return dict(job=row.job, step=row.step, attempt=row.attempt, record=record, crc=crc)


def _row_of_receipt(row: Receipt) -> dict[str, Any]:
    record, crc = row_codec.RECEIPT.write(row)
    return dict(job=row.job, attempt=row.attempt, kind=row.kind, record=record, crc=crc)


def _row_of_event(row: Event) -> dict[str, Any]:
    record, crc = row_codec.EVENT.write(row)
    return dict(number=row.number, job=row.job, record=record, crc=crc)


def _row_of_queue_tree(tree: QueueTree) -> dict[str, Any]:
    record, crc = row_codec.QUEUES.write(tree)
    return dict(id=1, record=record, crc=crc)


def _row_of_queue_usage(row: QueueUsage) -> dict[str, Any]:
    record, crc = row_codec.USE.write(row)
    return dict(queue=row.queue, user=row.user, record=record, crc=crc)


def _row_of_budget_spent(row: BudgetSpent) -> dict[str, Any]:
    record, crc = row_codec.SPENT.write(row)
    return dict(queue=row.queue, record=record, crc=crc)


def _row_of_debt(row: Debt) -> dict[str, Any]:
    record, crc = row_codec.DEBT.write(row)
    return dict(queue=row.queue, record=record, crc=crc)


def _reservation(row: Reservation) -> dict[str, Any]:
    record, crc = row_codec.RESERVATION.write(row)
    return dict(job=row.job, open=int(not row.ended), record=record, crc=crc)


def _row_of_service(row: Service) -> dict[str, Any]:
    record, crc = row_codec.SERVICE.write(row)
    is_open = int(row.state != ServiceState.STOPPED)
    return dict(id=row.id, name=row.name, open=is_open, record=record, crc=crc)


def _row_of_gateway_count(row: GatewayCount) -> dict[str, Any]:
    record, crc = row_codec.GATEWAY_COUNT.write(row)
    return dict(process=row.process, service=row.service, record=record, crc=crc)


def tell(
    connection: Connection, rows: Seq[StartForecastTold], void: Seq[JobId]
) -> None:
    job_states_by_job = _read_job_states(connection, {row.job for row in rows})
    batch = StatementBatch(connection)
    batch.put(
        _PUT_TOLD,
        [_row_of_start_forecast(row) for row in rows if row.job in job_states_by_job],
    )
    if void:
        batch.run(_DROP_TOLD, {"ids": row_codec.text_of(void)})
    batch.send()


def _row_of_start_forecast(row: StartForecastTold) -> dict[str, Any]:
    record, crc = row_codec.TOLD.write(row)
    return dict(job=row.job, at=row.at, record=record, crc=crc)
