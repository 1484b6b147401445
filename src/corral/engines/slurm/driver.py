"""Driver of Slurm: attempts are its batch jobs, through Slurm's commands or slurmrestd."""

import asyncio
import getpass
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from corral.domain.desired_state import Launch
from corral.domain.ids import BootId, ClusterId, NodeId
from corral.domain.observed_state import AttemptKey
from corral.domain.pilot import node_of
from corral.domain.resources import Gpu, Inventory
from corral.engines.batch.interfaces import BatchSnapshot, LentNode, PartFiles
from corral.engines.slurm.batch_script import AttemptPaths, script_of
from corral.engines.slurm.folders import SCRIPT, Folders
from corral.engines.slurm.interface import Calls, SlurmTrouble
from corral.engines.slurm.jobs import (
    SlurmJob,
    doubles_of,
    foreign_of,
    merged,
    tickets_of,
    without_strays,
)
from corral.engines.slurm.names import job_name, key_of, short_cluster
from corral.engines.slurm.nodes import SlurmNode, cpu_millis_of
from corral.engines.slurm.settings import SlurmSettings
from corral.wire.node import NodeSettings

BOOT: Final = BootId("slurm")  # Slurm itself says when a node went down: as a proof
LOOK_AT: Final = "run: sinfo"
MOST_NAMES: Final = 200  # that one command is asked about


