"""A pid namespace: when its first process ends, the kernel kills all processes in it.

The shim's later children are created in the namespace. Its first process does nothing
but reap, and dies with the shim. Without root, a user namespace is created too, in
which user ids stay as they are.
"""

import ctypes
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from corral.agent import kernel_mounts
from corral.agent.containment.base import PID_NAMESPACE, ContainmentLimits, MemoryEvents
from corral.agent.processes import LocalProcess, descendants, send

CLONE_NEWPID: Final = 0x20000000
PR_SET_PDEATHSIG: Final = 1
Furnish = Callable[[], None]
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(slots=True, kw_only=True)
class PidNamespace:
    """A pid namespace. `shim` is the parent of its first process. `view` is a
    descriptor of the mount namespace of the first process, with its own /proc. `ready`
    is the pipe on which the first process reports its mounts; `settle` reads and closes
    it."""

    shim: int
    first: LocalProcess
    view: int | None = None
    ready: int | None = None
    warnings: Sequence[str] = ()
    kind: str = PID_NAMESPACE

    @property
    def record(self) -> Mapping[str, Any]:
        return {
            "kind": PID_NAMESPACE,
            "shim": self.shim,
            "first": [self.first.pid, self.first.started],
        }

    def enter(self) -> None:
        if (
            self.view is not None
            and _libc.setns(self.view, kernel_mounts.CLONE_NEWNS) != 0
        ):
            raise OSError(
                ctypes.get_errno(), "a rank cannot join its attempt's mount namespace"
            )

    def settle(self) -> None:
        """Wait until the mounts of the namespace exist. Call this once, before any
        process enters."""
        assert self.ready is not None
        answer = os.read(self.ready, 300)
        os.close(self.ready)
        self.ready = None
        if answer == b"view":
            self.view = os.open(
                f"/proc/{self.first.pid}/ns/mnt", os.O_RDONLY | os.O_CLOEXEC
            )
        else:
            reason = answer.decode(errors="replace") or "its first process ended"
            warning = f"ranks see the /proc and /tmp of the machine: {reason}"
            self.warnings = (*self.warnings, warning)

    def pids(self) -> list[int]:
        """Return the living processes of the namespace. While the shim lives, the first
        process is left out, because it serves the shim and is not a rank."""
        if LocalProcess.find(self.shim) is not None:
            return [pid for pid in descendants(self.shim) if pid != self.first.pid]
        return (
            [self.first.pid, *descendants(self.first.pid)] if self.first.lives else []
        )

    def kill(self) -> None:
        if self.first.lives:
            self.first.signal(signal.SIGKILL)
        for pid in self.pids():
            send(pid, signal.SIGKILL)

    def memory(self) -> MemoryEvents | None:
        return None

    def remove(self) -> None:
        self.first.signal(signal.SIGKILL)
        if self.view is not None:
            os.close(self.view)
            self.view = None


def create(limits: ContainmentLimits, furnish: Furnish | None = None) -> PidNamespace:
    """Move this process's future children to a namespace. Its mounts exist after
    `settle`.

    Args:
        furnish: additional mounts in the namespace, besides its own /proc.

    Raises: OSError where this is not permitted.
    """
    if furnish is None:
        _unshare_namespace(CLONE_NEWPID)
    elif _libc.unshare(CLONE_NEWPID) != 0:
        # in a user namespace no rank could change its account
        raise OSError(ctypes.get_errno(), "root cannot create a pid namespace here")
    ready, done = os.pipe2(os.O_CLOEXEC)
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        os.close(ready)
        _be_first(done, furnish)
    os.close(done)
    init_process = LocalProcess.find(pid)
    if init_process is None:
        raise OSError(
            "the init process of the pid namespace ended at once; look for its cause, "
            "such as the OOM killer, with: dmesg"
        )
    warnings = []
    if limits.memory_bytes:
        warnings.append("the memory limit is not enforced: no cgroup is available")
    return PidNamespace(shim=shim, first=init_process, ready=ready, warnings=warnings)


def try_out() -> str:
    """Return the reason why a pid namespace cannot be created here; "" if it can."""
    pid = os.fork()
    if pid == 0:
        try:
            _unshare_namespace(CLONE_NEWPID)
            os._exit(0)
        except OSError as trouble:
            os._exit(min(trouble.errno or 1, 254))
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    return os.strerror(code) if code else ""


def _unshare_namespace(flag: int) -> None:
    if _libc.unshare(flag) == 0:
        return
    uid, gid = os.geteuid(), os.getegid()
    if _libc.unshare(flag | kernel_mounts.CLONE_NEWUSER) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"no pid namespace available: {os.strerror(number)}")
    for name, content in (
        ("setgroups", "deny"),
        ("uid_map", f"{uid} {uid} 1"),
        ("gid_map", f"{gid} {gid} 1"),
    ):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(content)


def _be_first(done: int, furnish: Furnish | None) -> None:
    """Run the first process of the namespace: make the namespace's own mounts, report
    the result on the pipe `done`, then reap for ever."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    try:
        kernel_mounts.own_mounts()
        kernel_mounts.mount(
            "proc", "/proc", "proc", kernel_mounts.MS_NOSUID | kernel_mounts.MS_NODEV
        )
        if furnish is not None:
            furnish()
        os.write(done, b"view")
    except OSError as trouble:
        os.write(done, f"{trouble}"[:300].encode())
    os.closerange(0, 1024)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
    while True:
        signal.sigwait({signal.SIGCHLD})
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
