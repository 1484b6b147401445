"""Output for a whole array: its jobs as a table, one reason for each group of similar
jobs, and the events and saves of all its jobs together."""

import re
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from corral.cli.head_options import Common
from corral.cli.job_row import time_of, where_or_why
from corral.cli.printing import (
    age_text,
    clean,
    clock_text,
    cut,
    note,
    print_json,
    say,
    show_pairs,
    show_table,
    state,
    table,
)
from corral.cli.submission_plan import given_up_text, instead_text, shape_text
from corral.domain.errors import Conflict, NotFound
from corral.domain.units import counted

if TYPE_CHECKING:
    from corral.client import AsyncClient, Client
    from corral.wire import api

T = TypeVar("T")
MOST_INDICES = 8  # spans of indices that a line names


def found(
    client: "Client", job: str, call: Callable[[str], T]
) -> "T | list[api.JobView]":
    """Return the answer of `call` for one job. For an array, named by its id (j9) or by
    the name of the newest array (sweep), return its jobs by index. Raises: NotFound."""
    try:
        found_one = call(job)
        if owner_text := getattr(found_one, "whose", ""):
            note(owner_text)
        return found_one
    except NotFound:
        array_jobs = client.array(job, everything=True)
        if not array_jobs:
            raise
        return array_jobs


def members(client: "Client", job: str) -> list[str]:
    """Return the ids of the jobs that a change of `job` affects: the unfinished jobs of
    an array, or the one job of that id or name.

    Raises: NotFound; Conflict when all jobs of an array are over.
    """
    found_job = found(client, job, client.job)
    if not isinstance(found_job, list) and not found_job.is_over:
        return [job]
    unfinished_ids = [array_job.id for array_job in client.array(job)]
    if not unfinished_ids and isinstance(found_job, list):
        raise Conflict(
            f"all jobs of {job} have already ended", hint=f"run: corral show {job}"
        )
    return unfinished_ids or [job]


def name_of(jobs: "Sequence[api.JobView]") -> str:
    return jobs[0].name.rpartition("_")[0]


def show_array(jobs: "Sequence[api.JobView]", now: float, common: Common) -> None:
    """Print an array, one line for each index. `now` in seconds since 1970."""
    if common.json:
        print_json({"jobs": [job.model_dump(mode="json") for job in jobs]})
        return
    counts = Counter(job.state for job in jobs)
    show_pairs(
        [
            ("array", f"{name_of(jobs)} ({jobs[0].array})"),
            (
                "jobs",
                ", ".join(
                    f"{count} {state_name}" for state_name, count in counts.items()
                ),
            ),
            (
                "owner",
                f"{jobs[0].owner}, queue {jobs[0].queue}, priority {jobs[0].priority}",
            ),
            ("asks for", f"{shape_text(jobs[0].shape)}, each job"),
        ]
    )
    say()
    columns = ("INDEX", "ID", "STATE", "TRIES", "TIME", "WHERE OR WHY")
    rows = table(*columns, right=("INDEX", "TRIES", "TIME"))
    for job in jobs:
        rows.add_row(
            str(job.array_index),
            job.id,
            state(job.state),
            str(job.attempt),
            age_text(time_of(job, now)),
            cut(where_or_why(job)),
        )
    show_table(rows)


def why_array(client: "Client", jobs: "Sequence[api.JobView]", common: Common) -> None:
    """Print one reason for each group of jobs with the same state and the same kind of
    reason."""
    groups: dict[tuple[str, str], list[api.JobView]] = {}
    for job in jobs:
        groups.setdefault((job.state, job.reason_code), []).append(job)
    alone = sum(not job.is_over for job in jobs)
    rows_by_part = [
        (group, _of_array(answer, group[0]) if len(group) == alone else answer)
        for group in groups.values()
        for answer in [client.why(group[0].id)]
    ]
    if common.json:
        print_json(
            {
                "groups": [
                    {
                        **answer.model_dump(mode="json"),
                        "jobs": [job.id for job in group],
                    }
                    for group, answer in rows_by_part
                ]
            }
        )
        return
    name = name_of(jobs)
    for group, explanation in rows_by_part:
        alike = len({job.reason for job in group}) == 1
        of = "" if alike else f"{group[0].array_index}: "
        reason = f": {of}{clean(explanation.reason)}" if explanation.reason else ""
        verb = "is" if len(group) == 1 else "are"
        say(f"{name} {spans_of(group)} {verb} {explanation.state}{reason}")
        say_sooner(explanation)


def _of_array(found: "api.Why", job: "api.JobView") -> "api.Why":
    """Return the explanation with the array's id in place of the job's id in its
    suggested commands. It then advises on all unfinished jobs of the array, which have
    the same reason."""
    advised = [
        re.sub(rf"\b{re.escape(job.id)}\b", job.array or job.id, suggestion)
        for suggestion in found.suggestions
    ]
    return found.model_copy(update={"suggestions": advised})