@dataclass(slots=True, kw_only=True)
class SlurmDriver:
    """Implements `BatchSystem` for Slurm. `shared`: paths that every node sees under
    the same name."""

    cluster: Callable[[], ClusterId]
    settings: SlurmSettings
    folders: Folders
    calls: Calls
    shared: tuple[str, ...] = ()
    hidden: tuple[str, ...] = ()  # from the ranks: the cluster's own files
    trusted: str | None = None
    nodes: dict[str, SlurmNode] = field(default_factory=dict)

    async def look(self) -> BatchSnapshot:
        """Return the state of Slurm's nodes and of this cluster's batch jobs. Raises:
        SlurmTrouble."""
        try:
            self.folders.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.folders.tell_head()
            nodes = await self.calls.nodes()
            jobs = await self.calls.queue()
            attempt_keys = self.folders.keys()
            kept_names = dict(
                zip(attempt_keys, map(self.name_of, attempt_keys), strict=True)
            )
            jobs, strays = without_strays(jobs, self.short, kept_names)
            jobs = merged(jobs, await self._past(kept_names, jobs))
        except (OSError, ValueError) as wrong:
            raise SlurmTrouble(
                f"the state of Slurm cannot be read: {wrong}", hint=LOOK_AT
            ) from wrong
        if unwanted := (*strays, *doubles_of(jobs, self.short)):
            await self.calls.cancel(unwanted)
        self.nodes = {node.name: node for node in nodes if self._is_ours(node)}
        return BatchSnapshot(
            nodes=tuple(
                self._lent(node, node_index, jobs)
                for node_index, node in enumerate(self.nodes.values())
            ),
            tickets=tickets_of(
                jobs, self.short, slurm_places=self.settings.slurm_places
            ),
            kept=tuple(kept_names),
        )

    async def submit(
        self, gang: Sequence[Launch], parts: Mapping[NodeId, PartFiles]
    ) -> None:
        """Write the attempt's folder and submit its batch job, unless it has been
        submitted already. Raises: Unsupported, SlurmTrouble."""
        key = gang[0].key
        name = self.name_of(key)
        folder = self.folders.of(key)
        attempt_paths = AttemptPaths(
            folder=str(folder),
            python=self.settings.python or sys.executable,
            gpu_types={NodeId(node.name): node.gpus for node in self.nodes.values()},
            memory_bytes={
                NodeId(node.name): node.memory_bytes for node in self.nodes.values()
            },
        )
        script = script_of(
            gang, cluster=self.short, settings=self.settings, place=attempt_paths
        )
        try:
            has_folder = folder.exists()
            await asyncio.to_thread(self.folders.make, key, parts, script)
        except OSError as error:
            raise SlurmTrouble(
                f"the folder {folder} cannot be created: {error}", hint="run: df -h"
            ) from error
        if has_folder and await self.queue(name):
            return
        await self.calls.submit(folder / SCRIPT)

    async def withhold(self, key: AttemptKey) -> None:
        """Prevent the attempt's ranks that have not begun from starting. Raises:
        SlurmTrouble."""
        try:
            await asyncio.to_thread(self.folders.take_begin, key)
        except OSError as error:
            raise SlurmTrouble(
                f"{self.folders.of(key)} cannot be written: {error}"
            ) from error

    async def cancel(self, key: AttemptKey) -> None:
        """Cancel the attempt's batch job; of an array only the attempt's own task.
        Raises: SlurmTrouble."""
        name = self.name_of(key)
        if key_of(name, self.short) == key:
            await self.calls.cancel_named(name)
            return
        jobs = await self.queue(name)  # of an array: this task alone
        if chosen := [job.handle for job in jobs if job.key(self.short) == key]:
            await self.calls.cancel(chosen)

    async def forget(self, key: AttemptKey) -> None:
        """Remove the folder of an attempt that is over and recorded. Raises:
        SlurmTrouble."""
        try:
            await asyncio.to_thread(self.folders.remove, key)
        except OSError as error:
            raise SlurmTrouble(
                f"{self.folders.of(key)} cannot be removed: {error}"
            ) from error

    def fitted(self, launch: Launch) -> Launch:
        """Return the launch with its GPUs numbered from 0, as Slurm grants them."""
        return replace(
            launch, seat=replace(launch.seat, gpus=tuple(range(len(launch.seat.gpus))))
        )

    def settings_of(self, part: NodeId, launch: Launch) -> NodeSettings:
        node = self.nodes.get(node_of(part))
        types = (
            [node.gpus[index] for index in launch.seat.gpus] if node is not None else []
        )
        return NodeSettings(
            node=part,
            head_file=str(self.folders.head_json),
            trusted=self.trusted,
            address=node.address if node is not None else node_of(part),
            pretend_gpus=len(launch.seat.gpus) if self.settings.pretend else None,
            gpu_numbers=launch.seat.gpus,
            gpu_type=next(iter(types), "").lower() or "gpu",
            cpu_millis=launch.seat.cpu_millis or None,
            memory_bytes=launch.seat.memory_bytes or None,
            shared=self.shared,
            isolation="hide",
            hidden=self.hidden,
            images=self.settings.images,
            containment="engine",
        )

    async def close(self) -> None:
        await self.calls.close()

    def name_of(self, key: AttemptKey) -> str:
        """Return the name of the attempt's batch job; for an index of an array, the
        name of the whole array's batch job. Raises: SlurmTrouble."""
        try:
            return self.folders.name_of(key) or job_name(self.short, key)
        except OSError as error:
            raise SlurmTrouble(
                f"{self.folders.of(key)} cannot be read: {error}"
            ) from error

    async def queue(self, name: str) -> tuple[SlurmJob, ...]:
        """Return the batch jobs with this name in Slurm's queue. Raises: SlurmTrouble."""
        try:
            return await self.calls.queue(name)
        except ValueError as wrong:
            raise SlurmTrouble(
                f"the queue of Slurm cannot be read: {wrong}", hint=LOOK_AT
            ) from wrong

    @property
    def short(self) -> str:
        return short_cluster(self.cluster())

    def _is_ours(self, node: SlurmNode) -> bool:
        return (
            self.settings.partition is None
            or self.settings.partition in node.partitions
        )

    def _lent(self, node: SlurmNode, place: int, jobs: Iterable[SlurmJob]) -> LentNode:
        return LentNode(
            node=NodeId(node.name),
            boot=BOOT,
            address=node.address,
            inventory=self._inventory(node, place),
            foreign=foreign_of(node, jobs, self.short),
            closed=node.closed,
            down=node.proof,
            silent=node.is_silent,
        )

    def _inventory(self, node: SlurmNode, place: int) -> Inventory:
        return Inventory(
            gpus=tuple(
                Gpu(
                    index=index,
                    uuid=f"{node.name}-{index}",
                    type=kind.lower() or "gpu",
                    memory_bytes=0,
                    pretend=self.settings.pretend,
                )
                for index, kind in enumerate(node.gpus)
            ),
            cpu_millis=cpu_millis_of(node.cpus),
            memory_bytes=node.memory_bytes,
            ports=self.settings.ports_of(place),
            shared=tuple((path, "slurm") for path in self.shared),
            labels=tuple(sorted((feature, "true") for feature in node.features)),
            containment="engine",
            shared_account=getpass.getuser() if os.geteuid() != 0 else "",
        )

    async def _past(
        self, kept: Mapping[AttemptKey, str], queued: Iterable[SlurmJob]
    ) -> tuple[SlurmJob, ...]:
        """Return the batch jobs from Slurm's accounting that belong to attempts which
        are no longer in Slurm's queue. `kept`: the batch job's name of each attempt.
        `queued`: the jobs in the queue."""
        queued_keys = {job.key(self.short) for job in queued}
        names = dict.fromkeys(
            name for key, name in kept.items() if key not in queued_keys
        )
        slurm_jobs = await self.calls.past([*names][:MOST_NAMES]) if names else ()
        keys = ((job, job.key(self.short)) for job in slurm_jobs)
        return tuple(
            job for job, key in keys if key is not None and kept.get(key) == job.name
        )
