"""A job as a log describes it."""

from typing import NamedTuple


class LoggedJob(NamedTuple):
    """Seconds; `duration` below 0: it never ran or never ended. `limit` 0: the user
    gave none.

    `kind`: the name that the user gave it, which jobs that are alike share.
    """

    name: str
    queue: str
    submitted: float
    duration: float
    gpus: float
    limit: float = 0.0
    user: str = ""
    kind: str = ""
