"""What lends nodes."""

from collections.abc import Mapping
from typing import Protocol

from corral.domain.ids import NodeId
from corral.domain.wanted import Wanted


class Engine(Protocol):
    """The head's way to its nodes. Its limits are data, its methods may be repeated at will."""

    name: str
    cannot: Mapping[str, str]  # a spec field that it does not honour -> why

    def observe(self) -> Mapping[NodeId, str]:
        """Nodes proven dead, with the proof. Anything less than proof is left to silence."""
        ...

    def apply(self, wanted: Wanted) -> None:
        """Let the node's agent have this word; agents refuse an older version than they know."""
        ...
