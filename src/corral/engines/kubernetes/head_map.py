"""The ConfigMap in the cluster's own namespace: the head's address, and the state that
the head keeps in Kubernetes."""

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from lightkube.resources.core_v1 import ConfigMap

from corral.domain.ids import QueueName
from corral.engines.kubernetes import manifests, names, nodes
from corral.engines.kubernetes.api_server import Access
from corral.engines.kubernetes.settings import NAMESPACE_NAME

KEPT_NODES: Final = "nodes.json"  # those that were lent, with their boots
# namespace -> queues whose attempts may be there
USED_NAMESPACES: Final = "namespaces.json"


@dataclass(slots=True, kw_only=True)
class HeadMap:
    """State that the head keeps in a ConfigMap in Kubernetes, so that it is not lost
    when the head ends.

    Attributes:
        boots: node -> boot id, of the nodes that Corral used.
        used: namespace -> queues whose attempts may be there; the cluster's own
            namespace is left out. A queue is added before its first attempt is created
            there.
    """

    access: Access
    cluster: str
    namespace: str
    boots: dict[str, str] = field(default_factory=dict)
    used: dict[str, frozenset[QueueName]] = field(default_factory=dict)
    is_read: bool = False
    _address: Mapping[str, str] = field(default_factory=dict)
    _written: Mapping[str, str] = field(default_factory=dict)
    _lock: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def read(self) -> None:
        """Read the ConfigMap into `boots` and `used`. Only the first call sets `used`;
        later calls keep it. Raises: Trouble."""
        async with self._lock:
            name = names.head_name(self.cluster)
            config_map = await self.access.find(
                ConfigMap, name, namespace=self.namespace
            )
            self._written = (config_map.data or {}) if config_map is not None else {}
            self.boots = nodes.known_nodes(self._written.get(KEPT_NODES))
            if not self.is_read:
                self.used = used_namespaces(self._written.get(USED_NAMESPACES))
                self.is_read = True

    async def write(self, address: Mapping[str, str], boots: Mapping[str, str]) -> None:
        """Write the ConfigMap if its content has changed. `address`: the files by which
        pods find the head. `boots`: node -> boot id.

        Raises: Trouble, NotTaken.
        """
        async with self._lock:
            self._address = address
            self.boots = dict(boots)
            await self._put_config_map(self.used)

    async def add_use(self, namespace: str, queue: QueueName) -> None:
        """Record in the ConfigMap that attempts of the queue may be in the namespace.
        Raises: Trouble."""
        async with self._lock:
            queues = self.used.get(namespace, frozenset())
            if queue not in queues:
                updated_use = {**self.used, namespace: queues | {queue}}
                await self._put_config_map(updated_use)
                self.used = updated_use

    async def _put_config_map(self, used: Mapping[str, frozenset[QueueName]]) -> None:
        files = {**self._address, KEPT_NODES: json.dumps(self.boots)}
        if used:
            queues_by_namespace = {
                namespace: sorted(queues) for namespace, queues in sorted(used.items())
            }
            files[USED_NAMESPACES] = json.dumps(queues_by_namespace)
        if files != self._written:
            config_map = manifests.head_map_of(self.cluster, files)
            await self.access.put(
                config_map, lambda there: there.data == files, namespace=self.namespace
            )
            self._written = files


def used_namespaces(text: str | None) -> dict[str, frozenset[QueueName]]:
    """Parse the namespaces that `HeadMap` wrote; return {} if that is impossible."""
    try:
        namespaces = json.loads(text or "{}")
    except ValueError:
        return {}
    if not isinstance(namespaces, dict):
        return {}
    return {
        namespace: frozenset(QueueName(str(queue)) for queue in queues)
        for namespace, queues in namespaces.items()
        if isinstance(queues, list) and NAMESPACE_NAME.fullmatch(namespace)
    }
