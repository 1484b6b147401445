"""The Kubernetes of the tests answers four clients alike that were not written for it.

Where KUBEBUILDER_ASSETS names binaries of Kubernetes, it answers them as the real one
does.
"""

import json
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.kube.cluster import (
    NAMESPACE,
    Cluster,
    kubernetes,
    require_kubectl,
    require_kubelet,
)
from tests.kube.kinds import Json
from tests.kube.real import RealCluster, assets, real_kubernetes
from tests.kube.talkers import TALKERS, Denied, Talker
from tests.kube.waiting import until

pytestmark = pytest.mark.root
IMAGE = "busybox:tests"
AnyCluster = Cluster | RealCluster
LISTENERS = [name for name in TALKERS if name != "kubectl"]  # which always lists first


@pytest.fixture(scope="module", params=["own", "real"] if assets() else ["own"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AnyCluster]:
    require_kubelet()
    require_kubectl()
    if request.param == "own":
        images = {IMAGE: {"PATH": "/usr/bin:/bin"}}
        with kubernetes(tmp_path_factory.mktemp("kube"), images) as own:
            own.add_node("a", gpus=2)
            yield own
        return
    folder = assets()
    assert folder is not None
    with real_kubernetes(tmp_path_factory.mktemp("kube"), folder) as real:
        if real.has_nodes:
            real.add_node("a", gpus=2)
        yield real


@pytest.fixture
def with_nodes(cluster: AnyCluster) -> None:
    if not cluster.has_nodes:
        pytest.skip(
            "the real API server has no node here: that needs kubelet and containerd"
        )


@pytest.fixture(params=list(TALKERS))
def talker(request: pytest.FixtureRequest, cluster: AnyCluster) -> Iterator[Talker]:
    with closing(TALKERS[request.param](cluster.kubeconfig())) as made:
        yield made
    for plural in ("resourcequotas", "jobs"):
        for one in cluster.all(plural):
            cluster.delete(
                plural, one["metadata"]["name"], propagationPolicy="Background"
            )
    until(lambda: not cluster.pods())


def job(name: str, *, script: str = "echo hello; sleep 600", **more: object) -> Json:
    container = {"name": "main", "image": IMAGE, "command": ["sh", "-c", script]}
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "containers": [container],
    }
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "namespace": NAMESPACE, "labels": {"team": "red"}},
        "spec": {"backoffLimit": 0, "template": {"spec": spec}, **more},
    }


def reason_of(denied: pytest.ExceptionInfo[Denied]) -> str:
    return denied.value.reason


@pytest.mark.usefixtures("with_nodes")
def test_a_job_runs_is_seen_its_output_is_read_and_it_goes_with_its_pods(
    cluster: AnyCluster, talker: Talker
) -> None:
    talker.create(job("one"))
    until(lambda: talker.pods("status.phase=Running"))
    (pod,) = talker.pods("status.phase=Running")
    until(lambda: "hello" in talker.log(pod))
    assert talker.get("one")["status"]["active"] == 1
    talker.delete("one")
    until(lambda: not cluster.pods())


def test_a_collection_is_read_in_pages_and_by_label(
    cluster: AnyCluster, talker: Talker
) -> None:
    for number in range(5):
        cluster.create("jobs", job(f"j{number}", suspend=True))
    cluster.create("jobs", job("other", suspend=True) | {"metadata": {"name": "other"}})
    pages = len(cluster.server.asked) if isinstance(cluster, Cluster) else 0
    assert talker.names("team=red") == [f"j{number}" for number in range(5)]
    if isinstance(cluster, Cluster):
        asked = [
            path
            for method, path in cluster.server.asked[pages:]
            if path.endswith("/jobs")
        ]
        assert len(asked) == 3


def test_what_is_there_already_or_is_not_there_is_refused(talker: Talker) -> None:
    talker.create(job("one", suspend=True))
    with pytest.raises(Denied) as twice:
        talker.create(job("one", suspend=True))
    assert reason_of(twice) == "AlreadyExists"
    with pytest.raises(Denied) as absent:
        talker.get("two")
    assert reason_of(absent) == "NotFound"


def test_of_two_who_change_the_same_version_the_second_is_refused(
    talker: Talker,
) -> None:
    talker.create(job("one", suspend=True))
    old = talker.get("one")
    talker.label("one", "changed", "yes")
    assert talker.get("one")["metadata"]["labels"]["changed"] == "yes"
    old["metadata"]["labels"]["changed"] = "no"
    with pytest.raises(Denied) as stale:
        talker.replace(old)
    assert reason_of(stale) == "Conflict"


