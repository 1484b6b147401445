"""Engines of simulated replicas that sleep and wake, some time after they are told to."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from corral.domain.desired_state import Launch
from corral.domain.ids import NodeId
from corral.domain.job import SleepCalls
from corral.domain.observed_state import AttemptKey

SLEEP_CALLS = SleepCalls(
    sleep="/sleep", wake="/wake_up", state="/is_sleeping", state_field="is_sleeping"
)
LONGEST_CALL_SECONDS = 3.0


@dataclass(slots=True)
class _Engine:
    node: NodeId
    is_asleep: bool = False
    is_wanted_asleep: bool = False
    orders: int = 0


def _ignore(key: AttemptKey, node: NodeId) -> None:
    """Do nothing for an engine that has woken."""


@dataclass(slots=True)
class SimulatedEngines:
    """Engines of all replicas that can sleep.

    Args:
        stream: Returns the random stream of a name.
        later: Calls a function after seconds of virtual time.
        tell: Adds a line to the log of the world.
        on_awake: Called with the attempt and the node of an engine that has woken.
    """

    stream: Callable[[str], Random]
    later: Callable[..., Any]
    tell: Callable[[str], None]
    on_awake: Callable[[AttemptKey, NodeId], None] = _ignore
    _engines: dict[AttemptKey, _Engine] = field(default_factory=dict)

    def order(self, launch: Launch, node: NodeId, *, asleep: bool) -> None:
        """Tell the engine of an attempt to sleep or to wake, if it does not already."""
        replica = launch.replica
        if replica is None or replica.sleep is None or launch.node_rank != 0:
            return
        engine = self._engines.setdefault(launch.key, _Engine(node))
        if engine.is_wanted_asleep is asleep:
            return
        engine.is_wanted_asleep = asleep
        engine.orders += 1
        chance = self.stream(f"engine/{launch.key}/{engine.orders}")
        seconds = chance.uniform(0.01, LONGEST_CALL_SECONDS)
        self.later(seconds, self._obey, launch.key, engine, engine.orders)

    def _obey(self, key: AttemptKey, engine: _Engine, order: int) -> None:
        if engine.orders != order or engine.is_asleep is engine.is_wanted_asleep:
            return
        engine.is_asleep = engine.is_wanted_asleep
        state = "asleep" if engine.is_asleep else "awake"
        self.tell(f"{engine.node}: the engine of {key[0]}.{key[1]} is {state}")
        if not engine.is_asleep:
            self.on_awake(key, engine.node)

    def is_asleep(self, key: AttemptKey) -> bool | None:
        """Return whether the engine of the attempt sleeps; None if it cannot."""
        engine = self._engines.get(key)
        return None if engine is None else engine.is_asleep
