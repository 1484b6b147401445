"""Spec of a shim, sent over its socket at its start; and the spec with which a pilot
begins by itself.

Read before a rank runs: only what every interpreter brings is imported here.
"""

import json
from dataclasses import asdict, dataclass
from typing import Any, Final

EARLY_FILE: Final = "early.json"
WORKDIR_FILE: Final = "workdir.tar.gz"  # next to EARLY_FILE, if the job has a workdir


@dataclass(frozen=True, slots=True, kw_only=True)
class ShimSpec:
    """One attempt on one node.

    `env` is shared by its ranks; `rank_env` is separate for each.
    `account`: the fields of the account that ranks run as; None: that of the shim.
    `apart`: the separation from other users' processes; None: not separated. `devices`:
    majors of GPUs, each with the only minors it may open; None: all. `image`: an
    ImageRoot; None: the node as it is. `beside`: a folder next to `work` that also
    belongs to the user.
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

    def encode(self) -> bytes:
        field_values = {name: getattr(self, name) for name in self.__slots__}
        return json.dumps(field_values, separators=(",", ":")).encode() + b"\n"


def decode_shim_spec(line: bytes) -> ShimSpec:
    """Raises: ValueError, TypeError."""
    spec_fields: dict[str, Any] = json.loads(line)
    return ShimSpec(**spec_fields)


@dataclass(frozen=True, slots=True, kw_only=True)
class Early:
    """A shim's spec in a part's folder, so that its ranks begin before its agent is
    there.

    `spec` as far as any machine knows it; `launch`: the same as the head wants it, for
    the agent. `counts_gpus`: the spec's GPUs are places among those that the step was
    granted. `isolation`, `hidden` and `shared` are those of node.json.
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
        """Return nothing: a part has the hostname of its machine."""
        return ()

    def encode(self) -> bytes:
        return json.dumps(asdict(self), separators=(",", ":")).encode() + b"\n"


def decode_early(text: bytes) -> Early:
    """Raises: ValueError, TypeError, KeyError."""
    early_fields: dict[str, Any] = json.loads(text)
    return Early(**{**early_fields, "spec": ShimSpec(**early_fields["spec"])})
