"""The synchronous client."""

import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from corral.client import api_calls
from corral.client.api_calls import ApiCall, Stream
from corral.client.batch_calls import SyncBatches
from corral.client.check_calls import SyncChecks
from corral.client.checkpoint_calls import SyncCheckpoints
from corral.client.head_proof import http_client, was_refused
from corral.client.head_target import HeadTarget, Where, error_of, no_answer
from corral.client.job_change_calls import SyncJobChanges
from corral.client.model_calls import SyncModels
from corral.client.node_calls import SyncNodes
from corral.client.observation_calls import SyncSights
from corral.client.output_calls import SyncOutputs
from corral.client.request_rules import (
    STREAM_NAP,
    STREAM_PATIENCE,
    Following,
    body_of,
    headers,
    naps,
    retry_after,
    worth_another_try,
)
from corral.client.service_calls import SyncServices
from corral.client.spec_input import Spec, WireSpecs, read_wire_specs
from corral.client.user_calls import SyncPeople
from corral.client.workdir_snapshot import Snapshot, pack
from corral.domain.errors import WrongHead

if TYPE_CHECKING:
    import ssl

    import httpx2
    from websockets.sync.client import ClientConnection

    from corral.wire import api
    from corral.wire import queue_answers as shapes
    from corral.wire.imports import ImportDone, ImportedJob
    from corral.wire.reports import ReportView

T = TypeVar("T")


