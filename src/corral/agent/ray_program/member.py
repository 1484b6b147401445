"""One node of an attempt's Ray cluster: its parameters, and the names of its files."""

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, Final

from corral.agent.ray_program.refusals import CannotRun

# Variables of the gang's ranks. A program of Ray is not a rank, and its children would
# mistake these for torchrun's or srun's.
_OF_RANKS: Final = frozenset(
    (
        "RANK",
        "LOCAL_RANK",
        "WORLD_SIZE",
        "LOCAL_WORLD_SIZE",
        "NODE_RANK",
        "MASTER_ADDR",
        "MASTER_PORT",
        "RAY_ADDRESS",
    )
)
_WAIT_SECONDS: Final = 300.0
PORT_VARIABLE: Final = "MASTER_PORT"
WAIT_VARIABLE: Final = "RAY_GANG_WAIT_SECONDS"


@dataclass(frozen=True, slots=True, kw_only=True)
class RayProgramMember:
    """One node of the attempt's Ray cluster. `run` is the program's command.
    `memory_bytes` 0 means that Ray uses all the memory it finds. `own` is the
    environment of the rank.

    `folder` is the attempt's own folder, by a short path that its user can open,
    wherever the folder lies: it is the current directory of this process, and its work
    folder is open as a descriptor.
    """

    run: str
    cpus: int
    gpus: int
    memory_bytes: int
    folder: Path
    own: Mapping[str, str]

    @property
    def starter(self) -> Path:
        """Return the path of the program that starts the other processes."""
        return self.folder.with_name("fd") / "4"

    @property
    def work(self) -> Path:
        """Return the folder in which the program runs."""
        return self.folder.with_name("fd") / "3"

    @property
    def place(self) -> int:
        """Return the position of this node in the gang; the first node is 0."""
        return int(self.own["NODE_RANK"])

    @property
    def node(self) -> str:
        return self.own["CORRAL_NODE"]

    @property
    def addresses(self) -> list[str]:
        return self.own["CORRAL_NODES"].split(",")

    @property
    def first(self) -> tuple[str, int]:
        """Return host and port on which the first node waits for the others."""
        return self.own["MASTER_ADDR"], int(self.own[PORT_VARIABLE])

    @property
    def wait_seconds(self) -> float:
        """Return for how many seconds the first node waits for the others once its Ray
        is up.
        Raises: CannotRun."""
        wait_text = self.own.get(WAIT_VARIABLE) or str(_WAIT_SECONDS)
        with suppress(ValueError):
            if isfinite(seconds := float(wait_text)) and seconds >= 0:
                return seconds
        raise CannotRun(
            f"{WAIT_VARIABLE}={wait_text[:60]} in the job's env is not a number of "
            f"seconds; write, for example, {WAIT_VARIABLE}: {_WAIT_SECONDS:g}"
        )

    @property
    def key(self) -> bytes:
        """Return the key by which the nodes of the attempt recognise each other."""
        return hashlib.sha256(b"corral ray nodes\x00" + self._token).digest()

    @property
    def ray_token(self) -> str:
        """Return the token of the attempt's Ray cluster, which nothing else can
        derive."""
        return hashlib.sha256(b"corral ray token\x00" + self._token).hexdigest()

    @property
    def _token(self) -> bytes:
        return self.own["CORRAL_TOKEN"].encode()

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment of Ray and of the program: the environment of the job,
        without the variables that only ranks need."""
        kept_variables = {
            name: value
            for name, value in self.own.items()
            if name not in _OF_RANKS and not name.startswith("SLURM")
        }
        return {
            "RAY_AUTH_MODE": "token",
            "RAY_USAGE_STATS_ENABLED": "0",
            **kept_variables,
            "RAY_AUTH_TOKEN_PATH": str(self.folder / "token"),
        }


def decode_member(
    text: str, *, folder: Path, own: Mapping[str, str]
) -> RayProgramMember:
    """Decode a member file.

    Raises: ValueError, TypeError when it is invalid.
    """
    member_fields: dict[str, Any] = json.loads(text)
    return RayProgramMember(**member_fields, folder=folder, own=own)
