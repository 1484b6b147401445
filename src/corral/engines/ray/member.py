"""A machine that has joined a Ray cluster: `python -m corral.engines.ray.member DIR`
keeps its Ray node running until it is asked to end, and starts it again when it ends by
itself."""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from platform import python_version
from typing import Final

from corral.engines.local.processes import LocalProcess
from corral.engines.ray.bringup import END_SECONDS, RayHere, own_address
from corral.engines.ray.settings import RaySettings

LOOK_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RayMember:
    """Membership of a machine in a Ray cluster. `address`: that of the Ray cluster.
    `host`: this machine's address; "": the address on its route to `address`.
    `num_gpus` None: as many as Ray finds."""

    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    host: str = ""
    num_gpus: int | None = None

    def save(self, folder: Path) -> None:
        """Write the membership to member.json for the keeper. The folder also holds the
        token of the Ray cluster."""
        (folder / "member.json").write_text(json.dumps(asdict(self)))

    @classmethod
    def load(cls, folder: Path) -> "RayMember":
        """Read the membership from member.json. Raises: OSError, ValueError."""
        return cls(**json.loads((folder / "member.json").read_text()))

    def ray(self, folder: Path) -> RayHere:
        host = self.host or own_address(self.address.rpartition(":")[0])
        settings = RaySettings(host=host, num_gpus=self.num_gpus)
        return RayHere(
            dir=folder, settings=settings, address=self.address, labels=self.labels
        )


def words_of(folder: Path) -> list[str]:
    """Return the command line of the keeper, the process that keeps the Ray node
    running."""
    return [sys.executable, "-P", "-m", "corral.engines.ray.member", str(folder)]


def keeper_of(folder: Path) -> LocalProcess | None:
    return LocalProcess.recorded(folder / "keeper.pid")


def versions() -> tuple[str, str]:
    """Return the versions of Ray and Python, which are equal on all nodes of a Ray
    cluster; Ray's is "" if it is not installed."""
    try:
        return version("ray"), python_version()
    except PackageNotFoundError:
        return "", python_version()


async def end(folder: Path) -> None:
    """End the keeper and the Ray node; Corral's agent and its attempts run on."""
    keeper = keeper_of(folder)
    if keeper is not None:
        keeper.signal(signal.SIGTERM)
        clock = asyncio.get_running_loop().time
        deadline = clock() + END_SECONDS + 1.0
        while keeper.lives and clock() < deadline:
            await asyncio.sleep(0.05)
        keeper.signal(signal.SIGKILL)
    if (folder / "member.json").exists():
        await RayMember.load(folder).ray(folder).down()


def main() -> int:
    folder = Path(sys.argv[1])
    end_signals = {signal.SIGTERM, signal.SIGINT}
    signal.pthread_sigmask(signal.SIG_BLOCK, end_signals)
    if keeper_of(folder) is not None:
        return 0
    me = LocalProcess.find(os.getpid())
    assert me is not None
    me.record(folder / "keeper.pid")
    ray = RayMember.load(folder).ray(folder)
    ray.begin()
    while signal.sigtimedwait(end_signals, LOOK_SECONDS) is None:
        ray.look_after()
    asyncio.run(ray.down())
    return 0


if __name__ == "__main__":
    sys.exit(main())
