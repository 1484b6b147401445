"""Answers of the API about jobs that failed recently, and about the classes of their
failures."""

from corral.wire.job_parts import ForecastView


class FailedJob(ForecastView):
    """A job that is FAILED. `failure`: the class of the cause; "" if it is not known
    yet."""

    id: str
    name: str
    owner: str
    queue: str
    ended_at: float
    failure: str
    reason: str


class FailureClass(ForecastView):
    """The number of jobs that failed from causes of one class."""

    failure: str
    text: str
    jobs: int


class FailedJobs(ForecastView):
    """Jobs that ended FAILED since a given time, the newest of them, and the failure
    classes of all counted jobs. `more`: not all failed jobs are counted."""

    since: float
    jobs: list[FailedJob]
    classes: list[FailureClass]
    more: bool
