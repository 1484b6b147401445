"""Routes of a job's kept logs: a range, a search, and the whole file."""

import re
from collections.abc import AsyncIterator, Sequence
from typing import Annotated, Final, NamedTuple

from fastapi import APIRouter, Query, Request
from starlette.responses import Response, StreamingResponse

from corral.api.app_state import House
from corral.api.auth import caller_of
from corral.api.errors import RequestInvalid
from corral.api.job_lookup import find_job
from corral.api.jobs import Within
from corral.api.log_ranges import (
    MOST_RANGE_BYTES,
    SEARCH_BYTES,
    pieces,
    range_of,
    ranks_from,
)
from corral.api.log_ranges import search as search_log
from corral.domain.errors import NotFound
from corral.domain.ids import AttemptNumber
from corral.domain.job import Job
from corral.wire.logs import LogMatch, LogMatches, LogRange

router = APIRouter()
RANGE_BYTES: Final = 128 * 1024
MOST_MATCHES: Final = 500
_NEXT: Final = re.compile(r"(\d{1,9}):(\d{1,15})", re.ASCII)
Rank = Annotated[int, Query(ge=0, le=10**6)]
Attempt = Annotated[int | None, Query(ge=1, le=10**6)]
Place = Annotated[int | None, Query(ge=0, lt=10**15)]


class KeptLogRanks(NamedTuple):
    """An attempt of a job, and the ranks of it whose logs are kept."""

    job: Job
    attempt: AttemptNumber
    ranks: Sequence[int]


async def _find_readable_logs(
    request: Request, house: House, name: str, attempt: int | None
) -> KeptLogRanks:
    """Return the attempt whose log the caller may read, and record this access in the
    audit log.

    Raises: NotFound, Forbidden.
    """
    caller = caller_of(request)
    job = await find_job(house.control, name, caller)
    caller.check_job(job, f"the log of {job.spec.name}")
    if attempt is not None and attempt > max(1, job.attempt):
        raise NotFound("attempt", str(attempt), see=f"corral show {job.id}")
    await house.reads.note(caller, job)
    number = AttemptNumber(attempt or max(1, job.attempt))
    return KeptLogRanks(job, number, house.keeper.ranks(job.id, number))


@router.get("/v1/jobs/{job}/logs/range")
async def log_range(
    request: Request,
    job: str,
    house: Within,
    rank: Rank = 0,
    attempt: Attempt = None,
    before: Place = None,
    after: Place = None,
    size: Annotated[int, Query(ge=1, le=MOST_RANGE_BYTES)] = RANGE_BYTES,
    times: bool = False,
) -> LogRange:
    """Return at most `size` bytes of one rank's log, from the beginning of a line: the
    bytes before the position `before`, those from the position `after` on, or the
    newest. With `times`, also return when each line reached the head."""
    # whose it is goes before what is asked
    kept_range = await _find_readable_logs(request, house, job, attempt)
    if before is not None and after is not None:
        raise RequestInvalid(
            "`before` and `after` cannot be combined", hint="send only one of them"
        )
    key, keeper = (kept_range.job.id, kept_range.attempt, rank), house.keeper
    oldest, newest_offset = keeper.oldest(key), keeper.end(key)
    end_offset = newest_offset if before is None else min(before, newest_offset)
    begin = end_offset - size if after is None else after
    begin = min(max(begin, oldest), newest_offset)
    end_offset = max(begin, min(end_offset, begin + size))
    log_slice = await range_of(keeper, key, begin, end_offset)
    return LogRange(
        rank=rank,
        attempt=kept_range.attempt,
        begin=log_slice.begin,
        end=log_slice.begin + len(log_slice.data),
        oldest=oldest,
        newest=newest_offset,
        data=log_slice.data.decode(errors="replace"),
        times=keeper.times(key, log_slice.begin, log_slice.data) if times else [],
    )


