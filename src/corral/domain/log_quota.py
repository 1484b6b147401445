"""Order in which kept logs are cut if a user or a job exceeds the quota.

The end of a log is never lost: in each job's newest attempt, every rank keeps the last
part of its log.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from corral.domain.ids import sequence_of
from corral.domain.observed_state import AttemptKey

# kept of each rank, of the newest attempt of a job that is over
ENDED_BYTES: Final = 64 * 1024
RUNNING_BYTES: Final = 1024 * 1024  # the same, of a job that is not over
CUT_TO_PART: Final = 0.9  # of the limit: not every line that follows cuts again


class LogPart(IntEnum):
    """Class of the job and attempt that a log belongs to. When space is needed, logs of
    the lowest class are cut first."""

    EARLIER_ATTEMPT = 0
    ENDED_JOB = 1
    UNFINISHED_JOB = 2


KEPT_BYTES: Final = {
    LogPart.EARLIER_ATTEMPT: 0,
    LogPart.ENDED_JOB: ENDED_BYTES,
    LogPart.UNFINISHED_JOB: RUNNING_BYTES,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptLogs:
    """Logs of one attempt that the head stores."""

    key: AttemptKey
    part: LogPart


def cut_order(kept: Iterable[KeptLogs]) -> list[KeptLogs]:
    """Return the logs in the order in which they are cut: by kind, and within a kind
    those of the oldest job first."""
    return sorted(
        kept, key=lambda one: (one.part, sequence_of(one.key[0]) or 0, one.key)
    )


def excess_bytes(used: int, limit: int) -> int:
    """Return by how many bytes `used` exceeds the limit; 0 if it does not."""
    return used - int(limit * CUT_TO_PART) if used > limit else 0
