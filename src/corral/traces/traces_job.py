"""A job in the form in which a log describes it."""

from typing import NamedTuple


class LoggedJob(NamedTuple):
    """A job as a log describes it. Times are in seconds. `duration` below 0: the job
    never ran or never ended. `limit` 0: the user gave no time limit.

    `kind`: the user's name for the job, which similar jobs share.
    """

    name: str
    queue: str
    submitted: float
    duration: float
    gpus: float
    limit: float = 0.0
    user: str = ""
    kind: str = ""
