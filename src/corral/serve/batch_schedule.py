"""Lines of a batch that wait, are under way or wait for another try. Used by many
threads."""

import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from corral.serve.batch_answers import Record, answer_record, error_record
from corral.serve.batch_client import BatchAnswer, BatchVerdict
from corral.serve.batch_file import BatchLine
from corral.serve.batch_pace import BatchConcurrency, retry_seconds

MOST_TRIES: Final = 5  # of a line, each with an answer that says that it has failed
MOST_CUTS: Final = 20  # connections that may be lost while a line waits for its answer
RETRY_SECONDS: Final = (1.0, 60.0)  # least and most, between tries of a line
CUT_SECONDS: Final = (0.1, 30.0)
BUSY_SECONDS: Final = (0.5, 60.0)  # for all lines, unless the service says how long
AWAY_SECONDS: Final = (0.2, 10.0)
CONNECTION_LOST: Final = "connection_lost"
BAD_ANSWER: Final = "bad_answer"


@dataclass(slots=True)
class _Tries:
    failed: int = 0
    cut: int = 0


@dataclass(slots=True)
class BatchSchedule:
    """Order and pace of the lines.

    Attributes:
        trouble: Why nothing can be sent now; "" while answers arrive.
    """

    limit: BatchConcurrency
    now: Callable[[], float] = time.monotonic
    trouble: str = ""
    _waiting: deque[BatchLine] = field(default_factory=deque)
    _delayed: list[tuple[float, int, BatchLine]] = field(default_factory=list)
    _under_way: dict[str, BatchLine] = field(default_factory=dict)
    _tries: dict[str, _Tries] = field(default_factory=dict)
    _paused_until: float = 0.0
    _pauses: int = 0  # in a row, without an answer between them
    _is_closed: bool = False
    _change: threading.Condition = field(default_factory=threading.Condition)
    _chance: random.Random = field(default_factory=lambda: random.Random(0))

    def add(self, lines: Iterable[BatchLine]) -> None:
        """Let lines wait, in this order."""
        with self._change:
            self._waiting.extend(lines)

    def take(self) -> BatchLine | None:
        """Wait until a line may be sent, and return it. None: there is nothing more to
        do."""
        with self._change:
            while not self._is_closed and self._left:
                now = self.now()
                while self._delayed and self._delayed[0][0] <= now:
                    self._waiting.appendleft(heappop(self._delayed)[2])
                has_room = len(self._under_way) < self.limit.value
                if self._waiting and has_room and now >= self._paused_until:
                    line = self._waiting.popleft()
                    self._under_way[line.custom_id] = line
                    self._change.notify()
                    return line
                self._change.wait(self._seconds_to_wait(now))
            self._change.notify_all()
            return None

    @property
    def _left(self) -> int:
        return len(self._waiting) + len(self._delayed) + len(self._under_way)

    def _seconds_to_wait(self, now: float) -> float | None:
        """Return the seconds until a line may be sent without another event; None if it
        takes an event."""
        if now < self._paused_until:
            return self._paused_until - now
        return self._delayed[0][0] - now if self._delayed else None

    def settle(
        self, line: BatchLine, answer: BatchAnswer, sent_at: float
    ) -> Record | None:
        """Take the answer to a line. Return the record to write; None if the line is
        sent again, or has expired meanwhile."""
        with self._change:
            if self._under_way.pop(line.custom_id, None) is None:
                return None
            now = self.now()
            record = self._judge(line, answer, sent_at, now)
            self._change.notify()
            return record

    def _judge(
        self, line: BatchLine, answer: BatchAnswer, sent_at: float, now: float
    ) -> Record | None:
        tries = self._tries.setdefault(line.custom_id, _Tries())
        if answer.verdict is BatchVerdict.BUSY:
            self.limit.refused(sent_at, now)
            self._pause(answer, now, BUSY_SECONDS)
            self._waiting.appendleft(line)
            return None
        if answer.verdict is BatchVerdict.AWAY:
            self._pause(answer, now, AWAY_SECONDS)
            self._waiting.appendleft(line)
            return None
        if answer.verdict is BatchVerdict.CUT:
            tries.cut += 1
            if tries.cut < MOST_CUTS:
                self._delay(line, tries.cut, CUT_SECONDS, now)
                return None
            return self._end(
                line, error_record(line.custom_id, CONNECTION_LOST, answer.text)
            )
        if answer.verdict is BatchVerdict.RETRY:
            tries.failed += 1
            if tries.failed < MOST_TRIES:
                self._delay(line, tries.failed, RETRY_SECONDS, now)
                return None
        elif answer.status < 300:
            self.limit.answered(sent_at, now)
        self._pauses = 0
        self.trouble = ""
        return self._end(line, _record_of(line, answer))

    def _pause(
        self, answer: BatchAnswer, now: float, seconds: tuple[float, float]
    ) -> None:
        """Send nothing for a time. Answers that arrive during a pause do not make it
        grow."""
        self.trouble = answer.text or f"the gateway answers {answer.status}"
        if answer.retry_after is not None:
            self._paused_until = max(self._paused_until, now + answer.retry_after)
        elif now >= self._paused_until:
            self._pauses += 1
            pause = retry_seconds(self._pauses, *seconds, self._chance.random())
            self._paused_until = now + pause

    def _delay(
        self, line: BatchLine, tries: int, seconds: tuple[float, float], now: float
    ) -> None:
        pause = retry_seconds(tries, *seconds, self._chance.random())
        heappush(self._delayed, (now + pause, line.number, line))

    def _end(self, line: BatchLine, record: Record) -> Record:
        self._tries.pop(line.custom_id, None)
        return record

    def pause_for(self, seconds: float) -> None:
        """Send nothing for a time."""
        with self._change:
            self._paused_until = max(self._paused_until, self.now() + seconds)

    def set_behind(self, is_behind: bool) -> None:
        """Say whether the batch is too slow for its deadline."""
        with self._change:
            self.limit.is_behind = is_behind

    @property
    def under_way(self) -> int:
        with self._change:
            return len(self._under_way)

    @property
    def wanted_threads(self) -> int:
        """Number of threads that can have a line at the same time."""
        with self._change:
            return min(self.limit.value, self._left)

    def close(self) -> None:
        """Give out no more lines. Answers to those under way are still taken."""
        with self._change:
            self._is_closed = True
            self._change.notify_all()

    def expire(self) -> list[BatchLine]:
        """Give out no more lines and take no more answers. Return the lines that are
        left, in the order of the file."""
        with self._change:
            self._is_closed = True
            delayed = [line for _, _, line in self._delayed]
            expired = [*self._waiting, *delayed, *self._under_way.values()]
            self._waiting.clear()
            self._delayed.clear()
            self._under_way.clear()
            self._change.notify_all()
            return sorted(expired, key=lambda line: line.number)


def _record_of(line: BatchLine, answer: BatchAnswer) -> Record:
    if answer.verdict is BatchVerdict.RETRY and answer.status < 300:
        return error_record(line.custom_id, BAD_ANSWER, "the answer is not valid JSON")
    return answer_record(line.custom_id, answer.status, answer.request_id, answer.body)
