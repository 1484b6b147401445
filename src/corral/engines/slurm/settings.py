"""Settings of a cluster on Slurm: `corral up --engine slurm --set partition=gpu`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from corral.engines.typed_settings import read_settings, wrong

PORTS: Final = "20000-29999"  # above Ray's, below the ports that Linux gives by itself
CORRAL, ENGINE = "corral", "engine"
PORTS_EACH: Final = 32  # of one node
_REST: Final = re.compile(r"https?://[^/\s]+|unix:/\S+", re.ASCII)
_SPAN: Final = re.compile(r"(\d{4,5})-(\d{4,5})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """Settings of the Slurm engine. `partition`, `account`, `qos`, `reservation`: as
    sbatch takes them; None: Slurm's default.

    `folder`: the directory with the files that agents need, visible on all nodes under
    the same path; None: in the cluster's own directory. `python`: the interpreter on
    the nodes; None: the path of the head's interpreter. `ports`: the range of ports
    that nodes may give to gangs; each node gets its own 32. `pretend`: the GPUs of this
    Slurm are simulated. `options`: lines for every batch script, as after #SBATCH,
    joined by semicolons. `images`: the directory for unpacked images on each node,
    preferably on a disk of its own; None: in the node's folder for temporary files.
    `command_seconds`: the most time that a Slurm command may take. `places`: what
    decides where a job runs: "corral", or "engine", which is Slurm.
    """

    NAME: ClassVar[str] = "slurm"
    FILES: ClassVar[Mapping[str, str]] = {
        "rest_token_file": "create it: scontrol token lifespan=86400 > FILE"
    }
    EXAMPLES: ClassVar[Mapping[str, str]] = {
        "partition": "gpu",
        "account": "research",
        "qos": "normal",
        "reservation": "training",
        "folder": "/shared/corral",
        "python": "/opt/corral/bin/python",
        "ports": PORTS,
        "options": "--nice=5",
        "images": "/scratch/corral-images",
        "places": ENGINE,
        "rest": "http://localhost:6820",
        "rest_token_file": "~/slurm.jwt",
    }

    partition: str | None = None
    account: str | None = None
    qos: str | None = None
    reservation: str | None = None
    folder: str | None = None
    python: str | None = None
    ports: str = PORTS
    pretend: bool = False
    options: str = ""
    images: str | None = None
    command_seconds: float = 20.0
    places: str = CORRAL
    rest: str | None = None
    rest_token_file: str | None = None

    def __post_init__(self) -> None:
        match = _SPAN.fullmatch(self.ports)
        first_port, last_port = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1024 <= first_port <= last_port - PORTS_EACH + 1 or last_port > 65_535:
            complaint = (
                f"ports={self.ports} must be a range of at least {PORTS_EACH} ports "
                "from 1024 to 65535"
            )
            raise wrong(SlurmSettings, "ports", complaint)
        for name in (
            "partition",
            "account",
            "qos",
            "reservation",
            "folder",
            "images",
            "options",
        ):
            if any(char in (getattr(self, name) or "") for char in "\n\r\0"):
                raise wrong(SlurmSettings, name, f"{name} must be a single line")
        for name in ("folder", "images"):
            path = getattr(self, name)
            if path is not None and not path.startswith("/"):
                complaint = (
                    f"{name}={path} must be an absolute path, which begins with /"
                )
                raise wrong(SlurmSettings, name, complaint)
        if self.rest is not None and not _REST.fullmatch(self.rest):
            complaint = (
                f"rest={self.rest} is not an address of slurmrestd: it must be "
                "http://HOST:PORT or unix:/PATH"
            )
            raise wrong(SlurmSettings, "rest", complaint)
        if self.rest is None and self.rest_token_file is not None:
            complaint = (
                "rest_token_file is set, but rest, the address of slurmrestd, is "
                "missing"
            )
            raise wrong(SlurmSettings, "rest_token_file", complaint, "rest")
        if self.places not in (CORRAL, ENGINE):
            complaint = f"places={self.places} must be {CORRAL} or {ENGINE}"
            raise wrong(SlurmSettings, "places", complaint)
        if not 1.0 <= self.command_seconds <= 600.0:
            complaint = (
                f"command_seconds={self.command_seconds:g} must be from 1 to 600 "
                "seconds"
            )
            raise wrong(SlurmSettings, "command_seconds", complaint)

    @property
    def slurm_places(self) -> bool:
        return self.places == ENGINE

    @property
    def lines(self) -> tuple[str, ...]:
        """Additional lines for every batch script, each an option of sbatch."""
        return tuple(line.strip() for line in self.options.split(";") if line.strip())

    def ports_of(self, place: int) -> tuple[int, ...]:
        """Return the ports of the node at position `place` among all nodes. If there
        are many more nodes than blocks of ports, nodes share blocks."""
        first_port, last_port = (int(port_text) for port_text in self.ports.split("-"))
        blocks = (last_port - first_port + 1) // PORTS_EACH
        begin = first_port + place % blocks * PORTS_EACH
        return tuple(range(begin, begin + PORTS_EACH))

    @classmethod
    def read(cls, given: Mapping[str, str]) -> "SlurmSettings":
        """Parse the settings as the user typed them. Raises: SpecInvalid."""
        return read_settings(cls, given)
