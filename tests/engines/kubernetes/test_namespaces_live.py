"""Queues with namespaces of their own, on the tests' own Kubernetes.

One head and one Kubernetes serve the whole file; each test leaves them empty.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.engines.kubernetes.team import Team, team
from tests.kube.cluster import NAMESPACE, require_kubelet
from tests.kube.server import Rule
from tests.kube.waiting import until
from tests.patience import own_loopback
from tests.scenarios.house import wait_in_shell

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("kubernetes-namespaces")]
DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"
VISION, NLP, LOST = "team-vision", "team-nlp", "team-lost"
MAP = f"queue_namespaces=vision={VISION},nlp={NLP},lost={LOST}"
QUEUES = """kind: queues
queues:
  - {name: default}
  - {name: vision}
  - {name: detect, parent: vision}
  - {name: nlp}
  - {name: lost}
"""
HOUR = "sleep 3600"
CLAIM = "shared"


def rules_for(*others: str) -> tuple[Rule, ...]:
    """What deploy/kubernetes lets the head do, with the role for these namespaces of
    queues."""
    found = []
    for file, own in (("roles.yaml", (NAMESPACE,)), ("queue-namespace.yaml", others)):
        for manifest in yaml.safe_load_all((DEPLOY / file).read_text()):
            if manifest["kind"] not in ("Role", "ClusterRole"):
                continue
            where = own if manifest["kind"] == "Role" else ("*",)
            found += [
                Rule(groups=tuple(rule["apiGroups"]), resources=tuple(rule["resources"]),
                     verbs=tuple(rule["verbs"]), namespaces=where)
                for rule in manifest["rules"]
            ]  # fmt: skip
    return tuple(found)


def add_namespace(ours: Team, name: str) -> None:
    ours.kube.create("namespaces", {"metadata": {"name": name}}, "")


def add_claim(ours: Team, namespace: str) -> None:
    """All claims of one name are one folder in these tests."""
    spec = {
        "accessModes": ["ReadWriteMany"],
        "resources": {"requests": {"storage": "1Gi"}},
    }
    claim = {"metadata": {"name": CLAIM}, "spec": spec}
    ours.kube.create("persistentvolumeclaims", claim, namespace)


def allow(ours: Team, *namespaces: str) -> None:
    """Let the head use these namespaces, and no other of queues."""
    for token, (name, _) in list(ours.kube.server.users.items()):
        if name == "corral":
            ours.kube.server.users[token] = (name, rules_for(*namespaces))


def up(ours: Team, by_queue: str, *words: str) -> None:
    """Start the head with this map of queues."""
    claim = f"claims={CLAIM}:{ours.claim(CLAIM)}"
    ours.up("--set", claim, "--set", by_queue, *words)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    require_kubelet()
    place = tmp_path_factory.mktemp("namespaces")
    with team(place, gpus=4, config=lambda: rules_for(VISION, NLP)) as one:
        for namespace in (VISION, NLP):
            add_namespace(one, namespace)
            add_claim(one, namespace)
        one.add_claim(CLAIM)
        up(one, MAP, "--host", own_loopback())
        one.house.apply(QUEUES)
        yield one


@pytest.fixture
def ours(whole: Team) -> Iterator[Team]:
    yield whole
    whole.stop_all()
    whole.until_nothing_is_left()


def where(ours: Team, plural: str, id: str) -> set[str]:
    """The namespaces of the job's objects of one kind."""
    own = (one["metadata"] for one in ours.kube.all(plural))
    return {
        about["namespace"]
        for about in own
        if about.get("labels", {}).get("corral.dev/job") == id
    }


def all_in(ours: Team, id: str, namespace: str) -> None:
    for plural in ("jobs", "pods", "secrets"):
        assert where(ours, plural, id) == {namespace}, plural


def start(ours: Team, **jobs: str) -> dict[str, str]:
    """A job in each of these queues, by the queue; each runs `jobs[queue]`."""
    ids = {
        queue: ours.house.submit(queue, run, queue=queue) for queue, run in jobs.items()
    }
    for id in ids.values():
        ours.until_running(id)
    return ids


def warning_texts(ours: Team) -> str:
    warnings = ours.house.answer("status")["warnings"]
    return " ".join(warning["text"] for warning in warnings)


def test_queues_run_side_by_side_each_in_its_namespace(ours: Team) -> None:
    flag = ours.claim(CLAIM) / "side-by-side"
    run = f"{wait_in_shell(flag)}; echo done"
    ids = start(ours, default=run, detect=run, nlp=run)
    for queue, namespace in (("default", NAMESPACE), ("detect", VISION), ("nlp", NLP)):
        all_in(ours, ids[queue], namespace)
    maps = {
        one["metadata"]["namespace"]: one["data"] for one in ours.kube.all("configmaps")
    }
    assert maps.keys() == {NAMESPACE, VISION, NLP}
    assert maps[VISION].keys() == maps[NAMESPACE].keys() - {
        "nodes.json",
        "namespaces.json",
    }
    flag.touch()
    for id in ids.values():
        assert ours.house.until_over(id).state == "DONE"
        assert ours.house.logs(id).split() == ["done"]
    ours.until_nothing_is_left()


