"""Requests and answers for a change of many jobs."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from corral.domain.requests import JobChange
from corral.wire.job_parts import ForecastView


class JobsChange(BaseModel):
    """The same change of several jobs. `jobs`: ids or names; the name of an array means
    all of its jobs that have not ended. `to`: the change."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    jobs: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=100)]],
        Field(min_length=1, max_length=10_000),
    ]
    to: JobChange


class ChangeRefused(ForecastView):
    """Jobs that a change of several jobs left unchanged, and why.

    `asked`: the id or name in the request. `jobs`: ids of its jobs for which the change
    was refused with this message; empty if no job has this name. `partly`: other jobs
    of the name were changed.
    """

    asked: str
    jobs: list[str]
    partly: bool
    code: str
    message: str
    hint: str = ""


class ChangedJob(ForecastView):
    """A job for which a change was granted, and its state after the change."""

    id: str
    name: str
    state: str
    array: str | None
    array_index: int | None


class JobsChanged(ForecastView):
    jobs: list[ChangedJob]
    refused: list[ChangeRefused]
