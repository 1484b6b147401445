"""A check-up of the node: `python -m corral.agent.checks.process NODE_DIR`.

The process reads a CheckRequest from its standard input and writes a CheckFinding for
each result as soon as it is available. It is killed, with all processes that it has
started, when an attempt is to run on the node.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from corral.agent.checks.clock import check_clock
from corral.agent.checks.data import check_data
from corral.agent.checks.disk import check_disk
from corral.agent.checks.gpus import check_gpus
from corral.agent.checks.link import check_link
from corral.agent.checks.messages import CheckFinding, CheckRequest
from corral.agent.checks.pretend import Injected, pretended
from corral.agent.settings import load_settings
from corral.domain.active_checks import CheckKind

NICE: Final = 10
PR_SET_PDEATHSIG: Final = 1


def results(
    ask: CheckRequest, node_dir: Path, injected: Injected | None
) -> Iterator[CheckFinding]:
    """Yield the findings of the requested checks.

    `injected`: the configured faults of a pretend node; None on a real node.
    """
    checkup, kinds = ask.checkup, ask.checkup.kinds
    if injected is not None:
        yield from pretended(ask, injected)
    else:
        yield from check_gpus(ask)
        if CheckKind.LINK in kinds:
            yield from check_link(checkup, ask.gpus)
    if CheckKind.DISK in kinds:
        for path in dict.fromkeys((str(node_dir), *ask.shared, *checkup.paths)):
            yield check_disk(path, checkup.seconds, own=path == str(node_dir))
    if CheckKind.CLOCK in kinds:
        yield check_clock(ask.offset_seconds)
    if CheckKind.DATA in kinds:
        for path in checkup.paths:
            yield from check_data(path, checkup.seconds)


def main() -> None:
    node_dir = Path(sys.argv[1])
    libc = ctypes.CDLL(None)
    libc.prctl(15, b"corral-checks", 0, 0, 0)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # the next agent knows nothing of it
    with suppress(OSError):
        os.nice(NICE)
    ask = msgspec.json.decode(sys.stdin.buffer.readline(), type=CheckRequest)
    pretends = load_settings(node_dir).pretend_gpus is not None
    injected = Injected.of(node_dir) if pretends else None
    for result in results(ask, node_dir, injected):
        reported_finding = injected.changed(result) if injected is not None else result
        sys.stdout.buffer.write(msgspec.json.encode(reported_finding) + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
