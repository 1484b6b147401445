"""Kubernetes as lending asks for it: what it has, handing an attempt over, ending it."""

import asyncio
import json
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from lightkube import ALL_NS
from lightkube.operators import not_equal
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import (
    ConfigMap,
    Event,
    Node,
    PersistentVolumeClaim,
    Pod,
    Secret,
)

from corral.domain.errors import Trouble
from corral.domain.facts import AttemptKey
from corral.domain.ids import ClusterId, NodeId
from corral.domain.wanted import Launch
from corral.engines.kubernetes import names, nodes, render, tickets
from corral.engines.kubernetes.access import Access, NotTaken
from corral.engines.kubernetes.mirror import Mirror
from corral.engines.kubernetes.settings import KubernetesSettings
from corral.engines.lending.values import Foreign, LentNode, Look, PartFiles, Ticket, TicketState
from corral.wire.node import NodeSettings

KEPT_NODES: Final = "nodes.json"  # in the head's ConfigMap: those that were lent, with their boots
MOST_GONE: Final = 256
EVENTS_SECONDS: Final = 5.0  # between two questions why a Job has no pods
RETRY_SECONDS: Final = 5.0
END_SECONDS: Final = 1  # the grace of pods that are late already; 0 would hide what still runs
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Held:
    """An attempt that Kubernetes does not take now, and why."""

    gang: tuple[Launch, ...]
    parts: Mapping[NodeId, PartFiles]
    why: str
    tried_at: float


