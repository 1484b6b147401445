"""Names of callers in routes and counters: USER/TOKEN, and USER/TOKEN/batch for the job of
a batch."""

from typing import Final

BATCH_MARK: Final = "/batch"


def batch_caller(name: str) -> str:
    """Return the name of a caller that is the job of a batch."""
    return f"{name}{BATCH_MARK}"


def is_batch_caller(name: str) -> bool:
    """Return whether the caller is the job of a batch."""
    return name.endswith(BATCH_MARK)
