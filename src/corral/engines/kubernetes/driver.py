"""Driver of Kubernetes for the batch engine: reading its state, submitting attempts,
and ending them."""

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, TypeVar

from lightkube import ALL_NS
from lightkube.operators import not_equal
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Event, Node, Pod

from corral.domain.desired_state import Launch
from corral.domain.errors import Trouble
from corral.domain.ids import ClusterId, JobId, NodeId, QueueName
from corral.domain.observed_state import AttemptKey
from corral.engines.batch.interfaces import (
    BatchSnapshot,
    Foreign,
    LentNode,
    PartFiles,
    Ticket,
    TicketState,
)
from corral.engines.kubernetes import attempt_tickets, manifests, names, nodes
from corral.engines.kubernetes.api_server import Access, NotTaken
from corral.engines.kubernetes.head_map import HeadMap
from corral.engines.kubernetes.namespaces import (
    RETRY_SECONDS,
    Namespace,
    is_handed_over,
)
from corral.engines.kubernetes.queue_namespaces import QueueNamespaces, key_of
from corral.engines.kubernetes.rights import missing_rights
from corral.engines.kubernetes.settings import KubernetesSettings
from corral.engines.kubernetes.watch_cache import Mirror, server_trouble
from corral.wire.node import NodeSettings

MOST_GONE: Final = 256
EVENTS_SECONDS: Final = 5.0  # between two questions why a Job has no pods
CHECK_WAIT_SECONDS: Final = 1.0  # that a look waits for checks of namespaces
log = logging.getLogger(__name__)
T = TypeVar("T")


@dataclass(slots=True, kw_only=True)
class PendingSubmission:
    """An attempt that Kubernetes does not accept now, and why. It is submitted again
    later."""

    gang: tuple[Launch, ...]
    parts: Mapping[NodeId, PartFiles]
    why: str
    tried_at: float


