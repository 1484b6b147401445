"""Control groups: the kernel keeps every child in its parent's group, so no process
escapes.

Version 1 has one folder for each controller, version 2 one folder for all. Groups are
created below the launcher's own group, so that limits set on Corral as a whole still
apply.
"""

import os
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from corral.agent.containment import device_filter
from corral.agent.containment.base import CGROUP, ContainmentLimits, MemoryEvents
from corral.agent.containment.namespace import PidNamespace
from corral.agent.processes import lives, send

PARENT: Final = "corral"
CROWD: Final = 256
_V1: Final = ("freezer", "pids", "memory", "cpu", "devices")
_V2: Final = ("memory", "pids", "cpu")
_FREEZE_SECONDS: Final = 0.3
_CPU_PERIOD_MICROS: Final = 100_000
_NO_LIMIT_1: Final = 2**53  # version 1 writes the absence of a limit as nearly 2^63


@dataclass(frozen=True, slots=True, kw_only=True)
class Hierarchy:
    """Folders in which groups may be created: by controller in version 1, under the key
    "" in version 2."""

    version: int
    folders: Mapping[str, Path]


class NoCgroups(OSError):
    """Control groups are not available on this machine."""


@lru_cache(maxsize=1)
def own_hierarchy() -> Hierarchy:
    """Return the cgroup hierarchy of this process.

    Raises: NoCgroups with the reason if it cannot create groups.
    """
    mounts = Path("/proc/self/mountinfo").read_text()
    return hierarchy(mounts, Path("/proc/self/cgroup").read_text())


def hierarchy(mountinfo: str, cgroups: str) -> Hierarchy:
    """Return the cgroup hierarchy in which this process may create groups.

    Raises: NoCgroups if no such hierarchy exists.
    """
    folders = _own_folders(mountinfo, cgroups)
    if "freezer" in folders:
        return _version_1(folders)
    if "" in folders:
        return _version_2(folders[""])
    raise NoCgroups("no cgroup file system is mounted")


def _own_folders(mountinfo: str, cgroups: str) -> dict[str, Path]:
    """Return the folders of the groups that a process is in, by controller; the key is
    "" for version 2."""
    own_cgroups: dict[str, str] = {}
    for line in cgroups.splitlines():
        _, names, path = line.split(":", 2)
        own_cgroups.update(dict.fromkeys(names.split(","), path))
    folders: dict[str, Path] = {}
    for line in mountinfo.splitlines():
        fields = line.split(" ")
        kind, options = fields[fields.index("-") + 1], fields[-1].split(",")
        if kind in ("cgroup", "cgroup2"):
            controllers = ("",) if kind == "cgroup2" else tuple(set(_V1) & set(options))
            for name in controllers:
                folders[name] = _mounted_group_path(
                    Path(fields[4]), fields[3], own_cgroups.get(name, "/")
                )
    return folders


def _mounted_group_path(mount: Path, root: str, path: str) -> Path:
    """Return the folder of the group `path` below the mount point `mount`, whose mount
    shows the hierarchy from the group `root` downwards."""
    inside = path.removeprefix(root.rstrip("/")) if path.startswith(root) else "/"
    return mount / inside.lstrip("/")


def _version_1(found: Mapping[str, Path]) -> Hierarchy:
    for name in ("freezer", "pids"):
        if name not in found or not os.access(found[name], os.W_OK):
            raise NoCgroups(f"the cgroup folder of {name} is missing or not writable")
    usable = {
        name: cgroup_dir
        for name, cgroup_dir in found.items()
        if name in _V1 and os.access(cgroup_dir, os.W_OK)
    }
    return Hierarchy(version=1, folders=usable)


def _version_2(own: Path) -> Hierarchy:
    """Return the nearest group, from `own` upwards, that can delegate its controllers;
    otherwise the nearest writable group."""
    plain: Path | None = None
    for folder in (own, *own.parents):
        if not (folder / "cgroup.procs").exists():
            break
        if not (
            os.access(folder, os.W_OK) and os.access(folder / "cgroup.procs", os.W_OK)
        ):
            break
        plain = plain or folder
        if {"memory", "pids"} <= hand_on(folder):
            return Hierarchy(version=2, folders={"": folder})
    if plain is None:
        raise NoCgroups(f"the cgroup {own} is not delegated to this user")
    hand_on(plain)
    return Hierarchy(version=2, folders={"": plain})


def hand_on(folder: Path) -> set[str]:
    """Enable the controllers for groups below the folder. Return the names of the
    controllers that are then enabled."""
    control = folder / "cgroup.subtree_control"
    for name in _V2:
        # busy: it holds processes itself; or the controller is not there
        with suppress(OSError):
            control.write_text(f"+{name}")
    with suppress(OSError):
        return set(control.read_text().replace("+", "").split()) & set(_V2)
    return set()


