"""Limits for work folders that are kept after the end of their attempts."""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from corral.domain.ids import UserName
from corral.domain.units import DAY_SECONDS

# used share of a node's disk above which kept folders are removed
HIGH_WATER: Final = 0.9
USUAL_DAYS: Final = 7.0
USUAL_BYTES: Final = 50 * 1000**3


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkLimits:
    """Limits of each node.

    Args:
        days: Number of days for which a folder is kept after the end of its attempt.
        user_bytes: Total size of all kept folders of one user on the node.
    """

    days: float = USUAL_DAYS
    user_bytes: int = USUAL_BYTES

    def until(self, ended_at: float) -> float:
        """Return the time until which the folder of an attempt is kept, if no size
        limit removes it earlier. `ended_at` is the end of the attempt."""
        return ended_at + self.days * DAY_SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptWork:
    """One kept folder on a node. A folder with saves stays until its job is deleted
    from the record."""

    name: str
    owner: UserName
    ended_at: float
    bytes: int
    has_saves: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSpace:
    """Space on the disk of a node."""

    total_bytes: int
    used_bytes: int

    @property
    def excess_bytes(self) -> int:
        """Return how many bytes must be removed until the disk is below its high-water
        mark."""
        return max(0, self.used_bytes - int(self.total_bytes * HIGH_WATER))


def folders_to_remove(
    kept: Iterable[KeptWork], limits: WorkLimits, disk: DiskSpace, now: float
) -> list[KeptWork]:
    """Return the folders to remove, oldest first: those older than the limit in days,
    those beyond the size limit of their user, and as many as are needed to bring a full
    disk below its high-water mark."""
    in_order = sorted(kept, key=lambda one: (one.ended_at, one.name))
    removable = [kept_folder for kept_folder in in_order if not kept_folder.has_saves]
    removed_names = {
        kept_folder.name
        for kept_folder in removable
        if now > limits.until(kept_folder.ended_at)
    }
    removed_names |= set(_beyond_size(removable, limits, removed_names))
    freed = sum(
        kept_folder.bytes
        for kept_folder in removable
        if kept_folder.name in removed_names
    )
    for kept_work in removable:
        if freed >= disk.excess_bytes:
            break
        if kept_work.name not in removed_names:
            removed_names.add(kept_work.name)
            freed += kept_work.bytes
    return [
        kept_folder for kept_folder in removable if kept_folder.name in removed_names
    ]


def _beyond_size(
    removable: Iterable[KeptWork], limits: WorkLimits, gone: set[str]
) -> Iterator[str]:
    """Yield the names of folders to remove, the oldest of each user first, until the
    rest is within the size limit. Folders in `gone` are not counted."""
    of_user: dict[UserName, list[KeptWork]] = defaultdict(list)
    for kept_work in removable:
        if kept_work.name not in gone:
            of_user[kept_work.owner].append(kept_work)
    for folders in of_user.values():
        held_bytes = sum(folder.bytes for folder in folders)
        for kept_work in folders:
            if held_bytes <= limits.user_bytes:
                break
            held_bytes -= kept_work.bytes
            yield kept_work.name
