"""Client of the discovery helper: a driver that hangs must not block the agent."""

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from corral.agent.discovery.helper import Survey
from corral.agent.mig import write_parts
from corral.agent.port_range import PortBlock
from corral.agent.private_root import has_private_root
from corral.domain.resources import Gpu, Inventory
from corral.domain.units import MILLIS_PER_CPU
from corral.wire.node import NodeSettings

START_SECONDS: Final = 30.0  # what the helper may take beyond its own deadline
_MEMORY_LIMITS: Final = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Probe:
    """Discovery of a node's inventory, by a helper process. If the GPUs or shared paths
    do not answer in time, their last values are kept."""

    node_dir: Path
    settings: NodeSettings
    containment: str
    ports: PortBlock
    command: tuple[str, ...] = (sys.executable, "-m", "corral.agent.discovery.helper")
    deadline_seconds: float = 5.0
    gpus: tuple[Gpu, ...] = ()
    shared: tuple[tuple[str, str], ...] = ()
    _said: set[str] = field(default_factory=set)

    async def look(
        self, inside: int | None, held_ports: Collection[int] = ()
    ) -> Inventory:
        """Ask the helper for the current inventory.

        `inside` is a process in the node's private root, if the node has one.
        `held_ports` are ports that the node's attempts use.
        """
        own_disk = _is_private(self.settings, inside)
        answer = await self._ask(inside if own_disk else None)
        if answer is None:
            self._say(
                "the query of GPUs and shared paths did not end; the last result is kept"
            )
        else:
            self._apply_survey(answer)
        return Inventory(
            gpus=self.gpus,
            cpu_millis=self.settings.cpu_millis or cpu_millis(),
            memory_bytes=self.settings.memory_bytes or memory_bytes(),
            ports=self.ports.free(held_ports),
            shared=self.shared,
            labels=self.settings.labels,
            gpu_shares=self.settings.gpu_shares,
            containment=self.containment,
            private_root=own_disk or self.settings.own_machine,
            shares_disk=bool(self.settings.common),
            checks=True,
        )

    def _apply_survey(self, answer: Survey) -> None:
        for trouble in answer.troubles:
            self._say(trouble)
        for name in answer.silent:
            self._say(f"{name} did not answer within {self.deadline_seconds:g} s")
        if "GPUs" not in answer.silent:
            self.gpus = answer.gpus
            self._keep_parts(answer)
        kept_shared = [
            (path, mark) for path, mark in self.shared if path in answer.silent
        ]
        self.shared = tuple(sorted([*answer.shared, *kept_shared]))

    def _keep_parts(self, answer: Survey) -> None:
        """Store the positions of the MIG devices from the helper's answer in a file,
        for the device filter of attempts."""
        try:
            write_parts(self.node_dir, answer.parts)
        except OSError as trouble:
            self._say(
                f"jobs can open each other's MIG slices of the same GPU: {trouble}"
            )

    def _say(self, trouble: str) -> None:
        # a look each minute must not fill the log with one sentence
        if trouble not in self._said:
            self._said.add(trouble)
            log.warning("%s", trouble)

    async def _ask(self, inside: int | None) -> Survey | None:
        """Return the helper's answer, or None if no answer arrives in time."""
        arguments = [*self.command, str(self.node_dir), str(self.deadline_seconds)]
        if inside is not None:
            arguments.append(str(inside))
        helper = await asyncio.create_subprocess_exec(
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        assert helper.stdout is not None
        try:
            async with asyncio.timeout(self.deadline_seconds + START_SECONDS):
                line = await helper.stdout.readline()
            return msgspec.json.decode(line, type=Survey)
        except (TimeoutError, ValueError):
            return None
        finally:
            with contextlib.suppress(ProcessLookupError):
                helper.kill()
            # one that hangs in the kernel is left behind
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1.0):
                    await helper.wait()


def cpu_millis() -> int:
    """Return the number of CPUs that this process may run on, in thousandths of a CPU."""
    return len(os.sched_getaffinity(0)) * MILLIS_PER_CPU


def memory_bytes() -> int:
    """Return the machine's memory in bytes, or the limit of a cgroup around the whole
    machine if that is lower."""
    total = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    for file in _MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            total = min(total, int(file.read_text()))
    return total


def _is_private(settings: NodeSettings, inside: int | None) -> bool:
    if settings.isolation != "disk" or inside is None:
        return False
    try:
        return has_private_root(inside)
    except OSError:
        return False
