"""The Ray engine: two nodes of a real Ray beside that of Ray's head, which is given no
work."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Final

from corral.wire.node_policy import POLICY_FILE, encode_policy, own_policy
from tests.contracts.engines.landlord import xid_line
from tests.patience import own_loopback
from tests.ray_cluster import RayHouse, ray_house
from tests.scenarios.house import House, until

EXCEPTIONS: Final[dict[str, str]] = {}


@dataclass(slots=True, kw_only=True)
class OnRay:
    """Implements Landlord."""

    ray: RayHouse
    name: ClassVar[str] = "ray"
    exceptions: ClassVar[dict[str, str]] = EXCEPTIONS

    @property
    def house(self) -> House:
        return self.ray.house

    @property
    def shared(self) -> Path:
        return self.ray.shared

    @property
    def nodes(self) -> tuple[str, str]:
        return ("r1", "r2")

    def processes(self, id: str, attempt: int) -> list[int]:
        return self.ray.ranks(id, attempt)

    def kill_agent(self, node: str, id: str) -> None:
        agent = self.ray.agent(node)
        assert agent is not None
        agent.signal(signal.SIGKILL)

    def private_folders(self, node: str, id: str) -> list[Path]:
        return [self.ray.folder(node)]

    def kill_node(self, node: str) -> None:
        self.ray.kill_node(node)

    def revive(self, node: str) -> None:
        self.ray.start_ray(node)

    def tell_xid(self, node: str, id: str, gpu: int, code: int) -> None:
        with (self.ray.folder(node) / "kernel.log").open("a") as log:
            log.write(xid_line(gpu, code))

    @contextmanager
    def others(self) -> Iterator[str]:
        """Ray chooses where: GPUs of both nodes are let go for it, and taken back on
        the other."""
        with self.ray.program(2) as program:
            program.indices()
            until(
                lambda: len(self._held_by_others()) == 1,
                "a program of Ray's has its GPUs",
            )
            yield self._held_by_others()[0]

    def _held_by_others(self) -> list[str]:
        return [node for node in self.nodes if self.house.node(node).gpus.taken == 2]


@contextmanager
def landlord() -> Iterator[OnRay]:
    words = ("--set", "num_gpus=0", "--host", own_loopback())
    with ray_house(*words, nodes=("r1", "r2")) as ray:
        ray.house.ok("node", "cordon", ray.first, "-y")
        ray.shared.chmod(0o1777)
        # as the folders are in which clusters of root lie
        ray.house.root.parent.chmod(0o755)
        # each user has an account there, where root starts Ray
        for node in ("r1", "r2"):
            policy = replace(own_policy(), uid_range="200000-200999")
            (ray.folder(node) / POLICY_FILE).write_bytes(encode_policy(policy))
        yield OnRay(ray=ray)