@dataclass(slots=True, kw_only=True)
class KubernetesDriver:
    """Implements `BatchSystem` for Kubernetes. `named` returns the cluster's id, which
    is known once the engine starts. `head` returns the files that give pods the head's
    address; it may raise Trouble while the address is unknown. `stir` is called when
    Kubernetes has reported something new. `queues` returns a job's queue and the queues
    above it, the nearest first."""

    named: Callable[[], ClusterId]
    settings: KubernetesSettings
    access: Access
    head: Callable[[], Mapping[str, str]]
    queues: Callable[[JobId], Sequence[QueueName]] = lambda job: ()
    stir: Callable[[], None] = lambda: None
    held: dict[AttemptKey, PendingSubmission] = field(default_factory=dict)
    _events: dict[AttemptKey, tuple[float, list[Event]]] = field(default_factory=dict)
    _addresses: dict[AttemptKey, tuple[str, ...]] = field(default_factory=dict)
    _mirrors: list[Mirror[Any]] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    cluster: str = ""
    nodes: Mirror[Node] = field(init=False)
    others: Mirror[Pod] = field(init=False)
    head_map: HeadMap = field(init=False)
    spaces: QueueNamespaces = field(init=False)

    def _start_watches(self) -> None:
        """Start the watches of nodes, of pods outside the cluster, and of the cluster's
        own namespace. Pods of other programs are watched for the resources that they
        hold on the nodes."""
        self.cluster = names.short_cluster(self.named())
        space = self.access.client.namespace
        self.head_map = HeadMap(
            access=self.access, cluster=self.cluster, namespace=space
        )

        def mirror(kind: Any, **more: Any) -> Any:
            new_mirror: Mirror[Any] = Mirror(
                client=self.access.client, kind=kind, changed=self.stir, **more
            )
            self._mirrors.append(new_mirror)
            return new_mirror

        self.nodes = mirror(Node)
        foreign_labels = {names.CLUSTER: not_equal(self.cluster)}
        self.others = mirror(Pod, namespace=ALL_NS, labels=foreign_labels)
        self._tasks = [asyncio.create_task(mirror.run()) for mirror in self._mirrors]
        self.spaces = QueueNamespaces(
            access=self.access,
            cluster=self.cluster,
            own_name=space,
            by_queue=self.settings.namespace_by_queue,
            head_map=self.head_map,
            queues=self.queues,
            changed=self.stir,
        )
        self._mirrors += self.spaces.watch(space).mirrors

    async def look(self) -> BatchSnapshot:
        """Return the state that the watches have received, once the API server has
        shown that it still responds.

        Raises: Trouble.
        """
        if not self._tasks:  # within the head's loop
            await self._check_rights()
            self._start_watches()
        await self._all_synced()
        await self._watch_others()
        await self._find_claims()
        lent_nodes = self._lent()
        gone_nodes = await self._tell_pods(lent_nodes)
        await self._ask_events()
        await self._try_held()
        events = {key: event_list for key, (_, event_list) in self._events.items()}
        spaces = self.spaces
        jobs = [job for space in spaces for job in spaces.counted(space, space.jobs)]
        pods = [pod for space in spaces for pod in spaces.counted(space, space.pods)]
        secrets = [
            secret
            for space in spaces
            for secret in spaces.counted(space, space.secrets)
        ]
        seen_tickets = attempt_tickets.tickets_of(jobs, pods, events)
        ticket_keys = {ticket.key for ticket in seen_tickets}
        handed_over = {
            key: is_handed_over(secret)
            for secret in secrets
            if (key := key_of(secret)) is not None
        }
        waiting_tickets = [
            _waiting_ticket(key, pending_submission.why)
            for key, pending_submission in self.held.items()
            if key not in ticket_keys
        ]
        return BatchSnapshot(
            nodes=(*lent_nodes, *gone_nodes),
            tickets=(*seen_tickets, *waiting_tickets),
            kept=tuple(
                key
                for key, is_sent in handed_over.items()
                if is_sent or key in ticket_keys
            ),
            unsent=tuple(
                key
                for key, is_sent in handed_over.items()
                if not is_sent and key not in ticket_keys
            ),
            troubles=tuple(self.spaces.troubles()),
        )

    async def _check_rights(self) -> None:
        """Check that the account has all rights that Corral will need. Raises: Trouble
        while rights are missing."""
        if missing := await missing_rights(self.access, self.access.client.namespace):
            raise Trouble(missing)

    async def _all_synced(self) -> None:
        """Check that the watches that all namespaces need have received data. Raises:
        Trouble when one of them has not."""
        for task in self._tasks:
            if task.done():  # a bug of ours: nothing is watched any more
                task.result()
        for space in self.spaces:
            space.check_tasks()
        if not await self._answered(self._mirrors):
            raise Trouble(
                "the API server did not list its objects within "
                f"{self.access.call_seconds:g} s",
                is_silence=True,
            )
        for mirror in self._mirrors:
            if mirror.trouble:
                raise server_trouble(mirror.trouble, is_silence=mirror.is_silent)

    async def _answered(self, mirrors: Iterable[Mirror[Any]]) -> bool:
        """Wait until each watch has listed its objects or has failed. Return False if
        that takes too long."""
        waits = [mirror.answered.wait() for mirror in mirrors]
        try:
            async with asyncio.timeout(self.access.call_seconds):
                await asyncio.gather(*waits)
        except TimeoutError:
            return False
        return True

    async def _watch_others(self) -> None:
        """Watch the namespaces of queues, and those in which earlier attempts may still
        be.

        Raises: Trouble.
        """
        is_first = not self.head_map.is_read
        await self.head_map.read()
        if not is_first:
            return
        other_spaces = self.spaces.watch_others()
        await self._answered(
            mirror for space in other_spaces for mirror in space.mirrors
        )

    async def _find_claims(self) -> None:
        """Look for the PersistentVolumeClaims that pods mount. If a claim is missing,
        no attempt can begin in the cluster's own namespace. If there is no other
        namespace, Trouble is raised.

        Raises: Trouble.
        """
        await self.spaces.own.find_claims(
            [claim for claim, _ in self.settings.mounted_claims]
        )
        if self.spaces.own.refusal and len(self.spaces.by_name) == 1:
            raise Trouble(self.spaces.own.refusal)

    def _lent(self) -> list[LentNode]:
        foreign = nodes.foreign_use(self.others.objects.values())
        claims: dict[str, str] = {}
        for space in self.spaces:  # all nodes of a cluster have the same one
            claims = {**space.claims, **claims}
        return [
            nodes.lent_node(
                node, foreign.get(NodeId(name), Foreign()), self.settings, claims
            )
            for (_, name), node in sorted(self.nodes.objects.items())
            if nodes.is_lent(node, self.settings)
        ]

    async def _tell_pods(self, lent: Sequence[LentNode]) -> list[LentNode]:
        """Keep the ConfigMaps with the head's address up to date. Returns: the nodes
        that Corral used and that no longer exist.

        Raises: Trouble.
        """
        present_nodes = {object_key[1] for object_key in self.nodes.objects}
        gone_boots = {
            node: boot
            for node, boot in self.head_map.boots.items()
            if node not in present_nodes
        }
        gone_boots = dict(list(gone_boots.items())[-MOST_GONE:])
        address = self.head()
        await self.spaces.drop_unused()
        await self.head_map.write(
            address, gone_boots | {lent_node.node: lent_node.boot for lent_node in lent}
        )
        claims = [claim for claim, _ in self.settings.mounted_claims]
        other_spaces = [space for space in self.spaces if space is not self.spaces.own]
        checks = [
            task
            for space in other_spaces
            if (task := space.start_check(address, claims))
        ]
        if checks:
            await asyncio.wait(checks, timeout=CHECK_WAIT_SECONDS)
        return [
            nodes.gone_node(NodeId(node), boot) for node, boot in gone_boots.items()
        ]

    async def _ask_events(self) -> None:
        """Read the events of each Job without pods: only events show why its pods are
        missing. Raises: Trouble."""
        now, asked_places = time.monotonic(), {}
        for space in self.spaces:
            pods = {key_of(pod) for pod in self.spaces.counted(space, space.pods)}
            for job in self.spaces.counted(space, space.jobs):
                key = key_of(job)
                if (
                    key is None
                    or key in pods
                    or not attempt_tickets.lacks_pods(job, ())
                ):
                    continue
                told_at, events = self._events.get(key, (0.0, []))
                if now - told_at > EVENTS_SECONDS:
                    told_at, events = now, await self._events_of(space, job)
                asked_places[key] = (told_at, events)
        self._events = asked_places

    async def _events_of(self, space: Namespace, job: Job) -> list[Event]:
        """Return the events of the Job; [] if the Job is in a queue's namespace that
        does not answer. Raises: Trouble."""
        assert job.metadata is not None
        which: dict[str, Any] = {"involvedObject.uid": job.metadata.uid}
        event_rows: Any = self.access.client.list(
            Event, namespace=space.name, fields=which
        )
        try:
            return await self.access.ask(_collect_items(event_rows))
        except Trouble:
            if space is self.spaces.own:
                raise
            return []

    async def submit(
        self, gang: Sequence[Launch], parts: Mapping[NodeId, PartFiles]
    ) -> None:
        """Create the Secret and the Job of the attempt, unless its Job exists. Raises:
        Refusal, Trouble."""
        key = gang[0].key
        if self.spaces.job(key) is not None:
            self.held.pop(key, None)
            return
        secret = manifests.secret_of(self.cluster, gang, parts)
        gpus = {
            name: nodes.gpu_resources(node)
            for (_, name), node in self.nodes.objects.items()
        }
        job = manifests.job_of(
            self.cluster,
            gang,
            {NodeId(name): gpu_name for name, gpu_name in gpus.items()},
            self.settings,
        )
        try:
            space = await self.spaces.choose(key)
            await space.hand_over(key, secret, job)
        except Trouble as trouble:
            if key not in self.held:
                log.warning("attempt %s.%s waits: %s", *key, trouble.message)
            self.held[key] = PendingSubmission(
                gang=tuple(gang),
                parts=parts,
                why=trouble.message,
                tried_at=time.monotonic(),
            )
            return
        self.held.pop(key, None)

    async def _try_held(self) -> None:
        """Submit again the attempts that Kubernetes has not accepted, for example
        because a quota was full. Each is tried again after RETRY_SECONDS."""
        for key, pending_submission in list(self.held.items()):
            if time.monotonic() - pending_submission.tried_at > RETRY_SECONDS:
                try:
                    await self.submit(pending_submission.gang, pending_submission.parts)
                except (NotTaken, Trouble) as wrong:
                    self.held[key] = replace(
                        pending_submission, why=wrong.message, tried_at=time.monotonic()
                    )

    async def withhold(self, key: AttemptKey) -> None:
        """Do nothing: the ranks begin only when the head orders it."""

    async def cancel(self, key: AttemptKey) -> None:
        """Delete the Job and the pods of the attempt. Raises: Trouble."""
        self.held.pop(key, None)
        for space in self.spaces.where(key):
            await space.cancel(key)

    async def forget(self, key: AttemptKey) -> None:
        """Remove what is left of the attempt in each namespace where it may be. Raises:
        Trouble."""
        self.held.pop(key, None)
        self._addresses.pop(key, None)
        for space in self.spaces.where(key):
            await space.forget(key)
        self.spaces.placed_in.pop(key, None)

    def fitted(self, launch: Launch) -> Launch | None:
        """Return the launch as its pod sees it. GPUs are numbered from 0, the image is
        dropped because the pod already runs in it, and ranks are reached at their pods'
        addresses. Return None until the addresses of the whole gang are known."""
        seat = replace(launch.seat, gpus=tuple(range(len(launch.seat.gpus))), slices=())
        launch = replace(launch, seat=seat, image=None)
        if self.settings.host_network:
            return launch
        own_addresses = self._addresses.get(launch.key) or self._find_addresses(
            launch.key
        )
        if own_addresses is None:
            return None
        return replace(launch, nodes=own_addresses, master_address=own_addresses[0])

    def _find_addresses(self, key: AttemptKey) -> tuple[str, ...] | None:
        """Return the addresses of the attempt's pods, in the order of node ranks; None
        until all pods have an address. The addresses never change after that."""
        job = self.spaces.job(key)
        annotations = (job.metadata.annotations or {}) if job and job.metadata else {}
        gang = [NodeId(node) for node in json.loads(annotations.get(names.NODES, "[]"))]
        known_addresses = attempt_tickets.addresses_of(self.spaces.pods_of(key))
        if not gang or not known_addresses.keys() >= set(gang):
            return None
        return self._addresses.setdefault(
            key, tuple(known_addresses[node] for node in gang)
        )

    def settings_of(self, part: NodeId, launch: Launch) -> NodeSettings:
        """Return the settings for the agent of the attempt on this node. The agent does
        not detect GPUs in its pod: they are listed in the settings."""
        certificate = f"{manifests.HEAD}/{manifests.CERTIFICATE}"
        node = self.nodes.objects.get(("", launch.seat.node))
        types = nodes.gpu_types(node) if node is not None else []
        gpu_types = [types[index] for index in launch.seat.gpus if index < len(types)]
        return NodeSettings(
            node=part,
            head_file=f"{manifests.HEAD}/{manifests.HEAD_JSON}",
            trusted=certificate if manifests.CERTIFICATE in self.head() else None,
            real_gpus=tuple(range(len(launch.seat.gpus))),
            gpu_numbers=launch.seat.gpus,
            gpu_type=gpu_types[0] if gpu_types else "",
            memory_bytes=launch.seat.memory_bytes or None,
            shared=tuple(path for _, path in self.settings.mounted_claims),
            isolation="none",  # the container's own root is all that there is
            hidden=(manifests.PART,),
            containment="engine",  # the container ends with its agent, and all in it
        )

    async def close(self) -> None:
        """End all watches, and close the client."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for space in self.spaces if self._tasks else ():  # else nothing was watched
            await space.close()
        await self.access.client.close()


def head_files(
    head_json: Path, certificate: str | None, url: str | None
) -> Mapping[str, str]:
    """Return the files by which pods find and verify the head. Raises: Trouble while
    the head's address is not known yet."""
    try:
        head_url = url or str(json.loads(head_json.read_text())["url"])
        files = {manifests.HEAD_JSON: json.dumps({"url": head_url})}
        if certificate is not None:
            files[manifests.CERTIFICATE] = Path(certificate).read_text()
    except (OSError, ValueError, KeyError) as absent:
        raise Trouble(
            f"the address of the head cannot be passed to the pods: {absent}"
        ) from absent
    return files


def _waiting_ticket(key: AttemptKey, why: str) -> Ticket:
    return Ticket(key=key, handle="", state=TicketState.WAITING, reason=why)


async def _collect_items(found: AsyncIterable[T]) -> list[T]:
    return [item_read async for item_read in found]
