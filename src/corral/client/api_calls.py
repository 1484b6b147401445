"""Every call of the API as a value: the request to send, and how to read the answer. No
I/O.

Both clients are made of these calls, so that no rule is written twice. This module
quotes the paths.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar
from urllib.parse import quote

from corral.domain.errors import NotFound

if TYPE_CHECKING:
    from corral.wire import api
    from corral.wire import queue_answers as shapes
    from corral.wire.imports import ImportDone, ImportedJob
    from corral.wire.reports import ReportView

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiCall(Generic[T]):
    """One request of the API. `read` converts the body of the answer. `repeatable`:
    sending the request twice has the same effect as sending it once."""

    method: str
    path: str
    read: Callable[[Any], T]
    query: Mapping[str, str | int | list[str]] | None = None
    json: Any = None
    repeatable: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream(Generic[T]):
    """A request whose answer is a stream. `is_last` returns whether a piece of the
    answer is the last one."""

    path: str
    read: Callable[[Any], T]
    query: Mapping[str, str | int]
    is_last: Callable[[T], bool]


def submit(
    specs: Sequence[Mapping[str, Any]], key: str
) -> "ApiCall[list[api.JobView]]":
    body = {"specs": list(specs), "key": key}
    return ApiCall(method="POST", path="/v1/jobs", json=body, read=_read_jobs)


def plan(specs: Sequence[Mapping[str, Any]]) -> "ApiCall[list[api.PlannedJob]]":
    body = {"specs": list(specs), "key": "plan"}
    return ApiCall(
        method="POST", path="/v1/jobs", query={"dry_run": 1}, json=body, read=_read_plan
    )


def begin_plan(
    specs: Sequence[Mapping[str, Any]],
) -> "ApiCall[Callable[[], list[api.PlannedJob]]]":
    """Return the call that requests a plan, as `plan` does. Its result is a function;
    when it is called, it reads the answer and returns the plan."""
    api_call = plan(specs)
    return ApiCall(
        method=api_call.method,
        path=api_call.path,
        query=api_call.query,
        json=api_call.json,
        read=lambda body: partial(api_call.read, body),
    )


def jobs(
    *,
    everything: bool,
    limit: int,
    before: str | None = None,
    states: Sequence[str] = (),
    text: str = "",
    owner: str | None = None,
    queue: str | None = None,
    since: float | None = None,
) -> "ApiCall[list[api.JobView]]":
    query: dict[str, str | int | list[str]] = {"all": int(everything), "limit": limit}
    if before is not None:
        query["before"] = before
    if states:
        query["state"] = list(states)
    filters = {"text": text or None, "owner": owner, "queue": queue}
    query |= {name: value for name, value in filters.items() if value is not None}
    if since is not None:
        query["since"] = f"{since:.3f}"
    return ApiCall(method="GET", path="/v1/jobs", query=query, read=_read_jobs)


def array(of: str, *, everything: bool) -> "ApiCall[list[api.JobView]]":
    query: dict[str, str | int] = {"all": int(everything), "array": of}
    return ApiCall(method="GET", path="/v1/jobs", query=query, read=_read_jobs)


def job(name: str) -> "ApiCall[api.JobDetail]":
    return ApiCall(method="GET", path=job_path(name), read=read_as("api.JobDetail"))


def why(name: str) -> "ApiCall[api.Why]":
    return ApiCall(method="GET", path=f"{job_path(name)}/why", read=read_as("api.Why"))


def checkpoints(name: str) -> "ApiCall[list[api.CheckpointView]]":
    return ApiCall(
        method="GET",
        path=f"{job_path(name)}/checkpoints",
        read=lambda body: read_as("api.Checkpoints")(body).checkpoints,
    )


def events(name: str | None, after: int) -> "ApiCall[list[api.EventView]]":
    path = f"{job_path(name)}/events" if name else "/v1/events"
    return ApiCall(
        method="GET",
        path=path,
        query={"after": after},
        read=lambda body: read_as("api.Events")(body).events,
    )


def follow_events(name: str | None, after: int) -> "Stream[api.EventView]":
    path = f"{job_path(name)}/events" if name else "/v1/events"
    query = {"after": after, "follow": 1}
    return Stream(
        path=path,
        query=query,
        read=read_as("api.EventView"),
        is_last=lambda event: False,
    )


def logs(
    name: str,
    *,
    follow: bool,
    rank: int | None,
    attempt: int | None,
    tail: int | None,
    times: bool,
) -> "Stream[api.LogLines]":
    log_query = {
        "rank": rank,
        "attempt": attempt,
        "tail": tail,
        "times": 1 if times else None,
    }
    query: dict[str, str | int] = {"follow": int(follow)}
    query |= {key: value for key, value in log_query.items() if value is not None}
    return Stream(
        path=f"{job_path(name)}/logs",
        query=query,
        read=read_as("api.LogLines"),
        is_last=lambda piece: piece.end is not None,
    )


def status() -> "ApiCall[api.Status]":
    return ApiCall(method="GET", path="/v1/status", read=read_as("api.Status"))


def nodes() -> "ApiCall[list[api.NodeView]]":
    return ApiCall(
        method="GET",
        path="/v1/nodes",
        read=lambda body: read_as("api.Nodes")(body).nodes,
    )


def node(name: str) -> "ApiCall[api.NodeDetail]":
    return ApiCall(method="GET", path=_node_path(name), read=read_as("api.NodeDetail"))


def change_node(
    name: str, to: Literal["cordon", "drain", "uncordon"]
) -> "ApiCall[api.NodeDetail]":
    return ApiCall(
        method="POST", path=f"{_node_path(name)}/{to}", read=read_as("api.NodeDetail")
    )


def label_node(
    name: str, labels: Mapping[str, str | None]
) -> "ApiCall[api.NodeDetail]":
    return ApiCall(
        method="PATCH",
        path=f"{_node_path(name)}/labels",
        json={"labels": dict(labels)},
        read=read_as("api.NodeDetail"),
    )


def queues() -> "ApiCall[shapes.Queues]":
    return ApiCall(
        method="GET", path="/v1/queues", read=read_as("queue_answers.Queues")
    )


def queue(name: str) -> "ApiCall[shapes.QueueDetail]":
    return ApiCall(
        method="GET", path=_queue_path(name), read=read_as("queue_answers.QueueDetail")
    )


def set_queues(
    document: Mapping[str, Any], *, dry_run: bool
) -> "ApiCall[shapes.QueueChanges]":
    return ApiCall(
        method="PUT",
        path="/v1/queues",
        query={"dry_run": int(dry_run)},
        json={"document": dict(document)},
        read=read_as("queue_answers.QueueChanges"),
    )


def set_queue(
    name: str, fields: Mapping[str, Any], *, dry_run: bool
) -> "ApiCall[shapes.QueueChanges]":
    return ApiCall(
        method="PUT",
        path=_queue_path(name),
        query={"dry_run": int(dry_run)},
        json={"fields": dict(fields)},
        read=read_as("queue_answers.QueueChanges"),
    )


def drop_queue(name: str) -> "ApiCall[shapes.QueueChanges]":
    return ApiCall(
        method="DELETE",
        path=_queue_path(name),
        read=read_as("queue_answers.QueueChanges"),
    )


def put_imports(
    jobs: Sequence["ImportedJob"], *, dry_run: bool
) -> "ApiCall[ImportDone]":
    body = {"jobs": [imported_job.model_dump(mode="json") for imported_job in jobs]}
    answer_reader, query = read_as("imports.ImportDone"), {"dry_run": int(dry_run)}
    return ApiCall(
        method="POST", path="/v1/imports", query=query, json=body, read=answer_reader
    )


def imports(limit: int, before: str | None) -> "ApiCall[list[ImportedJob]]":
    query: dict[str, str | int] = {"limit": limit}
    if before is not None:
        query["before"] = before
    answer_reader = read_as("imports.ImportedJobs")
    return ApiCall(
        method="GET",
        path="/v1/imports",
        query=query,
        read=lambda body: answer_reader(body).jobs,
    )


def report(
    kind: str,
    *,
    by: str,
    since: float | None,
    until: float | None,
    limit: int,
    job: str | None = None,
) -> "ApiCall[ReportView]":
    query: dict[str, str | int] = {"by": by, "limit": limit}
    query |= {
        name: str(time_seconds)
        for name, time_seconds in (("since", since), ("until", until))
        if time_seconds is not None
    }
    query |= {"job": job} if job is not None else {}
    path = f"/v1/reports/{quote(kind, safe='')}"
    return ApiCall(
        method="GET", path=path, query=query, read=read_as("reports.ReportView")
    )


def secrets() -> "ApiCall[list[api.Secret]]":
    return ApiCall(
        method="GET",
        path="/v1/secrets",
        read=lambda body: read_as("api.Secrets")(body).secrets,
    )


def set_secret(
    name: str, value: str, for_everybody: bool | None = None
) -> ApiCall[None]:
    body: dict[str, Any] = {"value": value}
    if for_everybody is not None:
        body["for_everybody"] = for_everybody
    return ApiCall(method="PUT", path=_secret_path(name), json=body, read=_ignore_body)


def drop_secret(name: str) -> ApiCall[None]:
    return ApiCall(
        method="DELETE", path=_secret_path(name), read=_ignore_body, repeatable=False
    )


def down(jobs: Literal["leave", "stop"]) -> ApiCall[None]:
    return ApiCall(
        method="POST", path="/v1/head/down", json={"jobs": jobs}, read=_ignore_body
    )


def attach_path(
    name: str, *, rank: int, shell: bool, rows: int, columns: int, command: str = ""
) -> str:
    query = f"rank={rank}&shell={int(shell)}&rows={rows}&columns={columns}"
    typed = f"&command={quote(command, safe='')}" if command else ""
    return f"{job_path(name)}/attach?{query}{typed}"


def job_path(name: str) -> str:
    return f"/v1/jobs/{quoted('job', name, 'corral ps --all')}"


def _node_path(name: str) -> str:
    return f"/v1/nodes/{quoted('node', name, 'corral node ls')}"


def _queue_path(name: str) -> str:
    return f"/v1/queues/{quoted('queue', name, 'corral queue ls')}"


def _secret_path(name: str) -> str:
    return f"/v1/secrets/{quoted('secret', name, 'corral secret ls')}"


def quoted(kind: str, name: str, see: str) -> str:
    """Return the name quoted as a part of a path.

    Raises: NotFound for a name with a slash, an empty name, "." and "..": they would
    change the path, and nothing has such a name.
    """
    if "/" in name or name in ("", ".", ".."):
        raise NotFound(kind, name, see=see)
    return quote(name, safe="")


def read_as(shape: str) -> Callable[[Any], Any]:
    """Return a function that reads the body of an answer as a model of `corral.wire`;
    `shape` names the model, for example "api.Job". Pydantic is loaded when the first
    answer arrives."""
    module, _, name = shape.partition(".")

    def read(body: Any) -> Any:
        return getattr(import_module(f"corral.wire.{module}"), name).model_validate(
            body
        )

    return read


def _read_jobs(body: Any) -> Any:
    return read_as("api.JobsView")(body).jobs


def _read_plan(body: Any) -> Any:
    return read_as("api.Plan")(body).plan


def _ignore_body(body: Any) -> None:
    return None
