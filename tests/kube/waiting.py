"""Until something has come true."""

import time
from collections.abc import Callable

from tests.patience import PATIENCE_SECONDS


def until(holds: Callable[[], object]) -> None:
    """Raises: AssertionError when it does not come."""
    give_up_at = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < give_up_at, "it did not come true"
        time.sleep(0.02)
