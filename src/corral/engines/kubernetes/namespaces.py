"""Namespaces of Kubernetes that hold Corral's Jobs: which namespace a queue uses, and
which objects each contains."""

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import PersistentVolumeClaim, Pod, Secret

from corral.domain.errors import Trouble
from corral.domain.ids import QueueName
from corral.domain.observed_state import AttemptKey
from corral.engines.kubernetes import manifests, names
from corral.engines.kubernetes.api_server import Access, NotTaken
from corral.engines.kubernetes.watch_cache import Mirror

CHECK_SECONDS: Final = 30.0  # between two checks of a namespace that can be used
RETRY_SECONDS: Final = 5.0
# the grace of pods that are late already; 0 would hide what still runs
END_SECONDS: Final = 1
UNCHECKED: Final = "it has not been checked yet"
NO_ANSWER: Final = "the Kubernetes API server does not answer"


def namespace_of(
    path: Sequence[QueueName], by_queue: Mapping[QueueName, str], own: str
) -> str:
    """Return the namespace of the nearest queue that has one, else the cluster's own.

    Args:
        path: the job's queue, then the queues above it, the nearest first.
        by_queue: the namespace of each queue that has one.
        own: the namespace of all other queues.
    """
    return next((by_queue[queue] for queue in path if queue in by_queue), own)


