"""Driver of Slurm where Slurm places jobs itself: they wait in its own queue, and begin
where it has room."""

import asyncio
import secrets
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from corral.domain.desired_state import Launch
from corral.domain.external_candidate import ExternalCandidate
from corral.domain.ids import NodeId
from corral.engines.batch.interfaces import PartFiles
from corral.engines.slurm.driver import SlurmDriver
from corral.engines.slurm.folders import SCRIPT
from corral.engines.slurm.interface import SlurmTrouble
from corral.engines.slurm.queued_script import Grounds, asking_script_of, batch_name


@dataclass(slots=True, kw_only=True)
class SlurmPlacingDriver(SlurmDriver):
    """Implements lending.PlacingDriver."""

    async def ask(self, group: Sequence[ExternalCandidate]) -> None:
        """Let Slurm place the group's attempts that are not in its queue yet. Raises:
        Unsupported, SlurmTrouble."""
        new_candidates = await self._not_there(group)
        if not new_candidates:
            return
        name = batch_name(new_candidates, self.short, secrets.token_hex(2))
        script = asking_script_of(
            new_candidates, name=name, settings=self.settings, grounds=self._grounds()
        )
        try:
            for external_candidate in new_candidates:
                await asyncio.to_thread(
                    self.folders.make, external_candidate.key, {}, script, name=name
                )
        except OSError as error:
            raise SlurmTrouble(
                f"the folder of an attempt cannot be created: {error}",
                hint="run: df -h",
            ) from error
        await self.calls.submit(self.folders.of(new_candidates[0].key) / SCRIPT)

    async def equip(
        self, gang: Sequence[Launch], parts: Mapping[NodeId, PartFiles]
    ) -> None:
        """Write what the attempt's agents need to its folder; then the attempt begins.
        Raises: SlurmTrouble."""
        try:
            await asyncio.to_thread(self.folders.equip, gang[0].key, parts)
        except OSError as error:
            folder = self.folders.of(gang[0].key)
            raise SlurmTrouble(
                f"{folder} cannot be written: {error}", hint="run: df -h"
            ) from error

    async def _not_there(
        self, group: Sequence[ExternalCandidate]
    ) -> list[ExternalCandidate]:
        """Return the candidates of the group that are not in Slurm's queue. Their
        folders are removed, because such a folder is from a submission to which Slurm
        did not respond."""
        missing = []
        for external_candidate in group:
            is_known = self.folders.of(external_candidate.key).exists()
            jobs = (
                await self.queue(self.name_of(external_candidate.key))
                if is_known
                else ()
            )
            if any(
                job.key(self.short) == external_candidate.key and not job.is_over
                for job in jobs
            ):
                continue
            await self.forget(external_candidate.key)
            missing.append(external_candidate)
        return missing

    def _grounds(self) -> Grounds:
        nodes = self.nodes.values()
        return Grounds(
            root=str(self.folders.root),
            python=self.settings.python or sys.executable,
            nodes=tuple(NodeId(node.name) for node in nodes),
            gpu_types=frozenset(kind for node in nodes for kind in node.gpus if kind),
            most_memory_bytes=max((node.memory_bytes for node in nodes), default=0),
        )
