"""The commands stop, suspend and resume: one request for all named jobs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from corral.cli import error_output
from corral.cli.head_options import Change, declined
from corral.cli.lost_work import agreed_to_lose
from corral.cli.printing import clean, note, print_json, say
from corral.domain.units import counted, spans_text

if TYPE_CHECKING:
    from corral.domain.requests import JobChange
    from corral.wire import api

MOST_LINES: Final = 8  # of the jobs of one array: more are one line
MOST_NAMES: Final = 10_000  # of one request


def change_all(jobs: Sequence[str], common: Change, verb: str, to: "JobChange") -> int:
    """Apply the change `to` to all named jobs if the user agrees, and return the exit
    code. Raises: Usage, Conflict."""
    check_named(jobs, verb, verb)
    with common.client() as client:
        question = f"{verb} {', '.join(jobs)}?"
        is_ending = to != "resume"
        agrees = (
            agreed_to_lose(client, jobs, question, common)
            if is_ending
            else common.agreed(question)
        )
        if not agrees:
            raise declined()
        jobs_changed = client.change_jobs(list(dict.fromkeys(jobs)), to)
        if common.json and jobs_changed.jobs:
            alone = jobs_changed.jobs[0].id if len(jobs_changed.jobs) == 1 else None
            rows = {"jobs": [job.model_dump(mode="json") for job in jobs_changed.jobs]}
            print_json(rows if alone is None else client.job(alone))
    if not common.json:
        for line in changed_lines(jobs_changed.jobs):
            say(line)
    return _report_refused(jobs_changed.refused, as_json=common.json)


def go_back(jobs: Sequence[str], step: int, common: Change) -> int:
    """Resume one job from its checkpoint of this step, if the user agrees. Raises: Usage,
    NotFound, Conflict."""
    if len(jobs) != 1:
        raise error_output.Usage(
            "--step is of one job", hint="run: corral resume JOB --step N"
        )
    question = f"resume {jobs[0]} from step {step}, without its newer checkpoints?"
    with common.client() as client:
        if not common.agreed(question):
            raise declined()
        job = client.go_back(jobs[0], step)
    if common.json:
        print_json(job)
    else:
        say(f"{clean(job.name)} ({job.id}) is {job.state}; it goes on from step {step}")
    return error_output.DONE


def check_named(jobs: Sequence[str], verb: str, command: str) -> None:
    """Check the number of named jobs. Raises: Usage if no job is named, or more jobs
    than one request takes."""
    if not jobs:
        hint = f"run: corral {command} JOB; to list the jobs: corral ps"
        raise error_output.Usage(f"name at least one job to {verb}", hint=hint)
    if len(jobs) > MOST_NAMES:
        raise error_output.Usage(
            f"{len(jobs):,} jobs to {verb} are too many: one command allows "
            f"{MOST_NAMES:,}",
            hint="name an array in place of its jobs, or use several commands",
        )


def changed_lines(jobs: "Iterable[api.ChangedJob]") -> Iterator[str]:
    """Yield a line of text for each changed job. Many jobs of one array in the same
    state share one line."""
    groups: dict[tuple[str, str], list[api.ChangedJob]] = {}
    for job in jobs:
        groups.setdefault((job.array or job.id, job.state), []).append(job)
    for (array, state), group in groups.items():
        if len(group) <= MOST_LINES:
            yield from (f"{clean(job.name)} ({job.id}) is {state}" for job in group)
            continue
        name = clean(group[0].name.rpartition("_")[0])
        spans = spans_text(job.array_index or 0 for job in group)
        yield f"{len(group):,} jobs of {name} ({array}) are {state}: {_shortened(spans)}"


def _shortened(spans: str) -> str:
    span_list = spans.split(",")
    hidden_count = len(span_list) - MOST_LINES
    return ", ".join(span_list[:MOST_LINES]) + (
        f" and {counted(hidden_count, 'more index range')}" if hidden_count > 0 else ""
    )


def _report_refused(refused: "Iterable[api.ChangeRefused]", *, as_json: bool) -> int:
    code = error_output.DONE
    for change_refused in refused:
        if change_refused.partly:
            remainder_text = (
                f" (and {len(change_refused.jobs) - 1:,} more of {change_refused.asked})"
                if len(change_refused.jobs) > 1
                else ""
            )
            note(change_refused.message + remainder_text)
        else:
            error_output.tell(
                change_refused.code,
                change_refused.message,
                change_refused.hint,
                as_json=as_json,
            )
            code = error_output.REFUSED
    return code
