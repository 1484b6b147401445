"""TCP ports that a node may assign to gangs; no other node of the machine assigns the
same ports."""

import os
import socket
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

PORTS: Final = 32
# more than are offered, so that a port taken by a stranger can be replaced
BLOCK: Final = 64
_LOWEST: Final = 20_000  # above Ray's 10002 to 19999
_EPHEMERAL: Final = Path("/proc/sys/net/ipv4/ip_local_port_range")


class PortBlock:
    """A block of 64 ports that belongs to this process until it ends.

    An abstract socket named after the block is the lock: the kernel releases it when
    its holder ends, and it is visible in the same network namespace as the ports.
    """

    def __init__(self, record: Path, index: int = 0) -> None:
        """Reserve a block. `record` is a file that stores it for the next agent of the
        node; `index` makes nodes start their search at different blocks.

        Raises: OSError when every block is taken.
        """
        self._lock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.ports = self._reserve_block(_remembered(record), index)
        record.write_text(f"{self.ports[0]}\n")

    def free(self, held: Collection[int] = ()) -> tuple[int, ...]:
        """Return 32 ports of the block. A port can be used if no process listens on it,
        or if it is in `held`, the ports of the node's own attempts."""
        offered = (port for port in self.ports if port in held or _is_port_unused(port))
        return tuple(port for port, _ in zip(offered, range(PORTS), strict=False))

    def close(self) -> None:
        self._lock.close()

    def _reserve_block(self, remembered: int | None, index: int) -> range:
        starts = list(_block_starts())
        start_index = (os.getuid() * 16 + index) % len(starts)
        preferred = [start for start in starts if start == remembered]
        for start in (*preferred, *starts[start_index:], *starts[:start_index]):
            try:
                self._lock.bind(f"\0corral-ports-{start}")
            except OSError:
                continue
            return range(start, start + BLOCK)
        self._lock.close()
        raise OSError("all port ranges of this machine are used by other nodes")


def _block_starts() -> Iterator[int]:
    """Yield the first port of each block outside the range from which the kernel takes
    ports for outgoing connections."""
    try:
        lowest_port, highest_port = (
            int(port_text) for port_text in _EPHEMERAL.read_text().split()
        )
    except (OSError, ValueError):
        lowest_port, highest_port = 32_768, 60_999
    below = range(_LOWEST, lowest_port - BLOCK + 1, BLOCK)
    above = range(highest_port + 1, 65_536 - BLOCK + 1, BLOCK)
    blocks = [*below, *above]
    # nothing is outside: a busy port is skipped
    yield from blocks or range(_LOWEST, 32_768, BLOCK)


def _remembered(record: Path) -> int | None:
    try:
        return int(record.read_text())
    except (OSError, ValueError):
        return None


def _is_port_unused(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind(("0.0.0.0", port))
        except OSError:
            return False
    return True
