"""Bringing a cluster up: what it shall be, a head that serves, nodes that are alive."""

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.start import (
    StartFailed,
    head_runs,
    last_lines,
    node_processes,
    start_head,
)
from corral.domain.errors import Conflict, SpecInvalid

if TYPE_CHECKING:
    from corral.wire import api

NODES_SECONDS: Final = 60.0
POLL_SECONDS: Final = 0.03
GPU_SECONDS: Final = 20.0
_COUNT: Final = "from corral.agent.survey import real_gpus; print(len(real_gpus(None)))"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What somebody asked a cluster to be. None: as it is, or as this machine allows."""

    nodes: int | None = None
    gpus: int | None = None
    gpu_type: str | None = None
    pretend: bool | None = None
    gpu_shares: bool | None = None
    gpu_slices: int | None = None
    labels: tuple[str, ...] | None = None
    topology: str | None = None
    shared: tuple[str, ...] | None = None
    reboot_seconds: float | None = None
    keep_days: float | None = None
    keep_jobs: int | None = None
    host: str | None = None
    tls_certificate: str | None = None
    tls_key: str | None = None

    @property
    def given(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def real_gpu_count() -> int:
    """GPUs of this machine; asked in a helper process, since a driver may hang."""
    try:
        found = subprocess.run(
            [sys.executable, "-P", "-c", _COUNT],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=GPU_SECONDS,
        )
        return int(found.stdout or 0)
    except (subprocess.TimeoutExpired, ValueError):
        return 0


def settled(asked: Asked, count_gpus: Callable[[], int]) -> ClusterSettings:
    """What a new cluster is to be on a machine with so many GPUs.

    Raises: SpecInvalid when the machine's GPUs are not enough and pretending was not asked for.
    """
    given = {"nodes": 1} | asked.given
    if asked.pretend:
        return ClusterSettings(**given)
    found, nodes, gpus = count_gpus(), given["nodes"], asked.gpus
    if gpus is None and nodes > 1:
        given["gpus"] = found // nodes if nodes > 0 else 0
    if found == 0:
        return ClusterSettings(**(given | {"pretend": bool(given.get("gpus"))}))
    if (gpus or 0) * nodes > found or (gpus is None and found < nodes):
        raise SpecInvalid(
            f"{nodes} nodes with {gpus if gpus is not None else 1} GPUs each need more than the "
            f"{found} GPUs of this machine",
            hint="ask for fewer, or add --pretend: then no real GPU is used",
        )
    if asked.gpu_slices:
        raise SpecInvalid(
            "--gpu-slices cuts pretend GPUs, and this machine has real ones",
            hint="real ones are cut with nvidia-smi mig, and found so; or add --pretend",
        )
    if asked.gpu_type is not None:
        raise SpecInvalid(
            "--gpu-type names pretend GPUs, and this machine has real ones",
            hint="leave it out, or add --pretend: then no real GPU is used",
        )
    return ClusterSettings(**given)


def decide(place: ClusterDir, asked: Asked, count_gpus: Callable[[], int]) -> ClusterSettings:
    """The settings of the cluster in this directory, new or as they are.

    Raises: Conflict when it lives and is asked to be another.
    """
    known = ClusterSettings.load(place)
    if known is None:
        return settled(asked, count_gpus)
    other = [name for name, value in asked.given.items() if getattr(known, name) != value]
    if not other:
        return known
    if head_runs(place) or node_processes(place):
        said = ", ".join(f"{_word(name)} is {getattr(known, name)!r}" for name in other)
        again = " ".join(f"{_word(name)} {asked.given[name]}" for name in other)
        raise Conflict(
            f"the cluster in {place.root} is up already, and its {said}",
            hint=f"to change it, run: corral down; corral up {again}",
        )
    kept = {name: getattr(known, name) for name in Asked.__slots__}
    return settled(Asked(**(kept | asked.given)), count_gpus)


def bring_up(place: ClusterDir, asked: Asked) -> bool:
    """Let the cluster be up; False when its head was there already.

    Raises: Conflict when it is asked to be another than it is, StartFailed when it does not come.
    """
    place.create()
    settings = decide(place, asked, real_gpu_count)
    if head_runs(place):
        return False
    settings.save(place)
    start_head(place)
    return True


def wait_for_nodes(place: ClusterDir, status: "Callable[[], api.Status]") -> "api.Status":
    """The status once every node is alive, and has been heard by this head: the last one may have
    known it otherwise.

    Raises: StartFailed with the end of an agent's log when a node does not come.
    """
    settings = ClusterSettings.load(place) or ClusterSettings()
    wanted = [f"n{number + 1}" for number in range(settings.nodes)]
    give_up_at = time.monotonic() + NODES_SECONDS
    while True:
        found = status()
        here = {node.id for node in found.nodes if node.heard and node.liveness == "alive"}
        missing = [name for name in wanted if name not in here]
        if not missing:
            return found
        if time.monotonic() > give_up_at:
            break
        time.sleep(POLL_SECONDS)
    log = place.nodes / missing[0] / "agent.log"
    raise StartFailed(
        f"node {missing[0]} is not alive after {NODES_SECONDS:g} s; the last lines of {log}:\n"
        f"{last_lines(log, 0)}",
        hint="run: corral status, or give it up: corral down",
    )


def _word(field: str) -> str:
    own = {"labels": "label", "reboot_seconds": "reboot"}
    return "--" + own.get(field, field).replace("_", "-")
