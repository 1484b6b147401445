"""Containment of an attempt's processes: by a cgroup, else by a pid namespace, else by
a subreaper."""

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from corral.agent.containment import cgroup, namespace, subreaper
from corral.agent.containment.base import (
    CGROUP,
    ENGINE,
    PID_NAMESPACE,
    SUBREAPER,
    Containment,
    ContainmentChoice,
    ContainmentLimits,
    MemoryEvents,
)
from corral.agent.containment.namespace import Furnish
from corral.agent.processes import LocalProcess

__all__ = [
    "CGROUP",
    "ENGINE",
    "KINDS",
    "PID_NAMESPACE",
    "SUBREAPER",
    "Containment",
    "ContainmentChoice",
    "ContainmentLimits",
    "MemoryEvents",
    "create",
    "from_on",
    "probe",
    "recorded",
]

KINDS: Final = (CGROUP, PID_NAMESPACE, SUBREAPER)  # the strongest first


def from_on(kind: str) -> Sequence[str]:
    """Return this kind of containment and the weaker kinds that replace it where it is
    not available."""
    return (ENGINE,) if kind == ENGINE else KINDS[KINDS.index(kind) :]


def probe(wanted: str | None = None) -> ContainmentChoice:
    """Return the strongest containment that is available on this machine. Return the
    `wanted` kind instead if that is available."""
    reasons: list[str] = []
    for kind in KINDS if wanted is None else from_on(wanted):
        why_not = _WHY_NOT[kind]()
        if not why_not:
            return ContainmentChoice(
                kind,
                "; ".join(reasons)
                or ("requested in node.json" if wanted else "the strongest kind"),
            )
        reasons.append(f"{kind} is not available: {why_not}")
    raise AssertionError("a subreaper is always available")


def create(
    kind: str,
    *,
    name: str,
    mark: str,
    limits: ContainmentLimits,
    furnish: Furnish | None = None,
) -> Containment:
    """Create a containment that this process's children enter.

    Args:
        kind: the kind of containment.
        name: unique on the machine.
        mark: "NAME=value" in every rank's environment, by which the ranks can be found.
        furnish: if given, the processes are in a pid namespace too, and this function
            makes the mounts that they alone see.

    Raises: OSError when it cannot be created; never for a subreaper.
    """
    if kind == CGROUP:
        apart = None if furnish is None else _namespace(furnish)
        group = cgroup.create(cgroup.own_hierarchy(), name, limits)
        if isinstance(apart, str):
            group.warnings = (*group.warnings, apart)
        else:
            group.namespace = apart
        return group
    if kind == PID_NAMESPACE:
        return namespace.create(limits, furnish)
    if kind == ENGINE:
        return subreaper.inside_engine(mark)
    return subreaper.create(mark, limits)


def _namespace(furnish: Furnish) -> namespace.PidNamespace | str:
    """Create and return a pid namespace for the processes of a cgroup; on failure
    return a sentence that explains it."""
    try:
        return namespace.create(ContainmentLimits(), furnish)
    except OSError as trouble:
        return f"users can see each other's processes and /tmp on this node: {trouble}"


def settle(group: Containment) -> int | None:
    """Wait until the containment's pid namespace, if it has one, is ready. Return an
    open descriptor of the mount namespace of its processes; None where they share the
    shim's.

    Raises: OSError when this fails.
    """
    inner = group.namespace if isinstance(group, cgroup.Cgroup) else group
    if not isinstance(inner, namespace.PidNamespace):
        return None
    inner.settle()
    if isinstance(group, cgroup.Cgroup):
        group.warnings = (*group.warnings, *inner.warnings)
    return inner.view


def recorded(record: Mapping[str, Any]) -> Containment:
    """Return the containment that another process has created and described in
    `record`, to list and kill its remaining processes."""
    if record["kind"] == CGROUP:
        folders = [Path(folder) for folder in record["folders"]]
        return cgroup.Cgroup(version=int(record["version"]), folders=folders)
    if record["kind"] == PID_NAMESPACE:
        init_process = LocalProcess(*map(int, record["first"]))
        return namespace.PidNamespace(shim=int(record["shim"]), first=init_process)
    return subreaper.Subreaper(shim=int(record["shim"]), mark=str(record["mark"]))


def _no_cgroup() -> str:
    try:
        hierarchy = cgroup.own_hierarchy()
        cgroup.create(hierarchy, f"probe-{os.getpid()}", ContainmentLimits()).remove()
    except OSError as trouble:
        return str(trouble)
    return ""


_WHY_NOT: Final[Mapping[str, Callable[[], str]]] = {
    CGROUP: _no_cgroup,
    PID_NAMESPACE: namespace.try_out,
    SUBREAPER: lambda: "",
    ENGINE: lambda: "",
}
