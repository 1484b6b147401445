"""Start of one process of an attempt: in its containment, as its user, without
inherited descriptors."""

import ctypes
import fcntl
import os
import signal
import struct
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Final

from corral.agent.containment import Containment
from corral.agent.job_account import JobAccount
from corral.agent.shim.filesystem_view import Inside

OOM_SCORE: Final = b"200"  # above the agent's: the kernel is to choose a rank first
UMASK: Final = 0o022
PR_SET_PDEATHSIG: Final = 1
PR_SET_NO_NEW_PRIVS: Final = 38
_SAY: Final = 3  # descriptor for the report of a failure
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """Parameters of a process to start. `words` is its command and `work` its folder.
    `stdio`: the descriptors that become its 0, 1 and 2; `terminal`: whether descriptor
    0 is a pty that becomes its controlling terminal."""

    words: list[str]
    env: Mapping[str, str]
    work: str
    stdio: tuple[int, int, int]
    account: JobAccount | None
    containment: Containment
    inside: Inside
    terminal: bool = False


@dataclass(frozen=True, slots=True)
class Spawned:
    """A started process. `failure` is a descriptor: it reads as empty once the program
    runs, else as the reason why the program does not run."""

    pid: int
    failure: int


def spawn(child: Child) -> Spawned:
    """Fork a process that runs the child's program, and return the process. Raises:
    OSError when no process can be created."""
    # what the child need not find out is done once, before
    handled = _handled_signals()
    failure, say = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        pid = os.fork()
    except OSError:
        os.close(failure)
        os.close(say)
        raise
    if pid == 0:
        _exec_child(child, say, handled)
    os.close(say)
    return Spawned(pid, failure)


def _exec_child(child: Child, say: int, handled: Sequence[int]) -> None:
    """Prepare the new process and execute the program. Never returns."""
    try:
        signal.set_wakeup_fd(-1)
        os.setsid()
        child.containment.enter()
        child.inside.enter()
        for number in handled:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        with suppress(OSError):
            os.write(
                os.open("/proc/self/oom_score_adj", os.O_WRONLY | os.O_CLOEXEC),
                OOM_SCORE,
            )
        os.chdir(child.work)
        os.umask(UMASK)
        _take_stdio(child.stdio, say)
        say = _SAY
        if child.terminal:
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)
        if child.account is not None:
            os.setgroups(child.account.groups)
            os.setgid(child.account.groups[0])
            os.setuid(child.account.uid)
        # a change of user resets it
        _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        os.execvpe(child.words[0], child.words, child.env)
    except BaseException as trouble:
        with suppress(OSError):
            os.write(say, f"{trouble}"[:500].encode())
    finally:
        os._exit(127)


@cache
def _handled_signals() -> tuple[int, ...]:
    """Return the signals that this process ignores or catches. A child must reset them:
    an ignored signal stays ignored in an executed program."""
    numbers = signal.valid_signals()
    usual = (signal.SIG_DFL, None)
    return tuple(
        int(number) for number in numbers if signal.getsignal(number) not in usual
    )


def _take_stdio(stdio: tuple[int, int, int], say: int) -> None:
    """Move `stdio` to descriptors 0 to 2, and `say`, which reports errors, to _SAY. The
    descriptor _SAY is closed when the program is executed. Close all other descriptors.
    """
    moved_descriptors = [
        fcntl.fcntl(descriptor, fcntl.F_DUPFD, 64) for descriptor in (*stdio, say)
    ]
    for target, source in enumerate(moved_descriptors):
        os.dup2(source, target, inheritable=target != _SAY)
    os.closerange(_SAY + 1, 65536)


def window(descriptor: int, rows: int, columns: int) -> None:
    """Set the size of a terminal."""
    fcntl.ioctl(
        descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0)
    )
