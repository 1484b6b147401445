"""Events and logs as server-sent events: they are pushed, a client can resume them, and
a slow client slows only its own stream."""

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from pydantic import BaseModel
from starlette.responses import StreamingResponse

from corral.api.auth import Caller
from corral.api.errors import RequestInvalid
from corral.api.job_visibility import seen_events, sight_of
from corral.api.kept_logs import NOTICE, LogKeeper, RankKey, whole_characters
from corral.control import Control
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job import Job
from corral.domain.job_states import FINAL
from corral.wire import api

HEARTBEAT_SECONDS: Final = 10.0
LAST_BYTES_SECONDS: Final = 10.0  # that an ended job's log is waited for
PAGE: Final = 1000
PIECE_BYTES: Final = 64 * 1024
HEARTBEAT: Final = b": the head is there\n\n"
_PLACE: Final = re.compile(r"(\d{1,9}):(\d{1,9}):(\d{1,15})", re.ASCII)


def response(stream: AsyncIterator[bytes]) -> StreamingResponse:
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(stream, media_type="text/event-stream", headers=headers)


def _encode_event(value: BaseModel, id: str = "", kind: str = "") -> bytes:
    head = f"event: {kind}\n" if kind else ""
    head += f"id: {id}\n" if id else ""
    return f"{head}data: {value.model_dump_json()}\n\n".encode(errors="replace")


async def follow_events(
    control: Control, job: JobId | None, after: int, caller: Caller
) -> AsyncIterator[bytes]:
    """Yield every event with a number above `after` that the caller may see, as it is
    committed. The stream of one job ends when the job ends."""
    async with control.hub.follow(job) as news:
        yield HEARTBEAT
        behind = True
        while True:
            while behind and (
                page := await control.store.events(after=after, job=job, limit=PAGE)
            ):
                for event in await seen_events(
                    control, sight_of(control, caller), page
                ):
                    yield _encode_event(api.EventView.of(event), id=str(event.number))
                after = page[-1].number
            behind = False
            state = control.world.state_of(job) if job else None
            if state in FINAL and news.empty():
                yield _encode_event(api.LogLines(end=state), kind="end")
                return
            try:
                async with asyncio.timeout(HEARTBEAT_SECONDS):
                    new_event = await news.get()
            except TimeoutError:
                yield HEARTBEAT
                continue
            behind = new_event is None
            if new_event is not None and new_event.number > after:
                after = new_event.number
                for event in await seen_events(
                    control, sight_of(control, caller), [new_event]
                ):
                    yield _encode_event(api.EventView.of(event), id=str(after))


def _rotated_notice(rank: int, attempt: int, asked: int, place: int) -> api.LogLines:
    """Return a log line that stands for bytes which log rotation removed before they
    were sent: those from `asked` to `place`."""
    notice = (
        f"[corral] {place - asked:,} bytes of this log are no longer kept; newer output "
        "follows\n"
    )
    return api.LogLines(
        rank=rank, attempt=attempt, data=f"\n{notice}" if asked else notice
    )


def places_of(text: str) -> dict[tuple[int, int], int]:
    """Parse positions in logs: return {(attempt, rank): place} from "1:0:345,1:1:99".
    Raises: RequestInvalid."""
    places = {}
    for cursor_text in filter(None, text.split(",")):
        match = _PLACE.fullmatch(cursor_text)
        if match is None:
            raise RequestInvalid(
                f"{cursor_text[:60]!r} is not a position in a log (ATTEMPT:RANK:BYTE)",
                hint="send the ids of the events of the log's stream, for example 1:0:345",
            )
        attempt, rank, byte_offset = map(int, match.groups())
        places[attempt, rank] = byte_offset
    return places