@dataclass(slots=True, kw_only=True)
class KubernetesDriver:
    """Implements lending.Driver. `named`: the cluster, which is known once the engine starts.
    `head`: the files that tell pods where the head is; it may raise Trouble while nobody knows.
    `stir`: called when Kubernetes has told something new."""

    named: Callable[[], ClusterId]
    settings: KubernetesSettings
    access: Access
    head: Callable[[], Mapping[str, str]]
    stir: Callable[[], None] = lambda: None
    held: dict[AttemptKey, Held] = field(default_factory=dict)
    _claims: dict[str, str] = field(default_factory=dict)
    _events: dict[AttemptKey, tuple[float, list[Event]]] = field(default_factory=dict)
    _addresses: dict[AttemptKey, tuple[str, ...]] = field(default_factory=dict)
    _mirrors: list[Mirror[Any]] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    cluster: str = ""
    nodes: Mirror[Node] = field(init=False)
    jobs: Mirror[Job] = field(init=False)
    pods: Mirror[Pod] = field(init=False)
    secrets: Mirror[Secret] = field(init=False)
    others: Mirror[Pod] = field(init=False)

    def _begin(self) -> None:
        """Watch what is there. The pods of others are watched for what they hold of the nodes."""
        self.cluster = names.short_cluster(self.named())
        own = {names.CLUSTER: self.cluster}
        space = self.access.client.namespace

        def mirror(kind: Any, **more: Any) -> Any:
            made: Mirror[Any] = Mirror(
                client=self.access.client, kind=kind, changed=self.stir, **more
            )
            self._mirrors.append(made)
            return made

        self.nodes = mirror(Node)
        self.jobs = mirror(Job, namespace=space, labels=own)
        self.pods = mirror(Pod, namespace=space, labels=own)
        self.secrets = mirror(Secret, namespace=space, labels=own)
        others = {names.CLUSTER: not_equal(self.cluster)}
        self.others = mirror(Pod, namespace=ALL_NS, labels=others)
        self._tasks = [asyncio.create_task(one.run()) for one in self._mirrors]

    async def look(self) -> Look:
        """What the watches have told, once the server has shown that it still answers.

        Raises: Trouble.
        """
        if not self._tasks:  # within the head's loop
            self._begin()
        await self._all_synced()
        await self._find_claims()
        found = self._lent()
        gone = await self._tell_pods(found)
        await self._ask_events()
        await self._try_held()
        events = {key: told for key, (_, told) in self._events.items()}
        seen = tickets.tickets_of(self.jobs.objects.values(), self.pods.objects.values(), events)
        known = {ticket.key for ticket in seen}
        waiting = [_waiting(key, one.why) for key, one in self.held.items() if key not in known]
        labels = (secret.metadata.labels for secret in self.secrets.objects.values()
                  if secret.metadata is not None)  # fmt: skip
        kept = tuple(key for one in labels if (key := names.key_of(one)) is not None)
        return Look(nodes=(*found, *gone), tickets=(*seen, *waiting), kept=kept)

    async def _all_synced(self) -> None:
        """Raises: Trouble when one of the watches has nothing to go by."""
        for task in self._tasks:
            if task.done():  # a bug of ours: nothing is watched any more
                task.result()
        waits = [mirror.answered.wait() for mirror in self._mirrors]
        try:
            async with asyncio.timeout(self.access.call_seconds):
                await asyncio.gather(*waits)
        except TimeoutError as late:
            raise Trouble("the API server of Kubernetes: no answer") from late
        if why := next((mirror.trouble for mirror in self._mirrors if mirror.trouble), ""):
            raise Trouble(f"the API server of Kubernetes: {why}")

    async def _find_claims(self) -> None:
        for claim, _ in self.settings.mounted_claims:
            if claim not in self._claims:
                found = await self.access.find(PersistentVolumeClaim, claim)
                if found is None:
                    raise Trouble(f"there is no PersistentVolumeClaim {claim} in Kubernetes")
                self._claims[claim] = found.metadata.uid

    def _lent(self) -> list[LentNode]:
        foreign = nodes.foreign_use(self.others.objects.values())
        return [
            nodes.lent_node(node, foreign.get(NodeId(name), Foreign()), self.settings, self._claims)
            for (_, name), node in sorted(self.nodes.objects.items())
            if nodes.is_lent(node, self.settings)
        ]

    async def _tell_pods(self, lent: Sequence[LentNode]) -> list[LentNode]:
        """Keep the ConfigMap up to date. Returns: nodes that were lent and are not there any more.

        Raises: Trouble.
        """
        name = names.head_name(self.cluster)
        found = await self.access.find(ConfigMap, name)
        held = (found.data or {}) if found is not None else {}
        known = nodes.known_nodes(held.get(KEPT_NODES))
        here = {place[1] for place in self.nodes.objects}
        gone = {node: boot for node, boot in known.items() if node not in here}
        gone = dict(list(gone.items())[-MOST_GONE:])
        files = {**self.head(), KEPT_NODES: json.dumps(gone | {one.node: one.boot for one in lent})}
        if files != held:
            wanted = render.head_map_of(self.cluster, files)
            await self.access.put(wanted, lambda there: there.data == files)
        return [nodes.gone_node(NodeId(node), boot) for node, boot in gone.items()]

    async def _ask_events(self) -> None:
        """Why there are no pods of a Job is told in its events alone. Raises: Trouble."""
        pods = [names.key_of(pod.metadata.labels) for pod in self.pods.objects.values()
                if pod.metadata is not None]  # fmt: skip
        now, asked = time.monotonic(), {}
        for job in list(self.jobs.objects.values()):
            key = names.key_of(job.metadata.labels if job.metadata else None)
            if key is None or key in pods or not tickets.lacks_pods(job, ()):
                continue
            told_at, events = self._events.get(key, (0.0, []))
            if now - told_at > EVENTS_SECONDS:
                told_at, events = now, await self.access.ask(self._events_of(job))
            asked[key] = (told_at, events)
        self._events = asked

    async def _events_of(self, job: Job) -> list[Event]:
        assert job.metadata is not None
        which: dict[str, Any] = {"involvedObject.uid": job.metadata.uid}
        found: Any = self.access.client.list(Event, fields=which)
        return [event async for event in found]

    async def submit(self, gang: Sequence[Launch], parts: Mapping[NodeId, PartFiles]) -> None:
        """Raises: Refusal, Trouble."""
        key = gang[0].key
        if self._job(key) is not None:
            return
        secret = render.secret_of(self.cluster, gang, parts)
        gpus = {name: nodes.gpu_resources(node) for (_, name), node in self.nodes.objects.items()}
        job = render.job_of(
            self.cluster, gang, {NodeId(name): one for name, one in gpus.items()}, self.settings
        )
        if await self.access.find(Job, names.name_of(self.cluster, key)) is not None:
            return  # an earlier try did it, and its answer was lost
        await self.access.put(secret, lambda there: there.data == secret.data)
        try:
            made = await self.access.create(job)
        except NotTaken:
            await self.access.delete(Secret, names.name_of(self.cluster, key))
            raise
        except Trouble as trouble:
            if key not in self.held:
                log.warning("%s.%s waits: %s", *key, trouble.message)
            self.held[key] = Held(gang=tuple(gang), parts=parts, why=trouble.message,
                                  tried_at=time.monotonic())  # fmt: skip
            return
        self.held.pop(key, None)
        if made is not None:
            self.jobs.put(made)

    async def _try_held(self) -> None:
        """What was not taken, as over a quota, is handed over again."""
        for key, one in list(self.held.items()):
            if time.monotonic() - one.tried_at > RETRY_SECONDS:
                try:
                    await self.submit(one.gang, one.parts)
                except Trouble as trouble:
                    self.held[key] = replace(one, why=trouble.message, tried_at=time.monotonic())
                except NotTaken as refusal:
                    self.held[key] = replace(one, why=refusal.message, tried_at=time.monotonic())

    async def withhold(self, key: AttemptKey) -> None:
        """Its ranks begin by the head's word alone."""

    async def cancel(self, key: AttemptKey) -> None:
        """Raises: Trouble."""
        self.held.pop(key, None)
        await self.access.delete(Job, names.name_of(self.cluster, key))
        for pod in self._pods_of(key):
            await self.access.delete(Pod, _name(pod), grace_seconds=END_SECONDS)

    async def forget(self, key: AttemptKey) -> None:
        """Raises: Trouble."""
        self.held.pop(key, None)
        self._addresses.pop(key, None)
        name = names.name_of(self.cluster, key)
        await self.access.delete(Job, name)
        await self.access.delete(Secret, name)
        self.secrets.objects.pop((self.access.client.namespace, name), None)

    def fitted(self, launch: Launch) -> Launch | None:
        """GPUs are counted anew in a pod, which is in its image already, and its ranks are reached
        at its own address; None until the addresses of the whole gang are known."""
        seat = replace(launch.seat, gpus=tuple(range(len(launch.seat.gpus))), slices=())
        launch = replace(launch, seat=seat, image=None)
        if self.settings.host_network:
            return launch
        own = self._addresses.get(launch.key) or self._find_addresses(launch.key)
        if own is None:
            return None
        return replace(launch, nodes=own, master_address=own[0])

    def _find_addresses(self, key: AttemptKey) -> tuple[str, ...] | None:
        """Of the pods by node rank, once all have theirs: it never changes then."""
        job = self._job(key)
        told = (job.metadata.annotations or {}) if job and job.metadata else {}
        gang = [NodeId(node) for node in json.loads(told.get(names.NODES, "[]"))]
        known = tickets.addresses_of(self._pods_of(key))
        if not gang or not known.keys() >= set(gang):
            return None
        return self._addresses.setdefault(key, tuple(known[node] for node in gang))

    def settings_of(self, part: NodeId, launch: Launch) -> NodeSettings:
        """The part asks its pod nothing: it is told which GPUs it has."""
        certificate = f"{render.HEAD}/{render.CERTIFICATE}"
        node = self.nodes.objects.get(("", launch.seat.node))
        types = nodes.gpu_types(node) if node is not None else []
        own = [types[index] for index in launch.seat.gpus if index < len(types)]
        return NodeSettings(
            node=part,
            head_file=f"{render.HEAD}/{render.HEAD_JSON}",
            trusted=certificate if render.CERTIFICATE in self.head() else None,
            real_gpus=tuple(range(len(launch.seat.gpus))),
            gpu_numbers=launch.seat.gpus,
            gpu_type=own[0] if own else "",
            memory_bytes=launch.seat.memory_bytes or None,
            shared=tuple(path for _, path in self.settings.mounted_claims),
            isolation="none",  # the container's own root is all that there is
            hidden=(render.PART,),
            containment="engine",  # the container ends with its agent, and all in it
        )

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.access.client.close()

    def _job(self, key: AttemptKey) -> Job | None:
        return self.jobs.objects.get(
            (self.access.client.namespace, names.name_of(self.cluster, key))
        )

    def _pods_of(self, key: AttemptKey) -> list[Pod]:
        return [
            pod
            for pod in self.pods.objects.values()
            if pod.metadata is not None and names.key_of(pod.metadata.labels) == key
        ]


def head_files(head_json: Path, certificate: str | None, url: str | None) -> Mapping[str, str]:
    """What pods read to find the head and to trust it. Raises: Trouble when it is not known yet."""
    try:
        where = url or str(json.loads(head_json.read_text())["url"])
        files = {render.HEAD_JSON: json.dumps({"url": where})}
        if certificate is not None:
            files[render.CERTIFICATE] = Path(certificate).read_text()
    except (OSError, ValueError, KeyError) as absent:
        raise Trouble(f"where the head is cannot be told to pods: {absent}") from absent
    return files


def _waiting(key: AttemptKey, why: str) -> Ticket:
    return Ticket(key=key, handle="", state=TicketState.WAITING, reason=why)


def _name(pod: Pod) -> str:
    return (pod.metadata.name if pod.metadata else None) or ""
