"""Every node of a batch job except the first: it connects to the first node, and runs
its part of each step."""

import socket
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from corral.agent.batch.encryption import Encryption
from corral.agent.batch.frames import FIRST, HELPER, Frames, Stranger, key_of
from corral.agent.batch.known_env import digests_of, with_known
from corral.agent.batch.tasks import Tasks

TRY_SECONDS: Final = 0.1
SLOWEST_TRY_SECONDS: Final = 2.0
LOST: Final = 1  # the first node has gone without a word


def help_first(own: Mapping[str, str]) -> int:
    """Run the tasks that the first node sends, until the first node reports that the
    job is over. Return the exit code of this node's rank."""
    frames = _join_first_node(own)
    frames.send(
        {
            "type": "here",
            "place": int(own["SLURM_NODEID"]),
            "node": own["CORRAL_NODE"],
            "has": digests_of(own, key_of(own["CORRAL_TOKEN"])),
        }
    )
    steps: dict[int, Tasks] = {}

    def say(message: dict[str, object], data: bytes) -> None:
        with suppress(OSError):
            frames.send(message, data)

    code = LOST
    while (heard := frames.receive()) is not None:
        message, data = heard
        if message["type"] == "over":
            code = 0
            break
        if message["type"] == "step":
            env = with_known(message["env"], message.get("same"), own)
            steps[message["step"]] = Tasks({**message, "env": env}, own, say)
            steps[message["step"]].start()
        elif message["step"] in steps:
            _pass_on(steps[message["step"]], message, data)
    for tasks in steps.values():
        tasks.end()
    frames.close()
    return code


def _pass_on(tasks: Tasks, message: dict[str, object], data: bytes) -> None:
    if message["type"] == "input":
        tasks.feed(data)
    elif message["type"] == "signal":
        tasks.signal(int(str(message["number"])))
    elif message["type"] == "end":
        tasks.end()


def _join_first_node(own: Mapping[str, str]) -> Frames:
    """Connect to the first node and return the connection. The first node may come up
    later, so the connection is retried until this attempt ends."""
    address = (own["MASTER_ADDR"], int(own["MASTER_PORT"]))
    pause_seconds = TRY_SECONDS
    while True:
        try:
            frames = Frames(socket.create_connection(address, timeout=10.0))
            frames.greet(
                key_of(own["CORRAL_TOKEN"]), own=HELPER, other=FIRST, seal=Encryption
            )
            return frames
        except (OSError, EOFError, Stranger):
            time.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 1.5, SLOWEST_TRY_SECONDS)
