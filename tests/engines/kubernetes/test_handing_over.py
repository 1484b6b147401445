"""An attempt is handed over by few calls, and once, whatever became of an earlier
try."""

import asyncio
from collections.abc import Iterator

import pytest
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.core_v1 import Secret

from corral.domain.ids import AttemptNumber, JobId
from corral.domain.observed_state import AttemptKey
from corral.engines.kubernetes import manifests, names
from corral.engines.kubernetes.api_server import Access, client_of
from corral.engines.kubernetes.namespaces import Namespace
from corral.engines.kubernetes.settings import KubernetesSettings
from tests.engines.kubernetes.objects import CLUSTER, GPUS, SETTINGS, gang
from tests.kube.cluster import NAMESPACE, Cluster, kubernetes
from tests.kube.kinds import Json
from tests.patience import PATIENCE_SECONDS

JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
SECRETS = f"/api/v1/namespaces/{NAMESPACE}/secrets"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with kubernetes(tmp_path_factory.mktemp("kube")) as one:
        yield one


def secret_of(name: str, token: str) -> Secret:
    return Secret(metadata=ObjectMeta(name=name), data={"token": token})


def handed(cluster: Cluster, key: AttemptKey, *tokens: str) -> list[tuple[str, str]]:
    """Hand it over once for each token. Returns: the calls."""
    name = names.name_of(CLUSTER, key)

    async def run() -> None:
        client = client_of(KubernetesSettings(kubeconfig=str(cluster.kubeconfig())))
        access = Access(client=client, call_seconds=PATIENCE_SECONDS)
        space = Namespace.unwatched(NAMESPACE, CLUSTER, access, lambda: None)
        for token in tokens:
            job = manifests.job_of(CLUSTER, gang(key=key), GPUS, SETTINGS)
            await space.hand_over(key, secret_of(name, token), job)
        await client.close()

    before = len(cluster.server.asked)
    asyncio.run(run())
    return cluster.server.asked[before:]


def found(cluster: Cluster, key: AttemptKey) -> Json:
    """The Secret of the attempt."""
    name = names.name_of(CLUSTER, key)
    (one,) = (one for one in cluster.all("secrets") if one["metadata"]["name"] == name)
    return one


def token_of(cluster: Cluster, key: AttemptKey) -> str:
    return str(found(cluster, key)["data"]["token"])


def is_noted(cluster: Cluster, key: AttemptKey) -> bool:
    return names.HANDED in found(cluster, key)["metadata"].get("annotations", {})


def key_of(number: int) -> AttemptKey:
    return JobId(f"j{number}"), AttemptNumber(1)


def test_its_job_is_the_second_call_and_what_is_noted_comes_after(
    cluster: Cluster,
) -> None:
    own = f"{SECRETS}/{names.name_of(CLUSTER, key_of(1))}"
    assert handed(cluster, key_of(1), "Zmlyc3Q=") == [
        ("POST", SECRETS), ("POST", JOBS), ("PUT", own),
    ]  # fmt: skip
    assert is_noted(cluster, key_of(1))


def test_what_was_handed_over_already_keeps_its_token(cluster: Cluster) -> None:
    handed(cluster, key_of(2), "Zmlyc3Q=", "c2Vjb25k")
    assert token_of(cluster, key_of(2)) == "Zmlyc3Q="
    jobs = [one["metadata"]["name"] for one in cluster.all("jobs")]
    assert jobs.count(names.name_of(CLUSTER, key_of(2))) == 1


def test_a_secret_without_its_job_gets_the_newest_token(cluster: Cluster) -> None:
    name = names.name_of(CLUSTER, key_of(3))
    left = {"metadata": {"name": name}, "data": {"token": "Zmlyc3Q="}}
    cluster.create("secrets", left)
    asked = handed(cluster, key_of(3), "c2Vjb25k")
    assert token_of(cluster, key_of(3)) == "c2Vjb25k"
    assert ("POST", JOBS) in asked
    assert is_noted(cluster, key_of(3))
