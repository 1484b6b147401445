"""Record of how ranks ended: exit codes, signals, and lack of memory."""

import os
import signal
from typing import Final

from corral.agent.clocks import wall
from corral.agent.containment import Containment
from corral.agent.masked_errors import READ_BYTES, error_before, goes_on
from corral.agent.output_capture import RankLog
from corral.agent.shim.rank_process import Rank
from corral.agent.shim.state import Record

NO_ROOM_BYTES: Final = 1024 * 1024  # with less, programs fail that write at all

ENDS_IN_ERROR: Final = (
    "ended with exit code 0, but a program in it ended in an error: put set -e at the start of the "
    "script, and set -o pipefail before a pipe (| tee)"
)


class Exits:
    """Records the exits of one attempt's ranks. Each out-of-memory kill is used to
    explain the end of one rank only."""

    def __init__(
        self, group: Containment, logs: dict[int, RankLog], command: str
    ) -> None:
        """`command`: the command that the ranks run."""
        self._group = group
        self._goes_on = goes_on(command)
        self._logs = logs
        self._oom_explained = 0

    def record(self, rank: Rank, *, stops: bool) -> Record:
        """Return the record of how the rank has ended. `stops`: whether the attempt was
        being stopped then."""
        assert rank.status is not None
        code = os.waitstatus_to_exitcode(rank.status)
        memory = self._group.memory() if code != 0 else None
        killed = code in (-signal.SIGKILL, 128 + signal.SIGKILL)
        unexplained = memory is not None and memory.oom_kills > self._oom_explained
        oom = unexplained and (killed or not stops)
        self._oom_explained += oom
        record: Record = {
            "type": "exit",
            "rank": rank.number,
            "code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "out_of_memory": oom,
            "at": wall(),
        }
        log = self._logs[rank.number]
        if code != 0 and not oom and _has_no_room(log):
            record["disk_full"] = True
            log.say(f"rank {rank.number} failed while the disk of this node was full")
        output_end = log.last_bytes(READ_BYTES) if code == 0 and not stops else b""
        if error := error_before(output_end, goes_on=self._goes_on):
            record |= {"ends_in_error": True, "error": error}
            log.say(f"rank {rank.number} {ENDS_IN_ERROR}")
        if oom and memory is not None:
            record |= {
                "peak_bytes": memory.peak_bytes,
                "limit_bytes": memory.limit_bytes,
            }
            limit = memory.limit_bytes
            of = (
                ", and the machine had no memory left"
                if limit is None
                else f" of a limit of {limit}"
            )
            log.say(
                f"rank {rank.number} ran out of memory: peak {memory.peak_bytes} bytes{of}"
            )
        return record


def _has_no_room(log: RankLog) -> bool:
    """Return whether the log's disk is full. A disk that does not respond does not
    count as full."""
    try:
        return log.room_bytes() < NO_ROOM_BYTES
    except OSError:
        return False
