"""End of a world with services: without requests, faults or other jobs, and with enough
room, each service comes to the replicas that it wants. Then all of them are stopped."""

from collections.abc import Callable, Mapping
from enum import IntEnum

from corral.domain.ids import ServiceName
from corral.domain.job import JobSpec
from corral.domain.queue import Queue
from corral.domain.requests import Cancel
from corral.domain.service import Service, ServiceState
from corral.reconcile.services.replica_plan import (
    LONGEST_START_SECONDS,
    ROOM_SECONDS,
)
from corral.simulate.recorded_state import Books
from corral.simulate.services.gateway import SimulatedGateway
from corral.simulate.services.users import MOST_REPLICAS, ServiceUsers, is_good
from corral.simulate.users import SimulatedUsers
from corral.simulate.world import Stage

SETTLE_SECONDS = 200.0  # delays of retries and of crash loops
REPLACE_SECONDS = ROOM_SECONDS + 60.0  # one replica: no room, start, drain
STEADY_LOOKS = 3


class _Phase(IntEnum):
    """Steps of the end, in their order."""

    CLEARING = 0  # the other jobs end
    REPAIRING = 1  # bad revisions are replaced, and all fits into the cluster
    PEACE = 2
    STOPPING = 3
    OVER = 4


class ServicePeace:
    """The end of the services of one world. `services`: those that are not stopped, as
    the last commits have made them."""

    def __init__(
        self,
        stage: Stage,
        books: Books,
        people: SimulatedUsers,
        users: ServiceUsers,
        gateway: SimulatedGateway,
        services: Callable[[], Mapping[ServiceName, Service]],
    ) -> None:
        self._stage = stage
        self._books = books
        self._people = people
        self._users = users
        self._gateway = gateway
        self._services = services
        self._chance = stage.stream("peace")
        self._phase = _Phase.CLEARING
        self._cancels_jobs = self._chance.random() < 0.5
        self._deadline = float("inf")
        self._demands: dict[ServiceName, int] = {}
        self._steady: list[int] = []
        self.is_calm = False

    def advance(self) -> bool:
        """Do the next step. Return whether the services still need time that does not
        count as a job that is stuck."""
        match self._phase:
            case _Phase.CLEARING:
                self._clear()
            case _Phase.REPAIRING if not self._people.waiting:
                self._repair()
            case _Phase.PEACE:
                self._watch()
            case _Phase.STOPPING:
                for name in sorted(self._services()):
                    self._users.stop(name)
                self._phase = _Phase.OVER
        return self._phase in (_Phase.REPAIRING, _Phase.PEACE)

    def unfinished(self) -> str:
        """Return which service is not stopped yet; "" if all are."""
        if self._phase < _Phase.OVER:
            return f"the services are in step {self._phase.name} of their end"
        return ", ".join(
            f"service {name} is still {service.state}"
            for name, service in sorted(self._services().items())
        )

    # -- before ------------------------------------------------------------------------

    def _clear(self) -> None:
        """Let the other jobs end: cancel them, or give them the room of the services.
        Late requests of users may undo a step, so it is repeated."""
        jobs = [
            job
            for job in self._books.jobs.values()
            if job.spec.replica is None and not job.state.is_final
        ]
        if not jobs and not self._people.waiting:
            self._phase = _Phase.REPAIRING
        elif self._cancels_jobs:
            for job in jobs:
                self._people.ask(Cancel(job=job.id))
        else:
            for name, service in self._active().items():
                if service.spec.max_replicas:
                    self._users.scale(name, 0, 0)
                if service.trial is not None:
                    self._users.roll_back(name, None)

    def _active(self) -> dict[ServiceName, Service]:
        return {
            name: service
            for name, service in sorted(self._services().items())
            if service.state == ServiceState.ACTIVE
        }

    def _repair(self) -> None:
        """Replace revisions that are never ready, and choose demands that fit. One
        trial in a few that is never ready is left to be turned back in time."""
        services = self._active()
        if any(not is_good(service, service.goal) for service in services.values()):
            for name, service in services.items():
                if not is_good(service, service.current):
                    self._users.apply_good(name)
                elif not is_good(service, service.goal):
                    self._users.roll_back(name, None)
            return
        if not self.is_calm:
            self.is_calm = True
            self._calm(services)
            return
        self._phase = _Phase.PEACE
        self._deadline = self._stage.now() + self._bound_seconds()

    def _calm(self, services: Mapping[ServiceName, Service]) -> None:
        room = self._room()
        for name, service in services.items():
            self._demands[name] = self._chance.randint(0, min(MOST_REPLICAS, room))
            room -= self._demands[name]
            self._users.scale(name, 0, MOST_REPLICAS)
            is_bad_trial = service.trial is not None and not is_good(
                service, service.trial
            )
            if is_bad_trial and self._chance.random() < 0.9:
                self._users.roll_back(name, None)
        self._gateway.calm(self._demands)

    def _room(self) -> int:
        """Return how many replicas find room in any case, however they are spread. For
        replicas with several GPUs or nodes, and for queues with limits, count whole
        nodes."""
        specs = [service.spec.replica for service in self._active().values()]
        nodes = len(self._books.nodes)
        is_small = all(
            spec.nodes == 1 and spec.resources.gpu_millis <= 1000 for spec in specs
        )
        count = nodes * self._stage.gpus if is_small else nodes
        most_nodes = max((spec.nodes for spec in specs), default=1)
        most_millis = max((spec.resources.gpu_millis for spec in specs), default=0)
        if most_millis:
            queues = {queue.name: queue for queue in self._people.queues}
            for spec in specs:
                limit = _most_millis(queues.get(spec.queue), spec)
                if limit is not None:
                    count = min(count, limit // (most_millis * most_nodes))
        return count // most_nodes

    def _bound_seconds(self) -> float:
        bound = SETTLE_SECONDS
        for service in self._active().values():
            bound += max(revision.spec.canary.seconds for revision in service.revisions)
            bound += (MOST_REPLICAS + 2) * REPLACE_SECONDS
            if service.trial is not None and not is_good(service, service.trial):
                bound += LONGEST_START_SECONDS
        return bound

    # -- peace -------------------------------------------------------------------------

    def _watch(self) -> None:
        """Check that all services converge by the deadline, and that they then make no
        further replica. A node that is cordoned once more is a new disturbance."""
        services = self._active()
        if any(node.cordoned for node in self._books.nodes.values()):
            self._deadline = self._stage.now() + self._bound_seconds()
        restless = [
            text
            for name, service in services.items()
            if (text := self._restless_text(service, self._demands[name]))
        ]
        numbers = [service.next_number for service in services.values()]
        if not restless and len(services) == len(self._services()):
            self._steady = [*self._steady, sum(numbers)]
            if len(self._steady) >= STEADY_LOOKS:
                self._phase = _Phase.STOPPING
        else:
            self._steady = []
        if len(set(self._steady)) > 1:
            self._books.breach("peace", "replicas are made without any need")
        if restless and self._stage.now() > self._deadline:
            self._books.breach("peace", restless[0])

    def _restless_text(self, service: Service, demand: int) -> str:
        """Return what the service lacks of its goal; "" if it lacks nothing."""
        rows = service.replicas
        text = f"service {service.name} ({service.id}) in peace:"
        if service.trial is not None:
            return f"{text} revision {service.trial} is still on trial"
        if service.wanted != demand:
            return f"{text} it wants {service.wanted} replicas, not {demand}"
        if any(row.draining_at is not None for row in rows):
            return f"{text} replicas are still drained"
        if any(row.revision != service.current for row in rows):
            return f"{text} replicas are of an old revision"
        ready_count = sum(row.is_ready for row in rows)
        if not ready_count == len(rows) == demand:
            return f"{text} {ready_count} of {len(rows)} replicas are ready"
        return ""


def _most_millis(queue: Queue | None, spec: JobSpec) -> int | None:
    """Return the most GPUs of the queue for jobs like this, in thousandths; None: no
    limit. Jobs that are preemptible only borrow."""
    if queue is None or queue.borrow_limit_millis is None:
        return None
    own_millis = sum(millis for _, millis in queue.nominal)
    return queue.borrow_limit_millis + (0 if spec.preemptible else own_millis)