def say_sooner(found: "api.Why") -> None:
    """Print a job's place in its queue, whose GPUs it borrows, when it is expected to
    start and end, and what would let it start sooner."""
    if line := line_text(found):
        say(f"  {line}")
    if found.assumed:
        say(
            "  its queue starts the shortest jobs first; assumed run time: "
            f"{found.assumed}"
        )
    if found.holders:
        say(f"  {clean(found.holders)}")
    if found.lent:
        say(f"  {clean(found.lent)}")
    if found.forecast is not None:
        say(f"  it {when_text(found.forecast)}")
    if found.ending is not None:
        say(f"  it {end_text(found.ending)}")
    for suggestion in found.suggestions:
        say(f"  {clean(suggestion)}")
    for change_suggestion_view in (
        found.forecast.instead if found.forecast is not None else ()
    ):
        say(f"  {clean(instead_text(change_suggestion_view))}")


def line_text(found: "api.Why") -> str:
    """Return the place of a job in its queue. For example: it is number 2 of 3 in line;
    Slurm's reason code: Resources."""
    place_text = (
        f"it is number {found.place} of {found.waiting} in line" if found.place else ""
    )
    slurm = f"Slurm's reason code: {found.slurm}" if found.slurm else ""
    return "; ".join(filter(None, (place_text, slurm)))


def end_text(ending: "api.ExpectedEndView") -> str:
    """Return when a job is expected to end. For example: ends in 5 to 9 min (80 %
    likely), judging by 12 similar jobs; by its time limit at 14:05."""
    limit_text = (
        f"by its time limit at {clock_text(ending.ends_by)}"
        if ending.ends_by is not None
        else ""
    )
    if ending.text:
        return "; ".join(filter(None, (ending.text, limit_text)))
    if limit_text:
        return f"ends {limit_text} at the latest"
    return (
        "has no time limit, and no similar job has ended: its end cannot be estimated"
    )


def when_text(forecast: "api.StartForecastView") -> str:
    """Return when a job is expected to start and end. For example: starts in 12 to 40
    min (80 % likely; 83 % of the last 200 forecasts were right), and ends in 1 to 3 h."""
    if forecast.is_too_late:
        return f"{given_up_text(forecast)}: {forecast.text}"
    clauses = (
        f"starts {forecast.text}, and ends {forecast.ends.text}",
        given_up_text(forecast),
    )
    return "; ".join(filter(None, clauses))


def spans_of(jobs: "Sequence[api.JobView]") -> str:
    """Return the array indices of the jobs as text, for example: 0-7, 9, 12-15."""
    spans: list[list[int]] = []
    for index in sorted(job.array_index or 0 for job in jobs):
        if spans and spans[-1][1] + 1 == index:
            spans[-1][1] = index
        else:
            spans.append([index, index])
    texts = [
        str(first_index) if first_index == last_index else f"{first_index}-{last_index}"
        for first_index, last_index in spans
    ]
    surplus_text = (
        f" and {counted(len(texts) - MOST_INDICES, 'more index range')}"
        if len(texts) > MOST_INDICES
        else ""
    )
    return ", ".join(texts[:MOST_INDICES]) + surplus_text


def print_logs_of(
    common: Common,
    jobs: "Sequence[api.JobView]",
    *,
    follow: bool,
    rank: int | None,
    attempt: int | None,
    tail: int | None,
    times: bool = False,
    raw: bool = False,
) -> None:
    """Print the logs of the jobs: with `follow` as lines arrive, else one index after
    the other."""
    from corral.cli.follow_many import each, indices_of, print_logs

    labels = indices_of(jobs)

    async def one(client: "AsyncClient", job: "api.JobView") -> None:
        options = {
            "follow": follow,
            "rank": rank,
            "attempt": attempt,
            "tail": tail,
            "times": times,
        }
        if common.json:
            await _json_logs(client, job, **options)
        else:
            await print_logs(
                client, job, sys.stdout, labels[job.id], raw=raw, **options
            )

    if follow:
        each(common, jobs, one)
    else:
        for job in jobs:
            each(common, [job], one)


async def _json_logs(
    client: "AsyncClient", job: "api.JobView", **asked: object
) -> None:
    import json

    async for piece in client.logs(job.id, **asked):  # type: ignore[arg-type]
        line = {"job": job.id, **piece.model_dump(mode="json")}
        print(json.dumps(line, ensure_ascii=False), flush=True)


def events_of(
    common: Common,
    jobs: "Sequence[api.JobView]",
    tell: "Callable[[api.EventView], None]",
    *,
    follow: bool,
    after: int,
) -> "list[api.EventView]":
    """Return the events of the jobs with a number above `after`, in order.

    With `follow`, pass each event to `tell` as it happens, until all jobs are over, and
    return an empty list.
    """
    from corral.cli.follow_many import each

    async def one(client: "AsyncClient", job: "api.JobView") -> "list[api.EventView]":
        kept_jobs = []
        async for event in client.events(job.id, after=after, follow=follow):
            if follow:
                tell(event)
            else:
                kept_jobs.append(event)
        return kept_jobs

    events = [event for of_job in each(common, jobs, one) for event in of_job]
    return sorted(events, key=lambda event: event.number)


def checkpoints_of(
    common: Common, jobs: "Sequence[api.JobView]"
) -> "list[tuple[str, api.CheckpointView]]":
    """Return every recorded save of the jobs, each with the id of its job."""
    from corral.cli.follow_many import each

    async def one(
        client: "AsyncClient", job: "api.JobView"
    ) -> "list[tuple[str, api.CheckpointView]]":
        return [(job.id, save) for save in await client.checkpoints(job.id)]

    return [pair for of_job in each(common, jobs, one) for pair in of_job]
