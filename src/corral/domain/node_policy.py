"""The policy of a node: the accounts, images and paths that the node's own
administrator allows for jobs.

The policy is a file on the node. No head can change it. So even a compromised head can
start no rank as root on the node, nor as the account of a system service.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, Final, Literal

from corral.domain.errors import SpecInvalid
from corral.domain.units import bytes_of

ROOT: Final = "root"
DEFAULT_MIN_UID: Final = 1000  # where /etc/login.defs has no UID_MIN
HALF: Final = "half"
ALL: Final = "all"
MAX_UID: Final = 2**31 - 2
DOCKER_HUB: Final = "docker.io"
SYSTEM_ACCOUNTS: Final = (
    "bin",
    "daemon",
    "mail",
    "munge",
    "mysql",
    "nobody",
    "nogroup",
    "ntp",
    "polkitd",
    "postgres",
    "slurm",
    "sshd",
    "sssd",
    "sync",
    "sys",
    "systemd-network",
    "systemd-resolve",
    "www-data",
)
_RANGE: Final = re.compile(r"(\d{1,10})-(\d{1,10})", re.ASCII)
# Transports of an image reference that name no registry: containers-transports(5).
_FILE_TRANSPORTS: Final = (
    "dir",
    "docker-archive",
    "oci",
    "oci-archive",
    "sif",
    "tarball",
)
_LOCAL_TRANSPORTS: Final = ("containers-storage", "docker-daemon", "ostree")

_CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    "root": ("allow", "refuse"),
    "tmp": ("private", "shared"),
    "memory": ("share", "all"),
}
AllowOrRefuse = Literal["allow", "refuse"]


@dataclass(frozen=True, slots=True)
class UidRange:
    """Range of uids that the node may give to users without an account. Both ends are
    included."""

    first: int
    last: int

    def uid(self, number: int) -> int | None:
        """Return the uid of the user with this number in the cluster; None if it is
        beyond the range."""
        uid = self.first + number
        return uid if number >= 0 and uid <= self.last else None

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True, slots=True)
class PolicyRefusal:
    """Refusal by a node's policy, with a hint of the next command to type."""

    why: str
    hint: str

    def __str__(self) -> str:
        return f"{self.why}; {self.hint}"


@dataclass(frozen=True, kw_only=True)
class NodePolicy:
    """Limits of a node on what any head may start on it.

    Args:
        min_uid: Lowest uid of an account that ranks may run as; None is UID_MIN of
            /etc/login.defs.
        deny: Accounts that no rank may run as, whatever their uid.
        root: Whether the jobs of the user `root` may run as root.
        uid_range: Range of uids for users without an account, FIRST-LAST; "" refuses
            such users.
        registries: Registries (or REGISTRY/PATH prefixes) of images; None allows all.
        host_paths: Folders that hold image files and shared paths; None allows all.
        tmp: Whether each attempt has its own /tmp and /dev/shm.
        memory: "share" limits a job that asks for no memory to its share of the node's
            memory; "all" does not.
        disk: How much of the node's disk the files of an attempt may use, if its ranks
            have another account than the agent: "half" of the disk, "all" of it, or a
            size.
    """

    min_uid: int | None = None
    deny: tuple[str, ...] = SYSTEM_ACCOUNTS
    root: AllowOrRefuse = "refuse"
    uid_range: str = ""
    registries: tuple[str, ...] | None = None
    host_paths: tuple[str, ...] | None = None
    tmp: Literal["private", "shared"] = "private"
    memory: Literal["share", "all"] = "share"
    disk: str = HALF

    def __post_init__(self) -> None:
        if self.min_uid is not None and not 1 <= self.min_uid <= MAX_UID:
            raise ValueError(
                f"min_uid is {self.min_uid}: it must be from 1 to {MAX_UID}"
            )
        for path in self.host_paths or ():
            if not path.startswith("/"):
                raise ValueError(f"host_paths has {path!r}: a path must be absolute")
        self._check_range()
        if self.disk not in (HALF, ALL) and bytes_of(self.disk) < 1:
            raise ValueError(
                f"disk is {self.disk!r}: it must be {HALF}, {ALL} or a size"
            )

    def disk_limit_bytes(self, disk_bytes: int) -> int | None:
        """Return how many bytes of a disk of this size the files of an attempt may use.
        None if there is no limit."""
        if self.disk == ALL:
            return None
        return disk_bytes // 2 if self.disk == HALF else bytes_of(self.disk)

    def _check_range(self) -> None:
        """Check that `uid_range` is valid.

        Raises: ValueError if not.
        """
        if not self.uid_range:
            return
        match = _RANGE.fullmatch(self.uid_range)
        if match is None:
            raise ValueError(
                f"uid_range is {self.uid_range!r}: it must be FIRST-LAST, for example "
                "200000-265535"
            )
        first_uid, last_uid = int(match[1]), int(match[2])
        lowest = max(self.min_uid or DEFAULT_MIN_UID, DEFAULT_MIN_UID)
        if not lowest <= first_uid <= last_uid <= MAX_UID:
            raise ValueError(
                f"uid_range is {self.uid_range}: FIRST must be at most LAST, and both "
                f"from {lowest} to {MAX_UID}"
            )

    @cached_property
    def uids(self) -> UidRange | None:
        """Return the uid range as numbers; None if users without an account are
        refused."""
        if not self.uid_range:
            return None
        first_uid, last_uid = self.uid_range.split("-")
        return UidRange(int(first_uid), int(last_uid))

    def refuses_account(
        self, name: str, uid: int, min_uid: int
    ) -> PolicyRefusal | None:
        """Return why ranks may not run as this account of the machine; None if they
        may.

        Args:
            min_uid: The lowest uid of regular accounts on the machine, used if the
                policy sets none.
        """
        lowest = min_uid if self.min_uid is None else self.min_uid
        if uid == 0:
            if self.root == "allow" and name == ROOT:
                return None
            return PolicyRefusal(
                f"the node's policy lets no job run as root (user {name} has uid 0)",
                'submit as another user, or set "root": "allow" in the node\'s '
                "policy.json",
            )
        if name in self.deny:
            return PolicyRefusal(
                f"the node's policy denies the account {name}",
                "submit as another user, or remove the account from deny in the node's "
                "policy.json",
            )
        if uid < lowest:
            return PolicyRefusal(
                f"the account {name} has uid {uid}, below the lowest allowed uid {lowest}",
                "submit as another user, or set min_uid in the node's policy.json",
            )
        return None

    def refuses_unknown(self, name: str) -> PolicyRefusal | None:
        """Return why a user without an account is refused; None if the node gives each
        such user a uid from its range."""
        if name in (ROOT, *self.deny):
            return PolicyRefusal(
                f"the node's policy denies the account {name}", "submit as another user"
            )
        if self.uids is None:
            return PolicyRefusal(
                f"the node has no account {name}",
                f"run on the node: useradd {name}; or let Corral give each user a uid: "
                '"uid_range": "200000-265535" in the node\'s policy.json',
            )
        return None

    def refuses_image(self, image: str) -> PolicyRefusal | None:
        """Return why the policy does not allow an image; None if it does. `image` is
        the reference that the job gives.

        A registry reference must match `registries`, and an image file must lie in
        `host_paths`.
        """
        file = image_file(image)
        if file is not None:
            return self.refuses_path(file)
        name = full_reference(image)
        allowed = self.registries
        if allowed is None or any(
            _is_below(name, prefix.rstrip("/")) for prefix in allowed
        ):
            return None
        return PolicyRefusal(
            f"the node's policy does not allow the image {name}: it allows "
            f"{', '.join(allowed) or 'no registry'}",
            "use an image of an allowed registry, or change registries in the node's "
            "policy.json",
        )

    def refuses_path(self, path: str) -> PolicyRefusal | None:
        """Return why the policy hides this absolute, normalized path from jobs; None if
        it does not."""
        allowed = self.host_paths
        clean = path.startswith("/") and not {".", ".."} & set(path.split("/"))
        if allowed is None or (
            clean and any(_is_below(path, prefix.rstrip("/")) for prefix in allowed)
        ):
            return None
        return PolicyRefusal(
            f"the node's policy does not allow the path {path}: it allows "
            f"{', '.join(allowed) or 'no path'}",
            "use an allowed path, or change host_paths in the node's policy.json",
        )