@dataclass(slots=True, kw_only=True)
class Cgroup:
    """One cgroup, with one folder for each hierarchy. The first folder lists the
    group's processes and freezes them.

    `namespace`: the pid namespace that its processes are in as well, where they are
    isolated from those of other users.
    """

    version: int
    folders: Sequence[Path]
    warnings: Sequence[str] = ()
    kind: str = CGROUP
    namespace: PidNamespace | None = None

    @property
    def record(self) -> Mapping[str, Any]:
        return {
            "kind": CGROUP,
            "version": self.version,
            "folders": [str(folder) for folder in self.folders],
        }

    def enter(self) -> None:
        """Move the calling process, which has one thread, into the group.

        A write to `cgroup.procs` takes a lock over all processes of the machine, and
        waits for an RCU grace period (about 6 ms) to get it. A thread that moves itself
        by `tasks` needs no such lock (Linux, cgroup_procs_write_start). Version 2 has
        no `tasks`.
        """
        members = "tasks" if self.version == 1 else "cgroup.procs"
        for folder in self.folders:
            _write_control_file(f"{folder}/{members}", "0")
        if self.namespace is not None:
            self.namespace.enter()

    def pids(self) -> list[int]:
        members = self._members()
        if len(members) > CROWD:  # surely not all of these have ended
            return members
        return [pid for pid in members if lives(pid)]

    def kill(self) -> None:
        main = self.folders[0]
        if self.version == 2 and (main / "cgroup.kill").exists():
            (main / "cgroup.kill").write_text("1")
            return
        self._set_frozen(True)  # nothing forks while it is being killed
        try:
            for pid in self._members():
                send(pid, 9)
        finally:
            self._set_frozen(False)

    def memory(self) -> MemoryEvents | None:
        if self.version == 2:
            return _memory_2(self.folders[0])
        folder = next(
            (
                cgroup_dir
                for cgroup_dir in self.folders
                if (cgroup_dir / "memory.oom_control").exists()
            ),
            None,
        )
        return None if folder is None else _memory_1(folder)

    def remove(self) -> None:
        if self.namespace is not None:
            self.namespace.remove()
            self.namespace = None
        for folder in self.folders:
            for inner in reversed(_group_tree_folders(folder)):
                with suppress(OSError):
                    os.rmdir(inner)

    def _members(self) -> list[int]:
        members = []
        for folder in _group_tree_folders(self.folders[0]):
            with suppress(OSError), open(f"{folder}/cgroup.procs", "rb") as file:
                members += [int(pid_text) for pid_text in file.read().split()]
        return members

    def _set_frozen(self, frozen: bool) -> None:
        main = self.folders[0]
        name, state_values = "cgroup.freeze", ("0", "1")
        if self.version == 1:
            name, state_values = "freezer.state", ("THAWED", "FROZEN")
        with suppress(OSError):
            (main / name).write_text(state_values[frozen])
            deadline = time.monotonic() + _FREEZE_SECONDS
            while frozen and time.monotonic() < deadline and not self._is_frozen():
                time.sleep(0.001)

    def _is_frozen(self) -> bool:
        main = self.folders[0]
        if self.version == 1:
            return (main / "freezer.state").read_text().strip() == "FROZEN"
        return _read_counter(main / "cgroup.events", "frozen") == 1


def _memory_2(folder: Path) -> MemoryEvents | None:
    """Return the memory events of a version 2 group; None where neither the group nor
    one of its ancestors has a memory limit."""
    limit = _limit_2(folder)
    if limit is None:
        return None
    return MemoryEvents(
        oom_kills=_read_counter(folder / "memory.events", "oom_kill"),
        peak_bytes=_read_number(folder / "memory.peak"),
        limit_bytes=limit,
    )


def _limit_2(folder: Path) -> int | None:
    """Return the lowest memory limit of the group and its ancestors, in bytes; None if
    none has a limit."""
    around = (folder, *folder.parents)
    limits = (
        _read_number(path / "memory.max")
        for path in around
        if (path / "memory.max").exists()
    )
    return min((limit for limit in limits if limit > 0), default=None)


def _memory_1(folder: Path) -> MemoryEvents:
    tightest = _read_counter(folder / "memory.stat", "hierarchical_memory_limit")
    own_limit = _read_number(folder / "memory.limit_in_bytes")
    limit = min(tightest, own_limit) if tightest else own_limit
    return MemoryEvents(
        oom_kills=_read_counter(folder / "memory.oom_control", "oom_kill"),
        peak_bytes=_read_number(folder / "memory.max_usage_in_bytes"),
        limit_bytes=limit if limit < _NO_LIMIT_1 else None,
    )


def around() -> MemoryEvents | None:
    """Return memory use and memory limit of the cgroup in which this process runs; None
    if they cannot be read."""
    with suppress(OSError):
        mounts = Path("/proc/self/mountinfo").read_text()
        own_folders = _own_folders(mounts, Path("/proc/self/cgroup").read_text())
        if "memory" in own_folders:
            return _memory_1(own_folders["memory"])
        if "" in own_folders:
            return _memory_2(own_folders[""])
    return None


