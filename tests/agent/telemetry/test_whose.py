"""Processes on a GPU are of the attempt that started them, however far below its shim
they are."""

import os
from pathlib import Path

from corral.agent.telemetry.process_owner import attributed, owner, shims
from corral.domain.telemetry import GpuProcess
from tests.agent.nodes import launch_of, node


async def test_every_process_of_an_attempt_is_its_own_and_no_other(
    node_dir: Path,
) -> None:
    async with node(node_dir) as there:
        key = await there.launch(
            launch_of("sleep 600 & echo deep $!; setsid sleep 600 & wait")
        )
        log = await there.says(key, "deep")
        await there.until(
            lambda: key in shims(node_dir / "attempts").values(), "its shim"
        )
        known = shims(node_dir / "attempts")
        (shim,) = known
        pid = next(int(line.split()[1]) for line in log.splitlines() if "deep" in line)
        first, stranger = attributed(
            [GpuProcess(pid=pid, memory_bytes=5), GpuProcess(pid=os.getpid())], known
        )
        assert (first.pid, first.memory_bytes, (first.job, first.attempt)) == (
            pid,
            5,
            key,
        )
        assert (stranger.job, stranger.attempt) == (None, None)
        assert owner(2**22, known) is None, "it is gone already"
        assert owner(shim, known) == key
