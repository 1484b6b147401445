"""What a shim is told when it is born, over its socket: secrets never lie in a file or in argv."""

import json
from dataclasses import dataclass, fields
from typing import Any, Final

RUN: Final = "/bin/sh"


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One attempt on one node. `env` is shared by its ranks, `rank_env` each one's own.

    `user` None: the account that Corral runs as. `devices`: the only GPUs it may open; None: all.
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
    user: str | None
    containment: str
    group: str  # a name that no other attempt on the machine has
    pids: int
    cpu_millis: int
    memory_bytes: int
    devices: list[int] | None = None

    def encode(self) -> bytes:
        named = {one.name: getattr(self, one.name) for one in fields(self)}
        return json.dumps(named, separators=(",", ":")).encode() + b"\n"


def decode_plan(line: bytes) -> Plan:
    """Raises: ValueError, TypeError."""
    named: dict[str, Any] = json.loads(line)
    return Plan(**named)
