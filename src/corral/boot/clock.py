"""The clocks and the random ids of this machine. No other module reads them."""

import time
import uuid


class SystemClock:
    """Implementation of `ports.Clock` by the clocks of this machine."""

    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def fresh_id(self) -> str:
        return uuid.uuid4().hex
