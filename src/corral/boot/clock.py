"""The one place that asks the machine for time and for chance."""

import time
import uuid


class SystemClock:
    """`ports.Clock` over the machine's own clocks."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def fresh_id(self) -> str:
        return uuid.uuid4().hex
