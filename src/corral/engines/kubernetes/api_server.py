"""Access to the API server: which account is used, how long a call may take, and what
an answer means."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final, TypeVar

import yaml
from lightkube import ApiError, AsyncClient, KubeConfig
from lightkube.config.kubeconfig import SingleConfig
from lightkube.core.exceptions import ConfigError
from lightkube.core.resource import NamespacedResourceG
from lightkube.types import CascadeType

from corral.domain.errors import Conflict, Refusal
from corral.engines.kubernetes.kubeconfig_reload import CONFIG_FAULTS, RenewingTransport
from corral.engines.kubernetes.settings import KubernetesSettings
from corral.engines.kubernetes.watch_cache import CALL_FAULTS, trouble_of

DENIED: Final = "denied the request"  # an admission webhook's or policy's own words
T = TypeVar("T")


class NotTaken(Refusal):
    """Kubernetes will never accept the object as it is."""

    code = "not_taken"


def client_of(settings: KubernetesSettings) -> AsyncClient:
    """Return a client that uses the given kubeconfig, else the one that kubectl finds,
    else the pod's own service account.

    Raises: Conflict when none of them can be used.
    """
    try:
        config = read_config(settings)
        transport = RenewingTransport(config, lambda: read_config(settings))
        api_client = AsyncClient(
            config=config, namespace=settings.namespace, transport=transport
        )
    except CONFIG_FAULTS as wrong:
        raise Conflict(
            f"Corral cannot log in to Kubernetes: {wrong}",
            hint="name a kubeconfig: corral up --engine kubernetes --set kubeconfig=FILE",
        ) from wrong
    logging.getLogger("httpx2").setLevel(logging.WARNING)  # not a line for each request
    return api_client


def read_config(settings: KubernetesSettings) -> SingleConfig:
    """Read the current kubeconfig. Raises: one of CONFIG_FAULTS."""
    try:
        kubeconfig = KubeConfig.from_env() if not settings.kubeconfig else None
        kubeconfig = kubeconfig or KubeConfig.from_file(
            settings.kubeconfig or "~/.kube/config"
        )
        config = kubeconfig.get(context_name=settings.context)
    except (AttributeError, TypeError, yaml.YAMLError) as wrong:
        raise ConfigError(f"the kubeconfig is not valid: {wrong}") from wrong
    if config is None:
        raise ConfigError(
            f"the kubeconfig has no context {settings.context or ''}".rstrip()
        )
    return config


@dataclass(slots=True, kw_only=True)
class Access:
    """Single calls to the API server, each bounded in time. Raises: Trouble when the
    server does not answer as it should."""

    client: AsyncClient
    call_seconds: float

    async def ask(self, asked: Awaitable[T]) -> T:
        """Await one call within `call_seconds` and return its result. Raises: Trouble."""
        try:
            async with asyncio.timeout(self.call_seconds):
                return await asked
        except TimeoutError as late:
            raise trouble_of(
                TimeoutError(f"no answer in {self.call_seconds:g} s")
            ) from late
        except CALL_FAULTS as wrong:
            raise trouble_of(wrong) from wrong

    async def find(
        self, kind: type[NamespacedResourceG], name: str, *, namespace: str
    ) -> Any | None:
        """Return the object; None if it does not exist. Raises: Trouble."""
        return await self.ask(
            _or_none(self.client.get(kind, name, namespace=namespace))
        )

    async def create(self, object: Any, *, namespace: str) -> Any | None:
        """Create the object and return it; None if it existed already. Raises:
        NotTaken; Trouble, also where a quota is full."""
        client: Any = self.client  # its overloads take no object of any kind
        return await self.ask(
            _await_creation(
                client.create(object, namespace=namespace),
                f"the {type(object).__name__} {object.metadata.name}",
            )
        )

    async def delete(
        self,
        kind: type[NamespacedResourceG],
        name: str,
        *,
        namespace: str,
        grace_seconds: int | None = None,
    ) -> None:
        """Delete the object and all objects that it owns: a Job's pods stay unless they
        are deleted with the Job. Raises: Trouble."""
        deletion = self.client.delete(
            kind,
            name,
            namespace=namespace,
            cascade=CascadeType.BACKGROUND,
            grace_period=grace_seconds,
        )
        await self.ask(_or_none(deletion))

    async def put(
        self, object: Any, is_same: Callable[[Any], bool], *, namespace: str
    ) -> None:
        """Create the object. If it exists and `is_same` is False for the existing one,
        replace it. Raises: NotTaken, Trouble."""
        current = await self.find(
            type(object), object.metadata.name, namespace=namespace
        )
        if current is None:
            current = await self.create(object, namespace=namespace)
        if current is not None and not is_same(current):
            object.metadata.resourceVersion = current.metadata.resourceVersion
            client: Any = self.client
            await self.ask(client.replace(object, namespace=namespace))


async def _or_none(asked: Awaitable[T]) -> T | None:
    try:
        return await asked
    except ApiError as wrong:
        if wrong.status.code == 404:
            return None
        raise


async def _await_creation(asked: Awaitable[T], what: str) -> T | None:
    try:
        return await asked
    except ApiError as wrong:
        code, message = wrong.status.code, wrong.status.message or ""
        if code == 409 and wrong.status.reason == "AlreadyExists":
            return None
        if code in (400, 422) or (code == 403 and DENIED in message):
            raise NotTaken(f"Kubernetes rejected {what}: {message}") from wrong
        raise
