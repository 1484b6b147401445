"""The page of attacks, made of the tables that the suites run."""

from collections.abc import Iterable

from tests.hostile.node_attacks import ATTACKS, CHUNKS, HELLOS
from tests.hostile.rank_lines import ENDS, LINES


def text() -> str:
    """Return docs/architecture/attacks.md."""
    return f"""# Attacks that are tested

Each is made against a running head, on SQLite and on PostgreSQL (tests/hostile). After each one an
admin's submit and stop are granted, the heartbeats of other nodes go on, `/metrics` is whole and
says nothing new of other nodes, memory and the store have grown within bounds, and no line stands
in another user's job. Beside them there are generated messages: 100,000 for the agents' channel and
as many for the shim's socket (`make soak`).

## Of a rank, on CORRAL_SOCKET

{_list([*LINES, *ENDS])}

## Of a node, on the agents' channel

{_list([*ATTACKS, *HELLOS, *CHUNKS])}
"""


def _list(names: Iterable[str]) -> str:
    return "\n".join(f"- {name}" for name in names)
