"""Spec of a shim, which is sent over its socket at its start; and the spec with which a
pilot starts ranks without an agent.

The module is loaded before a rank runs, so it imports only what every Python
interpreter includes.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

EARLY_FILE: Final = "early.json"
WORKDIR_FILE: Final = "workdir.tar.gz"  # next to EARLY_FILE, if the job has a workdir


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimSpec:
    """The spec of one attempt on one node.

    `env` is shared by its ranks; `rank_env` is separate for each. `account`: the fields
    of the account as which ranks run; None: the account of the shim. `apart`: the
    separation from other users' processes; None: not separated. `devices`: majors of
    GPU devices, each with the only minors that may be opened; None: all. `image`: an
    ImageRoot; None: the root file system of the node. `beside`: a folder next to `work`
    that also belongs to the user. `watch`: count the optimizer steps of PyTorch programs.
    """

    job: str
    attempt: int
    node: str
    folder: str
    work: str
    run: str
    setup: str | None
    env: dict[str, str]
    rank_env: list[dict[str, str]]
    ranks: list[int]  # their numbers in the gang
    containment: str
    group: str  # a name that no other attempt on the machine has
    pids: int
    cpu_millis: int
    memory_bytes: int
    account: dict[str, Any] | None = None
    apart: dict[str, Any] | None = None
    devices: list[tuple[int, list[int]]] | None = None
    image: dict[str, Any] | None = None
    beside: str | None = None
    watch: bool = False

    def encode(self) -> bytes:
        field_values = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(field_values, separators=(",", ":")).encode() + b"\n"


def decode_shim_spec(line: bytes) -> ShimSpec:
    """Decode the spec of a shim.

    Raises: ValueError, TypeError.
    """
    spec_fields: dict[str, Any] = json.loads(line)
    return ShimSpec(**spec_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Early:
    """The spec of a shim with which the ranks start before the agent runs. It is stored
    in the folder of a part, a node from a batch system.

    `spec`: the spec as far as it is the same on any machine. `launch`: the same launch
    as in the desired state of the head, for the agent. `counts_gpus`: the GPUs of the
    spec are positions among the GPUs that the batch step was granted. `isolation`,
    `hidden` and `shared` are those of node.json.
    """

    spec: ShimSpec
    launch: dict[str, Any]
    counts_gpus: bool
    isolation: str
    hidden: list[str]
    shared: list[str]

    @property
    def node(self) -> str:
        return self.spec.node

    @property
    def neighbours(self) -> tuple[str, ...]:
        """Return no node names, because a node from a batch system (a part) uses the
        hostname of its machine."""
        return ()

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"


def decode_early(text: bytes) -> Early:
    """Decode an early launch.

    Raises: ValueError, TypeError, KeyError.
    """
    early_fields: dict[str, Any] = json.loads(text)
    return Early(**{**early_fields, "spec": ShimSpec(**early_fields["spec"])})
