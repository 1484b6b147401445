"""Delivery of new events to readers that wait for them, at once. A slow reader does not
delay the others: it is notified that it has missed events."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import Final

from corral.domain.ids import JobId
from corral.domain.world import Event

LONGEST_QUEUE: Final = 10_000


class Hub:
    """Passes committed events to their readers in the head's process."""

    def __init__(self) -> None:
        self._followers: set[tuple[JobId | None, asyncio.Queue[Event | None]]] = set()

    @asynccontextmanager
    async def follow(
        self, job: JobId | None
    ) -> AsyncIterator[asyncio.Queue[Event | None]]:
        """Yield a queue of the events from now on, of one job or of all jobs.

        None in the queue means that the reader is behind: it must read the store from
        the last event number that it has.
        """
        follower = (job, asyncio.Queue[Event | None](LONGEST_QUEUE))
        self._followers.add(follower)
        try:
            yield follower[1]
        finally:
            self._followers.discard(follower)

    def publish(self, events: Iterable[Event]) -> None:
        for event in events:
            for job, queue in self._followers:
                if job is None or job == event.job:
                    _enqueue_event(queue, event)

    def lost(self) -> None:
        """Notify all readers that they may have missed events: events may have been
        committed that were never published."""
        for _, queue in self._followers:
            _enqueue_event(queue, None)


def _enqueue_event(queue: asyncio.Queue[Event | None], event: Event | None) -> None:
    if queue.qsize() < LONGEST_QUEUE - 1:
        queue.put_nowait(event)
    elif not queue.full():
        queue.put_nowait(None)
