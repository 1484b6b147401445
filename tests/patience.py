"""How long a test waits for what must come.

Far longer than any machine needs, however loaded: it ends a test in which something
never comes, and measures nothing. Numbers of seconds are for benchmarks.
"""

import os
from typing import Final

PATIENCE_SECONDS: Final = 120.0
# in place of a period of the product that the test must not lean on
NEVER_SECONDS: Final = 1e9


def own_loopback() -> str:
    """A loopback address of this process alone: nobody takes its ports while they are
    let go of."""
    high, low = divmod(os.getpid() % 0x40_0000, 0x100)
    middle, third = divmod(high, 0x100)
    return f"127.{0x40 + middle}.{third}.{low}"
