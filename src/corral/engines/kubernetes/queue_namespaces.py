"""Namespaces of Kubernetes in which the attempts of a cluster are."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Pod

from corral.domain.errors import Trouble
from corral.domain.ids import JobId, QueueName
from corral.domain.observed_state import AttemptKey
from corral.engines.kubernetes import names
from corral.engines.kubernetes.api_server import Access
from corral.engines.kubernetes.head_map import HeadMap
from corral.engines.kubernetes.namespaces import Namespace, namespace_of
from corral.engines.kubernetes.watch_cache import Mirror

MOST_NAMED: Final = 5  # queues that a sentence names
T = TypeVar("T", bound=Any)


@dataclass(slots=True, kw_only=True)
class QueueNamespaces:
    """Namespaces of a cluster: its own, those of queues, and those in which earlier
    attempts may be left.

    Attributes:
        own_name: the cluster's own namespace. Nothing begins in any namespace while
            this one cannot be used.
        by_queue: the namespace of each queue that has one.
        queues: returns a job's queue and those above it, the nearest first.
        changed: called when Kubernetes has reported something new.
        placed_in: the namespace that was chosen for an attempt, which never changes. It
            is empty when the head starts; the objects of an earlier attempt show its
            namespace.
        by_name: all namespaces that are watched, the cluster's own first.
    """

    access: Access
    cluster: str
    own_name: str
    by_queue: Mapping[QueueName, str]
    head_map: HeadMap
    queues: Callable[[JobId], Sequence[QueueName]]
    changed: Callable[[], None]
    placed_in: dict[AttemptKey, str] = field(default_factory=dict)
    by_name: dict[str, Namespace] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Namespace]:
        """Iterate over a copy, so that a namespace can be dropped during the iteration."""
        return iter(list(self.by_name.values()))

    @property
    def own(self) -> Namespace:
        """The cluster's own namespace."""
        return self.by_name[self.own_name]

    def watch(self, namespace: str) -> Namespace:
        """Watch one more namespace and return it. Must be called within the head's
        event loop."""
        namespace_watch = Namespace.unwatched(
            namespace, self.cluster, self.access, self.changed
        )
        namespace_watch.watch()
        self.by_name[namespace] = namespace_watch
        return namespace_watch

    def watch_others(self) -> list[Namespace]:
        """Watch the namespaces of queues, and those in which earlier attempts may still
        be. Return these namespaces."""
        space_names = {*self.by_queue.values(), *self.head_map.used}
        return [self.watch(name) for name in sorted(space_names - {self.own_name})]

    async def drop_unused(self) -> None:
        """Forget which queues have used the namespaces that are now empty. Stop
        watching those of them that the settings give to no queue."""
        configured_names = {*self.by_queue.values(), self.own_name}
        chosen = set(self.placed_in.values())
        for space in self:
            if space.is_listed and space.is_empty and space.name not in chosen:
                self.head_map.used.pop(space.name, None)
                if space.name not in configured_names:
                    del self.by_name[space.name]
                    await space.close()

    def troubles(self) -> Iterator[str]:
        """Yield a sentence for each namespace that cannot be used."""
        for space in self:
            reason = space.refusal if space is self.own else space.trouble
            if reason:
                by_queue = self.by_queue.items()
                queues = {
                    queue for queue, namespace in by_queue if namespace == space.name
                }
                queues |= self.head_map.used.get(space.name, frozenset())
                of = f" of {', '.join(sorted(queues)[:MOST_NAMED])}" if queues else ""
                yield f"{_unusable_text(space.name, reason)}; jobs{of} wait"

    async def choose(self, key: AttemptKey) -> Namespace:
        """Choose the namespace for an attempt that has none yet. The choice is final.

        Raises: Trouble while the namespace cannot be used, or while the attempt may
        already be in another namespace that cannot be read.
        """
        if (chosen := self.placed_in.get(key)) is not None:
            self._check_usable(self.by_name[chosen])
            return self.by_name[chosen]
        path = self.queues(key[0])
        if not path and len(self.by_name) > 1:
            raise Trouble(f"the queue of job {key[0]} is not known")
        name = namespace_of(path, self.by_queue, self.own_name)
        for other_space in self:
            if other_space.name != name and self._may_hold(other_space, key):
                raise Trouble(
                    f"the job may already run in namespace {other_space.name}, which "
                    f"cannot be read: {other_space.trouble}"
                )
        space = self.by_name[name]
        self._check_usable(space)
        if space is not self.own:
            await self.head_map.add_use(name, path[0])
        self.placed_in[key] = name
        return space

    def _check_usable(self, space: Namespace) -> None:
        """Check that the namespace can be used. A watch of the cluster's own namespace
        that fails has already stopped `look`. Raises: Trouble."""
        if reason := space.refusal if space is self.own else space.trouble:
            raise Trouble(
                f"the job waits in Kubernetes: {_unusable_text(space.name, reason)}"
            )

    def _may_be_in(self, space: Namespace, key: AttemptKey) -> bool:
        """Return whether the head can have created the attempt in the namespace. A
        label is no proof: teams may be able to create objects with any labels in their
        namespaces, also for attempts of other queues."""
        if (chosen := self.placed_in.get(key)) is not None:
            return space.name == chosen
        if space is self.own:
            return True
        used_queues = self.head_map.used.get(space.name, frozenset())
        path = self.queues(key[0])
        return bool(used_queues) and (not path or path[0] in used_queues)

    def _may_hold(self, space: Namespace, key: AttemptKey) -> bool:
        """Return whether the attempt may be in the namespace although no object of it
        is known, because the namespace cannot be read."""
        return not space.is_listed and self._may_be_in(space, key)

    def counted(self, space: Namespace, mirror: Mirror[T]) -> list[T]:
        """Return those objects in `mirror` whose attempts the head can have created in
        the namespace."""
        return [
            mirrored
            for mirrored in mirror.objects.values()
            if (key := key_of(mirrored)) is not None and self._may_be_in(space, key)
        ]

    def where(self, key: AttemptKey) -> list[Namespace]:
        """Return the namespace that holds the attempt. If no object of it is known,
        return all namespaces in which it may be."""
        spaces = [namespace for namespace in self if self._may_be_in(namespace, key)]
        namespaces = [
            space
            for space in spaces
            if space.name == self.placed_in.get(key) or space.holds(key)
        ]
        return namespaces or [
            self.own,
            *(space for space in spaces if not space.is_listed),
        ]

    def job(self, key: AttemptKey) -> Job | None:
        """Return the Job of the attempt; None if no namespace has one."""
        spaces = (namespace for namespace in self if self._may_be_in(namespace, key))
        jobs = (space.job(key) for space in spaces)
        return next((job for job in jobs if job is not None), None)

    def pods_of(self, key: AttemptKey) -> list[Pod]:
        """Return the pods of the attempt."""
        spaces = (namespace for namespace in self if self._may_be_in(namespace, key))
        return [pod for space in spaces for pod in space.pods_of(key)]


def key_of(object: Any) -> AttemptKey | None:
    """Return the attempt to which an object belongs; None if its labels do not name
    one."""
    return names.key_of(object.metadata.labels if object.metadata else None)


def _unusable_text(namespace: str, why: str) -> str:
    return f"namespace {namespace} cannot be used: {why}"
