"""Output methods of `AsyncClient`. They are in a separate module because plain commands
do not import asyncio."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from concurrent.futures import CancelledError, Future
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from corral.client.api_calls import ApiCall
from corral.client.head_proof import was_refused
from corral.client.head_target import Where, no_answer
from corral.client.output_calls import address_of, cut_short, outputs, query_of, stacks
from corral.client.output_files import Fetched, write_outputs
from corral.client.request_rules import headers, naps
from corral.domain.errors import WrongHead

if TYPE_CHECKING:
    import httpx2

    from corral.client.head_target import HeadTarget
    from corral.wire import output_answers, stack_answers

T = TypeVar("T")


class AsyncOutputs:
    """Methods of `AsyncClient` that list and fetch outputs."""

    _where: Where

    async def _call(self, call: ApiCall[T]) -> T:
        raise NotImplementedError

    def _client(self, target: "HeadTarget") -> "httpx2.AsyncClient":
        raise NotImplementedError

    async def outputs(
        self, job: str, *, attempt: int | None = None, wait: float | None = None
    ) -> "output_answers.Outputs":
        """Return the outputs of a job's attempt, as `Client.outputs` does."""
        return await self._call(outputs(job, attempt, wait))

    async def stacks(
        self, job: str, *, rank: int | None = None
    ) -> "stack_answers.Stacks":
        """Return the stacks of a running job, as `Client.stacks` does."""
        return await self._call(stacks(job, rank))

    async def fetch(
        self,
        job: str,
        path: str,
        to: str | Path,
        *,
        attempt: int | None = None,
        node: str | None = None,
        rank: int | None = None,
    ) -> Fetched:
        """Copy a file or folder of the job to this machine, as `Client.fetch` does. A
        thread outside the event loop writes the files."""
        import httpx2

        async with AsyncExitStack() as stack:
            query = query_of(path, attempt, node, rank)
            answer = await self._begun(stack, address_of(job), query)
            pieces = LoopPieces(answer.aiter_raw(), asyncio.get_running_loop())
            writing = asyncio.ensure_future(
                asyncio.to_thread(write_outputs, pieces, path, Path(to))
            )
            try:
                return await asyncio.shield(writing)
            except httpx2.TransportError as error:
                raise cut_short(job, path, error) from None
            finally:
                pieces.stop()
                await asyncio.wait([writing])

    async def _begun(
        self, stack: AsyncExitStack, path: str, query: Mapping[str, Any]
    ) -> "httpx2.Response":
        """Send a GET request. Return the response, with its body still to read, of the
        first head that answers."""
        import httpx2

        for nap in naps(self._where.heads):
            target = self._where.target()
            try:
                answer = await stack.enter_async_context(
                    self._client(target).stream(
                        "GET", target.url + path, params=query, headers=headers(target)
                    )
                )
            except (httpx2.TransportError, WrongHead) as error:
                self._where.pass_over()
                if nap is None or was_refused(error):
                    raise no_answer(target, error) from None
                continue
            if answer.status_code >= 400:
                raise self._where.refusal(answer.status_code, await answer.aread())
            return answer
        raise AssertionError("the last try answers or raises")


class LoopPieces:
    """An iterator over the pieces of a stream for a thread, while an event loop
    receives the pieces."""

    def __init__(
        self, pieces: AsyncIterator[bytes], loop: asyncio.AbstractEventLoop
    ) -> None:
        self._pieces = pieces
        self._loop = loop
        self._pending: Future[bytes | None] | None = None
        self._stopped = False

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> bytes:
        """Return the next piece of the stream.

        Raises: CancelledError after `stop`; the errors of the stream.
        """
        self._pending = asyncio.run_coroutine_threadsafe(self._next(), self._loop)
        piece = self._pending.result()
        if piece is None:
            raise StopIteration
        return piece

    def stop(self) -> None:
        """Let the thread end without the remaining pieces. Call it in the event loop."""
        self._stopped = True
        if self._pending is not None:
            self._pending.cancel()

    async def _next(self) -> bytes | None:
        if self._stopped:
            raise CancelledError
        return await anext(self._pieces, None)
