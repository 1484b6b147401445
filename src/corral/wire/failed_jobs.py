"""Jobs that failed lately, and the classes of their failures, as they are answered."""

from corral.wire.job_parts import ForecastView


class FailedJob(ForecastView):
    """A job that is FAILED. `failure`: the class of the cause, "" where none is known
    yet."""

    id: str
    name: str
    owner: str
    queue: str
    ended_at: float
    failure: str
    reason: str


class FailureClass(ForecastView):
    """Jobs that failed of causes of one class."""

    failure: str
    text: str
    jobs: int


class FailedJobs(ForecastView):
    """The newest jobs that ended FAILED since a moment, and the classes of all that are
    counted. `more`: there are more than are counted."""

    since: float
    jobs: list[FailedJob]
    classes: list[FailureClass]
    more: bool
