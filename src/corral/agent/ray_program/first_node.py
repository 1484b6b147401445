"""The first node of the gang: it runs Ray's head, tracks which other nodes have joined,
and returns the program's exit code."""

import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from corral.agent.batch.frames import Frames, Signature, Stranger
from corral.agent.ray_program.member import RayProgramMember
from corral.agent.ray_program.other_node import FIRST, OTHER
from corral.agent.ray_program.ray_node import LocalRay, check_ray, how_ended, starting
from corral.agent.ray_program.refusals import CannotRun, CannotStart

LOOK_SECONDS: Final = 0.05
HEAD_SECONDS: Final = 120.0  # for Ray on this node
SHELL: Final = "/bin/sh"


def run_program(member: RayProgramMember) -> int:
    """Run the program once all nodes have joined. Return its exit code, which is 128
    plus the signal number after a signal.

    Raises: CannotStart when the nodes do not join in time, or Ray does not start;
    CannotRun when Ray ends before the program does.
    """
    check_ray()
    wait_seconds = member.wait_seconds
    with starting(member):
        joined_nodes = JoinedNodes(member)
        ray = LocalRay(member)
    try:
        with starting(member):
            address = _wait_for_cluster(member, ray, joined_nodes, wait_seconds)
        joined_nodes.begun()
        return _run_user_program(member, ray, address)
    finally:
        joined_nodes.over()


class JoinedNodes:
    """Connections from the other nodes of the gang that have joined."""

    def __init__(self, member: RayProgramMember) -> None:
        self._member = member
        self._changed = threading.Condition()
        self._here: dict[int, Frames] = {}
        self._address = ""
        self._is_over = False
        if len(member.addresses) > 1:
            server = socket.create_server(("", member.first[1]), backlog=1024)
            threading.Thread(
                target=self._accept_connections, args=(server,), daemon=True
            ).start()

    @property
    def missing(self) -> list[str]:
        """Return the addresses of the nodes that have not joined yet."""
        with self._changed:
            places = range(1, len(self._member.addresses))
            return [
                self._member.addresses[node_index]
                for node_index in places
                if node_index not in self._here
            ]

    def join(self, address: str) -> None:
        """Ask all nodes, including those that connect later, to join the Ray cluster at
        this address."""
        self._say({"type": "join", "address": address})
        self._address = address

    def begun(self) -> None:
        """Notify the other nodes that all nodes have joined and the program runs."""
        self._say({"type": "begun"})

    def over(self) -> None:
        self._is_over = True
        self._say({"type": "over"})

    def _say(self, message: dict[str, str]) -> None:
        with self._changed:
            for frames in self._here.values():
                with suppress(OSError):
                    frames.send(message)

    def _accept_connections(self, server: socket.socket) -> None:
        while True:
            connection, _ = server.accept()
            threading.Thread(
                target=self._serve_node, args=(Frames(connection),), daemon=True
            ).start()

    def _serve_node(self, frames: Frames) -> None:
        try:
            frames.greet(self._member.key, own=FIRST, other=OTHER, seal=Signature)
            heard = frames.receive()
        except (OSError, EOFError, ValueError, Stranger):
            heard = None
        if heard is None or not 0 < heard[0].get("place", 0) < len(
            self._member.addresses
        ):
            frames.close()
            return
        with self._changed:
            self._here[int(heard[0]["place"])] = frames
            with suppress(OSError):
                if self._is_over:
                    frames.send({"type": "over"})
                elif self._address:
                    frames.send({"type": "join", "address": self._address})


def _wait_for_cluster(
    member: RayProgramMember, ray: LocalRay, others: JoinedNodes, wait_seconds: float
) -> str:
    """Wait until all nodes are in the Ray cluster, and return its address.

    Raises: CannotStart, OSError when this fails.
    """
    needed = len(member.addresses)
    counter = subprocess.Popen(
        [sys.executable, str(member.starter), str(needed)],
        env=member.environment,
        cwd=member.folder,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=(member.folder / "count.log").open("wb"),
        text=True,
    )
    try:
        up = time.monotonic() + HEAD_SECONDS
        _wait_until(
            lambda: bool(ray.address),
            up,
            ray,
            lambda: f"the Ray head node did not start in {HEAD_SECONDS:g} s: {ray}",
        )
        others.join(ray.address)
        assert counter.stdin is not None
        with suppress(OSError), counter.stdin as io:
            io.write(f"{ray.address}\n")
        deadline = time.monotonic() + wait_seconds
        _wait_until(
            lambda: counter.poll() is not None,
            deadline,
            ray,
            lambda: _timeout_reason(needed, others.missing),
        )
    finally:
        if counter.poll() is None:
            counter.kill()
            counter.wait()
    if counter.returncode != 0:
        count_lines = (
            (member.folder / "count.log")
            .read_text(errors="replace")
            .strip()
            .splitlines()
        )
        raise CannotStart(
            f"the Ray cluster does not answer: {(count_lines or ['no output'])[-1]}"
        )
    return ray.address


def _timeout_reason(needed: int, missing: list[str]) -> str:
    if missing:
        address_list = ", ".join(missing[:10])
        return (
            f"{len(missing)} of {needed} nodes have not joined the Ray cluster: "
            f"{address_list}"
        )
    return f"all {needed} nodes started Ray, but not all joined the Ray cluster"


def _wait_until(
    done: Callable[[], bool], deadline: float, ray: LocalRay, why: Callable[[], str]
) -> None:
    """Wait until `done` returns True. `why` returns the reason for the error at the
    deadline.

    Raises: CannotStart after the deadline, or when Ray has ended.
    """
    while not done():
        ray.check(starts=True)
        if time.monotonic() > deadline:
            raise CannotStart(why())
        time.sleep(LOOK_SECONDS)


def _run_user_program(member: RayProgramMember, ray: LocalRay, address: str) -> int:
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # the program receives the signal itself; this process waits for it
        signal.signal(number, lambda _, __: None)
    program = subprocess.Popen(
        [SHELL, "-c", member.run],
        env={**member.environment, "RAY_ADDRESS": address},
        cwd=member.work,
    )
    while True:
        with suppress(subprocess.TimeoutExpired):
            code = program.wait(LOOK_SECONDS * 4)
            return code if code >= 0 else 128 - code
        if (ray_exit_code := ray.process.poll()) is not None and program.poll() is None:
            raise CannotRun(
                "the Ray head node ended while the program was running "
                f"({how_ended(ray_exit_code)}): {ray}"
            )
