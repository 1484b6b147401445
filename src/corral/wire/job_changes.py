"""Requests and answers of a change of many jobs."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from corral.domain.requests import JobChange
from corral.wire.job_parts import ForecastView


class JobsChange(BaseModel):
    """The same change of several jobs. `jobs` are ids or names; that of an array means
    all of its jobs that are not over."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    jobs: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=100)]],
        Field(min_length=1, max_length=10_000),
    ]
    to: JobChange


class ChangeRefused(ForecastView):
    """Jobs that a change of several left as they are.

    `asked`: the name that was sent. `jobs`: ids that it means and that were refused
    with this message; none where nothing has the name. `partly`: other jobs of the name
    were changed.
    """

    asked: str
    jobs: list[str]
    partly: bool
    code: str
    message: str
    hint: str = ""


class ChangedJob(ForecastView):
    """A job that a change was granted for, and its state after it."""

    id: str
    name: str
    state: str
    array: str | None
    array_index: int | None


class JobsChanged(ForecastView):
    jobs: list[ChangedJob]
    refused: list[ChangeRefused]
