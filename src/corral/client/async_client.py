"""Client for asyncio, with the methods of `Client` as coroutines.

See `Client` for their description.
"""

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from corral.client import api_calls
from corral.client.api_calls import ApiCall, Stream
from corral.client.async_output_calls import AsyncOutputs
from corral.client.check_calls import AsyncChecks
from corral.client.checkpoint_calls import AsyncCheckpoints
from corral.client.head_proof import async_http_client, was_refused
from corral.client.head_target import HeadTarget, Where, error_of, no_answer
from corral.client.job_change_calls import AsyncJobChanges
from corral.client.model_calls import AsyncModels
from corral.client.node_calls import AsyncNodes
from corral.client.observation_calls import AsyncSights
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
from corral.client.service_calls import AsyncServices
from corral.client.spec_input import Spec, read_wire_specs
from corral.client.user_calls import AsyncPeople
from corral.client.workdir_snapshot import Snapshot, pack
from corral.domain.errors import WrongHead

if TYPE_CHECKING:
    import ssl

    import httpx2
    from websockets.asyncio.client import ClientConnection

    from corral.wire import api
    from corral.wire import queue_answers as shapes
    from corral.wire.imports import ImportDone, ImportedJob
    from corral.wire.reports import ReportView

T = TypeVar("T")


