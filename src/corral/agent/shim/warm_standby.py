"""A shim that waits for the next attempt of a job: its containment exists, and a warm
interpreter in it.

The agent starts it while an attempt runs, and sends it the spec of the next attempt. It
ends with the agent's connection.
"""

import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from corral.agent import containment
from corral.agent.job_account import JobAccount, account_from
from corral.agent.processes import send
from corral.agent.shim.create_containment import create_containment
from corral.agent.shim.filesystem_view import Inside, inside_of
from corral.agent.shim.host_file import with_host_file
from corral.agent.shim.next_attempt import call_myself
from corral.agent.shim.rank_environment import rank_environment
from corral.agent.shim.spawn import Child, Spawned, spawn
from corral.agent.shim.termination import SHELL
from corral.agent.shim.warm_command import python_command
from corral.agent.shim.warm_interpreter import NotForked, WarmInterpreter, start_warm
from corral.agent.watching.hook_file import WARM_VARIABLE, lay_out_warm_start
from corral.wire.shim_spec import ShimSpec

STANDBY_NAME: Final = b"corral-standby"  # as ps shows it
WARM_NAME: Final = b"corral-warm"  # once ranks can be forked
END_SECONDS: Final = 5.0
LOOK_SECONDS: Final = 0.005
STANDBY: Final = "standby"  # key of the first line that the agent sends
IMPORTS: Final = "imports"


@dataclass(slots=True, kw_only=True)
class PreparedAttempt:
    """What a shim has prepared for an attempt."""

    group: containment.Containment
    inside: Inside
    interpreter: WarmInterpreter
    warnings: list[str] = field(default_factory=list)
    _ranks: set[int] = field(default_factory=set)
    _noted: bool = False

    def spawner(self, say: Callable[[str], None]) -> Callable[[Child], Spawned]:
        """Return the function that starts a rank: by a fork of the interpreter, else as
        any other process. `say` is called once with the reason."""

        def start(child: Child) -> Spawned:
            try:
                spawned = self.interpreter.fork(child)
            except NotForked as reason:
                if not self._noted:
                    self._noted = True
                    say(f"ranks are not forked from a warm interpreter: {reason}")
                self._kill_others()
                spawned = spawn(child)
            self._ranks.add(spawned.pid)
            return spawned

        return start

    def close(self) -> None:
        """End the interpreter, once the ranks are started."""
        self.interpreter.close()

    def _kill_others(self) -> None:
        """Kill the interpreter, and a fork of it that has not become a rank."""
        self.interpreter.close()
        for pid in self.group.pids():
            if pid not in self._ranks:
                send(pid, signal.SIGKILL)

    def remove(self) -> None:
        """End the interpreter and remove the containment, because no attempt comes."""
        self.interpreter.close()
        deadline = time.monotonic() + END_SECONDS
        while time.monotonic() < deadline:
            with suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if not self.group.pids():
                break
            self.group.kill()
            time.sleep(LOOK_SECONDS)
        self.group.remove()


def standby_line(spec: ShimSpec, imports: Sequence[str]) -> bytes:
    """Return the line that makes a shim a standby. `spec`: the next attempt's, as far as
    it can be predicted."""
    spec_fields = json.loads(spec.encode())
    return json.dumps({STANDBY: spec_fields, IMPORTS: list(imports)}).encode() + b"\n"


def standby_request(line: bytes) -> tuple[ShimSpec, list[str]] | None:
    """Return the spec and the modules to import, if the line asks for a standby."""
    request: dict[str, Any] = json.loads(line)
    if STANDBY not in request:
        return None
    return ShimSpec(**request[STANDBY]), list(request[IMPORTS])


def prepare_standby(spec: ShimSpec, imports: Sequence[str]) -> PreparedAttempt:
    """Create the containment, and start the warm interpreter in it. Raises: OSError."""
    command = python_command(spec.run)
    if command is None:
        raise OSError("the command does not start Python itself")
    account = account_from(spec.account)
    _open_folder(spec, account)
    warnings: list[str] = []
    group = create_containment(spec, warnings.append)
    try:
        view = containment.settle(group)
        inside = inside_of(spec.image, view if spec.apart else None)
        interpreter = start_warm(_child(spec, imports, group, account, inside), command)
    except OSError:
        group.kill()
        group.remove()
        raise
    return PreparedAttempt(
        group=group, inside=inside, interpreter=interpreter, warnings=warnings
    )


def _open_folder(spec: ShimSpec, account: JobAccount | None) -> None:
    """Create the folders that the interpreter uses, for the account of the ranks."""
    folder, work = Path(spec.folder), Path(spec.work)
    work.mkdir(mode=0o700, parents=True, exist_ok=True)
    if account is not None:
        group = account.groups[0]
        os.chown(folder, -1, group)
        folder.chmod(0o710)
        folder.parent.chmod(0o711)
        os.chown(work, account.uid, group)


def _child(
    spec: ShimSpec,
    imports: Sequence[str],
    group: containment.Containment,
    account: JobAccount | None,
    inside: Inside,
) -> Child:
    """Return the process of the interpreter: the first rank's command and environment,
    but its Python does not go on to the program."""
    hook_folder = lay_out_warm_start(spec.folder, imports)
    env = rank_environment(
        replace(spec, env=with_host_file(spec.env, spec.folder)),
        {**spec.rank_env[0], WARM_VARIABLE: "1"},
        hook_folder=hook_folder,
        account=account,
        inside=inside,
    )
    return Child(
        words=inside.words([inside.shell(SHELL), "-c", spec.run]),
        env=env,
        work=spec.work,
        stdio=(0, 1, 2),
        account=account,
        containment=group,
        inside=inside,
    )


def wait_for_spec(
    standby: PreparedAttempt, connection: socket.socket, read: Callable[[], bytes]
) -> bytes | None:
    """Wait for the spec of the next attempt, which `read` reads from the connection.
    Return None when the agent hangs up: the standby has been removed then."""
    interpreter = standby.interpreter
    call_myself(STANDBY_NAME)
    while True:
        seconds = interpreter.turn()
        watched = [connection]
        if not interpreter.is_ready and not interpreter.problem:
            watched.append(interpreter.control)
        readable, _, _ = select.select(watched, [], [], seconds)
        if interpreter.control in readable:
            interpreter.hear()
            if interpreter.is_ready:
                call_myself(WARM_NAME)
        if connection in readable:
            break
    try:
        return read()
    except OSError:
        standby.remove()
        return None
