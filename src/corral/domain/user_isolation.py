"""Accounts that run ranks on a node, and what users can reach of each other's ranks
there."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from corral.domain.natural_order import natural
from corral.domain.node import Liveness, Node
from corral.domain.resources import Inventory

CGROUP: Final = "cgroup"
ENGINE: Final = "engine"  # a batch system contains the attempt
POD: Final = "pod"
PRIVILEGED_POD: Final = "privileged-pod"
NAMES_MOST: Final = 5  # nodes that a sentence names


class Surface(StrEnum):
    """Something of a user's ranks that another user might reach. The value is the name
    used in texts."""

    ENVIRONMENT = "environment"
    ARGUMENTS = "arguments"
    FILES = "files"
    TEMPORARY_FILES = "temporary files"
    SHARED_PATHS = "files on shared paths"
    SOCKETS = "Unix sockets"
    GPUS = "GPUs"
    PORTS = "network ports"
    IMAGES = "images"
    LOGS = "logs"
    SNAPSHOTS = "workdirs"
    CACHES = "caches"


class Means(StrEnum):
    """Way in which users on a node are isolated from each other."""

    OWN_ACCOUNTS = "own_accounts"
    PODS = "pods"
    ONE_ACCOUNT = "one_account"
    PRIVILEGED_PODS = "privileged_pods"


@dataclass(frozen=True, slots=True)
class UserIsolation:
    """Isolation of users on a node.

    Args:
        account: The one account of all users' ranks; "" if each user has an account.
        shared: Surfaces on which users can reach each other.
    """

    means: Means
    account: str
    shared: tuple[Surface, ...]

    @property
    def is_kept(self) -> bool:
        """Return whether users are isolated from each other here."""
        return self.means in (Means.OWN_ACCOUNTS, Means.PODS)

    @property
    def text(self) -> str:
        """Return a sentence about the isolation on one or more nodes, without the names
        of the nodes."""
        surfaces = ", ".join(self.shared)
        if self.means == Means.OWN_ACCOUNTS:
            return (
                "each user's ranks run under the user's own account; not isolated between "
                f"users: {surfaces}"
            )
        if self.means == Means.PODS:
            return (
                f"the ranks of all users run as {self.account}, each attempt in pods of its "
                f"own; not isolated between users: {surfaces}"
            )
        if self.means == Means.PRIVILEGED_PODS:
            return (
                "the pods of all users run as root on the node (security=privileged): "
                "users are not isolated from each other"
            )
        return (
            f"the ranks of all users run as {self.account}: users can read each other's "
            "files and environment; to isolate users, start the agent as root"
        )


def separation_of(inventory: Inventory) -> UserIsolation:
    """Return how users are isolated on a node with this inventory."""
    account, containment = inventory.shared_account, inventory.containment
    if containment == PRIVILEGED_POD:
        return UserIsolation(Means.PRIVILEGED_PODS, account, tuple(Surface))
    if containment == POD:
        shared_surfaces = (Surface.SHARED_PATHS, Surface.PORTS, Surface.IMAGES)
        return UserIsolation(Means.PODS, account, shared_surfaces)
    if account:
        return UserIsolation(Means.ONE_ACCOUNT, account, tuple(Surface))
    surfaces = {Surface.PORTS}
    if containment != CGROUP:
        surfaces.add(Surface.GPUS)  # the device filter needs a cgroup
    if containment == ENGINE:
        # it has no pid namespace
        surfaces |= {Surface.ARGUMENTS, Surface.TEMPORARY_FILES}
    return UserIsolation(
        Means.OWN_ACCOUNTS,
        "",
        tuple(surface for surface in Surface if surface in surfaces),
    )


def separations(nodes: Iterable[Node]) -> dict[UserIsolation, list[str]]:
    """Return the nodes that are alive, grouped by how users are isolated on them, in
    natural order: n2 before n10."""
    missing_by_isolation: dict[UserIsolation, list[str]] = {}
    for node in sorted(nodes, key=lambda node: natural(node.id)):
        if node.liveness == Liveness.ALIVE:
            missing_by_isolation.setdefault(separation_of(node.inventory), []).append(
                node.id
            )
    return missing_by_isolation


def names_text(nodes: Sequence[str]) -> str:
    """Return a text with the first node names and the number of the other nodes."""
    unnamed_count = len(nodes) - NAMES_MOST
    return ", ".join(nodes[:NAMES_MOST]) + (
        f" and {unnamed_count} more" if unnamed_count > 0 else ""
    )