class AsyncClient(
    AsyncJobChanges,
    AsyncPeople,
    AsyncNodes,
    AsyncChecks,
    AsyncSights,
    AsyncOutputs,
    AsyncServices,
    AsyncModels,
    AsyncCheckpoints,
):
    """Client of one cluster for asyncio. Arguments and errors are those of `Client`."""

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        dir: str | Path | None = None,
    ) -> None:
        self._where = Where(url=url, token=token, dir=dir)
        self._http: dict[bool, httpx2.AsyncClient] = {}  # by whether they speak TLS

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        while self._http:
            await self._http.popitem()[1].aclose()

    # -- jobs ------------------------------------------------------------------------------------

    async def submit(
        self, spec: Spec, *, key: str | None = None
    ) -> "list[api.JobView]":
        ready = await self._ready(spec)
        return await self._call(api_calls.submit(ready, key or secrets.token_hex(16)))

    async def plan(self, spec: Spec) -> "list[api.PlannedJob]":
        return await self._call(
            api_calls.plan(read_wire_specs(spec).without_workdirs())
        )

    async def jobs(
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
        return await self._call(
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

    async def array(
        self, array: str, *, everything: bool = False
    ) -> "list[api.JobView]":
        return await self._call(api_calls.array(array, everything=everything))

    async def job(self, job: str) -> "api.JobDetail":
        return await self._call(api_calls.job(job))

    async def why(self, job: str) -> "api.Why":
        return await self._call(api_calls.why(job))

    async def checkpoints(self, job: str) -> "list[api.CheckpointView]":
        return await self._call(api_calls.checkpoints(job))

    async def wait(self, job: str) -> "api.JobDetail":
        job_detail = await self.job(job)
        if not job_detail.is_over:
            async for _ in self.events(job_detail.id, follow=True):
                pass
        return await self.job(job_detail.id)

    # -- streams ---------------------------------------------------------------------------------

    async def events(
        self, job: str | None = None, *, after: int = 0, follow: bool = False
    ) -> "AsyncIterator[api.EventView]":
        if follow:
            async for event in self._stream(api_calls.follow_events(job, after)):
                yield event
            return
        while page := await self._call(api_calls.events(job, after)):
            for event in page:
                yield event
            after = page[-1].number

    async def logs(
        self,
        job: str,
        *,
        follow: bool = False,
        rank: int | None = None,
        attempt: int | None = None,
        tail: int | None = None,
        times: bool = False,
    ) -> "AsyncIterator[api.LogLines]":
        stream = api_calls.logs(
            job, follow=follow, rank=rank, attempt=attempt, tail=tail, times=times
        )
        async for piece in self._stream(stream):
            yield piece

    @asynccontextmanager
    async def attach(
        self,
        job: str,
        *,
        rank: int = 0,
        shell: bool = True,
        rows: int = 24,
        columns: int = 80,
        command: str = "",
    ) -> "AsyncIterator[ClientConnection]":
        from websockets.asyncio.client import connect
        from websockets.exceptions import InvalidStatus

        from corral.wire.proven_socket import proven_socket

        path = api_calls.attach_path(
            job, rank=rank, shell=shell, rows=rows, columns=columns, command=command
        )
        async with AsyncExitStack() as stack:
            for heads_left in reversed(range(self._where.heads)):
                target, address, options = self._where.socket(path)
                try:
                    if target.needs_proof:
                        options["sock"] = await proven_socket(
                            target.url, target.challenge
                        )
                    dialled = connect(address, **options)
                    connection = await stack.enter_async_context(dialled)
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

    async def status(self) -> "api.Status":
        return await self._call(api_calls.status())

    async def nodes(self) -> "list[api.NodeView]":
        return await self._call(api_calls.nodes())

    async def node(self, node: str) -> "api.NodeDetail":
        return await self._call(api_calls.node(node))

    async def cordon(self, node: str) -> "api.NodeDetail":
        return await self._call(api_calls.change_node(node, "cordon"))

    async def drain(self, node: str) -> "api.NodeDetail":
        return await self._call(api_calls.change_node(node, "drain"))

    async def uncordon(self, node: str) -> "api.NodeDetail":
        return await self._call(api_calls.change_node(node, "uncordon"))

    async def label(
        self, node: str, labels: Mapping[str, str | None]
    ) -> "api.NodeDetail":
        return await self._call(api_calls.label_node(node, labels))

    async def queues(self) -> "shapes.Queues":
        """Return every queue, each after its parent."""
        return await self._call(api_calls.queues())

    async def queue(self, queue: str) -> "shapes.QueueDetail":
        return await self._call(api_calls.queue(queue))

    async def set_queues(
        self, document: Mapping[str, Any], *, dry_run: bool = False
    ) -> "shapes.QueueChanges":
        """Replace the whole tree of queues by the document, as in a file of `kind:
        queues`. Return what changes."""
        return await self._call(api_calls.set_queues(document, dry_run=dry_run))

    async def set_queue(
        self, queue: str, fields: Mapping[str, Any], *, dry_run: bool = False
    ) -> "shapes.QueueChanges":
        """Create one queue, or change these fields of it. Return what changes."""
        return await self._call(api_calls.set_queue(queue, fields, dry_run=dry_run))

    async def drop_queue(self, queue: str) -> "shapes.QueueChanges":
        """Remove a queue that has no unfinished job and no queue below it."""
        return await self._call(api_calls.drop_queue(queue))

    async def put_imports(
        self, jobs: "Sequence[ImportedJob]", *, dry_run: bool = False
    ) -> "ImportDone":
        """Import jobs that another system ran, at most 5,000 a call. Jobs that are
        already known are skipped."""
        return await self._call(api_calls.put_imports(jobs, dry_run=dry_run))

    async def imports(
        self, *, limit: int = 100, before: str | None = None
    ) -> "list[ImportedJob]":
        """Return imported jobs, the latest end first. `before`: id of the last job of
        the previous page; return the jobs after it."""
        return await self._call(api_calls.imports(limit, before))

    async def report(
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
        return await self._call(call)

    async def secrets(self) -> "list[api.Secret]":
        return await self._call(api_calls.secrets())

    async def set_secret(
        self, name: str, value: str, *, for_everybody: bool | None = None
    ) -> None:
        await self._call(api_calls.set_secret(name, value, for_everybody))

    async def drop_secret(self, name: str) -> None:
        await self._call(api_calls.drop_secret(name))

    async def down(self, *, jobs: Literal["leave", "stop"] = "leave") -> None:
        await self._call(api_calls.down(jobs))

    async def upload_workdir(self, path: str | Path) -> str:
        packing = pack(Path(path))
        snapshot = await asyncio.to_thread(packing.__enter__)
        try:
            await self._upload_snapshot(snapshot)
            return snapshot.sha256
        finally:
            packing.__exit__(None, None, None)

    def access_token(self) -> str:
        return self._where.target().token

    def trust_of(self, url: str) -> "ssl.SSLContext":
        """Return the TLS context for an address of the cluster, such as the gateway's.

        Raises: SpecInvalid if CORRAL_CA names no certificate.
        """
        return self._where.trust_of(url)

    # -- how -------------------------------------------------------------------------------------

    async def _ready(self, spec: Spec) -> list[dict[str, Any]]:
        wire_specs = read_wire_specs(spec)
        digests = {
            path: await self.upload_workdir(path) for path in wire_specs.workdirs
        }
        return wire_specs.with_workdirs(digests)

    def _client(self, target: HeadTarget) -> "httpx2.AsyncClient":
        if target.is_tls not in self._http:
            self._http[target.is_tls] = async_http_client(self._where.trust(target))
        return self._http[target.is_tls]

    async def _call(self, call: ApiCall[T]) -> T:
        import httpx2

        for nap in naps(self._where.heads):
            target = self._where.target()
            try:
                answer = await self._client(target).request(
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
                await asyncio.sleep(nap)
                continue
            if answer.status_code == 503 and nap is not None:
                await asyncio.sleep(retry_after(answer.headers.get("Retry-After"), nap))
                continue
            self._where.note(answer.headers)
            if answer.status_code >= 400:
                raise self._where.refusal(answer.status_code, answer.content)
            return call.read(body_of(answer.content))
        raise AssertionError("the last try answers or raises")

    async def _stream(self, stream: Stream[T]) -> AsyncIterator[T]:
        import httpx2

        following = Following(stream)
        given_up = time.monotonic() + STREAM_PATIENCE
        while not following.over:
            target = self._where.target()
            try:
                async with self._client(target).stream(
                    "GET",
                    target.url + stream.path,
                    params=following.query(),
                    headers=headers(target),
                ) as answer:
                    if answer.status_code >= 400 and answer.status_code != 503:
                        raise self._where.refusal(
                            answer.status_code, await answer.aread()
                        )
                    if answer.status_code < 400:
                        async for piece in answer.aiter_raw():
                            given_up = time.monotonic() + STREAM_PATIENCE
                            for value in following.feed(piece):
                                yield value
            except (httpx2.TransportError, WrongHead) as error:
                self._where.pass_over()
                if time.monotonic() > given_up:
                    raise no_answer(target, error) from None
            if not following.over:
                await asyncio.sleep(STREAM_NAP)

    async def _upload_snapshot(self, snapshot: Snapshot) -> None:
        import httpx2

        for heads_left in reversed(range(self._where.heads)):
            target = self._where.target()
            url = f"{target.url}/v1/snapshots/{snapshot.sha256}"
            try:
                response = await self._client(target).head(url, headers=headers(target))
                if response.status_code >= 400 and response.status_code != 404:
                    # a HEAD is refused without a word: the same, asked with a PUT, says
                    # why
                    response = await self._client(target).put(
                        url, content=b"", headers=headers(target)
                    )
                elif response.status_code == 404:
                    response = await self._client(target).put(
                        url,
                        content=_async_pieces(snapshot),
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


async def _async_pieces(snapshot: Snapshot) -> AsyncIterator[bytes]:
    for piece in snapshot.pieces():
        yield piece
