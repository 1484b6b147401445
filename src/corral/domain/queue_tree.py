"""Tree of all queues: each level shares the GPUs of the level above it."""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from typing import Final

from corral.domain.access_list import Allowed
from corral.domain.ids import QueueName, UserName
from corral.domain.job import DEFAULT_QUEUE
from corral.domain.queue import Queue
from corral.domain.queue_faults import QueueFault, faults
from corral.domain.queue_policy import Policy, Visibility
from corral.domain.relocation import RelocationRule

HALF_LIFE_SECONDS: Final = 7 * 86400.0
MIN_RUNTIME_SECONDS: Final = 120.0
DEFAULT_CURRENCY: Final = "USD"
CURRENCY: Final = re.compile(r"[A-Z]{3}", re.ASCII)  # its code in ISO 4217


class NoTree(ValueError):
    """Error: these queues form no valid tree. `fault` is the first fault."""

    def __init__(self, fault: QueueFault) -> None:
        super().__init__(f"queue {fault.queue}: {fault.field}: {fault.text}")
        self.fault = fault


@dataclass(frozen=True, kw_only=True)
class QueueTree:
    """All queues. One of them is always named default.

    `half_life_seconds` is the time after which past use counts half.
    `min_runtime_seconds` is the run time before a job may be stopped for the owner of
    its GPUs. `relocation` is the rule for moving jobs to make room.
    `rack_locality_delay_seconds` and `pod_locality_delay_seconds` are how long a gang
    waits for a single rack, or a single pod, that has room for all of it. After that
    the gang takes any nodes. `currency` is that of budgets, rates and the prices in
    node labels.
    """

    queues: tuple[Queue, ...] = field(
        default_factory=lambda: (Queue(name=DEFAULT_QUEUE),)
    )
    half_life_seconds: float = HALF_LIFE_SECONDS
    min_runtime_seconds: float = MIN_RUNTIME_SECONDS
    relocation: RelocationRule | None = None
    rack_locality_delay_seconds: float = 0.0
    pod_locality_delay_seconds: float = 0.0
    currency: str = DEFAULT_CURRENCY

    def __post_init__(self) -> None:
        if not (
            0 < self.half_life_seconds < inf and 0 <= self.min_runtime_seconds < inf
        ):
            raise ValueError(
                "half_life must be more than 0 s, min_runtime at least 0 s, and both finite"
            )
        if not all(
            0 <= delay < inf
            for delay in (
                self.rack_locality_delay_seconds,
                self.pod_locality_delay_seconds,
            )
        ):
            raise ValueError("each locality_delay must be at least 0 s and finite")
        if CURRENCY.fullmatch(self.currency) is None:
            raise ValueError("currency must be three capital letters, such as USD")
        for fault in faults(self.queues):
            raise NoTree(fault)
        if DEFAULT_QUEUE not in self.by_name:
            raise ValueError("the queue named default is missing")

    @cached_property
    def by_name(self) -> Mapping[QueueName, Queue]:
        return {queue.name: queue for queue in self.queues}

    def queue(self, name: QueueName) -> Queue:
        """Return the queue of this name. For a removed queue, return one that owns no
        GPUs and has no limits."""
        return self.by_name.get(name) or Queue(name=name)

    def path(self, name: QueueName) -> tuple[Queue, ...]:
        """Return the queue and the queues above it, from the top down."""
        return self._paths.get(name) or (Queue(name=name),)

    @cached_property
    def _paths(self) -> Mapping[QueueName, tuple[Queue, ...]]:
        def path(queue: Queue) -> tuple[Queue, ...]:
            above = path(self.by_name[queue.parent]) if queue.parent is not None else ()
            return (*above, queue)

        return {queue.name: path(queue) for queue in self.queues}

    def allowed(self, name: QueueName) -> Allowed | None:
        """Return who may submit to the queue: its own list, else that of the nearest
        queue above it. None if all users may."""
        lists = [queue.allow for queue in self.path(name) if queue.allow is not None]
        return lists[-1] if lists else None

    def visibility(self, name: QueueName) -> Visibility:
        """Return who may see the jobs of the queue: its own setting, else that of the
        nearest queue above it, else ALL. A removed queue may have hidden its jobs, so
        it gets OWN if any queue hides jobs."""
        if name not in self.by_name and self.hides:
            return Visibility.OWN
        visibilities = [
            queue.visibility
            for queue in self.path(name)
            if queue.visibility is not None
        ]
        return visibilities[-1] if visibilities else Visibility.ALL

    @cached_property
    def hides(self) -> bool:  # any job from anybody
        return any(
            queue.visibility not in (None, Visibility.ALL) for queue in self.queues
        )

    def operated_by(self, user: UserName) -> Set[QueueName]:  # with all below them
        return self._queues_by_operator.get(user, frozenset())

    @cached_property
    def _queues_by_operator(self) -> Mapping[UserName, Set[QueueName]]:
        queues_by_user: dict[UserName, set[QueueName]] = {}
        for name, path in self._paths.items():
            for user in (operator for queue in path for operator in queue.operators):
                queues_by_user.setdefault(user, set()).add(name)
        return queues_by_user

    def policy_of(self, name: QueueName) -> Policy:
        """Return the policy that orders the jobs of the queue: that of the topmost
        queue on its path with a policy other than the default."""
        ruling = self._policy_root_by_queue.get(name)
        return Policy.DEFAULT if ruling is None else ruling.policy

    @cached_property
    def _policy_root_by_queue(self) -> Mapping[QueueName, Queue]:
        """Return for each queue the topmost queue on its path with a policy other than
        the default. A queue without one is left out."""
        queues_by_queue_name = {
            name: next(
                (queue for queue in path if queue.policy != Policy.DEFAULT), None
            )
            for name, path in self._paths.items()
        }
        return {
            name: ruling
            for name, ruling in queues_by_queue_name.items()
            if ruling is not None
        }

    def sharing_service(self, name: QueueName) -> Sequence[QueueName]:
        """Return the queues whose jobs are ordered by service together with those of
        this queue; only this queue for another policy."""
        if self.policy_of(name) != Policy.ATTAINED:
            return (name,)
        return self._lines[self._policy_root_by_queue[name].name]

    @cached_property
    def _lines(self) -> Mapping[QueueName, Sequence[QueueName]]:
        """Return for each queue that sets a policy the queues to which its policy
        applies."""
        names_by_queue: dict[QueueName, list[QueueName]] = {}
        for name, ruling in self._policy_root_by_queue.items():
            names_by_queue.setdefault(ruling.name, []).append(name)
        return names_by_queue

    @cached_property
    def below_service(self) -> Set[QueueName]:
        """Return the queues below a queue that orders by service. Their jobs are
        ordered together, but each queue owns GPUs, so what a queue borrows from the
        others counts as its debt."""
        return {
            name
            for name, ruling in self._policy_root_by_queue.items()
            if ruling.policy == Policy.ATTAINED and ruling.name != name
        }

    def walk(self) -> Iterator[tuple[int, Queue]]:
        """Yield (depth, queue) for all queues, each below its parent, in their given
        order."""
        below: dict[QueueName | None, list[Queue]] = {}
        for queue in self.queues:
            below.setdefault(queue.parent, []).append(queue)
        stack = [(0, queue) for queue in reversed(below.get(None, []))]
        while stack:
            depth, queue = stack.pop()
            yield depth, queue
            stack += [
                (depth + 1, child) for child in reversed(below.get(queue.name, []))
            ]


def whole_tree(
    queues: Sequence[Queue],
    *,
    half_life_seconds: float = HALF_LIFE_SECONDS,
    min_runtime_seconds: float = MIN_RUNTIME_SECONDS,
) -> QueueTree:
    """Return a tree of these queues. A default queue is added if none of them is named
    default."""
    has_default = any(queue.name == DEFAULT_QUEUE for queue in queues)
    return QueueTree(
        queues=tuple(queues) if has_default else (Queue(name=DEFAULT_QUEUE), *queues),
        half_life_seconds=half_life_seconds,
        min_runtime_seconds=min_runtime_seconds,
    )
