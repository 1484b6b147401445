"""Namespaces of Kubernetes with Corral's Jobs: which one a queue uses, and what is in
each."""

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
NO_ANSWER: Final = "the API server of Kubernetes: no answer"


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
        claims: PersistentVolumeClaim -> its uid, of those that were found.
        refusal: why attempts cannot begin there, as the last check found; "" when they
            can.
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
        """Return an empty cache. `cluster`: as in labels. `changed` is called after
        each change."""

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
        """Start the watches. To be called within the head's loop."""
        self._tasks = [asyncio.create_task(mirror.run()) for mirror in self.mirrors]

    @property
    def mirrors(self) -> tuple[Mirror[Any], ...]:
        """All watches."""
        return self.jobs, self.pods, self.secrets

    @property
    def is_listed(self) -> bool:
        """Whether all that was there when the head began has been seen."""
        return all(mirror.lists for mirror in self.mirrors)

    @property
    def is_empty(self) -> bool:
        """Whether nothing of an attempt is known to be there."""
        return not any(mirror.objects for mirror in self.mirrors)

    @property
    def trouble(self) -> str:
        """Return why attempts cannot begin there, or cannot be observed; "" if they
        can."""
        troubles = (mirror.trouble for mirror in self.mirrors if mirror.trouble)
        late = "" if self.is_listed else NO_ANSWER
        return next(troubles, "") or self.refusal or late

    def check_tasks(self) -> None:
        """Raises: what a watch has died of, which is a fault of Corral."""
        for task in self._tasks:
            if task.done():
                task.result()
        if self._check is not None and self._check.done():
            self._check.result()

    def start_check(
        self, files: Mapping[str, str], claims: Sequence[str]
    ) -> asyncio.Task[None] | None:
        """Start a check where the files have changed, or the last check is old.

        It runs alongside the looks: a namespace that is slow to answer must not delay
        the others.
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
        """Keep the head's address there up to date, and look for the claims that pods
        mount.

        The result is `refusal`.
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
        """Look for the claims that were not found yet; the first that is missing is the
        `refusal`.

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
        """The Job of the attempt."""
        return self.jobs.objects.get((self.name, names.name_of(self.cluster, key)))

    def pods_of(self, key: AttemptKey) -> list[Pod]:
        """The pods of the attempt."""
        return [
            pod
            for pod in self.pods.objects.values()
            if pod.metadata is not None and names.key_of(pod.metadata.labels) == key
        ]

    def holds(self, key: AttemptKey) -> bool:
        """Whether anything of the attempt is known to be there."""
        secret = (self.name, names.name_of(self.cluster, key))
        is_named = self.job(key) is not None or secret in self.secrets.objects
        return is_named or bool(self.pods_of(key))

    async def hand_over(self, key: AttemptKey, secret: Secret, job: Job) -> None:
        """Make the Secret, then the Job, unless an earlier try has made it.

        A Job is there only with its Secret, which is made before it and removed after
        it. So two calls do where no earlier try was. A third one notes on the Secret
        that there was a Job: without that, the next head knows that it may make one.

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
        """`is_newest`: it is as the server has answered. Raises: NotTaken, Trouble."""
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
        """End the watches, and a check that runs."""
        tasks = [*self._tasks, *([self._check] if self._check is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def is_handed_over(secret: Secret) -> bool:
    """Whether the Secret says that its Job has been made, be it there now or not."""
    assert secret.metadata is not None
    return names.HANDED in (secret.metadata.annotations or {})
