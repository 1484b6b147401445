"""A node's view of its machine: its disk, and its hostname if the machine has several
nodes.

With isolation "disk" the ranks of a node see the machine's files through an overlay
whose changes lie in the node's own folder `disk/`; only declared shared paths are the
machine's own. Of the cluster's folder (its database, token and key, the other nodes)
they see only the node's own attempts and the shared paths in it. As root the whole disk
is one overlay; without root a user namespace puts overlays on the home folder and the
temporary folders and makes the rest read-only. This separates well-meaning code; a rank
that runs as root can still reach the machine through /proc. Later changes by the
machine below such an overlay may not be visible inside. So "hide" is the default: the
ranks see the machine's files as they are, and only the cluster's own files are hidden.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final, Protocol

from corral.agent import kernel_mounts

IMAGES: Final = "images"
HOSTS: Final = "hosts"  # in its folder: what its ranks see as /etc/hosts
MACHINE_HOSTS: Final = Path("/etc/hosts")
# what ranks and shims of a node see of its folder
OWN: Final = ("attempts", "homes", IMAGES)
_KERNEL: Final = ("/proc", "/sys", "/dev")
_NO_FILES: Final = re.compile(
    "proc|sysfs|devtmpfs|devpts|cgroup2?|mqueue|debugfs|tracefs|securityfs|bpf|pstore|configfs"
    "|fusectl|autofs|binfmt_misc|hugetlbfs|nsfs|rpc_pipefs|efivarfs|selinuxfs"
)


class NodeSight(Protocol):
    """The settings in node.json that determine which files and hostname a node's ranks
    see."""

    @property
    def node(self) -> str: ...

    @property
    def isolation(self) -> str: ...

    @property
    def shared(self) -> Sequence[str]: ...

    @property
    def hidden(self) -> Sequence[str]: ...

    @property
    def neighbours(self) -> Sequence[str]: ...


def enter_private_root(
    node_dir: Path, settings: NodeSight, *, beside: int | None = None
) -> str:
    """Give this process and its children a view of the node's own disk.

    Call this once, while the process has one thread.

    `beside` is a process that is already inside, such as a shim whose launcher died.
    This process joins its view, because a disk can be mounted only once. If that
    process has ended in the meantime, the disk is free.
    Returns: "", or a sentence that names what could not be isolated and so is visible
    to other nodes.
    """
    if settings.isolation == "none":
        return ""
    try:
        if beside is not None:
            with suppress(FileNotFoundError, ProcessLookupError):
                kernel_mounts.join_mounts(beside)
                return ""
        user = kernel_mounts.own_mounts()
        if settings.isolation == "hide":
            _hide_only(node_dir, settings)
            return ""
        return _own_disk(node_dir, settings, user=user)
    except OSError as trouble:
        return (
            f"node {settings.node} has no private root, its ranks see the machine's files: "
            f"{trouble}"
        )


def has_private_root(inside: int) -> bool:
    """Return whether the process `inside` of a node has a private root, so that it
    writes to the node's own disk and not to the machine's.

    Raises: OSError when the process cannot be inspected.
    """
    inside_stat, ours = os.stat(f"/proc/{inside}/root/tmp"), os.stat("/tmp")
    return (inside_stat.st_dev, inside_stat.st_ino) != (ours.st_dev, ours.st_ino)


def _own_disk(node_dir: Path, settings: NodeSight, *, user: bool) -> str:
    disk = node_dir / "disk"
    root = disk / "root"
    root.mkdir(parents=True, exist_ok=True)
    hidden = _outermost(settings.hidden)
    hosts = write_hosts(node_dir, settings)
    with (
        _open_stable_paths(_seen_inside(node_dir, settings)) as visible_paths,
        _open_stable_paths(hosts) as hosts_files,
    ):
        plain = (
            _compose_as_user(disk, root)
            if user
            else _compose_overlays(disk, root, hidden)
        )
        _bind_paths(
            str(root),
            {
                path: source_path
                for path, source_path in visible_paths.items()
                if not _is_within_any(path, hidden)
            },
        )
        with _hide_folders(str(root), hidden):
            _bind_paths(
                str(root),
                {
                    path: source_path
                    for path, source_path in visible_paths.items()
                    if _is_within_any(path, hidden)
                },
            )
        name_node(str(root), settings, hosts_files)
    kernel_mounts.pivot(str(root))
    return (
        f"these paths are read-only on node {settings.node}: {', '.join(plain)}"
        if plain
        else ""
    )


def _hide_only(node_dir: Path, settings: NodeSight) -> None:
    hidden = _outermost(settings.hidden)
    hosts = write_hosts(node_dir, settings)
    with (
        _open_stable_paths(_seen_inside(node_dir, settings)) as visible_paths,
        _open_stable_paths(hosts) as hosts_files,
    ):
        with _hide_folders("", hidden):
            _bind_paths(
                "",
                {
                    path: source_path
                    for path, source_path in visible_paths.items()
                    if _is_within_any(path, hidden)
                },
            )
        name_node("", settings, hosts_files)


def write_hosts(node_dir: Path, settings: NodeSight) -> list[str]:
    """Write the node's own /etc/hosts, with a loopback address for each node of the
    machine.

    Programs such as torchrun identify nodes by the name of the address to which the
    hostname resolves, so no two nodes may have the same address. Returns: the path of
    the file in a list; an empty list for a node without neighbours.
    """
    if settings.node not in settings.neighbours:
        return []
    numbered_nodes = enumerate(settings.neighbours)
    own_lines = [
        f"127.1.{node_index // 250}.{node_index % 250 + 1} {name}\n"
        for node_index, name in numbered_nodes
    ]
    file = node_dir / HOSTS
    file.write_text("".join(own_lines) + MACHINE_HOSTS.read_text())
    return [os.path.realpath(file)]


def name_node(root: str, settings: NodeSight, hosts: Mapping[str, str]) -> None:
    """Give the node its own name as hostname, and mount the hosts file with that name
    below `root`.

    Raises: OSError when this fails.
    """
    for source in hosts.values():
        kernel_mounts.bind(source, f"{root}{os.path.realpath(MACHINE_HOSTS)}")
        kernel_mounts.own_hostname(settings.node)


def _compose_overlays(disk: Path, root: Path, hidden: Sequence[str]) -> list[str]:
    """Mount the machine's disk under `root`, each file system as an overlay whose
    changes lie in `disk`. Return the file systems that cannot be overlays; they are
    read-only instead."""
    mounts_by_point = {mount.point: mount for mount in kernel_mounts.mounts()}
    kernel_mounts.overlay("/", disk / "upper", str(root), user=False)
    plain = []
    for point, mount in mounts_by_point.items():
        target = f"{root}{point}"
        if (
            not _has_files(mount)
            or _is_within_any(point, hidden)
            or not os.path.lexists(target)
        ):
            continue
        try:
            kernel_mounts.overlay(
                point, disk / f"upper{point.replace('/', '-')}", target, user=False
            )
        except OSError:
            kernel_mounts.bind(point, target)
            kernel_mounts.read_only(target, mount.flags)
            plain.append(point)
    for folder in _KERNEL:
        kernel_mounts.bind(folder, f"{root}{folder}")
    kernel_mounts.read_only(
        f"{root}/dev", mounts_by_point["/dev"].flags if "/dev" in mounts_by_point else 0
    )
    _fresh_memory_folder(root)
    return plain


def _compose_as_user(disk: Path, root: Path) -> list[str]:
    """Compose the node's view under `root` without root rights: mount the machine's
    disk read-only, with an overlay on each folder that users write to. Return the
    folders that cannot have an overlay."""
    mounts_by_point = {mount.point: mount for mount in kernel_mounts.mounts()}
    kernel_mounts.bind("/", str(root))
    for point, mount in mounts_by_point.items():
        target = str(root) if point == "/" else f"{root}{point}"
        # A mount inside a folder that is closed to this user (root's podman mounts)
        # stays unchanged. No process inside can write to it either.
        if point == "/" or (_has_files(mount) and os.path.lexists(target)):
            kernel_mounts.read_only(target, mount.flags)
    plain = []
    for folder in _written_without_root():
        try:
            kernel_mounts.overlay(
                folder,
                disk / f"upper{folder.replace('/', '-')}",
                f"{root}{folder}",
                user=True,
            )
        except OSError:
            plain.append(folder)
    _fresh_memory_folder(root)
    return plain


def _written_without_root() -> list[str]:
    """Return the folders that get an overlay without root: the temporary folders and
    the home folder, outer ones first.

    The home folder has an overlay of its own even inside another overlay. An
    unprivileged user cannot copy a folder that another user owns, so no such folder may
    be on the path of a copy.
    """
    candidate_paths = {
        os.path.realpath(path) for path in ("/tmp", "/var/tmp", str(Path.home()))
    }
    return sorted((path for path in candidate_paths if os.path.isdir(path)), key=len)


def _fresh_memory_folder(root: Path) -> None:
    """Mount an empty /dev/shm below `root` that only this node has, for the shared
    memory of its ranks."""
    flags = kernel_mounts.MS_NOSUID | kernel_mounts.MS_NODEV
    if Path("/dev/shm").is_dir():
        kernel_mounts.mount("tmpfs", f"{root}/dev/shm", "tmpfs", flags, "mode=1777")


def _seen_inside(node_dir: Path, settings: NodeSight) -> list[str]:
    """Return the paths of the machine that the node's ranks still see: shared paths and
    the node's own folders, parents first."""
    own_paths = [node_dir / name for name in OWN]
    for folder in own_paths:
        folder.mkdir(exist_ok=True)
    # for shims, which enter an image before they change user
    (node_dir / IMAGES).chmod(0o700)
    paths = {
        os.path.realpath(path) for path in (*settings.shared, *map(str, own_paths))
    }
    return sorted((path for path in paths if os.path.exists(path)), key=len)


