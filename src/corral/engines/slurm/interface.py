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
    """Slurm does not answer, or its answer is not as it should be."""

    code = "slurm_trouble"


class Calls(Protocol):
    """Calls to Slurm, each bounded in time.

    Raises: SlurmTrouble, and ValueError for an answer that cannot be read.
    """

    async def nodes(self) -> tuple[SlurmNode, ...]:
        """Return all nodes, in Slurm's order."""
        ...

    async def queue(self, name: str = "") -> tuple[SlurmJob, ...]:
        """Return Corral's own batch jobs in the queue, each task of an array
        separately. `name`: only the batch jobs with this name; "": all."""
        ...

    async def past(self, names: Sequence[str]) -> tuple[SlurmJob, ...]:
        """Return the batch jobs with these names in Slurm's accounting; () without
        accounting."""
        ...

    async def submit(self, script: Path) -> str:
        """Submit the batch script. Returns: the job's id in Slurm.

        Raises: Unsupported when Slurm will never accept the script, SlurmTrouble when
        it cannot accept it now.
        """
        ...

    async def cancel(self, handles: Sequence[str]) -> None:
        """Cancel these batch jobs, whatever their state; this does nothing to those
        that are over."""
        ...

    async def cancel_named(self, name: str) -> None:
        """Cancel the batch jobs of this name, including whole arrays."""
        ...

    async def close(self) -> None: ...
