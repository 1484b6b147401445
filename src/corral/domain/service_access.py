"""Adapters, callers and fallback of a service."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from corral.domain.access_list import Allowed, may_submit
from corral.domain.ids import QueueName, UserName
from corral.domain.queue_tree import QueueTree
from corral.domain.users import Role

FETCHED_PREFIX: Final = "s3://"


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """LoRA adapter of a service's model.

    Args:
        name: Name of the model under which requests reach it.
        source: Where its weights lie.
    """

    name: str
    source: str

    @property
    def is_fetched(self) -> bool:
        """Whether nodes fetch it before a replica starts. Engines load all others."""
        return self.source.startswith(FETCHED_PREFIX)


def fetched_adapters(adapters: Sequence[Adapter]) -> tuple[str, ...]:
    """Return the sources of the adapters that nodes fetch, in the order in which the
    replica's program gets their paths."""
    return tuple(adapter.source for adapter in adapters if adapter.is_fetched)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallAccess:
    """Users that may call a service. Its owner, operators and admins always may.

    Args:
        users: Names of users, and @ROLE for all users of a role or a higher one.
        queues: Queues; users that may submit to one of them may call the service.
    """

    users: Allowed = ()
    queues: tuple[QueueName, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class FallbackRule:
    """Another provider that answers requests which no replica can take.

    Args:
        url: Address of its API, up to /v1.
        model: Name of its model.
        secret: Name of the secret with its API key.
    """

    url: str
    model: str
    secret: str


def request_names(
    models: Sequence[str], adapters: Sequence[Adapter]
) -> tuple[str, ...]:
    """Return the names under which requests reach models and their adapters. A request
    may name an adapter alone, or MODEL:ADAPTER."""
    names = [adapter.name for adapter in adapters]
    qualified = [f"{model}:{name}" for model in models for name in names]
    return (*models, *names, *qualified)


def may_call(
    access: CallAccess | None,
    owner: UserName,
    user: UserName,
    role: Role,
    tree: QueueTree,
) -> bool:
    """Return whether a user may call a service. Without a list (None), all users may.

    Args:
        owner: Owner of the service.
    """
    if access is None or user == owner:
        return True
    if may_submit(access.users, user, role):
        return True
    return any(
        may_submit(tree.allowed(queue), user, role)
        for queue in access.queues
        if queue in tree.by_name
    )
