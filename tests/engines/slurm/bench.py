"""A driver on a real Slurm, and a shell in place of an agent."""

import asyncio
import secrets
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from corral.domain.desired_state import Launch
from corral.domain.errors import Trouble
from corral.domain.ids import ClusterId, NodeId
from corral.domain.observed_state import AttemptKey
from corral.domain.pilot import part_of
from corral.engines.batch.interfaces import BatchSnapshot, PartFiles
from corral.engines.slurm.commands import Commands, environment
from corral.engines.slurm.driver import SlurmDriver
from corral.engines.slurm.folders import Folders
from corral.engines.slurm.interface import Calls
from corral.engines.slurm.names import job_name, short_cluster
from corral.engines.slurm.settings import SlurmSettings
from corral.engines.slurm.slurmrestd import Rest
from corral.wire.node import encode_settings
from tests.patience import PATIENCE_SECONDS
from tests.slurm import Slurm


@dataclass
class Bench:
    """A driver, and a shell in place of an agent that notes what it was granted."""

    slurm: Slurm
    dir: Path
    agent: str = "sleep 600"
    more: dict[str, Any] = field(default_factory=dict)
    by_rest: bool = False
    made: list[SlurmDriver] = field(default_factory=list)
    cluster: ClusterId = field(
        default_factory=lambda: ClusterId(secrets.token_hex(4))
    )  # Slurm forgets no name soon

    def driver(self, make: type[SlurmDriver] = SlurmDriver) -> SlurmDriver:
        shell = self.dir / "agent"
        notes = f'echo "$SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $5" >> {self.dir}/notes'
        shell.write_text(f"#!/bin/bash\n{notes}\n{self.agent}\n")
        shell.chmod(0o755)
        settings = SlurmSettings(python=str(shell), pretend=True, **self.more)
        (self.dir / "head.json").write_text('{"url": "http://127.0.0.1:1"}')
        folders = Folders(root=self.dir / "slurm", head_file=self.dir / "head.json")
        self.made.append(
            driver := make(
                cluster=lambda: self.cluster,
                settings=settings,
                folders=folders,
                calls=self.calls(settings.command_seconds),
            )
        )
        return driver

    def calls(self, seconds: float) -> Calls:
        if not self.by_rest:
            return Commands(seconds=seconds, env=self.env)
        address = self.slurm.start_rest()
        token = self.dir / "jwt"
        token.write_text(self.slurm.run("scontrol", "token", "lifespan=3600"))
        return Rest(address=address, token_file=token, seconds=seconds, env=self.env)

    def run(self, story: Coroutine[Any, Any, None]) -> None:
        """The story, and then its drivers are closed."""

        async def whole() -> None:
            try:
                await story
            finally:
                for driver in self.made:
                    await driver.close()

        asyncio.run(whole())

    @property
    def env(self) -> dict[str, str]:
        return environment() | dict(self.slurm.env)

    @property
    def notes(self) -> list[str]:
        file = self.dir / "notes"
        return sorted(file.read_text().splitlines()) if file.exists() else []

    def named(self, key: AttemptKey) -> list[list[str]]:
        return self.slurm.jobs("-n", job_name(short_cluster(self.cluster), key))


def parts_for(driver: SlurmDriver, gang: list[Launch]) -> dict[NodeId, PartFiles]:
    return {
        one.seat.node: PartFiles(
            settings=encode_settings(
                driver.settings_of(part_of(one.seat.node, one.key), one)
            ),
            token=b"very-secret\n",
            early=b"{}",
        )
        for one in gang
    }


async def look_until(
    driver: SlurmDriver, true: Callable[[BatchSnapshot], object]
) -> BatchSnapshot:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while True:
            # a loaded machine, or a controller that has just come
            with suppress(Trouble):
                if true(look := await driver.look()):
                    return look
            await asyncio.sleep(0.05)