@router.get("/v1/jobs/{job}/logs/search")
async def log_search(
    request: Request,
    job: str,
    house: Within,
    text: Annotated[str, Query(max_length=200)] = "",
    rank: Annotated[int | None, Query(ge=0, le=10**6)] = None,
    attempt: Attempt = None,
    after: Annotated[str, Query(max_length=30)] = "",
    limit: Annotated[int, Query(ge=1, le=MOST_MATCHES)] = 100,
) -> LogMatches:
    """Return the lines of an attempt's log that contain the text, ignoring case, of all
    ranks or of one rank. A search reads at most 64 MiB: to continue it, send `next` of
    the answer as `after`."""
    # whose it is goes before what is asked
    kept_range = await _find_readable_logs(request, house, job, attempt)
    if not text:
        raise RequestInvalid(
            "the parameter `text`, the text to search for, is missing or empty",
            hint="send `text`",
        )
    begin = _parse_search_cursor(after)
    ranks = kept_range.ranks if rank is None else sorted({rank} & set(kept_range.ranks))
    matches: list[LogMatch] = []
    searched, resume = 0, ""
    async with house.searches.turn(caller_of(request).name):
        for shown_rank, start_offset in ranks_from(ranks, begin):
            key = (kept_range.job.id, kept_range.attempt, shown_rank)
            room, bytes_left = limit - len(matches), SEARCH_BYTES - searched
            if room < 1 or bytes_left < 1:
                resume = f"{shown_rank}:{start_offset}"
                break
            search_start = max(start_offset, house.keeper.oldest(key))
            result = await search_log(
                house.keeper,
                key,
                text,
                place=start_offset,
                limit=room,
                most_bytes=bytes_left,
            )
            matches += [
                LogMatch(rank=shown_rank, place=match_offset, line=line)
                for match_offset, line, _ in result.found
            ]
            searched += max(0, result.place - search_start)
            if result.place < house.keeper.end(key):
                resume = f"{shown_rank}:{result.place}"
                break
    return LogMatches(
        attempt=kept_range.attempt,
        matches=matches,
        searched_bytes=searched,
        next=resume,
    )


def _parse_search_cursor(after: str) -> tuple[int, int] | None:
    """Parse the position where an earlier search stopped: return its rank and place;
    None for a new search. Raises: RequestInvalid."""
    if not after:
        return None
    match = _NEXT.fullmatch(after)
    if match is None:
        raise RequestInvalid(
            f"`after`: {after!r} is not a position of a search",
            hint="send the value of `next` in the previous answer",
        )
    return int(match[1]), int(match[2])


@router.get("/v1/jobs/{job}/logs/file", response_class=Response)
async def log_file(
    request: Request,
    job: str,
    house: Within,
    rank: Annotated[int | None, Query(ge=0, le=10**6)] = None,
    attempt: Attempt = None,
) -> Response:
    """Return the kept log of an attempt as a file: of one rank, or of every rank, each
    below a line with its number."""
    kept_range = await _find_readable_logs(request, house, job, attempt)
    ranks = kept_range.ranks if rank is None else sorted({rank} & set(kept_range.ranks))
    rank_suffix = "" if rank is None else f".rank-{rank}"
    name = f"{kept_range.job.id}.{kept_range.attempt}{rank_suffix}.log"
    return StreamingResponse(
        _stream_full_log(
            house, kept_range, ranks, headed=rank is None and len(ranks) > 1
        ),
        media_type="text/plain; charset=utf-8",
        headers={
            "Content-Disposition": f'attachment; filename="{name}"',
            "Cache-Control": "no-store",
        },
    )


async def _stream_full_log(
    house: House, kept: KeptLogRanks, ranks: Sequence[int], *, headed: bool
) -> AsyncIterator[bytes]:
    for rank in ranks:
        key = (kept.job.id, kept.attempt, rank)
        if headed:
            yield f"==> rank {rank} <==\n".encode()
        keeper = house.keeper
        async for log_slice in pieces(keeper, key, keeper.oldest(key), keeper.end(key)):
            yield log_slice.data
