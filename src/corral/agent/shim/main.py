"""Start of a shim: it creates what the attempt needs, or refuses the attempt and names
what is missing."""

import ctypes
import json
import os
import select
import signal
import socket
import stat
import sys
import traceback
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final, NoReturn

from corral.agent import containment
from corral.agent.clocks import wall
from corral.agent.job_account import JobAccount, account_from
from corral.agent.journal import FILE, Journal
from corral.agent.output_capture import RankLog
from corral.agent.processes import LocalProcess, myself
from corral.agent.shim.attempt_life import AttemptLife
from corral.agent.shim.attempt_record import reserve_bytes
from corral.agent.shim.begin_mark import record_begin
from corral.agent.shim.create_containment import create_containment
from corral.agent.shim.event_loop import Loop
from corral.agent.shim.file_names import PID_FILE, SOCKET
from corral.agent.shim.filesystem_view import inside_of
from corral.agent.shim.host_file import with_host_file
from corral.agent.shim.next_attempt import (
    NAME,
    call_myself,
    leaves_nothing,
    next_attempt,
)
from corral.agent.shim.state import Record
from corral.agent.shim.warm_standby import (
    PreparedAttempt,
    prepare_standby,
    standby_request,
    wait_for_spec,
)
from corral.wire.shim_spec import ShimSpec, decode_shim_spec

PR_SET_CHILD_SUBREAPER: Final = 36
MOST_WAITING: Final = 64  # connections that are not accepted yet
PATIENCE_SECONDS: Final = 60.0  # for the spec, which is on its way
_libc: Final = ctypes.CDLL(None, use_errno=True)


def main(connection: socket.socket) -> bool:
    """Run the shim of the attempt whose spec arrives over the connection, until no
    process is left.

    Returns: whether this process can serve another attempt.
    """
    _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    line = _read_line(connection)
    standby: PreparedAttempt | None = None
    if (request := standby_request(line)) is not None:
        try:
            standby = prepare_standby(*request)
        except OSError as trouble:
            os.write(2, f"no warm interpreter: {trouble}\n".encode())
            return False
        received = wait_for_spec(standby, connection, lambda: _read_line(connection))
        if received is None:
            return False
        line = received
    spec = decode_shim_spec(line)
    folder = Path(spec.folder)
    call_myself(NAME)
    try:
        journal = Journal.create(folder / FILE, 2 * reserve_bytes(len(spec.ranks)))
    except FileExistsError:
        _remove(standby)
        connection.sendall(b'{"type":"taken"}\n')
        return False
    except OSError as trouble:
        _remove(standby)
        _send_refusal(connection, f"the attempt's journal cannot be written: {trouble}")
        return False
    loop = Loop()
    try:
        life = _create_attempt(spec, loop, journal, standby)
        server = _open_attempt_socket(folder, life.account)
    except OSError as trouble:
        reason = f"the attempt cannot be started on this node: {trouble}"
        journal.append(
            {"type": "ended", "at": wall(), "trouble": reason, "infra": True}
        )
        _remove(standby)
        _send_refusal(connection, reason)
        return False
    _run_event_loop(life, loop, server, connection, standby)
    return leaves_nothing(life)


def _remove(standby: PreparedAttempt | None) -> None:
    if standby is not None:
        standby.remove()


def _run_event_loop(
    life: AttemptLife,
    loop: Loop,
    server: socket.socket,
    connection: socket.socket,
    standby: PreparedAttempt | None,
) -> None:
    woken, wake = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)

    def reap() -> None:
        with suppress(BlockingIOError):
            os.read(woken, 4096)
        for _ in range(MOST_WAITING):
            if not select.select([server], [], [], 0)[0]:
                break
            accept()
        life.read_programs()
        life.reap()

    def accept() -> None:
        with suppress(OSError):  # gone again
            life.connect(server.accept()[0])

    loop.watch(woken, reap)
    loop.watch(server.fileno(), accept)
    life.connect(connection, watches=True)
    life.begin()
    if standby is not None:
        standby.close()
    loop.run()
    for name in (SOCKET, PID_FILE):
        (Path(life.spec.folder) / name).unlink(missing_ok=True)


