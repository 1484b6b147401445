"""Start of the ranks of a second attempt: executed, and forked from a warm interpreter.

Without a head, on this machine: a node's supervisor runs 8 ranks of DDP over gloo, kills
the first attempt, and starts the second one. `python -m benchmarks.warm_start [ROUNDS]`
prints, for each way of starting, the seconds from the launch of the second attempt until
its first rank runs its program, and until all ranks have made a step.
"""

import asyncio
import contextlib
import socket
import statistics
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Final

from corral.agent.processes import children
from corral.agent.shim.warm_standby import WARM_NAME
from corral.domain.desired_state import Launch
from tests.agent.nodes import Node, launch_of, node, node_folder, stop_of

RANKS: Final = 8
ROUNDS: Final = 3
MOST_SECONDS: Final = 300.0
PROGRAM: Final = """
import os, time
print("began", time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
import torch
import torch.distributed
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(
    torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 8))
)
optimizer = torch.optim.AdamW(model.parameters())
for step in range(1, 1_000_000):
    model(torch.randn(16, 256)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 1:
        print("stepped", time.clock_gettime(time.CLOCK_MONOTONIC), flush=True)
    time.sleep(0.5)
"""


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


def launch_number(attempt: int, program: Path, name: str) -> Launch:
    launch = launch_of(f"{sys.executable} {program}", name, attempt)
    return replace(
        launch, ranks=RANKS, world_size=RANKS, watch=True, master_port=free_port()
    )


async def until_times(here: Node, launch: Launch, word: str) -> list[float]:
    """Return when each rank has said the word, once all have."""
    deadline = time.monotonic() + MOST_SECONDS
    while time.monotonic() < deadline:
        lines = [
            line.split()[1]
            for rank in range(RANKS)
            for line in here.log(launch.key, rank).splitlines(keepends=True)
            if line.startswith(word) and line.endswith("\n")
        ]
        if len(lines) == RANKS:
            return [float(moment) for moment in lines]
        await asyncio.sleep(0.02)
    raise TimeoutError(f"no {word!r} of all ranks: {here.log(launch.key)}")


async def wait_until_warm(here: Node) -> float:
    """Wait for the warm interpreter; return the seconds."""
    began = time.monotonic()
    launcher = here.supervisor.launcher_pid
    assert launcher is not None
    while time.monotonic() < began + MOST_SECONDS:
        for pid in children(launcher):
            with contextlib.suppress(OSError):
                if Path(f"/proc/{pid}/comm").read_bytes().strip() == WARM_NAME:
                    return time.monotonic() - began
        await asyncio.sleep(0.05)
    raise TimeoutError("no warm interpreter")


async def measure(name: str, *, is_warm: bool) -> tuple[float, float]:
    """Return the seconds until the first rank of the second attempt runs its program, and
    until all ranks have stepped."""
    with node_folder() as node_dir:
        program = node_dir / "train.py"
        program.write_text(PROGRAM)
        node_dir.chmod(0o755)
        async with node(node_dir) as here:
            first = launch_number(1, program, name)
            await here.launch(first)
            await until_times(here, first, "stepped")
            if is_warm:
                print(f"  warm after {await wait_until_warm(here):.1f} s", flush=True)
            here.supervisor.stop(stop_of(first.key, 0.0))
            await here.ended(first.key)
            # the standby was made for attempt 2, so attempt 3 is executed
            second = launch_number(2 if is_warm else 3, program, name)
            began = time.monotonic()
            await here.launch(second)
            first_rank = min(await until_times(here, second, "began")) - began
            steps = max(await until_times(here, second, "stepped")) - began
            here.supervisor.stop(stop_of(second.key, 0.0))
            await here.ended(second.key)
            for line in here.log(second.key).splitlines():
                if "not forked" in line:
                    print(line)
            return first_rank, steps


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else ROUNDS
    seconds: dict[bool, list[tuple[float, float]]] = {False: [], True: []}
    for number in range(rounds):
        for is_warm in (False, True):
            result = asyncio.run(measure(f"j{number + 1}", is_warm=is_warm))
            seconds[is_warm].append(result)
            way = "forked" if is_warm else "executed"
            print(f"{way}: first rank {result[0]:.2f} s, all step {result[1]:.2f} s")
    for is_warm, results in seconds.items():
        first_rank, steps = (
            statistics.median(column) for column in zip(*results, strict=True)
        )
        way = "forked" if is_warm else "executed"
        print(f"median {way}: first rank {first_rank:.2f} s, all step {steps:.2f} s")


if __name__ == "__main__":
    main()
