"""What a cluster on Slurm was asked to be: `corral up --engine slurm --set partition=gpu`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from corral.domain.errors import SpecInvalid
from corral.engines.typed import read_settings

PORTS: Final = "20000-29999"  # above Ray's, below the ports that Linux gives by itself
CORRAL, ENGINE = "corral", "engine"
PORTS_EACH: Final = 32  # of one node
_REST: Final = re.compile(r"https?://[^/\s]+|unix:/\S+", re.ASCII)
_SPAN: Final = re.compile(r"(\d{4,5})-(\d{4,5})", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmSettings:
    """`partition`, `account`, `qos`, `reservation`: as sbatch takes them; None: Slurm's own choice.

    `folder`: where nodes find what their agents need, seen by all under the same path; None: in the
    cluster's own directory. `python`: the interpreter on the nodes; None: the head's own path.
    `ports`: what nodes may give to gangs, each node its own 32. `pretend`: the GPUs of this Slurm
    are made up. `options`: lines for every batch script, as after #SBATCH, joined by semicolons.
    `images`: where nodes keep what they have unpacked, best on a disk of each node's own; None: in
    their folder for temporary files. `command_seconds`: so long a command of Slurm's may take.
    `places`: who says where a job runs, "corral" or "engine", which is Slurm.
    """

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
        first, last = (int(match[1]), int(match[2])) if match else (0, 0)
        if not 1024 <= first <= last - PORTS_EACH + 1 or last > 65_535:
            raise SpecInvalid(
                f"ports={self.ports} is no range of at least {PORTS_EACH} ports",
                hint=f"write: --set ports={PORTS}",
            )
        for name in ("partition", "account", "qos", "reservation", "folder", "images", "options"):
            if any(char in (getattr(self, name) or "") for char in "\n\r\0"):
                raise SpecInvalid(f"{name} is one line", hint=f"write: --set {name}=TEXT")
        for name in ("folder", "images"):
            path = getattr(self, name)
            if path is not None and not path.startswith("/"):
                raise SpecInvalid(
                    f"{name}={path} is not the same on every node",
                    hint=f"write the whole path: --set {name}=/shared/corral",
                )
        if self.rest is not None and not _REST.fullmatch(self.rest):
            raise SpecInvalid(
                f"rest={self.rest} is no address of slurmrestd",
                hint="write: --set rest=http://HOST:6820, or --set rest=unix:/PATH",
            )
        if self.rest is None and self.rest_token_file is not None:
            raise SpecInvalid(
                "a token for slurmrestd, but no address of it", hint="write: --set rest=URL"
            )
        if self.places not in (CORRAL, ENGINE):
            raise SpecInvalid(
                f"places={self.places}: either corral places jobs, or the engine does",
                hint=f"write: --set places={ENGINE}",
            )
        if not 1.0 <= self.command_seconds <= 600.0:
            raise SpecInvalid(
                f"a command of Slurm's cannot be given {self.command_seconds:g} s",
                hint="1 to 600 s: --set command_seconds=20",
            )

    @property
    def slurm_places(self) -> bool:
        return self.places == ENGINE

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines for every batch script, each an option of sbatch's."""
        return tuple(line.strip() for line in self.options.split(";") if line.strip())

    def ports_of(self, place: int) -> tuple[int, ...]:
        """What the node at this place among all may give; far more nodes than ports share them."""
        first, last = (int(word) for word in self.ports.split("-"))
        blocks = (last - first + 1) // PORTS_EACH
        begin = first + place % blocks * PORTS_EACH
        return tuple(range(begin, begin + PORTS_EACH))

    @classmethod
    def read(cls, given: Mapping[str, str]) -> "SlurmSettings":
        """The settings as they were typed. Raises: SpecInvalid."""
        return read_settings(cls, given, engine="slurm")
