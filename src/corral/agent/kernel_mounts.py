"""Calls of the kernel for mounts and namespaces. Every failure raises an OSError that
names the reason."""

import ctypes
import os
import re
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CLONE_NEWNS: Final = 0x00020000
CLONE_NEWUTS: Final = 0x04000000
CLONE_NEWUSER: Final = 0x10000000
MS_RDONLY: Final = 0x1
MS_NOSUID: Final = 0x2
MS_NODEV: Final = 0x4
MS_REMOUNT: Final = 0x20
MS_BIND: Final = 0x1000
MS_REC: Final = 0x4000
MS_SLAVE: Final = 0x80000
MNT_DETACH: Final = 0x2
SYS_PIVOT_ROOT: Final = {"x86_64": 155, "aarch64": 41, "ppc64le": 203, "riscv64": 41}

_KEPT: Final = {
    "nosuid": 0x2,
    "nodev": 0x4,
    "noexec": 0x8,
    "noatime": 0x400,
    "relatime": 0x200000,
}
_OCTAL: Final = re.compile(r"\\([0-7]{3})")
_libc: Final = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mount:
    """One line of /proc/self/mountinfo."""

    point: str
    kind: str
    flags: int  # those that a remount must keep


def mounts() -> list[Mount]:
    """Return the mounts of this namespace, parents before children."""
    mount_list = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        fields = line.split(" ")
        kind = fields[fields.index("-") + 1]
        point = _OCTAL.sub(lambda code: chr(int(code.group(1), 8)), fields[4])
        flags = sum(_KEPT.get(option, 0) for option in fields[5].split(","))
        mount_list.append(Mount(point=point, kind=kind, flags=flags))
    return sorted(
        mount_list,
        key=lambda mount: mount.point.count("/") if mount.point != "/" else 0,
    )


def mount(
    source: str, target: str, kind: str = "", flags: int = 0, data: str = ""
) -> None:
    answer = _libc.mount(
        source.encode(),
        target.encode(),
        kind.encode() or None,
        flags,
        data.encode() or None,
    )
    _raise_on_error(answer, f"cannot mount {kind or source} on {target}")


def bind(source: str, target: str) -> None:
    """Bind-mount the tree at `source` (a path, or that of an open folder's descriptor)
    at `target`."""
    mount(source, target, flags=MS_BIND | MS_REC)


def read_only(target: str, kept: int = 0) -> None:
    """Make the mount at `target` read-only and keep its flags `kept`. Mounts below it
    stay unchanged."""
    mount("none", target, flags=MS_REMOUNT | MS_BIND | MS_RDONLY | kept)


def restrict(target: str, flags: int) -> None:
    """Add flags, such as nodev and nosuid, to the bind mount at `target`."""
    mount_flags = next(
        (
            mount_entry.flags
            for mount_entry in reversed(mounts())
            if mount_entry.point == target
        ),
        0,
    )
    mount("none", target, flags=MS_REMOUNT | MS_BIND | mount_flags | flags)


def overlay(
    lower: str, upper: Path, target: str, *, user: bool, flags: int = 0
) -> None:
    """Mount `target` as an overlay of `lower` whose changes go to `upper`/changes.

    The paths are passed to the kernel as descriptors, so that no character in a path
    can be read as a mount option.
    """
    folders = [Path(lower), upper / "changes", upper / "work"]
    for folder in folders[1:]:
        folder.mkdir(parents=True, exist_ok=True)
    opened = [os.open(folder, os.O_PATH | os.O_DIRECTORY) for folder in folders]
    try:
        lower_path, upper_path, work = (
            f"/proc/self/fd/{descriptor}" for descriptor in opened
        )
        overlay_option = "userxattr" if user else "redirect_dir=on"
        layers = f"lowerdir={lower_path},upperdir={upper_path},workdir={work},{overlay_option}"
        mount("overlay", target, "overlay", flags, layers)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def pivot(root: str) -> None:
    """Make the mount `root` the root of this mount namespace, and detach the old root."""
    os.chdir(root)
    number = SYS_PIVOT_ROOT[os.uname().machine]
    _raise_on_error(
        _libc.syscall(ctypes.c_long(number), b".", b"."), f"cannot pivot to {root}"
    )
    _raise_on_error(_libc.umount2(b".", MNT_DETACH), "cannot unmount the old root")
    os.chdir("/")


def own_mounts() -> bool:
    """Move this process, which must have one thread, to a mount namespace of its own.
    Return whether this needed a user namespace too.

    Raises: OSError where the kernel allows neither.
    """
    user = False
    if _libc.unshare(CLONE_NEWNS) != 0:
        uid, gid = os.geteuid(), os.getegid()
        _raise_on_error(
            _libc.unshare(CLONE_NEWUSER | CLONE_NEWNS),
            "cannot create a mount namespace",
        )
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1")
        user = True
    mount("none", "/", flags=MS_REC | MS_SLAVE)
    return user


def own_hostname(name: str) -> None:
    """Give this process, and all processes that it starts, their own hostname.

    Raises: OSError when the kernel does not allow it.
    """
    _raise_on_error(_libc.unshare(CLONE_NEWUTS), "cannot create a hostname namespace")
    socket.sethostname(name)


def join_mounts(pid: int) -> None:
    """Move this process to the mount namespace and the hostname of another process.

    Raises: OSError when this fails.
    """
    for kind, flag in (
        ("user", CLONE_NEWUSER),
        ("mnt", CLONE_NEWNS),
        ("uts", CLONE_NEWUTS),
    ):
        if os.readlink(f"/proc/{pid}/ns/{kind}") == os.readlink(
            f"/proc/self/ns/{kind}"
        ):
            continue
        descriptor = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            _raise_on_error(
                _libc.setns(descriptor, flag),
                f"cannot join the {kind} namespace of process {pid}",
            )
        finally:
            os.close(descriptor)
    os.chdir("/")


def namespaces_of(pid: int) -> dict[str, int]:
    """Return descriptors of the user and mount namespaces of a process, by kind
    ("user", "mnt"). A namespace in which this process is too is left out."""
    opened = {}
    for kind in ("user", "mnt"):
        if os.readlink(f"/proc/{pid}/ns/{kind}") != os.readlink(
            f"/proc/self/ns/{kind}"
        ):
            opened[kind] = os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY | os.O_CLOEXEC)
    return opened


def enter_namespaces(opened: Mapping[str, int]) -> None:
    """Move this process, which must have one thread, to the namespaces in `opened`
    (descriptors by kind).

    Raises: OSError when this fails.
    """
    for kind, flag in (("user", CLONE_NEWUSER), ("mnt", CLONE_NEWNS)):
        if kind in opened:
            _raise_on_error(
                _libc.setns(opened[kind], flag),
                f"cannot join the {kind} namespace of the image",
            )


def _raise_on_error(answer: int, what: str) -> None:
    if answer != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
