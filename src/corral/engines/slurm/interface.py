"""Interface to Slurm, by its commands or by slurmrestd."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Protocol

from corral.domain.errors import Trouble
from corral.engines.slurm.jobs import SlurmJob
from corral.engines.slurm.nodes import SlurmNode

NEVER: Final = (
    "Requested node configuration is not available",
    "invalid partition specified",
    "Invalid partition name specified",
    "Invalid account",
    "Invalid qos specification",
    "Invalid generic resource (gres) specification",
    "Requested time limit is invalid",
    "Node count specification invalid",
    "Requested partition configuration not available now",
    "More processors requested than permitted",
    "Memory specification can not be satisfied",
    "User's group not permitted to use this partition",
    "Requested reservation is invalid",
    "unrecognized option",
)  # what Slurm says of a request that will not be granted at any later time either


class SlurmTrouble(Trouble):
    """Slurm does not answer, or not as it should."""

    code = "slurm_trouble"


class Calls(Protocol):
    """Each call is bounded in time.

    Raises: SlurmTrouble, and ValueError for what cannot be read.
    """

    async def nodes(self) -> tuple[SlurmNode, ...]:
        """All nodes, in Slurm's order."""
        ...

    async def queue(self, name: str = "") -> tuple[SlurmJob, ...]:
        """Corral's own batch jobs that the queue shows, each task of an array by
        itself; `name`: those that are called so."""
        ...

    async def past(self, names: Sequence[str]) -> tuple[SlurmJob, ...]:
        """Return what Slurm's accounting has about batch jobs with these names; ()
        without accounting."""
        ...

    async def submit(self, script: Path) -> str:
        """Hand the batch script in. Returns: Slurm's number of the job.

        Raises: Unsupported when Slurm will never take it, SlurmTrouble when it cannot
        now.
        """
        ...

    async def cancel(self, handles: Sequence[str]) -> None:
        """End these, whatever they do; harmless when they are over."""
        ...

    async def cancel_named(self, name: str) -> None:
        """End the batch jobs of this name, whole arrays too."""
        ...

    async def close(self) -> None: ...
