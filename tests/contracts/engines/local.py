"""The local engine: two nodes of this machine."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

import msgspec

from corral.wire.node import decode_settings, encode_settings
from tests.contracts.engines.landlord import xid_line
from tests.patience import own_loopback
from tests.scenarios.house import House, house

EXCEPTIONS: Final[dict[str, str]] = {}


@dataclass(slots=True, kw_only=True)
class Local:
    """Implements Landlord."""

    house: House
    name: ClassVar[str] = "local"
    exceptions: ClassVar[dict[str, str]] = EXCEPTIONS

    @property
    def shared(self) -> Path:
        return self.house.shared

    @property
    def nodes(self) -> tuple[str, str]:
        return ("n1", "n2")

    def processes(self, id: str, attempt: int) -> list[int]:
        return self.house.ranks(id, attempt)

    def kill_agent(self, node: str, id: str) -> None:
        self.house.agent(node).signal(signal.SIGKILL)

    def private_folders(self, node: str, id: str) -> list[Path]:
        return [self.house.root / "nodes" / node]

    def kill_node(self, node: str) -> None:
        self.house.kill_node(node)

    def revive(self, node: str) -> None:
        """It reboots by itself."""

    def tell_xid(self, node: str, id: str, gpu: int, code: int) -> None:
        with (self.house.root / "nodes" / node / "kernel.log").open("a") as log:
            log.write(xid_line(gpu, code))

    @contextmanager
    def others(self) -> Iterator[str]:
        self._pretend_taken("n1", 2)
        yield "n1"
        self._pretend_taken("n1", 0)

    def _pretend_taken(self, node: str, gpus: int) -> None:
        """Nobody else uses nodes of this engine. An agent reads its settings when it
        starts."""
        file = self.house.root / "nodes" / node / "node.json"
        told = decode_settings(file.read_bytes())
        file.write_bytes(
            encode_settings(msgspec.structs.replace(told, pretend_taken=gpus))
        )
        self.kill_agent(node, "")


@contextmanager
def landlord() -> Iterator[Local]:
    words: tuple[str, ...] = (
        "--nodes",
        "2",
        "--gpus",
        "2",
        "--pretend",
        "--reboot",
        "1",
    )
    words += (
        "--policy",
        "uid_range=200000-200999",
    )  # where root starts it, others' ranks have these
    with house(*words, "--host", own_loopback()) as made:
        # as the folders are in which clusters of root lie
        made.root.parent.chmod(0o755)
        yield Local(house=made)
