"""Interface of an engine, which lends nodes."""

from collections.abc import Mapping, Sequence, Set
from typing import Final, Protocol

from corral.domain.desired_state import DesiredState
from corral.domain.engine_limit import EngineLimit
from corral.domain.external_candidate import ExternalCandidate
from corral.domain.ids import NodeId
from corral.domain.node import NodeKind
from corral.domain.observed_state import AttemptKey, ExternalPlacing

NO_ANSWER: Final = "does not answer"


class Engine(Protocol):
    """The head's way to its nodes. Its limits are data, its methods may be repeated at
    will."""

    name: str
    # a spec field that it does not honour -> "why; what to do"
    cannot: Mapping[str, EngineLimit]

    @property
    def could_bring(self) -> Sequence[NodeKind]:
        """Return the nodes that the engine could add: a gang that fits then waits and
        is not refused."""
        ...

    @property
    def shown_by(self) -> str:
        """Its own command that shows what its nodes have; "" where Corral makes
        them."""
        ...

    @property
    def is_unreachable(self) -> bool:
        """Return whether what lends the nodes does not answer now."""
        ...

    @property
    def trouble(self) -> str:
        """Return why the engine does not reach its nodes, or cannot use all that it
        should, as a sentence; "" if it can. It begins with the engine's name and
        NO_ANSWER if no node can be reached because a call has failed, and is not only
        late."""
        ...

    def observe(self) -> Mapping[NodeId, str]:
        """Nodes proven dead, with the proof. Anything less than proof is left to
        silence."""
        ...

    def gone(self) -> Set[NodeId]:
        """Return those nodes that the engine has removed, for example by an autoscaler:
        they are not broken, and not part of the cluster's capacity."""
        ...

    def apply(self, wanted: DesiredState) -> None:
        """Let the node's agent have this word; agents refuse an older version than they
        know."""
        ...

    def says(self, key: AttemptKey) -> str:
        """Return why a placed attempt has not begun, in the engine's own words; "" if
        there is no reason."""
        ...


class LivingEngine(Engine, Protocol):
    """An engine as a head brings it up, looks after it, and takes it down."""

    async def start(self) -> None:
        """Adopt what lives of its nodes, and bring up the others. Raises: OSError,
        Trouble."""
        ...

    def look_after(self) -> None:
        """Do periodic work. Call it each second."""
        ...

    def is_empty(self) -> bool:
        """Whether no node has anything left of an attempt."""
        ...

    async def down(self, *, kill: bool) -> None:
        """End the agents, and with `kill` all else; without, attempts run on and are
        adopted."""
        ...

    def close(self) -> None:
        """Look after nothing more; what runs, runs on."""
        ...


class Placer(Protocol):
    """An engine's own scheduler, where it places what waits by itself."""

    def offer(self, waiting: Sequence[ExternalCandidate]) -> None:
        """All that waits now, the first first. To be called when every node has its
        newest word: what is no more in it, and runs nowhere, is taken back."""
        ...

    def placing(self) -> ExternalPlacing:
        """Return the attempts that have nodes, and why the others wait."""
        ...