@contextmanager
def _open_stable_paths(paths: Sequence[str]) -> Iterator[Mapping[str, str]]:
    """Open the paths, and yield for each one a name that leads to it even when
    something else is mounted over it."""
    with ExitStack() as stack:
        names = {}
        for path in paths:
            descriptor = os.open(path, os.O_PATH)
            stack.callback(os.close, descriptor)
            names[path] = f"/proc/self/fd/{descriptor}"
        yield names


def _bind_paths(root: str, seen: Mapping[str, str]) -> None:
    for path, source in seen.items():
        target = Path(f"{root}{path}")
        if not target.exists():
            _make_way(target)
        kernel_mounts.bind(source, str(target))
        if target.name == IMAGES:
            kernel_mounts.restrict(
                str(target), kernel_mounts.MS_NODEV | kernel_mounts.MS_NOSUID
            )


def _make_way(target: Path) -> None:
    """Create the folder and its missing parents so that all accounts may enter them,
    because a rank of any account must reach its work folder."""
    if not target.parent.exists():
        _make_way(target.parent)
    target.mkdir()
    target.chmod(0o755)


@contextmanager
def _hide_folders(root: str, hidden: Sequence[str]) -> Iterator[None]:
    """Mount empty folders over the hidden ones. Mounts that the caller makes inside
    them stay visible; then the empty folders become read-only."""
    present_paths = [
        f"{root}{path}" for path in hidden if os.path.isdir(f"{root}{path}")
    ]
    flags = kernel_mounts.MS_NOSUID | kernel_mounts.MS_NODEV
    for target in present_paths:
        kernel_mounts.mount("tmpfs", target, "tmpfs", flags, "size=1m,mode=755")
    yield
    for target in present_paths:
        kernel_mounts.read_only(target, flags)


def _has_files(mount: kernel_mounts.Mount) -> bool:
    """Return whether users keep files on the mount: it is neither one of the kernel's
    own file systems nor the root."""
    if mount.point == "/" or _NO_FILES.fullmatch(mount.kind):
        return False
    return not _is_within_any(mount.point, _KERNEL)


def _is_within_any(path: str, folders: Sequence[str]) -> bool:
    return any(path == folder or path.startswith(f"{folder}/") for folder in folders)


def _outermost(paths: Sequence[str]) -> list[str]:
    """Return the paths that lie inside no other of these paths."""
    outermost: list[str] = []
    for path in sorted({os.path.realpath(path) for path in paths}):
        if not _is_within_any(path, outermost):
            outermost.append(path)
    return outermost