def create(place: Hierarchy, name: str, limits: ContainmentLimits) -> Cgroup:
    """Create a group with these limits.

    Raises: OSError when this fails.
    """
    if place.version == 2:
        return _create_2(place, name, limits)
    limit_accepted = {
        "freezer": True,
        "pids": True,
        "memory": limits.memory_bytes > 0,
        "cpu": limits.cpu_millis > 0,
        "devices": limits.devices is not None,
    }
    # A group of its own for the CPU also where none is asked for: however many
    # processes it has, they then compete with its shim and its neighbours as one.
    used_controllers = [
        controller
        for controller in _V1
        if (limit_accepted[controller] or controller == "cpu")
        and controller in place.folders
    ]
    folders = {
        controller: place.folders[controller].joinpath(PARENT, name)
        for controller in used_controllers
    }
    for folder in folders.values():
        folder.mkdir(parents=True, exist_ok=True)
    missing = [
        controller
        for controller in _V1
        if limit_accepted[controller] and controller not in folders
    ]
    group = Cgroup(
        version=1,
        folders=list(folders.values()),
        warnings=_missing_limit_warnings(missing),
    )
    for controller, folder in folders.items():
        _write_all(folder, _FILES_1[controller](limits))
    if "memory" in folders:
        with suppress(OSError):  # only where the kernel counts swap too
            swap = folders["memory"] / "memory.memsw.limit_in_bytes"
            swap.write_text(str(limits.memory_bytes))
    return group


def _create_2(place: Hierarchy, name: str, limits: ContainmentLimits) -> Cgroup:
    parent = place.folders[""] / PARENT
    parent.mkdir(exist_ok=True)
    controllers = hand_on(parent)
    folder = parent / name
    folder.mkdir(exist_ok=True)
    limit_files = {
        "pids": [("pids.max", str(limits.pids))] * (limits.pids > 0),
        "memory": [("memory.max", str(limits.memory_bytes)), ("memory.swap.max", "0")]
        * (limits.memory_bytes > 0),
        "cpu": [("cpu.max", f"{_cpu_quota_micros(limits)} {_CPU_PERIOD_MICROS}")]
        * (limits.cpu_millis > 0),
    }
    missing = [
        controller
        for controller, files in limit_files.items()
        if files and controller not in controllers
    ]
    for controller, files in limit_files.items():
        _write_all(folder, files if controller in controllers else ())
    warnings = _missing_limit_warnings(missing)
    if limits.devices is not None:
        try:
            device_filter.attach(folder, limits.devices)
        except OSError as trouble:
            warnings.append(f"ranks can open the GPUs of other jobs: {trouble}")
    return Cgroup(version=2, folders=[folder], warnings=warnings)


def _cpu_quota_micros(limits: ContainmentLimits) -> int:
    return max(1000, limits.cpu_millis * _CPU_PERIOD_MICROS // 1000)


def _device_rules(limits: ContainmentLimits) -> list[tuple[str, str]]:
    devices = []
    for major, minors in (limits.devices or {}).items():
        devices.append(("devices.deny", f"c {major}:* rwm"))
        devices += [("devices.allow", f"c {major}:{minor} rwm") for minor in minors]
    return devices


_FILES_1: Final = {
    "freezer": lambda limits: [],
    "pids": lambda limits: [("pids.max", str(limits.pids or "max"))],
    "memory": lambda limits: [("memory.limit_in_bytes", str(limits.memory_bytes))],
    "cpu": lambda limits: (
        [
            ("cpu.cfs_period_us", str(_CPU_PERIOD_MICROS)),
            ("cpu.cfs_quota_us", str(_cpu_quota_micros(limits))),
        ]
        * (limits.cpu_millis > 0)
    ),
    "devices": _device_rules,
}


def _write_all(folder: Path, files: Iterable[tuple[str, str]]) -> None:
    for name, content in files:
        with suppress(FileNotFoundError):  # memory.swap.max where swap is not counted
            _write_control_file(f"{folder}/{name}", content)


def _write_control_file(file: str, content: str) -> None:
    """Write a control file of a cgroup. This avoids Python's text layer, because every
    launch writes such files."""
    descriptor = os.open(file, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC)
    try:
        os.write(descriptor, content.encode())
    finally:
        os.close(descriptor)


def _missing_limit_warnings(controllers: Iterable[str]) -> list[str]:
    return [
        f"the {name} limit is not enforced: the cgroup controller is missing"
        for name in controllers
    ]


def _group_tree_folders(folder: Path) -> list[str]:
    """Return the folder and the folders of all groups created below it, parents first."""
    with suppress(OSError):
        if os.stat(folder).st_nlink == 2:  # no folder in it
            return [str(folder)]
    return [group_path for group_path, _, _ in os.walk(folder)]


def _read_counter(file: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        lines = (line.split() for line in file.read_text().splitlines())
        return next((int(value) for key, value in lines if key == name), 0)
    return 0


def _read_number(file: Path) -> int:
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return 0
