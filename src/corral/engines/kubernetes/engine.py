"""The Kubernetes engine: lending over its API."""

from collections.abc import Callable, Mapping
from typing import Final

from corral.engines.kubernetes.access import Access, client_of
from corral.engines.kubernetes.driver import KubernetesDriver
from corral.engines.kubernetes.settings import KubernetesSettings
from corral.engines.lending.engine import LendingEngine, Links

NAME: Final = "kubernetes"
CANNOT: Final[Mapping[str, str]] = {
    "service": "the kubernetes engine has no gateway yet that could serve requests; leave kind: "
    "service and service out: it then runs as a job",
}
SHOWN_BY: Final = "kubectl describe nodes"


def kubernetes_engine(
    settings: KubernetesSettings, links: Links, head: Callable[[], Mapping[str, str]]
) -> LendingEngine:
    """`head`: the files that tell pods where the head is. Raises: Conflict without a kubeconfig."""
    access = Access(client=client_of(settings), call_seconds=settings.call_seconds)
    driver = KubernetesDriver(
        named=links.cluster, settings=settings, access=access, head=head, queues=links.queues
    )
    engine = LendingEngine(name=NAME, cannot=CANNOT, driver=driver, shown_by=SHOWN_BY, links=links)
    driver.stir = engine.look_soon
    return engine