def test_a_gang_meets_in_the_namespace_of_its_queue(ours: Team) -> None:
    run = "echo $RANK at $MASTER_ADDR"
    id = ours.house.submit("gang", run, nodes=2, resources={"gpu": 1}, queue="nlp")
    job = ours.house.until_over(id)
    first = ours.kube.kubelets[job.nodes[0]].address
    assert set(ours.house.logs(id).splitlines()) == {
        f"{rank} at {first}" for rank in (0, 1)
    }


def test_what_is_stopped_is_gone_from_each_namespace(ours: Team) -> None:
    ids = start(ours, vision=HOUR, nlp=HOUR)
    for id in ids.values():
        ours.house.ok("stop", id, "-y")
    for id in ids.values():
        assert ours.house.until_over(id).state == "CANCELLED"
    ours.until_nothing_is_left()


def test_a_head_that_was_killed_finds_its_jobs_again_also_by_another_map(
    ours: Team,
) -> None:
    """The queue vision has another namespace then, and nlp has none of its own."""
    flag = ours.claim(CLAIM) / "taken-over"
    run = f"{wait_in_shell(flag)}; exit 5"
    ids = start(ours, default=run, vision=run, nlp=run)
    before = {pod["metadata"]["uid"] for pod in ours.pods()}
    ours.house.kill_head()
    up(ours, f"queue_namespaces=vision={NLP}")
    later = start(ours, vision=HOUR, nlp=HOUR)
    all_in(ours, later["vision"], NLP)
    all_in(ours, later["nlp"], NAMESPACE)
    all_in(ours, ids["vision"], VISION)
    kept = {pod["metadata"]["uid"] for id in ids.values() for pod in ours.pods(id)}
    assert kept == before
    flag.touch()
    for id in ids.values():
        job = ours.house.until_over(id)
        assert (job.exit_code, job.attempt) == (5, 1)
    until(lambda: where(ours, "secrets", ids["vision"]) == set())
    for id in later.values():
        ours.house.ok("stop", id, "-y")
    ours.until_nothing_is_left()
    ours.house.kill_head()
    up(ours, MAP)


def test_a_namespace_that_cannot_be_used_holds_the_jobs_of_its_queue_alone(
    ours: Team,
) -> None:
    other = ours.house.submit("other", "true", queue="vision")
    waits = ours.house.submit("waits", "true", queue="lost")
    assert ours.house.until_over(other).state == "DONE"
    until(lambda: f"namespace {LOST} cannot be used" in ours.why(waits))
    warnings = warning_texts(ours)
    assert f"namespace {LOST} cannot be used" in warnings
    assert "jobs of lost wait" in warnings
    assert f"namespace {LOST} cannot be used" in ours.house.corral("doctor").stdout
    add_namespace(ours, LOST)
    allow(ours, VISION, NLP, LOST)
    missing = f"there is no PersistentVolumeClaim {CLAIM} in namespace {LOST}"
    until(lambda: missing in ours.why(waits))
    beside = ours.house.submit("beside", "true", queue="nlp")
    assert ours.house.until_over(beside).state == "DONE"
    add_claim(ours, LOST)
    assert ours.house.until_over(waits).state == "DONE"
    assert not ours.house.answer("status")["warnings"]


def test_a_job_of_a_namespace_that_was_never_there_is_stopped_at_once(
    ours: Team,
) -> None:
    allow(ours, VISION, NLP)
    ours.kube.do(ours.kube.watching.cut)
    until(lambda: f"namespace {LOST} cannot" in warning_texts(ours))
    waits = ours.house.submit("stopped", "true", queue="lost")
    until(lambda: f"namespace {LOST} cannot be used" in ours.why(waits))
    ours.house.ok("stop", waits, "-y")
    assert ours.house.until_over(waits).state == "CANCELLED"
    assert where(ours, "jobs", waits) == set()
    allow(ours, VISION, NLP, LOST)


def test_what_runs_where_the_head_may_look_no_more_is_neither_lost_nor_doubled(
    ours: Team,
) -> None:
    """And the queue has another namespace by the settings of the next head."""
    flag = ours.claim(CLAIM) / "unseen"
    (id,) = start(ours, vision=f"{wait_in_shell(flag)}; exit 5").values()
    (pod,) = ours.pods(id)
    ours.house.kill_head()
    allow(ours, NLP, LOST)
    ours.kube.do(ours.kube.watching.cut)
    up(ours, f"queue_namespaces=vision={NLP}")
    waits = ours.house.submit("waits", "true", queue="vision")
    until(lambda: f"the job may already run in namespace {VISION}" in ours.why(waits))
    beside = ours.house.submit("beside", "true")
    assert ours.house.until_over(beside).state == "DONE"
    assert (ours.house.job(id).state, ours.house.job(id).attempt) == ("RUNNING", 1)
    assert [one["metadata"]["uid"] for one in ours.pods(id)] == [pod["metadata"]["uid"]]
    allow(ours, VISION, NLP, LOST)
    assert ours.house.until_over(waits).state == "DONE"
    flag.touch()
    job = ours.house.until_over(id)
    assert (job.exit_code, job.attempt) == (5, 1)
    ours.until_nothing_is_left()
    ours.house.kill_head()
    up(ours, MAP)