def test_what_cannot_be_is_refused_with_its_field(talker: Talker) -> None:
    wrong = job("one")
    wrong["spec"]["template"]["spec"]["restartPolicy"] = "Always"
    with pytest.raises(Denied, match="restartPolicy") as invalid:
        talker.create(wrong)
    assert reason_of(invalid) == "Invalid"


def test_what_is_over_a_quota_is_refused_with_its_name(
    cluster: AnyCluster, talker: Talker
) -> None:
    hard = {"metadata": {"name": "small"}, "spec": {"hard": {"count/jobs.batch": "1"}}}
    cluster.create("resourcequotas", hard)
    talker.create(job("one", suspend=True))
    with pytest.raises(Denied, match="exceeded quota: small") as over:
        talker.create(job("two", suspend=True))
    assert reason_of(over) == "Forbidden"


def test_a_watch_tells_each_change_since_a_version(
    cluster: AnyCluster, talker: Talker
) -> None:
    version = cluster.version()
    told: list[tuple[str, str]] = []
    watch = threading.Thread(
        target=lambda: told.extend(talker.first_events(version, 2))
    )
    watch.start()
    cluster.until_watched()
    cluster.create("jobs", job("two", suspend=True))
    watch.join(60)
    assert told == [("ADDED", "two"), ("MODIFIED", "two")]


@pytest.mark.parametrize("talker", LISTENERS, indirect=True)
def test_a_watch_from_a_version_that_is_forgotten_is_told_so(
    cluster: AnyCluster, talker: Talker
) -> None:
    version = cluster.forgotten_version()
    with pytest.raises(Denied) as expired:
        talker.first_events(version, 1)
    assert reason_of(expired) == "Expired"


def test_whoever_has_no_token_or_no_right_gets_nothing(
    tmp_path: Path, cluster: AnyCluster
) -> None:
    with closing(TALKERS["lightkube"](cluster.user("stranger", ()))) as stranger:
        with pytest.raises(Denied, match="cannot get resource") as forbidden:
            stranger.get("one")
        assert reason_of(forbidden) == "Forbidden"
    with closing(TALKERS["lightkube"](cluster.kubeconfig("nobody's"))) as unknown:
        with pytest.raises(Denied) as unauthorised:
            unknown.get("one")
        assert reason_of(unauthorised) == "Unauthorized"


@pytest.mark.usefixtures("with_nodes")
def test_a_pod_that_fits_nowhere_says_why_in_kubernetes_words(
    cluster: AnyCluster,
) -> None:
    large = job("large")
    large["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "limits": {"nvidia.com/gpu": "3"}
    }
    cluster.create("jobs", large)
    until(lambda: "1 Insufficient nvidia.com/gpu" in str(cluster.pods()))
    cluster.delete("jobs", "large", propagationPolicy="Background")


@pytest.mark.usefixtures("with_nodes")
def test_the_first_failure_of_a_job_ends_its_other_pods(cluster: AnyCluster) -> None:
    made = job("pair", completions=2, parallelism=2, completionMode="Indexed")
    container = made["spec"]["template"]["spec"]["containers"][0]
    field = "metadata.name"
    container["env"] = [
        {"name": "NAME", "valueFrom": {"fieldRef": {"fieldPath": field}}}
    ]
    container["command"][2] = "case $NAME in pair-1-*) exit 3;; esac; sleep 600"
    cluster.create("jobs", made)

    def conditions() -> str:
        (found,) = cluster.all("jobs")
        return str(found["status"].get("conditions"))

    until(lambda: "BackoffLimitExceeded" in conditions())
    until(lambda: len(cluster.pods()) == 1)  # the failed one is kept, as evidence
    (failed,) = cluster.pods()
    (status,) = failed["status"]["containerStatuses"]
    assert status["state"]["terminated"]["exitCode"] == 3
    cluster.delete("jobs", "pair", propagationPolicy="Background")
    until(lambda: not cluster.pods())


def test_a_field_that_kubernetes_does_not_have_is_refused(cluster: AnyCluster) -> None:
    wrong = job("one", completion=3)
    wrong["spec"]["template"]["spec"]["containers"][0]["imagee"] = "x"
    done = cluster.kubectl("create", "-f", "-", stdin=json.dumps(wrong))
    assert done.returncode == 1
    assert 'unknown field "spec.completion"' in done.stderr
    assert "containers[0].imagee" in done.stderr
