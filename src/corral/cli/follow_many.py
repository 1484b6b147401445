"""Output of several jobs at once: their logs and events, each line with the label of
its job."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Any, TypeVar

from corral.cli.head_options import Common
from corral.cli.log_lines import LogLinePrinter
from corral.cli.printing import note

if TYPE_CHECKING:
    from corral.client import AsyncClient
    from corral.wire import api

# jobs that are looked at together; nothing of a later one is lost until its turn
AT_ONCE = 32
T = TypeVar("T")


def each(
    common: Common,
    jobs: "Sequence[api.JobView]",
    work: "Callable[[AsyncClient, api.JobView], Awaitable[T]]",
) -> list[T]:
    """Run `work` for each job, many jobs at a time, and return the results in the order
    of the jobs."""

    async def all_of_them() -> list[T]:
        turn = asyncio.Semaphore(AT_ONCE)
        async with common.async_client() as client:

            async def one(job: "api.JobView") -> T:
                async with turn:
                    return await work(client, job)

            return await asyncio.gather(*map(one, jobs))

    return asyncio.run(all_of_them())


def names_of(jobs: "Sequence[api.JobView]") -> Mapping[str, str]:
    """Return the label of each job by its id: the job's name, followed by the id if
    several jobs have the name."""
    names = Counter(job.name for job in jobs)
    return {
        job.id: job.name if names[job.name] == 1 else f"{job.name} {job.id}"
        for job in jobs
    }


def indices_of(jobs: "Sequence[api.JobView]") -> Mapping[str, str]:
    """Return the label of each job by its id: the array index if all jobs belong to one
    array; else as `names_of` does."""
    if len({job.array for job in jobs}) > 1:
        return names_of(jobs)
    return {job.id: str(job.array_index) for job in jobs}


def follow_each(
    common: Common, jobs: "Sequence[api.JobView]", out: IO[str]
) -> "list[api.JobDetail]":
    """Print logs on `out` and events on stderr as they arrive, until all jobs are over.
    Returns: the jobs."""
    labels = names_of(jobs)

    async def follow(client: "AsyncClient", job: "api.JobView") -> "api.JobDetail":
        await asyncio.gather(
            print_logs(client, job, out, labels[job.id], follow=True),
            _note_events(client, job, labels[job.id]),
        )
        return await client.job(job.id)

    return each(common, jobs, follow)


async def print_logs(
    client: "AsyncClient",
    job: "api.JobView",
    out: IO[str],
    label: str,
    *,
    raw: bool = False,
    **asked: Any,
) -> None:
    """Print the logs of one job in whole lines, so that lines of several jobs can
    alternate."""
    ranks = await client.job(job.id)
    several = ranks.per == "gpu" or ranks.shape.nodes > 1
    label_ranks, times = (
        several and asked.get("rank") is None,
        asked.get("times", False),
    )
    lines = LogLinePrinter(out, label=label_ranks, job=label, raw=raw, times=times)
    async for piece in client.logs(job.id, **asked):
        lines.write(piece)
    lines.finish()


async def _note_events(client: "AsyncClient", job: "api.JobView", label: str) -> None:
    async for event in client.events(job.id, follow=True):
        note(f"[{label}] {event.text}")
