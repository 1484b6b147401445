"""Interface of an engine, which provides the nodes."""

from collections.abc import Mapping, Sequence, Set
from typing import Final, Protocol

from corral.domain.desired_state import DesiredState
from corral.domain.engine_limit import EngineLimit
from corral.domain.errors import Trouble
from corral.domain.external_candidate import ExternalCandidate
from corral.domain.ids import NodeId
from corral.domain.node import NodeKind
from corral.domain.observed_state import AttemptKey, ExternalPlacing

NO_ANSWER: Final = "does not answer"
NOT_READ: Final = "cannot be queried"  # it answers with an error, or the fault is local


def query_failure(system: str, error: Exception) -> str:
    """Return a text for people about a failed query of `system`, for example Slurm."""
    is_silence = isinstance(error, Trouble) and error.is_silence
    return f"{system} {NO_ANSWER if is_silence else NOT_READ}: {error}"


class Engine(Protocol):
    """The head's access to its nodes. What an engine cannot do is given by attributes.
    Its methods may be called repeatedly."""

    name: str
    # a spec field that it does not honour -> "why; what to do"
    cannot: Mapping[str, EngineLimit]
    # whether an attempt may begin on the seats of the failed one before it; else the
    # job is queued again, because another scheduler grants the seats for each attempt
    restarts_in_place: bool

    @property
    def could_bring(self) -> Sequence[NodeKind]:
        """Return the kinds of nodes that the engine could still add. A gang that would
        fit on them waits instead of being refused."""
        ...

    @property
    def shown_by(self) -> str:
        """Return the command of the engine's own tool that shows the resources of its
        nodes; "" if Corral itself creates the nodes."""
        ...

    @property
    def is_unreachable(self) -> bool:
        """Return whether the last call to the system that provides the nodes has failed.
        A call that is only late does not count."""
        ...

    @property
    def trouble(self) -> str:
        """Return a sentence with the reason why the engine does not reach its nodes, or
        cannot use all nodes that it should; "" if there is no problem. The sentence is
        for people; programs read `is_unreachable`."""
        ...

    def observe(self) -> Mapping[NodeId, str]:
        """Return the nodes that are proven dead, each with the text of the proof. A
        node without a proof counts only as silent."""
        ...

    def gone(self) -> Set[NodeId]:
        """Return the known nodes that the engine has removed, for example by an
        autoscaler. These nodes are not broken, but do not count as capacity of the
        cluster any more."""
        ...

    def apply(self, wanted: DesiredState) -> None:
        """Send the desired state to the node's agent. Agents refuse a version that is
        older than the one they know."""
        ...

    def says(self, key: AttemptKey) -> str:
        """Return why the engine has not begun a placed attempt, in its own words; "" if
        it gives no reason."""
        ...


class LivingEngine(Engine, Protocol):
    """An engine as the head uses it over its life: start, periodic work and shutdown."""

    async def start(self) -> None:
        """Adopt the engine's nodes that are still alive, and start the others.
        Raises: OSError, Trouble."""
        ...

    def look_after(self) -> None:
        """Do periodic work. Call it each second."""
        ...

    def is_empty(self) -> bool:
        """Return whether no node still has anything of an attempt."""
        ...

    async def down(self, *, kill: bool) -> None:
        """End the agents; with `kill`, also end everything else, such as the attempts.
        Without `kill`, attempts continue to run and are adopted later."""
        ...

    def close(self) -> None:
        """Stop the periodic work. Agents and attempts continue to run."""
        ...


class Placer(Protocol):
    """Interface to an engine's own scheduler, if the engine places jobs itself."""

    def offer(self, waiting: Sequence[ExternalCandidate]) -> None:
        """Offer all waiting jobs to the engine, in their order. It is called when every
        node has its newest desired state. An earlier offer that is no longer in the
        list, and runs on no node, is withdrawn."""
        ...

    def placing(self) -> ExternalPlacing:
        """Return the nodes of each attempt that the engine has placed, and why the
        others wait."""
        ...