def policy_with(policy: NodePolicy, words: Mapping[str, str]) -> NodePolicy:
    """Return the policy with some values replaced. `words` are the values by name, as
    they were typed in NAME=VALUE. Lists are separated by commas, and "any" lifts the
    limit on registries or paths.

    Raises: SpecInvalid if a name or a value is not valid.
    """
    names = [field.name for field in fields(NodePolicy)]
    for name, text in words.items():
        if name not in names:
            raise SpecInvalid(
                f"--policy {name}: a node has no such policy; the names are "
                f"{', '.join(names)}",
                hint="for example: --policy root=allow --policy uid_range=200000-265535",
            )
        if name in _CHOICES and text not in _CHOICES[name]:
            raise SpecInvalid(
                f"--policy {name}={text[:60]}: the value must be one of "
                f"{', '.join(_CHOICES[name])}",
                hint=f"for example: --policy {name}={_CHOICES[name][0]}",
            )
        try:
            policy = replace(policy, **{name: _parse_field(name, text)})
        except ValueError as wrong:
            raise SpecInvalid(
                f"--policy {name}={text[:60]}: {wrong}",
                hint="for example: --policy min_uid=1000 --policy uid_range=200000-265535",
            ) from None
    return policy


def _parse_field(name: str, text: str) -> Any:
    """Return the value of a policy field that was typed as text.

    Raises: ValueError if the text is not a value of the field.
    """
    if name == "min_uid":
        return int(text)
    if name in ("registries", "host_paths") and text == "any":
        return None
    if name in ("deny", "registries", "host_paths"):
        return tuple(
            list_entry.strip() for list_entry in text.split(",") if list_entry.strip()
        )
    return text


def image_file(image: str) -> str | None:
    """Return the file or folder that an image reference names; None for a registry
    reference."""
    name = image.strip()
    if name.startswith(("/", ".")) or name.endswith((".sif", ".simg")):
        return name
    transport, _, path = name.partition(":")
    if transport in _FILE_TRANSPORTS and "/" in path:
        return path if transport in ("dir", "sif") else path.partition(":")[0]
    return None


def full_reference(image: str) -> str:
    """Return the REGISTRY/PATH of an image, without tag and digest. For example:
    ubuntu:24.04 is docker.io/library/ubuntu.

    A reference to the tool's own storage keeps its transport prefix, so that it matches
    no registry.
    """
    name = image.strip().removeprefix("docker://")
    if name.partition(":")[0] in _LOCAL_TRANSPORTS:
        return name
    head, slash, image_name = name.partition("@")[0].rpartition("/")
    name = f"{head}{slash}{image_name.partition(':')[0]}"
    registry_host, slash, _ = name.partition("/")
    if slash and (
        "." in registry_host or ":" in registry_host or registry_host == "localhost"
    ):
        return name
    return f"{DOCKER_HUB}/{name}" if slash else f"{DOCKER_HUB}/library/{name}"


def _is_below(path: str, prefix: str) -> bool:
    return path == prefix or path.startswith(f"{prefix}/")
