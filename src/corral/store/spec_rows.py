"""Storage of the large fields of specs in rows of their own: written with the
submission, read with its jobs."""

from collections.abc import Iterable
from collections.abc import Sequence as Seq
from dataclasses import replace
from typing import Final

from sqlalchemy import Connection, bindparam, cast, delete, exists, select

from corral.domain.errors import StoreTrouble
from corral.domain.ids import JobId, Sequence, UserName, sequence_of
from corral.domain.job import Job
from corral.domain.requests import Submit
from corral.domain.spec_content import SpecContent, with_content, without_content
from corral.store import row_codec
from corral.store.schema import INTEGER, head, jobs, specs
from corral.store.sql_dialects import Put, StatementBatch, texts_of
from corral.store.submissions import Submission, unfolded

Contents = dict[tuple[int, int], SpecContent]  # by submission and number
_ADD: Final = Put(specs)
_named: Final = texts_of(bindparam("submitted")).table_valued("value")
_SUBMITTED: Final = select(cast(_named.c.value, INTEGER))
_OF_SUBMISSIONS: Final = select(
    specs.c.submitted, specs.c.number, specs.c.record, specs.c.crc
).where(specs.c.submitted.in_(_SUBMITTED))
_HAS_JOBS: Final = exists().where(jobs.c.submitted == specs.c.submitted)
_FORGET: Final = delete(specs).where(specs.c.submitted.in_(_SUBMITTED), ~_HAS_JOBS)
_FORGET_UNMADE: Final = delete(specs).where(
    specs.c.submitted <= select(head.c.granted).scalar_subquery(), ~_HAS_JOBS
)


def add(
    batch: StatementBatch,
    sequence: Sequence,
    owner: UserName,
    contents: Seq[SpecContent],
) -> None:
    """Write the large fields (`contents`) of a submission to rows."""
    rows = []
    for number, content in enumerate(contents):
        record, crc = row_codec.write_content(content)
        key = dict(submitted=sequence, number=number, owner=owner)
        rows.append(dict(**key, bytes=len(record.encode()), record=record, crc=crc))
    batch.put(_ADD, rows)


def forget(batch: StatementBatch, forgotten: Iterable[JobId]) -> None:
    """Remove the large fields of submissions of which no job is left."""
    submitted = {sequence_of(job) for job in forgotten}
    batch.run(_FORGET, {"submitted": row_codec.text_of(submitted)})


def forget_unmade(connection: Connection) -> None:
    """Delete the large fields of submissions that were acknowledged, but created no
    job."""
    connection.execute(_FORGET_UNMADE)


def stored(job: Job) -> Job:
    """Return the job without its large fields, as it is stored in its own record."""
    number = job.spec.content_number
    return (
        job if number is None else replace(job, spec=without_content(job.spec, number))
    )


def whole(connection: Connection, found: list[Job]) -> list[Job]:
    """Return the jobs with their large fields, which jobs of one submission share. The
    given jobs have none.

    Raises: StoreTrouble when a record is missing or damaged.
    """
    needed = {job.submitted for job in found if job.spec.content_number is not None}
    if not needed:
        return found
    contents = _read_contents(connection, needed)
    return [_with_content(job, contents) for job in found]


def _with_content(job: Job, contents: Contents) -> Job:
    number = job.spec.content_number
    if number is None:
        return job
    content = contents.get((job.submitted, number))
    if content is None:
        raise StoreTrouble(
            f"the spec of job {job.id} is missing in the store", hint=row_codec.RECOVER
        )
    return replace(job, spec=with_content(job.spec, content))


def submit_of(connection: Connection, sequence: int, submission: Submission) -> Submit:
    """Return a stored submission as the original request."""
    contents = _read_contents(connection, {sequence}) if submission.has_contents else {}
    return unfolded(
        submission,
        {number: spec_content for (_, number), spec_content in contents.items()},
    )


def _read_contents(connection: Connection, submitted: Iterable[int]) -> Contents:
    parameters = {"submitted": row_codec.text_of(sorted(submitted))}
    rows = connection.execute(_OF_SUBMISSIONS, parameters).all()
    return {(row[0], row[1]): row_codec.CONTENT.read(row[2], row[3]) for row in rows}
