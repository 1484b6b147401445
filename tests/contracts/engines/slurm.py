"""The Slurm engine: two of the nodes of a real Slurm, whose GPUs are pretended."""

import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import pytest

from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.pilot import part_of
from corral.engines.local.processes import LocalProcess
from corral.wire.node import decode_settings
from tests.contracts.engines.landlord import xid_line
from tests.patience import own_loopback
from tests.scenarios.house import House, house
from tests.slurm import Slurm, cluster

EXCEPTIONS: Final[dict[str, str]] = {}
# of the users on its nodes
ACCOUNTS: Final = {"zoe-contract": 200_901, "yan-contract": 200_902}


@dataclass(slots=True, kw_only=True)
class OnSlurm:
    """Implements Landlord."""

    house: House
    slurm: Slurm
    name: ClassVar[str] = "slurm"
    exceptions: ClassVar[dict[str, str]] = EXCEPTIONS

    @property
    def shared(self) -> Path:
        return self.house.root.parent / "s"

    @property
    def nodes(self) -> tuple[str, str]:
        first, second = self.slurm.nodes
        return first, second

    def processes(self, id: str, attempt: int) -> list[int]:
        return House(self.house.root.parent).ranks(id, attempt)

    def kill_agent(self, node: str, id: str) -> None:
        """The part's, whose process id is in its folder."""
        for folder in self._folders(node, id):
            agent = LocalProcess.recorded(folder / "agent.pid")
            assert agent is not None
            agent.signal(signal.SIGKILL)

    def tell_xid(self, node: str, id: str, gpu: int, code: int) -> None:
        (folder,) = self._folders(node, id)
        with (folder / "kernel.log").open("a") as log:
            log.write(xid_line(gpu, code))

    def _folders(self, node: str, id: str) -> list[Path]:
        """That of the job's part there: its settings name it."""
        part = part_of(
            NodeId(node), (JobId(id), AttemptNumber(self.house.job(id).attempt))
        )
        files = Path(tempfile.gettempdir()).glob("corral-part-*/node.json")
        return [
            file.parent
            for file in files
            if decode_settings(file.read_bytes()).node == part
        ]

    def private_folders(self, node: str, id: str) -> list[Path]:
        return [*self._folders(node, id), self.slurm.place / "images"]

    def kill_node(self, node: str) -> None:
        self.slurm.kill_node(node)
        self.slurm.call_down(node, "power lost")

    def revive(self, node: str) -> None:
        self.slurm.start_node(node)
        self.slurm.until(lambda: self.slurm.state_of(node) == "idle", f"{node} again")

    @contextmanager
    def others(self) -> Iterator[str]:
        job = self.slurm.submit("-w", self.nodes[0], "--gres=gpu:2")
        yield self.nodes[0]
        self.slurm.run("scancel", job)


@contextmanager
def landlord(*settings: str) -> Iterator[OnSlurm]:
    """`settings`: of the engine, beside those that a pretend cluster needs."""
    with (
        cluster(nodes=2, accounts=ACCOUNTS) as slurm,
        pytest.MonkeyPatch.context() as patch,
    ):
        for name, value in slurm.env.items():
            patch.setenv(name, value)
        with house() as made:
            # as the folders are in which clusters of root lie
            made.root.parent.chmod(0o755)
            shared = made.root.parent / "s"
            shared.mkdir()
            shared.chmod(0o1777)
            engine = ("--engine", "slurm", "--set", "pretend=yes", "--shared", str(shared),
                      "--set", f"images={slurm.place / 'images'}")  # fmt: skip
            more = (word for setting in settings for word in ("--set", setting))
            made.up(*engine, *more, "--host", own_loopback())
            yield OnSlurm(house=made, slurm=slurm)
