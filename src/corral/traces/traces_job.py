"""A job in the form in which a log describes it."""

from typing import NamedTuple


class LoggedJob(NamedTuple):
    """A job of a log. Times are in seconds. `duration` below 0: the job never ran or
    never ended. `limit` 0: the user gave no time limit.

    `kind`: the name that the user gave to the job, which similar jobs share.
    """

    name: str
    queue: str
    submitted: float
    duration: float
    gpus: float
    limit: float = 0.0
    user: str = ""
    kind: str = ""
