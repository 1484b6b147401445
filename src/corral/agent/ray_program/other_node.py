"""Every node of the gang except the first: its Ray joins the Ray cluster of the first
node."""

import socket
import threading
import time
from typing import Final

from corral.agent.batch.frames import Frames, Signature, Stranger
from corral.agent.ray_program.member import RayProgramMember
from corral.agent.ray_program.ray_node import LocalRay, check_ray, starting
from corral.agent.ray_program.refusals import CannotRun

FIRST: Final = b"first node, signed"
OTHER: Final = b"other node, signed"
TRY_SECONDS: Final = 0.1
SLOWEST_TRY_SECONDS: Final = 2.0
LOOK_SECONDS: Final = 0.2
CONNECT_SECONDS: Final = 10.0


def help_program(member: RayProgramMember) -> int:
    """Run this node as a part of the Ray cluster until the first node reports that the
    program has ended. Return the exit code.

    Raises: CannotStart when this node's Ray does not start; CannotRun when Ray ends
    before the program does, or the first node is gone.
    """
    check_ray()
    frames = _join_first_node(member)
    frames.send({"type": "here", "place": member.place, "node": member.node})
    heard = frames.receive()
    if heard is None:
        raise CannotRun("the connection to the first node of the Ray cluster was lost")
    if heard[0]["type"] == "over":
        return 0
    with starting(member):
        ray = LocalRay(member, str(heard[0]["address"]))
    option_names: set[str] = set()
    listener = threading.Thread(
        target=_collect_message_types, args=(frames, option_names), daemon=True
    )
    listener.start()
    while listener.is_alive():
        listener.join(LOOK_SECONDS)
        if "over" not in option_names:
            ray.check(starts="begun" not in option_names)
    if "over" not in option_names:
        raise CannotRun("the connection to the first node of the Ray cluster was lost")
    return 0


def _collect_message_types(frames: Frames, said: set[str]) -> None:
    while "over" not in said and (heard := frames.receive()) is not None:
        said.add(heard[0]["type"])


def _join_first_node(member: RayProgramMember) -> Frames:
    """Connect to the first node and return the connection. The first node may come up
    later, so the connection is retried until this attempt ends."""
    pause_seconds = TRY_SECONDS
    while True:
        try:
            frames = Frames(
                socket.create_connection(member.first, timeout=CONNECT_SECONDS)
            )
            frames.greet(member.key, own=OTHER, other=FIRST, seal=Signature)
            return frames
        except (OSError, EOFError, Stranger):
            time.sleep(pause_seconds)
            pause_seconds = min(pause_seconds * 1.5, SLOWEST_TRY_SECONDS)