class Client(
    SyncJobChanges,
    SyncPeople,
    SyncNodes,
    SyncChecks,
    SyncSights,
    SyncOutputs,
    SyncServices,
    SyncModels,
    SyncCheckpoints,
    SyncBatches,
):
    """Client of one cluster. Without arguments it uses CORRAL_URL and CORRAL_TOKEN,
    else the head of `dir` (default: CORRAL_DIR, else ~/.corral).

    Every method raises a Refusal if the caller made a mistake; Unreachable or another
    Trouble if a retry may help. Each error has `code`, `message` and `hint`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        dir: str | Path | None = None,
    ) -> None:
        self._where = Where(url=url, token=token, dir=dir)
        self._http: dict[bool, httpx2.Client] = {}  # by whether they speak TLS

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        while self._http:
            self._http.popitem()[1].close()

    # -- jobs ------------------------------------------------------------------------------------

    def submit(self, spec: Spec, *, key: str | None = None) -> "list[api.JobView]":
        """Queue the job or jobs of a spec: a mapping, several mappings, or a file.
        Return the jobs.

        The workdir is uploaded first. The jobs are durable when the method returns. A
        repeated call with the same key returns the jobs of the first call.
        """
        return self._call(
            api_calls.submit(self._ready(spec), key or secrets.token_hex(16))
        )

    def plan(self, spec: Spec) -> "list[api.PlannedJob]":
        """Return what a submission would do now. Nothing is submitted or uploaded."""
        return self._call(api_calls.plan(read_wire_specs(spec).without_workdirs()))

    def begin_plan(self, spec: Spec) -> "Callable[[], list[api.PlannedJob]]":
        """Request a plan, as `plan` does, and return a function that reads the answer.
        The answer is read later, because loading the reader takes longer than
        submitting."""
        return self._call(
            api_calls.begin_plan(read_wire_specs(spec).without_workdirs())
        )

    def jobs(
        self,
        *,
        everything: bool = False,
        limit: int = 100,
        before: str | None = None,
        states: Sequence[str] = (),
        text: str = "",
        owner: str | None = None,
        queue: str | None = None,
        since: float | None = None,
    ) -> "list[api.JobView]":
        """Return the jobs, newest first. With `everything`, ended jobs are included.

        Args:
            before: id of the last job of the previous page; return the jobs after it.
            states: only jobs in these states.
            text: only jobs with this text in their name.
            owner: only jobs of this user.
            queue: only jobs of this queue.
            since: leave out jobs that ended before this time.
        """
        return self._call(
            api_calls.jobs(
                everything=everything,
                limit=limit,
                before=before,
                states=states,
                text=text,
                owner=owner,
                queue=queue,
                since=since,
            )
        )

    def array(self, array: str, *, everything: bool = False) -> "list[api.JobView]":
        """Return the jobs of the array with this id, or of the newest array with this
        name, sorted by index."""
        return self._call(api_calls.array(array, everything=everything))

    def job(self, job: str) -> "api.JobDetail":
        """Return one job by its id, or the newest job with this name."""
        return self._call(api_calls.job(job))

    def why(self, job: str) -> "api.Why":
        return self._call(api_calls.why(job))

    def checkpoints(self, job: str) -> "list[api.CheckpointView]":
        return self._call(api_calls.checkpoints(job))

    def wait(self, job: str) -> "api.JobDetail":
        """Wait until the job has ended, and return it."""
        job_detail = self.job(job)
        if not job_detail.is_over:
            for _ in self.events(job_detail.id, follow=True):
                pass
        return self.job(job_detail.id)

    # -- streams ---------------------------------------------------------------------------------

    def events(
        self, job: str | None = None, *, after: int = 0, follow: bool = False
    ) -> "Iterator[api.EventView]":
        """Yield events of one job or of all jobs, oldest first. With `follow`, continue
        with new events; the events of one job end when the job has ended."""
        if follow:
            yield from self._stream(api_calls.follow_events(job, after))
            return
        while page := self._call(api_calls.events(job, after)):
            yield from page
            after = page[-1].number

    def logs(
        self,
        job: str,
        *,
        follow: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        times: bool = False,
    ) -> "Iterator[api.LogLines]":
        """Yield pieces of the ranks' logs.

        The pieces are of the newest attempt, or of the requested one. With `follow`,
        later attempts are included. `tail`: only the last N lines of each rank.
        `times`: include the times at which the head received the lines. The last piece
        has `end`, the state of the job.
        """
        stream = api_calls.logs(
            job, follow=follow, rank=rank, attempt=attempt, tail=tail, times=times
        )
        yield from self._stream(stream)

    @contextmanager
    def attach(
        self,
        job: str,
        *,
        rank: int = 0,
        shell: bool = True,
        rows: int = 24,
        columns: int = 80,
        command: str = "",
    ) -> "Iterator[ClientConnection]":
        """Open a terminal on the node of the rank; without `shell`, connect to the
        rank's standard input instead.

        The terminal runs a shell or `command`, and has `rows` and `columns`. Use
        `send(bytes)` for input, and iterate over the connection for output bytes.
        """
        from websockets.exceptions import InvalidStatus
        from websockets.sync.client import connect

        from corral.wire.proven_http import proven_connection

        path = api_calls.attach_path(
            job, rank=rank, shell=shell, rows=rows, columns=columns, command=command
        )
        with ExitStack() as stack:
            for heads_left in reversed(range(self._where.heads)):
                target, address, options = self._where.socket(path)
                try:
                    if target.needs_proof:
                        options["sock"] = proven_connection(
                            target.url, target.challenge
                        )
                    dialled = connect(address, **options)
                    connection = stack.enter_context(dialled)
                    break
                except InvalidStatus as error:
                    raise error_of(
                        error.response.status_code, bytes(error.response.body)
                    ) from None
                except (OSError, WrongHead) as error:
                    self._where.pass_over()
                    if not heads_left:
                        raise no_answer(target, error) from None
            yield connection

    # -- the cluster -----------------------------------------------------------------------------

    def status(self) -> "api.Status":
        return self._call(api_calls.status())

    def nodes(self) -> "list[api.NodeView]":
        return self._call(api_calls.nodes())

    def node(self, node: str) -> "api.NodeDetail":
        return self._call(api_calls.node(node))

    def cordon(self, node: str) -> "api.NodeDetail":
        """Cordon the node: it gets no new work."""
        return self._call(api_calls.change_node(node, "cordon"))

    def drain(self, node: str) -> "api.NodeDetail":
        """Drain the node: it gets no new work, and its running jobs are moved away."""
        return self._call(api_calls.change_node(node, "drain"))

    def uncordon(self, node: str) -> "api.NodeDetail":
        return self._call(api_calls.change_node(node, "uncordon"))

    def label(self, node: str, labels: Mapping[str, str | None]) -> "api.NodeDetail":
        """Set labels of the node. The value None removes a label."""
        return self._call(api_calls.label_node(node, labels))

    def queues(self) -> "shapes.Queues":
        """Return every queue, each after its parent."""
        return self._call(api_calls.queues())

    def queue(self, queue: str) -> "shapes.QueueDetail":
        return self._call(api_calls.queue(queue))

    def set_queues(
        self, document: Mapping[str, Any], *, dry_run: bool = False
    ) -> "shapes.QueueChanges":
        """Replace the whole tree of queues by the document, as in a file of `kind:
        queues`. Return what changes."""
        return self._call(api_calls.set_queues(document, dry_run=dry_run))

    def set_queue(
        self, queue: str, fields: Mapping[str, Any], *, dry_run: bool = False
    ) -> "shapes.QueueChanges":
        """Create one queue, or change these fields of it. Return what changes."""
        return self._call(api_calls.set_queue(queue, fields, dry_run=dry_run))

    def drop_queue(self, queue: str) -> "shapes.QueueChanges":
        """Remove a queue that has no unfinished job and no queue below it."""
        return self._call(api_calls.drop_queue(queue))

    def put_imports(
        self, jobs: "Sequence[ImportedJob]", *, dry_run: bool = False
    ) -> "ImportDone":
        """Import jobs that another system ran, at most 5,000 a call. Jobs that are
        already known are skipped."""
        return self._call(api_calls.put_imports(jobs, dry_run=dry_run))

    def imports(
        self, *, limit: int = 100, before: str | None = None
    ) -> "list[ImportedJob]":
        """Return imported jobs, the latest end first. `before`: id of the last job of
        the previous page; return the jobs after it."""
        return self._call(api_calls.imports(limit, before))

    def report(
        self,
        kind: str,
        *,
        by: str = "queue",
        since: float | None = None,
        until: float | None = None,
        limit: int = 10_000,
        job: str | None = None,
    ) -> "ReportView":
        """Return a report of whole days (UTC): usage, waste, cost or goodput.

        `since` and `until` are wall-clock seconds. With `job`, the report covers only
        this job, since it was submitted.
        """
        call = api_calls.report(
            kind, by=by, since=since, until=until, limit=limit, job=job
        )
        return self._call(call)

    def secrets(self) -> "list[api.Secret]":
        """Return the names of the secrets. The head never returns a value."""
        return self._call(api_calls.secrets())

    def set_secret(
        self, name: str, value: str, *, for_everybody: bool | None = None
    ) -> None:
        """Set a secret. `for_everybody`: whether jobs of all users may use it (admins
        only), or only the caller's jobs; None keeps the setting of an existing secret.
        """
        self._call(api_calls.set_secret(name, value, for_everybody))

    def drop_secret(self, name: str) -> None:
        self._call(api_calls.drop_secret(name))

    def down(self, *, jobs: Literal["leave", "stop"] = "leave") -> None:
        """Stop the head. With `jobs="leave"` its jobs continue to run; "stop" ends
        them."""
        self._call(api_calls.down(jobs))

    def upload_workdir(self, path: str | Path) -> str:
        """Upload a snapshot of a directory to the cluster. Return its digest, for
        `workdir` of a spec."""
        with pack(Path(path)) as snapshot:
            self._upload_snapshot(snapshot)
            return snapshot.sha256

    def access_token(self) -> str:
        """Return the token that the client sends, for requests to the gateway."""
        return self._where.target().token

    def trust_of(self, url: str) -> "ssl.SSLContext":
        """Return the TLS context for an address of the cluster, such as the gateway's.

        Raises: SpecInvalid if CORRAL_CA names no certificate.
        """
        return self._where.trust_of(url)

    # -- how -------------------------------------------------------------------------------------

    def _ready(self, spec: Spec) -> list[dict[str, Any]]:
        wire_specs: WireSpecs = read_wire_specs(spec)
        digests = {path: self.upload_workdir(path) for path in wire_specs.workdirs}
        return wire_specs.with_workdirs(digests)

    def _client(self, target: HeadTarget) -> "httpx2.Client":
        if target.is_tls not in self._http:
            self._http[target.is_tls] = http_client(self._where.trust(target))
        return self._http[target.is_tls]

    def _call(self, call: ApiCall[T]) -> T:
        import httpx2

        for nap in naps(self._where.heads):
            target = self._where.target()
            try:
                answer = self._client(target).request(
                    call.method,
                    target.url + call.path,
                    params=call.query,
                    json=call.json,
                    headers=headers(target),
                )
            except (httpx2.TransportError, WrongHead) as error:
                self._where.pass_over()
                if nap is None or not worth_another_try(
                    call, nap, refused=was_refused(error)
                ):
                    raise no_answer(target, error) from None
                time.sleep(nap)
                continue
            if answer.status_code == 503 and nap is not None:
                time.sleep(retry_after(answer.headers.get("Retry-After"), nap))
                continue
            self._where.note(answer.headers)
            if answer.status_code >= 400:
                raise self._where.refusal(answer.status_code, answer.content)
            return call.read(body_of(answer.content))
        raise AssertionError("the last try answers or raises")

    def _stream(self, stream: Stream[T]) -> Iterator[T]:
        import httpx2

        following = Following(stream)
        given_up = time.monotonic() + STREAM_PATIENCE
        while not following.over:
            target = self._where.target()
            try:
                with self._client(target).stream(
                    "GET",
                    target.url + stream.path,
                    params=following.query(),
                    headers=headers(target),
                ) as answer:
                    if answer.status_code >= 400 and answer.status_code != 503:
                        raise self._where.refusal(answer.status_code, answer.read())
                    for piece in answer.iter_raw() if answer.status_code < 400 else ():
                        given_up = time.monotonic() + STREAM_PATIENCE
                        yield from following.feed(piece)
            except (httpx2.TransportError, WrongHead) as error:
                self._where.pass_over()
                if time.monotonic() > given_up:
                    raise no_answer(target, error) from None
            if not following.over:
                time.sleep(STREAM_NAP)

    def _upload_snapshot(self, snapshot: Snapshot) -> None:
        import httpx2

        for heads_left in reversed(range(self._where.heads)):
            target = self._where.target()
            url = f"{target.url}/v1/snapshots/{snapshot.sha256}"
            try:
                response = self._client(target).head(url, headers=headers(target))
                if response.status_code >= 400 and response.status_code != 404:
                    # a HEAD is refused without a word: the same, asked with a PUT, says
                    # why
                    response = self._client(target).put(
                        url, content=b"", headers=headers(target)
                    )
                elif response.status_code == 404:
                    response = self._client(target).put(
                        url,
                        content=snapshot.pieces(),
                        headers={
                            **headers(target),
                            "Content-Length": str(snapshot.size_bytes),
                        },
                    )
                break
            except (httpx2.TransportError, WrongHead) as error:
                self._where.pass_over()
                if not heads_left:
                    raise no_answer(target, error) from None
        if response.status_code >= 400:
            raise error_of(response.status_code, response.content)
