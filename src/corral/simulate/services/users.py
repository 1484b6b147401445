"""Simulated users of services: they make, change, scale, roll back and stop them, and
disturb single replicas."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypedDict

from corral.domain.ids import ServiceName
from corral.domain.job import DEFAULT_QUEUE, Disconnect, JobSpec, SleepCalls
from corral.domain.lending import ParkBy
from corral.domain.requests import (
    ApplyService,
    Asked,
    Cancel,
    Resume,
    RollBackService,
    ScaleService,
    StopService,
    Suspend,
)
from corral.domain.resources import Resources
from corral.domain.service import CanaryRule, ScaleRule, Service, ServiceSpec
from corral.simulate.engine_sleep import SLEEP_CALLS
from corral.simulate.replica_behaviour import (
    RevisionKind,
    command_of,
    kind_of,
)
from corral.simulate.users import SimulatedUsers
from corral.simulate.world import Stage

NAMES = ("chat", "embed", "rank")
MOST_REPLICAS = 4
KINDS = (
    *[RevisionKind.GOOD] * 7,
    RevisionKind.CRASHES,
    RevisionKind.EXITS,
    RevisionKind.SILENT,
)


class _Sleep(TypedDict):
    park: ParkBy
    sleep_calls: SleepCalls | None
    scale: ScaleRule


class ServiceUsers:
    """Users who send requests about services. `services`: those that are not stopped,
    as the last commits have made them."""

    def __init__(
        self,
        stage: Stage,
        people: SimulatedUsers,
        nodes: Mapping[Any, object],
        services: Callable[[], Mapping[ServiceName, Service]],
    ) -> None:
        self._stage = stage
        self._people = people
        self._nodes = nodes
        self._services = services
        self._chance = stage.stream("services")
        self._sleeps = stage.stream("sleepers of services")
        self._bases: dict[ServiceName, ServiceSpec] = {}
        self._revisions = 0
        self._until = 0.0

    def plan(self, until: float) -> None:
        """Draw all requests about services before `until`."""
        chance, loop = self._chance, self._stage.loop
        self._until = until
        names = NAMES[: chance.choice([1, 1, 1, 2, 2, 3])]
        for name in names:
            self._bases[ServiceName(name)] = self._draw_base(ServiceName(name))
            loop.later(chance.uniform(0.0, until * 0.3), self._apply, ServiceName(name))
        for _ in range(chance.randint(1, 4 * len(names))):
            loop.later(chance.uniform(1.0, until), self._change_something)
        for _ in range(chance.choice([0, 0, 1, 2])):
            loop.later(chance.uniform(1.0, until), self._disturb_replica)

    # -- requests ----------------------------------------------------------------------

    def apply_good(self, name: ServiceName) -> None:
        """Apply a revision whose replicas become ready."""
        self._ask_apply(self._new_revision(name, RevisionKind.GOOD))

    def scale(self, name: ServiceName, least: int, most: int) -> None:
        self._people.ask(
            ScaleService(service=name, min_replicas=least, max_replicas=most)
        )

    def roll_back(self, name: ServiceName, revision: int | None) -> None:
        self._people.ask(RollBackService(service=name, revision=revision))

    def stop(self, name: ServiceName) -> None:
        self._people.ask(StopService(service=name))

    def _apply(self, name: ServiceName) -> None:
        kind = self._chance.choice(KINDS)
        if self._stage.has_sleepers and self._sleeps.random() < 0.8:
            kind = RevisionKind.GOOD
        self._ask_apply(self._new_revision(name, kind))

    def _ask_apply(self, spec: ServiceSpec) -> None:
        self._bases[spec.name] = spec
        self._people.ask(ApplyService(spec=spec, key_seed=f"seed of {spec.name}"))

    def _change_something(self) -> None:
        chance = self._chance
        name = chance.choice(sorted(self._bases))
        match chance.choice(
            ["revision"] * 4 + ["range", "scale", "scale", "back", "back", "stop"]
        ):
            case "revision":
                self._apply(name)
            case "range":
                least, most = self._draw_range()
                self._ask_apply(
                    replace(self._bases[name], min_replicas=least, max_replicas=most)
                )
            case "scale":
                self.scale(name, *self._draw_range())
            case "back":
                self.roll_back(name, chance.choice([None, None, 1, 2, 3]))
            case "stop":
                self.stop(name)
                seconds = chance.uniform(0.1, 20.0)
                if self._stage.now() + seconds < self._until:
                    self._stage.loop.later(seconds, self._apply, name)

    def _disturb_replica(self) -> None:
        rows = [
            row for service in self._services().values() for row in service.replicas
        ]
        if not rows:
            return
        job = self._chance.choice(rows).job
        requests: list[Asked] = [Cancel(job=job), Suspend(job=job), Resume(job=job)]
        self._people.ask(self._chance.choice(requests))

    # -- specs -------------------------------------------------------------------------

    def _new_revision(self, name: ServiceName, kind: RevisionKind) -> ServiceSpec:
        chance = self._chance
        self._revisions += 1
        base = self._bases[name]
        return replace(
            base,
            replica=replace(base.replica, run=command_of(kind, self._revisions)),
            canary=CanaryRule(seconds=chance.choice([0.0, 0.0, 5.0, 20.0, 60.0])),
            drain_seconds=min(
                chance.choice([2.0, 10.0, 30.0]),
                2.0 if self._stage.has_sleepers else 30.0,
            ),
        )

    def _draw_base(self, name: ServiceName) -> ServiceSpec:
        chance = self._chance
        least, most = self._draw_range()
        gpus = chance.choice([0, 1, 1, 1, self._stage.gpus])
        queues = [queue.name for queue in self._people.queues]
        queue = chance.choice([DEFAULT_QUEUE, *queues])
        if self._stage.has_sleepers:  # most of which find room, and so fall asleep
            least, most, gpus = min(least, 1), MOST_REPLICAS, min(gpus, 1)
        replica = JobSpec(
            name=name,
            run=command_of(RevisionKind.GOOD, 0),
            nodes=2 if len(self._nodes) > 2 and chance.random() < 0.15 else 1,
            resources=Resources(gpu_millis=gpus * 1000, cpu_millis=1000),
            queue=queue if queues else DEFAULT_QUEUE,
            priority=chance.choice([0, 0, 100]),
            preemptible=bool(queues) and chance.random() < 0.1,
            grace_seconds=chance.choice([0.5, 2.0, 5.0]),
            disconnect=chance.choice([None, None, Disconnect.WAIT]),
        )
        return ServiceSpec(
            name=name,
            replica=replica,
            models=(name,),
            min_replicas=least,
            max_replicas=most,
            **self._draw_sleep(has_queues=bool(queues)),
        )

    def _draw_sleep(self, *, has_queues: bool) -> "_Sleep":
        """Draw how replicas sleep. Their engines sleep only in worlds without queues:
        a replica that wakes with its process takes its GPUs whatever its queue may
        borrow by then."""
        chance = self._sleeps
        ways = [ParkBy.CACHE, *([] if has_queues else [ParkBy.ENGINE] * 2)]
        park = chance.choice(ways) if self._stage.has_sleepers else ParkBy.NONE
        return {
            "park": park,
            "sleep_calls": SLEEP_CALLS if park is ParkBy.ENGINE else None,
            "scale": ScaleRule(
                back_within_seconds=chance.choice([None, 2.0, 5.0, 12.0])
            ),
        }

    def _draw_range(self) -> tuple[int, int]:
        least = self._chance.choice([0, 1, 1, 2, 3])
        return least, self._chance.randint(max(1, least), MOST_REPLICAS)


def is_good(service: Service, revision: int) -> bool:
    """Return whether replicas of the revision become ready."""
    return kind_of(service.spec_of(revision).replica.run) == RevisionKind.GOOD