@dataclass(slots=True, kw_only=True)
class LogStream:
    """One client's stream of a job's logs. `rank` None: every rank; `attempt` None: the
    newest attempt and all that follow it. `places`: the next position to send, by
    attempt and rank."""

    control: Control
    keeper: LogKeeper
    job: Job
    is_connected: Callable[[NodeId], bool]
    rank: int | None = None
    attempt: int | None = None
    tail: int | None = None
    follow: bool = False
    times: bool = False
    places: dict[tuple[int, int], int] = field(default_factory=dict)

    async def run(self) -> AsyncIterator[bytes]:
        """Yield the log as server-sent events; the last event holds the job's state."""
        first_attempt = self._first_attempt()
        with self.keeper.bell(self.job.id) as bell:
            async with self._ring_on_events(bell):
                yield HEARTBEAT
                async for piece in self._follow_bytes(bell, first_attempt):
                    yield piece
        for piece in self._pieces(first_attempt, last=True):
            yield piece
        yield _encode_event(api.LogLines(end=self.job.state))

    async def _follow_bytes(
        self, bell: asyncio.Event, first: int
    ) -> AsyncIterator[bytes]:
        """Yield all available log bytes from the attempt `first` on. With `follow`,
        wait for more until the job is over and its last bytes have arrived. `bell` is
        set when there is news."""
        give_up_at: float | None = None
        while True:
            bell.clear()
            await self._reload_job()
            for piece in self._pieces(first, last=False):
                yield piece
            if not self.follow:
                return
            if self.job.is_final:
                now = self.control.clock.monotonic()
                give_up_at = give_up_at or now + LAST_BYTES_SECONDS
                if now >= give_up_at or self._is_complete():
                    return
            try:
                async with asyncio.timeout(0.05 if give_up_at else HEARTBEAT_SECONDS):
                    await bell.wait()
            except TimeoutError:
                yield HEARTBEAT

    def _first_attempt(self) -> int:
        if self.attempt is not None:
            return self.attempt
        attempt_numbers = [attempt for attempt, _ in self.places]
        return min(attempt_numbers, default=max(1, self.job.attempt))

    def _attempts(self, first: int) -> Sequence[int]:
        return (
            [first] if self.attempt is not None else range(first, self.job.attempt + 1)
        )

    async def _reload_job(self) -> None:
        """Update the job to its current state, from the head's memory or else from the
        store."""
        job = self.control.world.jobs.get(self.job.id)
        if job is None and not self.job.is_final:
            job = await self.control.store.job(self.job.id)
        self.job = job or self.job

    def _pieces(self, first: int, *, last: bool) -> Iterator[bytes]:
        """Yield all kept bytes that have not been sent, from the attempt `first` on.
        With `last`, also send an incomplete character at the end."""
        for attempt in self._attempts(first):
            ranks = self.keeper.ranks(self.job.id, AttemptNumber(attempt))
            for rank in ranks if self.rank is None else {self.rank} & set(ranks):
                key = (self.job.id, AttemptNumber(attempt), rank)
                yield from self._pieces_of(key, last)

    def _pieces_of(self, key: RankKey, last: bool) -> Iterator[bytes]:
        _, attempt, rank = key
        byte_offset = self.places.get((attempt, rank))
        if byte_offset is None:
            byte_offset = 0 if self.tail is None else self.keeper.tail(key, self.tail)
            self.places[attempt, rank] = byte_offset
        end_offset = self.keeper.end(key)  # then it is the other ranks' turn
        with self.keeper.reading(key) as reading:
            while byte_offset < end_offset:
                asked_place = byte_offset
                byte_offset, data = reading.read(asked_place, PIECE_BYTES)
                if byte_offset > asked_place and not data.startswith(NOTICE):
                    begun = data.find(b"\n") + 1  # from a whole line on
                    byte_offset, data = byte_offset + begun, data[begun:]
                    yield _encode_event(
                        _rotated_notice(rank, attempt, asked_place, byte_offset),
                        id=f"{attempt}:{rank}:{byte_offset}",
                    )
                complete_bytes = (
                    len(data)
                    if last and len(data) < PIECE_BYTES
                    else whole_characters(data)
                )
                self.places[attempt, rank] = byte_offset + complete_bytes
                if not complete_bytes:
                    return
                text = data[:complete_bytes].decode(errors="replace")
                times = (
                    self.keeper.times(key, byte_offset, data[:complete_bytes])
                    if self.times
                    else []
                )
                byte_offset += complete_bytes
                lines = api.LogLines(rank=rank, attempt=attempt, data=text, times=times)
                yield _encode_event(lines, id=f"{attempt}:{rank}:{byte_offset}")

    def _is_complete(self) -> bool:
        """Return whether all logs of the newest attempt have arrived. They have not
        while a connected agent still reports the attempt."""
        key = (self.job.id, self.job.attempt)
        for heard in self.control.facts.nodes.values():
            if any(
                seen_attempt.key == key for seen_attempt in heard.seen
            ) and self.is_connected(heard.node):
                return False
        return True

    @contextlib.asynccontextmanager
    async def _ring_on_events(self, bell: asyncio.Event) -> AsyncIterator[None]:
        """Set `bell` at each event of the job, such as a new attempt or the job's end,
        while the body runs."""
        async with self.control.hub.follow(self.job.id) as news:

            async def ring() -> None:
                while True:
                    await news.get()
                    bell.set()

            ringing = asyncio.create_task(ring())
            try:
                yield
            finally:
                ringing.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await ringing
