"""Queries of the tables. Each is a function of a connection and runs in one of the
store's threads."""

import re
from typing import Any, Final, NamedTuple

from sqlalchemy import (
    Connection,
    Float,
    Integer,
    Select,
    and_,
    bindparam,
    cast,
    func,
    or_,
    select,
    true,
    tuple_,
)

from corral.domain.attempt import Attempt, Save
from corral.domain.errors import StoreTrouble
from corral.domain.ids import ClusterId, JobId, NodeId, Sequence, UserName, sequence_of
from corral.domain.job import Job
from corral.domain.job_states import JobState
from corral.domain.job_summary import ListedJob
from corral.domain.keep_rule import SaveKey, save_key
from corral.domain.receipt import Receipt, ReceiptKind
from corral.domain.relocation import of_last_day
from corral.domain.requests import StoredRequest
from corral.domain.run_history import Ran, StartForecastTold, ran_of
from corral.domain.service import Service
from corral.domain.world import Event, World
from corral.ports.store import Which
from corral.store import row_codec, spec_rows
from corral.store.audit import NEWEST, Tail
from corral.store.row_codec import Codec, Row
from corral.store.schema import (
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
from corral.store.sql_dialects import larger_of, text_at
from corral.store.store_rules import NEWEST_NAMES, is_part
from corral.store.submissions import Submission

_OLDEST_FIRST: Final = (jobs.c.submitted, jobs.c.place, jobs.c.id)
_NEWEST_FIRST: Final = tuple(column.desc() for column in _OLDEST_FIRST)
_ID: Final = re.compile(r"j(\d{1,15})(?:_\d{1,9})?", re.ASCII)  # of an array
_JOBS: Final = select(jobs.c.record, jobs.c.crc)
_REQUESTS: Final = select(
    requests.c.sequence,
    requests.c.by,
    requests.c.at,
    requests.c.kind,
    requests.c.record,
    requests.c.crc,
)
_OVER: Final = (
    select(jobs.c.id, jobs.c.state, text_at(jobs.c.record, "since"))
    .where(jobs.c.final == 1)
    .order_by(*_OLDEST_FIRST)
)
# Built once: to build a statement costs more than to run it.
_REQUESTS_AFTER: Final = _REQUESTS.where(
    requests.c.sequence
    > larger_of(
        bindparam("after", type_=Integer), select(head.c.granted).scalar_subquery()
    )
).order_by(requests.c.sequence)
_REQUEST_OF_KEY: Final = _REQUESTS.where(
    requests.c.by == bindparam("user"),
    requests.c.key == bindparam("its_key"),
    requests.c.key.is_not(None),  # so that the partial index serves
)


class StoreHead(NamedTuple):
    """The table row with the state of the cluster: its id, its term, and the newest
    numbers of requests and events."""

    cluster: ClusterId
    term: int
    granted: Sequence
    newest_wish: Sequence
    newest_event: int


_HEAD: Final = select(
    head.c.cluster,
    head.c.term,
    head.c.granted,
    head.c.newest_wish,
    head.c.newest_event,
    head.c.crc,
)


_tail: Final = NEWEST.subquery()
_HEAD_AND_TAIL: Final = _HEAD.add_columns(_tail.c.number, _tail.c.link).select_from(
    head.outerjoin(_tail, true())
)


def read_head(connection: Connection) -> StoreHead:
    *columns, crc = connection.execute(_HEAD).one()
    store_head = StoreHead(*columns)
    row_codec.check("head", row_codec.text_of(store_head), crc)
    return store_head


def read_head_and_tail(connection: Connection) -> tuple[StoreHead, Tail]:
    """Return the head's row and the newest entry of the audit log, with one query."""
    *columns, crc, number, link = connection.execute(_HEAD_AND_TAIL).one()
    store_head = StoreHead(*columns)
    row_codec.check("head", row_codec.text_of(store_head), crc)
    return store_head, Tail(number or 0, link)


def _read_rows(connection: Connection, query: Select[Any], of: Codec[Row]) -> list[Row]:
    rows = connection.execute(query).all()  # no cursor stays open by a damaged row
    return [of.read(record, crc) for record, crc in rows]


def _read_jobs_with_specs(connection: Connection, query: Select[Any]) -> list[Job]:
    """Return the jobs that a query finds, including the large fields of their specs."""
    return spec_rows.whole(connection, _read_rows(connection, query, row_codec.JOB))


def world(connection: Connection) -> World:
    """Return the state of the cluster with all jobs that have not ended."""
    now = read_head(connection)
    world_now = World(cluster=now.cluster, term=now.term, granted=now.granted)
    unfinished = _JOBS.where(jobs.c.final == 0).order_by(*_OLDEST_FIRST)
    world_now.jobs = {
        job.id: job for job in _read_jobs_with_specs(connection, unfinished)
    }
    for id, state, state_since in connection.execute(_OVER).all():
        world_now.ended[JobId(id)], world_now.ended_at[JobId(id)] = (
            state_of(state),
            _parse_end_time(state_since),
        )
    tries = _read_rows(connection, _newest_attempts(), row_codec.ATTEMPT)
    world_now.attempts = {attempt.job: attempt for attempt in tries}
    world_now.saves, world_now.retired = _saves_of_unfinished(connection)
    held_rows = select(allocations.c.record, allocations.c.crc).where(
        allocations.c.state != "RELEASED"
    )
    world_now.allocations = {
        row.key: row for row in _read_rows(connection, held_rows, row_codec.ALLOCATION)
    }
    node_query = select(nodes.c.record, nodes.c.crc)
    world_now.nodes = {
        node.id: node for node in _read_rows(connection, node_query, row_codec.NODE)
    }
    _read_shares(connection, world_now)
    return world_now


def _read_shares(connection: Connection, found: World) -> None:
    """Read into `found` the queues, their usage, budgets, debts, the open reservations
    the open services, and what the ledger has of the processes of gateways."""
    for tree in _read_rows(
        connection, select(queues.c.record, queues.c.crc), row_codec.QUEUES
    ):
        found.queues = tree
    uses = _read_rows(connection, select(usage.c.record, usage.c.crc), row_codec.USE)
    found.uses = {(use.queue, use.user): use for use in uses}
    spent = _read_rows(
        connection, select(spending.c.record, spending.c.crc), row_codec.SPENT
    )
    found.spent = {budget_spent.queue: budget_spent for budget_spent in spent}
    owed = _read_rows(connection, select(debts.c.record, debts.c.crc), row_codec.DEBT)
    found.debts = {debt.queue: debt for debt in owed}
    standing = select(reservations.c.record, reservations.c.crc).where(
        reservations.c.open == 1
    )
    standing_rows = _read_rows(connection, standing, row_codec.RESERVATION)
    found.reservations = {reservation.job: reservation for reservation in standing_rows}
    active = select(services.c.record, services.c.crc).where(services.c.open == 1)
    service_rows = _read_rows(connection, active, row_codec.SERVICE)
    found.services = {service.name: service for service in service_rows}
    counted = select(gateway_counts.c.record, gateway_counts.c.crc)
    count_rows = _read_rows(connection, counted, row_codec.GATEWAY_COUNT)
    found.gateway_counts = {count.key: count for count in count_rows}
    moved = select(receipts.c.record, receipts.c.crc).where(
        receipts.c.kind == ReceiptKind.RELOCATION
    )
    in_order = moved.order_by(receipts.c.number)
    found.relocations = of_last_day(_read_rows(connection, in_order, row_codec.RECEIPT))


def state_of(text: str) -> JobState:
    try:
        return JobState(text)
    except ValueError as error:
        raise StoreTrouble(
            f"the store contains a job with the unknown state {text!r}",
            hint=row_codec.RECOVER,
        ) from error


def _parse_end_time(found: str | float | None) -> float:
    try:
        return float(found)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise StoreTrouble(
            f"the store contains a job with the invalid end time {found!r}",
            hint=row_codec.RECOVER,
        ) from error


def _newest_attempts() -> Select[Any]:
    tries = attempts.alias("tries")
    numbers = select(func.max(tries.c.number)).where(tries.c.job == jobs.c.id)
    return (
        select(attempts.c.record, attempts.c.crc)
        .select_from(jobs.join(attempts, attempts.c.job == jobs.c.id))
        .where(jobs.c.final == 0, attempts.c.number == numbers.scalar_subquery())
        .order_by(*_OLDEST_FIRST)
    )


def _saves_of_unfinished(
    connection: Connection,
) -> tuple[dict[JobId, tuple[Save, ...]], dict[JobId, frozenset[SaveKey]]]:
    """Return the resumable saves and the retired ones, of the unfinished jobs."""
    query = (
        select(saves.c.record, saves.c.crc)
        .select_from(jobs.join(saves, saves.c.job == jobs.c.id))
        .where(jobs.c.final == 0)
        .order_by(*_OLDEST_FIRST, saves.c.step, saves.c.attempt)
    )
    saves_by_job: dict[JobId, list[Save]] = {}
    retired: dict[JobId, frozenset[SaveKey]] = {}
    for save in _read_rows(connection, query, row_codec.SAVE):
        if save.is_usable:
            saves_by_job.setdefault(save.job, []).append(save)
        elif save.retired is not None:
            retired[save.job] = retired.get(save.job, frozenset()) | {save_key(save)}
    resumable = {job: tuple(of_job) for job, of_job in saves_by_job.items()}
    return resumable, retired


def requests_after(connection: Connection, after: int) -> list[StoredRequest]:
    request_rows = connection.execute(_REQUESTS_AFTER, {"after": after}).all()
    return [_request(connection, *row) for row in request_rows]


def request_of_key(
    connection: Connection, by: UserName, key: str
) -> StoredRequest | None:
    row = connection.execute(
        _REQUEST_OF_KEY, {"user": by, "its_key": key}
    ).one_or_none()
    return _request(connection, *row) if row is not None else None


def _request(
    connection: Connection,
    sequence: int,
    by: str,
    at: float,
    kind: str,
    record: str,
    crc: int,
) -> StoredRequest:
    row_codec.check("request", row_codec.text_of((sequence, by, at, kind, record)), crc)
    asked_request = row_codec.read_asked(kind, record)
    if isinstance(asked_request, Submission):
        asked_request = spec_rows.submit_of(connection, sequence, asked_request)
    return StoredRequest(
        sequence=Sequence(sequence), by=UserName(by), at=at, asked=asked_request
    )


def newest_jobs(
    connection: Connection, final: bool, limit: int, before: JobId | None, which: Which
) -> list[ListedJob]:
    query = _of_these(_JOBS if final else _JOBS.where(jobs.c.final == 0), which)
    if before is not None:
        cursor_query = select(*_OLDEST_FIRST).where(jobs.c.id == before)
        cursor_age = connection.execute(cursor_query).one_or_none() or (
            sequence_of(before) or 0,
            -2,
            "",
        )
        query = query.where(tuple_(*_OLDEST_FIRST) < tuple_(*cursor_age))
    return _read_rows(
        connection,
        query.order_by(*_NEWEST_FIRST).limit(max(0, limit)),
        row_codec.LISTED,
    )


def _of_these(query: Select[Any], which: Which) -> Select[Any]:
    query = _filter_by_owner(query, which.owner)
    if which.states:
        query = query.where(jobs.c.state.in_(sorted(which.states)))
    if which.queue is not None:
        query = query.where(text_at(jobs.c.record, "spec.queue") == which.queue)
    if which.since is not None:
        ended_at = cast(text_at(jobs.c.record, "ended_at"), Float)
        query = query.where(or_(jobs.c.final == 0, ended_at >= which.since))
    # in columns that an index holds whole: no record is read to look at its name
    if which.text:
        text, jobs_alias = which.text.lower(), jobs.alias()
        name_condition = func.lower(jobs_alias.c.name).contains(text, autoescape=True)
        below = jobs_alias.c.id.startswith(f"{text}_", autoescape=True)
        matching_ids = select(jobs_alias.c.id).where(
            or_(name_condition, jobs_alias.c.id == text, below)
        )
        query = query.where(jobs.c.id.in_(matching_ids))
    return query


def job_of_id(connection: Connection, id: JobId) -> Job | None:
    job_list = _read_jobs_with_specs(connection, _JOBS.where(jobs.c.id == id))
    return job_list[0] if job_list else None


def job_of_name(connection: Connection, name: str, by: UserName | None) -> Job | None:
    query = _filter_by_owner(_JOBS.where(jobs.c.name == name), by).order_by(
        *_NEWEST_FIRST
    )
    job_list = _read_jobs_with_specs(connection, query.limit(1))
    return job_list[0] if job_list else None


def _filter_by_owner(query: Select[Any], by: UserName | None) -> Select[Any]:
    return query if by is None else query.where(text_at(jobs.c.record, "owner") == by)


def jobs_of_array(connection: Connection, of: str, by: UserName | None) -> list[Job]:
    """Return the jobs of an array. `of` is the id of an array, which contains the
    position of its submission, or a name. For a name, the newest array of that name is
    used: of user `by`, or of any user if `by` is None."""
    if match := _ID.fullmatch(of):
        submitted_jobs = _jobs_submitted(connection, int(match.group(1)))
        if array_jobs := [job for job in submitted_jobs if job.array == of]:
            return array_jobs
    # ":" is behind all digits
    begins = and_(jobs.c.name >= f"{of}_", jobs.c.name <= f"{of}_:")
    names = select(jobs.c.submitted, jobs.c.name).where(begins)
    for sequence, name in connection.execute(
        _filter_by_owner(names, by).order_by(*_NEWEST_FIRST)
    ).all():
        if name[len(of) + 1 :].isdecimal():
            submitted_jobs = _jobs_submitted(connection, sequence)
            array = next(
                (job.array for job in submitted_jobs if job.spec.name == name), None
            )
            if array is not None:
                return [
                    job
                    for job in submitted_jobs
                    if job.array == array and is_part(job, of)
                ]
    return []


def _jobs_submitted(connection: Connection, sequence: int) -> list[Job]:
    query = _JOBS.where(jobs.c.submitted == sequence).order_by(*_OLDEST_FIRST)
    return _read_jobs_with_specs(connection, query)


def newest_names(connection: Connection) -> list[str]:
    query = select(jobs.c.name).order_by(*_NEWEST_FIRST).limit(NEWEST_NAMES)
    return list(dict.fromkeys(connection.execute(query).scalars()))


def workdirs(connection: Connection) -> set[str]:
    digest = text_at(jobs.c.record, "spec.workdir")
    scalar_result = connection.execute(select(digest).distinct()).scalars()
    return {
        workdir_digest for workdir_digest in scalar_result if workdir_digest is not None
    }


def attempts_of(connection: Connection, job: JobId) -> list[Attempt]:
    query = select(attempts.c.record, attempts.c.crc).where(attempts.c.job == job)
    return _read_rows(connection, query.order_by(attempts.c.number), row_codec.ATTEMPT)


def runs(connection: Connection, limit: int) -> list[Ran]:
    final_condition = jobs.c.final == 1
    newest_query = (
        _JOBS.where(final_condition).order_by(*_NEWEST_FIRST).limit(max(0, limit))
    )
    jobs_by_job = {
        job.id: job for job in _read_rows(connection, newest_query, row_codec.JOB)
    }
    ids = (
        select(jobs.c.id)
        .where(final_condition)
        .order_by(*_NEWEST_FIRST)
        .limit(max(0, limit))
    )
    attempt_query = select(attempts.c.record, attempts.c.crc).where(
        attempts.c.job.in_(ids)
    )
    tries: dict[JobId, list[Attempt]] = {}
    for attempt in _read_rows(connection, attempt_query, row_codec.ATTEMPT):
        tries.setdefault(attempt.job, []).append(attempt)
    job_runs = [ran_of(job, tries.get(job.id, ())) for job in jobs_by_job.values()]
    return [ran for ran in job_runs if ran is not None]


def newest_told(connection: Connection, limit: int) -> list[StartForecastTold]:
    query = select(told.c.record, told.c.crc).order_by(
        told.c.at.desc(), told.c.job.desc()
    )
    return _read_rows(connection, query.limit(max(0, limit)), row_codec.TOLD)[::-1]


def receipts_of(connection: Connection, job: JobId) -> list[Receipt]:
    query = select(receipts.c.record, receipts.c.crc).where(receipts.c.job == job)
    return _read_rows(connection, query.order_by(receipts.c.number), row_codec.RECEIPT)


def saves_of(connection: Connection, job: JobId) -> list[Save]:
    query = select(saves.c.record, saves.c.crc).where(saves.c.job == job)
    return _read_rows(
        connection, query.order_by(saves.c.step, saves.c.attempt), row_codec.SAVE
    )


def events_after(
    connection: Connection,
    after: int,
    job: JobId | None,
    limit: int,
    node: NodeId | None,
    newest: bool,
) -> list[Event]:
    query = select(events.c.record, events.c.crc).where(events.c.number > after)
    if job is not None:
        query = query.where(events.c.job == job, events.c.job.is_not(None))
    if node is not None:
        query = query.where(text_at(events.c.record, "node") == node)
    number = events.c.number
    query = query.order_by(number.desc() if newest else number).limit(max(0, limit))
    event_list = _read_rows(connection, query, row_codec.EVENT)
    return event_list[::-1] if newest else event_list


def services_of(connection: Connection, limit: int) -> list[Service]:
    """Return the newest services, the newest first, with those that are stopped."""
    newest = cast(func.substr(services.c.id, 2), Integer).desc()
    query = select(services.c.record, services.c.crc).order_by(newest).limit(limit)
    return list(_read_rows(connection, query, row_codec.SERVICE))
