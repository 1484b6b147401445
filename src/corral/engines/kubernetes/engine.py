"""The Kubernetes engine: a batch engine that uses the Kubernetes API."""

import json
from collections.abc import Callable, Mapping
from typing import Final

from corral.domain.errors import Trouble
from corral.engines.batch.engine import HeadLinks, LendingEngine
from corral.engines.kubernetes.api_server import Access, client_of
from corral.engines.kubernetes.driver import KubernetesDriver
from corral.engines.kubernetes.manifests import HEAD_JSON
from corral.engines.kubernetes.settings import KubernetesSettings

NAME: Final = "kubernetes"
SHOWN_BY: Final = "kubectl describe nodes"


def _head_address_hint(head: Callable[[], Mapping[str, str]]) -> str:
    """Return a hint with the URL where pods look for the head; "" if unknown."""
    try:
        url = json.loads(head()[HEAD_JSON])["url"]
    except (Trouble, ValueError, KeyError):
        return ""
    return (
        f"pods connect to the head at {url}: if they cannot reach this address, change "
        "the network, or set another address with corral up --host ADDRESS or --set "
        "head_url=URL"
    )


def kubernetes_engine(
    settings: KubernetesSettings,
    links: HeadLinks,
    head: Callable[[], Mapping[str, str]],
) -> LendingEngine:
    """Return the Kubernetes engine. `head` returns the files that give pods the head's
    address. Raises: Conflict without a kubeconfig."""
    access = Access(client=client_of(settings), call_seconds=settings.call_seconds)
    driver = KubernetesDriver(
        named=links.cluster,
        settings=settings,
        access=access,
        head=head,
        queues=links.queues,
    )
    engine = LendingEngine(
        name=NAME,
        cannot={},
        driver=driver,
        shown_by=SHOWN_BY,
        links=links,
        way=lambda: _head_address_hint(head),
    )
    driver.stir = engine.look_soon
    return engine