def _create_attempt(
    spec: ShimSpec, loop: Loop, journal: Journal, standby: PreparedAttempt | None
) -> AttemptLife:
    """Create the attempt's logs, containment and socket. Raises: OSError."""
    folder = Path(spec.folder)
    me = myself()
    me.record(folder / PID_FILE)
    logs = open_logs(spec, loop)
    say = logs[spec.ranks[0]].say
    group = create_containment(spec, say) if standby is None else standby.group
    journal.append(launch_record(spec, group, me))
    user = account_from(spec.account)
    if user is not None:
        os.chown(folder, -1, user.groups[0])
        folder.chmod(0o710)  # access to its own work, and to no other user's
        folder.parent.chmod(0o711)
        (folder / "logs").chmod(0o700)
        for work_path in (spec.work, *([spec.beside] if spec.beside else [])):
            _change_owner(Path(work_path), user)
    record_begin(spec.folder, spec.work)
    if standby is None:
        view = containment.settle(group)
        inside = inside_of(spec.image, view if spec.apart else None)
    else:
        inside = standby.inside
        for warning in standby.warnings:
            say(warning)
    life = AttemptLife(
        replace(spec, env=with_host_file(spec.env, spec.folder)),
        loop,
        journal,
        group,
        logs,
        user,
        inside,
    )
    if standby is not None:
        life.spawn_rank = standby.spawner(say)
    return life


def launch_record(
    spec: ShimSpec, group: containment.Containment, shim: LocalProcess
) -> Record:
    """Return the first record of the journal: what another agent must know to take over
    the attempt."""
    return {
        "type": "launch",
        "shim": [shim.pid, shim.started],
        "containment": dict(group.record),
        "ranks": spec.ranks,
        "at": wall(),
    }


def open_logs(spec: ShimSpec, loop: Loop) -> dict[int, RankLog]:
    """Open a log file for each rank of this node, and return the logs by rank. Raises:
    OSError."""
    folder = Path(spec.folder) / "logs"
    folder.mkdir(exist_ok=True)
    return {
        number: RankLog(folder / f"rank-{number}.log", loop.now)
        for number in spec.ranks
    }


def _open_attempt_socket(folder: Path, user: JobAccount | None) -> socket.socket:
    """Open the attempt's socket. It is bound by a path that is short enough for any
    folder."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        server.bind(f"/proc/self/fd/{directory}/{SOCKET}")
        os.chmod(folder / SOCKET, stat.S_IRUSR | stat.S_IWUSR)
        if user is not None:
            os.chown(folder / SOCKET, user.uid, user.groups[0])
        server.listen(MOST_WAITING)
        server.setblocking(False)
    finally:
        os.close(directory)
    return server


def _change_owner(whole: Path, user: JobAccount) -> None:
    """Change the owner of the directory `whole` and its contents to the account of the
    ranks."""
    group = user.groups[0]
    for folder_path, folders, files in os.walk(whole):
        for name in (*folders, *files):
            os.chown(
                os.path.join(folder_path, name), user.uid, group, follow_symlinks=False
            )
    os.chown(whole, user.uid, group)
    whole.chmod(0o700)


def _read_line(connection: socket.socket) -> bytes:
    connection.settimeout(PATIENCE_SECONDS)
    received = bytearray()
    while not received.endswith(b"\n"):
        data = connection.recv(65536)
        if not data:
            raise ConnectionResetError("the agent disconnected before it sent a spec")
        received += data
    return bytes(received)


def _send_refusal(connection: socket.socket, why: str) -> None:
    connection.sendall(json.dumps({"type": "refused", "why": why}).encode() + b"\n")


def be_shim(
    connection: socket.socket, launcher: socket.socket | None = None
) -> NoReturn:
    """Run a shim in a new process; never returns. `launcher`: the connection over which
    the launcher sends further attempts."""
    code = 1
    try:
        os.setsid()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_IGN)
        next_connection: socket.socket | None = connection
        while next_connection is not None:
            is_free = main(next_connection)
            next_connection = None
            if is_free and launcher is not None:
                next_connection = next_attempt(launcher)
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stderr.flush()
        os._exit(code)