@dataclass(slots=True, kw_only=True)
class Namespace:
    """Cache of a namespace's Jobs, pods and Secrets that carry the cluster's label.

    Attributes:
        claims: PersistentVolumeClaim -> its uid, for each claim that was found.
        refusal: why attempts cannot begin in the namespace, by the last check; "" if
            they can.
    """

    name: str
    cluster: str
    access: Access
    jobs: Mirror[Job]
    pods: Mirror[Pod]
    secrets: Mirror[Secret]
    claims: dict[str, str] = field(default_factory=dict)
    refusal: str = UNCHECKED
    _files: Mapping[str, str] = field(default_factory=dict)
    _checked_at: float = float("-inf")
    _check: asyncio.Task[None] | None = None
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)

    @classmethod
    def unwatched(
        cls, name: str, cluster: str, access: Access, changed: Callable[[], None]
    ) -> "Namespace":
        """Return an empty cache, which watches nothing before `watch` is called.
        `cluster`: the cluster's name as in labels. `changed` is called after each
        change."""

        def mirror(kind: Any) -> Any:
            return Mirror(
                client=access.client,
                kind=kind,
                namespace=name,
                labels={names.CLUSTER: cluster},
                changed=changed,
            )

        return cls(
            name=name,
            cluster=cluster,
            access=access,
            jobs=mirror(Job),
            pods=mirror(Pod),
            secrets=mirror(Secret),
        )

    def watch(self) -> None:
        """Start the watches. Must be called within the head's event loop."""
        self._tasks = [asyncio.create_task(mirror.run()) for mirror in self.mirrors]

    @property
    def mirrors(self) -> tuple[Mirror[Any], ...]:
        """All watches of the namespace."""
        return self.jobs, self.pods, self.secrets

    @property
    def is_listed(self) -> bool:
        """Return whether every watch of the namespace has listed its objects at least
        once."""
        return all(mirror.lists for mirror in self.mirrors)

    @property
    def is_empty(self) -> bool:
        """Return whether the namespace contains no known object of an attempt."""
        return not any(mirror.objects for mirror in self.mirrors)

    @property
    def trouble(self) -> str:
        """Return why attempts cannot begin in the namespace, or cannot be observed
        there; "" if they can."""
        troubles = (mirror.trouble for mirror in self.mirrors if mirror.trouble)
        late = "" if self.is_listed else NO_ANSWER
        return next(troubles, "") or self.refusal or late

    def check_tasks(self) -> None:
        """Check that no watch or check has failed. Raises: the error that ended it,
        which is a bug in Corral."""
        for task in self._tasks:
            if task.done():
                task.result()
        if self._check is not None and self._check.done():
            self._check.result()

    def start_check(
        self, files: Mapping[str, str], claims: Sequence[str]
    ) -> asyncio.Task[None] | None:
        """Start a check of the namespace if the files have changed or the last check is
        old.

        The check runs in the background, since a namespace that answers slowly must not
        delay the others.
        Returns: the check that runs; None when none is due.
        """
        if self._check is not None and not self._check.done():
            return self._check
        wait_seconds = RETRY_SECONDS if self.refusal else CHECK_SECONDS
        if files == self._files and time.monotonic() - self._checked_at < wait_seconds:
            return None
        self._check = asyncio.create_task(self.check(files, claims))
        return self._check

    async def check(self, files: Mapping[str, str], claims: Sequence[str]) -> None:
        """Write the head's address (`files`) to the namespace if it has changed there,
        and look for the claims that pods mount.

        If something fails or is missing, the reason is stored in `refusal`.
        """
        config_map = manifests.head_map_of(self.cluster, files)
        try:
            await self.access.put(
                config_map, lambda there: there.data == files, namespace=self.name
            )
            await self.find_claims(claims)
        except (Trouble, NotTaken) as wrong:
            self.refusal = wrong.message
        self._files = files
        self._checked_at = time.monotonic()

    async def find_claims(self, claims: Sequence[str]) -> None:
        """Look for the claims that were not found yet. The first missing claim is
        stored as `refusal`.

        Raises: Trouble.
        """
        for claim in claims:
            if claim not in self.claims:
                claim_object = await self.access.find(
                    PersistentVolumeClaim, claim, namespace=self.name
                )
                if claim_object is None:
                    self.refusal = (
                        f"there is no PersistentVolumeClaim {claim} in namespace "
                        f"{self.name}"
                    )
                    return
                self.claims[claim] = claim_object.metadata.uid
        self.refusal = ""

    def job(self, key: AttemptKey) -> Job | None:
        """Return the Job of the attempt; None if the cache has none."""
        return self.jobs.objects.get((self.name, names.name_of(self.cluster, key)))

    def pods_of(self, key: AttemptKey) -> list[Pod]:
        """Return the pods of the attempt."""
        return [
            pod
            for pod in self.pods.objects.values()
            if pod.metadata is not None and names.key_of(pod.metadata.labels) == key
        ]

    def holds(self, key: AttemptKey) -> bool:
        """Return whether the namespace contains a known object of the attempt."""
        secret = (self.name, names.name_of(self.cluster, key))
        is_named = self.job(key) is not None or secret in self.secrets.objects
        return is_named or bool(self.pods_of(key))

    async def hand_over(self, key: AttemptKey, secret: Secret, job: Job) -> None:
        """Create the Secret, then the Job, unless an earlier try has created them.

        A Job exists only together with its Secret, which is created before the Job and
        removed after it, so two calls are enough if there was no earlier try. A third
        call records on the Secret that the Job was created. A later head may create the
        Job only if this mark is missing.

        Raises: NotTaken, Trouble.
        """
        name = names.name_of(self.cluster, key)
        created = await self.access.create(secret, namespace=self.name)
        if created is None:
            if await self.access.find(Job, name, namespace=self.name) is not None:
                return  # an earlier try did it, and its answer was lost
            await self.access.put(
                secret, lambda there: there.data == secret.data, namespace=self.name
            )
        try:
            created_job = await self.access.create(job, namespace=self.name)
        except NotTaken:
            await self.access.delete(Secret, name, namespace=self.name)
            raise
        if created_job is not None:
            self.jobs.put(created_job)
        # the Job is there, which says the same while it is
        with suppress(Trouble, NotTaken):
            await self._note_handed_over(
                created or secret, is_newest=created is not None
            )

    async def _note_handed_over(self, secret: Secret, *, is_newest: bool) -> None:
        """Record on the Secret that its Job was created. `is_newest`: the Secret is
        exactly as the server returned it. Raises: NotTaken, Trouble."""
        assert secret.metadata is not None
        secret.metadata.annotations = {
            **(secret.metadata.annotations or {}),
            names.HANDED: "true",
        }
        if is_newest:
            client: Any = self.access.client
            await self.access.ask(client.replace(secret, namespace=self.name))
        else:
            await self.access.put(secret, is_handed_over, namespace=self.name)

    async def cancel(self, key: AttemptKey) -> None:
        """Delete the Job and its pods. Raises: Trouble."""
        name = names.name_of(self.cluster, key)
        await self.access.delete(Job, name, namespace=self.name)
        for pod in self.pods_of(key):
            assert pod.metadata is not None
            assert pod.metadata.name is not None
            await self.access.delete(
                Pod, pod.metadata.name, namespace=self.name, grace_seconds=END_SECONDS
            )

    async def forget(self, key: AttemptKey) -> None:
        """Delete the Job and the Secret. Raises: Trouble."""
        name = names.name_of(self.cluster, key)
        await self.access.delete(Job, name, namespace=self.name)
        await self.access.delete(Secret, name, namespace=self.name)
        self.secrets.objects.pop((self.name, name), None)

    async def close(self) -> None:
        """End the watches, and a check that is running."""
        tasks = [*self._tasks, *([self._check] if self._check is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def is_handed_over(secret: Secret) -> bool:
    """Return whether the Secret records that its Job was created, even if the Job no
    longer exists."""
    assert secret.metadata is not None
    return names.HANDED in (secret.metadata.annotations or {})
