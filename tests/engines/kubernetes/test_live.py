"""Corral on the tests' own Kubernetes: what the contract of all engines does not say.

One head and one Kubernetes serve the whole file; each test leaves them empty.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
import yaml

from tests.engines.kubernetes.team import IMAGE, LABELS, Team, image, team
from tests.kube.cluster import NAMESPACE, require_kubelet
from tests.kube.server import Rule
from tests.kube.waiting import until
from tests.patience import own_loopback
from tests.scenarios.house import wait_in_shell

pytestmark = [pytest.mark.root, pytest.mark.xdist_group("kubernetes-live")]
ROLES = Path(__file__).parents[3] / "deploy" / "kubernetes" / "roles.yaml"
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "kubernetes.md"
HOUR = "sleep 3600"


def rules() -> tuple[Rule, ...]:
    """What deploy/kubernetes lets the head do, and no more."""
    found = []
    for manifest in yaml.safe_load_all(ROLES.read_text()):
        if manifest["kind"] not in ("Role", "ClusterRole"):
            continue
        where = (NAMESPACE,) if manifest["kind"] == "Role" else ("*",)
        for rule in manifest["rules"]:
            found.append(
                Rule(groups=tuple(rule["apiGroups"]), resources=tuple(rule["resources"]),
                     verbs=tuple(rule["verbs"]), namespaces=where)
            )  # fmt: skip
    return tuple(found)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Team]:
    require_kubelet()
    with team(tmp_path_factory.mktemp("live"), config=rules) as one:
        one.images["other:1"] = image() | {
            "/etc/of-the-image": "other",
            "OF_IMAGE": "its own",
        }
        path = one.add_claim("shared")
        one.up("--host", own_loopback(), "--set", f"claims=shared:{path}")
        yield one


@pytest.fixture
def ours(whole: Team) -> Iterator[Team]:
    yield whole
    whole.stop_all()
    for quota in whole.kube.all("resourcequotas"):
        whole.kube.delete("resourcequotas", quota["metadata"]["name"])
    whole.until_nothing_is_left()


def evidence(ours: Team, id: str) -> str:
    return " ".join(receipt.evidence for receipt in ours.house.job(id).receipts)


def test_a_gang_meets_at_the_address_of_its_first_pod_and_leaves_nothing(
    ours: Team,
) -> None:
    id = ours.house.submit(
        "gang",
        "echo $RANK at $MASTER_ADDR of $CORRAL_NODES $CORRAL_GPU_TYPE",
        nodes=2,
        resources={"gpu": 1},
    )
    job = ours.house.until_over(id)
    first, second = (ours.kube.kubelets[node].address for node in job.nodes)
    said = {f"{rank} at {first} of {first},{second} h100" for rank in (0, 1)}
    assert set(ours.house.logs(id).splitlines()) == said
    ours.until_nothing_is_left()


def test_a_pod_has_no_root_and_gains_no_privilege(ours: Team) -> None:
    look = "id -u; id -g; grep -E 'CapBnd|CapEff|NoNewPrivs' /proc/self/status; echo $USER; : > ~/x"
    id = ours.house.submit("plain", look)
    assert ours.house.until_over(id).state == "DONE"
    said = ours.house.logs(id).split()
    assert said[:2] == ["1000", "1000"]
    status = dict(zip(said[2:-1:2], said[3:-1:2], strict=True))
    assert int(status["CapEff:"], 16) == int(status["CapBnd:"], 16) == 0
    assert status["NoNewPrivs:"] == "1"
    ours.until_nothing_is_left()


CURIOUS = """
for file in /corral/part/token /tmp/*/token; do [ -r "$file" ] && echo "token `cat $file`"; done
for name in environ mem maps; do : 2>/dev/null < /proc/1/$name && echo "open $name"; done
ls /proc/1/fd 2>/dev/null >&2 && echo "open fd"
tr '\\0' '\\n' < /proc/self/environ | grep -i token
echo looked
"""


def test_no_token_that_a_rank_can_reach_says_anything_to_the_head(ours: Team) -> None:
    flag = ours.claim("shared") / "looked"
    id = ours.house.submit("curious", f"{CURIOUS}{wait_in_shell(flag)}")
    until(lambda: "looked" in ours.house.ok("logs", id))
    said = [line.split() for line in ours.house.ok("logs", id).splitlines()]
    assert [words for words in said if words[0] != "token"] == [["looked"]]
    found = {token for _, token in (words for words in said if words[0] == "token")}
    assert len(found) == 1
    url = json.loads(ours.house.place.head_json.read_text())["url"]
    for token in found:
        headers = {"Authorization": f"Bearer {token}"}
        answer = httpx2.get(f"{url}/v1/agents/forgotten?jobs={id}", headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (
            401,
            "token_revoked",
        )
    flag.touch()
    assert ours.house.until_over(id).state == "DONE"
    ours.until_nothing_is_left()


def test_a_job_runs_in_its_own_image(ours: Team) -> None:
    id = ours.house.submit(
        "own", 'cat /etc/of-the-image; echo " $OF_IMAGE"', image="other:1"
    )
    ours.house.until_over(id)
    assert ours.house.logs(id) == "other its own\n"


def test_an_image_that_cannot_be_pulled_is_told_by_why(ours: Team) -> None:
    id = ours.house.submit("absent", "true", image="absent:1")
    until(lambda: "its image cannot be pulled (ImagePullBackOff" in ours.why(id))
    ours.house.ok("stop", id, "-y")
    assert ours.house.until_over(id).state == "CANCELLED"


def test_a_quota_that_is_full_is_told_by_why_and_it_starts_when_there_is_room(
    ours: Team,
) -> None:
    hard = {"metadata": {"name": "small"}, "spec": {"hard": {"pods": "0"}}}
    ours.kube.create("resourcequotas", hard)
    id = ours.house.submit("over", "true")
    until(lambda: "exceeded quota: small" in ours.why(id))
    ours.kube.delete("resourcequotas", "small")
    assert ours.house.until_over(id).state == "DONE"


@pytest.mark.soak
def test_a_job_that_kubernetes_does_not_take_now_is_handed_over_later(
    ours: Team,
) -> None:
    hard = {"metadata": {"name": "jobs"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    ours.kube.create("resourcequotas", hard)
    id = ours.house.submit("later", "true")
    until(lambda: "exceeded quota: jobs" in ours.why(id))
    ours.kube.delete("resourcequotas", "jobs")
    assert ours.house.until_over(id).state == "DONE"


def test_what_was_not_handed_over_before_the_head_died_is_handed_over_by_the_next(
    ours: Team,
) -> None:
    """Its Secret is there, and no Job: a quota refuses it, or the head dies between the
    two."""
    hard = {"metadata": {"name": "jobs"}, "spec": {"hard": {"count/jobs.batch": "0"}}}
    ours.kube.create("resourcequotas", hard)
    id = ours.house.submit("next", "true", nodes=2)
    until(lambda: "exceeded quota: jobs" in ours.why(id))
    ours.house.kill_head()
    ours.kube.delete("resourcequotas", "jobs")
    assert ours.left() == [ours.kube.all("secrets")[0]["metadata"]["name"]]
    ours.house.up()
    job = ours.house.until_over(id)
    assert (job.state, job.attempt) == ("DONE", 1)
    ours.until_nothing_is_left()


@pytest.mark.soak
def test_a_job_that_a_webhook_denies_fails_with_its_words(ours: Team) -> None:
    def deny(object: object) -> str:
        return "no jobs on Sundays" if '"Job"' in json.dumps(object) else ""

    ours.kube.do(lambda: ours.kube.verbs.webhooks.append(deny))
    try:
        id = ours.house.submit("denied", "true", retry={"user": 0})
        job = ours.house.until_over(id)
    finally:
        ours.kube.do(ours.kube.verbs.webhooks.clear)
    assert job.state == "FAILED"
    assert "no jobs on Sundays" in f"{job.reason} {evidence(ours, id)}"


@pytest.mark.parametrize("how", ["evicted", "deleted"])
def test_a_pod_that_kubernetes_ends_costs_the_job_nothing_of_its_own(
    ours: Team, how: str
) -> None:
    go = ours.claim("shared") / how
    saves = f"trap 'echo saved; exit 0' TERM; {HOUR} & wait"
    run = f'if [ "$CORRAL_ATTEMPT" = 1 ]; then {saves}; fi; {wait_in_shell(go)}'
    id = ours.house.submit(how, run, grace="1s")
    ours.until_running(id)
    (pod,) = ours.pods(id)
    about = pod["metadata"]
    if how == "evicted":
        kubelet = ours.kube.kubelets[pod["spec"]["nodeName"]]
        ours.kube.do(lambda: kubelet.evict(about["uid"]))
    else:
        ours.kube.delete("pods", about["name"])
    until(lambda: ours.house.job(id).attempt == 2)
    go.touch()
    job = ours.house.until_over(id)
    assert (job.state, job.receipts[0].cause) == ("DONE", "infra")
    why = (
        "the node evicted the pod"
        if how == "evicted"
        else "the pod was deleted in Kubernetes"
    )
    assert why in evidence(ours, id)


def test_what_is_preempted_goes_on_where_there_is_room(ours: Team) -> None:
    """The preemptor has its node by name before it is bound there."""
    id = ours.house.submit("moves", HOUR, resources={"gpu": 2})
    ours.until_running(id)
    (pod,) = ours.pods(id)
    taken = pod["spec"]["nodeName"]
    limits = {"limits": {"nvidia.com/gpu": "2"}}
    container = {
        "name": "theirs",
        "image": IMAGE,
        "command": ["sleep", "3600"],
        "resources": limits,
    }
    where = {"kubernetes.io/hostname": taken}
    spec = {"containers": [container], "restartPolicy": "Never", "nodeSelector": where}
    made = ours.kube.create(
        "pods", {"metadata": {"name": "higher"}, "spec": spec}, "default"
    )
    nominated = {**made, "status": {**made["status"], "nominatedNodeName": taken}}
    kube = ours.kube
    kube.do(lambda: kube.storage.update(kube.kinds["pods"], nominated))
    kube.delete("pods", pod["metadata"]["name"])
    until(
        lambda: (ours.house.job(id).attempt, ours.house.job(id).state) == (2, "RUNNING")
    )
    assert ours.house.job(id).nodes != [taken]
    kube.delete("pods", "higher", "default", gracePeriodSeconds=0)
    until(lambda: ours.house.node(taken).gpus.taken == 0)


@pytest.mark.soak
def test_what_others_hold_is_not_given_away(ours: Team) -> None:
    limits = {"limits": {"nvidia.com/gpu": "2"}}
    container = {
        "name": "theirs",
        "image": IMAGE,
        "command": ["sleep", "3600"],
        "resources": limits,
    }
    spec = {"containers": [container], "restartPolicy": "Never", "nodeName": "gpu1"}
    ours.kube.create("pods", {"metadata": {"name": "theirs"}, "spec": spec}, "default")
    until(lambda: ours.house.node("gpu1").gpus.taken == 2)
    id = ours.house.submit("beside", "true", resources={"gpu": 2})
    assert ours.house.until_over(id).nodes == ["gpu2"]
    ours.kube.delete("pods", "theirs", "default", gracePeriodSeconds=0)
    until(lambda: ours.house.node("gpu1").gpus.taken == 0)


@pytest.mark.soak
def test_a_node_that_is_not_ready_is_silent_and_its_job_is_left_alone(
    ours: Team,
) -> None:
    id = ours.house.submit("patient", HOUR, resources={"gpu": 1})
    ours.until_running(id)
    (node,) = ours.house.job(id).nodes
    ours.kube.not_ready(node)
    until(lambda: ours.house.node(node).liveness == "silent")
    assert (ours.house.job(id).state, ours.house.job(id).attempt) == ("RUNNING", 1)
    ours.kube.ready(node)
    until(lambda: ours.house.node(node).liveness == "alive")


def test_an_end_that_was_reported_while_its_node_was_not_ready_is_recorded(
    ours: Team,
) -> None:
    flag = ours.claim("shared") / "ends"
    id = ours.house.submit("ends", f"{wait_in_shell(flag)}; exit 8", retry={"user": 0})
    ours.until_running(id)
    (node,) = ours.house.job(id).nodes
    ours.kube.not_ready(node)
    until(lambda: ours.house.node(node).liveness == "silent")
    flag.touch()
    job = ours.house.until_over(id)
    assert (job.state, job.exit_code, job.attempt) == ("FAILED", 8, 1)
    assert ours.house.node(node).liveness == "silent"
    ours.kube.ready(node)
    until(lambda: ours.house.node(node).liveness == "alive")


@pytest.mark.parametrize("ends", ["while the head is away", "once it is back"])
def test_an_end_on_a_node_that_is_not_ready_is_recorded_by_the_next_head(
    ours: Team, ends: str
) -> None:
    flag = ours.claim("shared") / f"next-{ends.replace(' ', '-')}"
    id = ours.house.submit(
        "next", f"{wait_in_shell(flag)}; exit 8", nodes=2, retry={"user": 0}
    )
    ours.until_running(id)
    ours.kube.not_ready("gpu1")
    until(lambda: ours.house.node("gpu1").liveness == "silent")
    ours.house.kill_head()
    if ends == "while the head is away":
        flag.touch()
    ours.house.up()
    flag.touch()
    job = ours.house.until_over(id)
    assert (job.state, job.exit_code, job.attempt) == ("FAILED", 8, 1)
    assert ours.house.node("gpu1").liveness != "dead"
    ours.kube.ready("gpu1")
    until(lambda: ours.house.node("gpu1").liveness == "alive")


def test_an_admin_removes_what_a_cluster_has_left_by_its_label(ours: Team) -> None:
    """The command is that of docs/guides/kubernetes.md; here the head has only been
    killed."""
    id = ours.house.submit("left", HOUR)
    ours.until_running(id)
    ours.house.kill_head()
    label = f"corral.dev/cluster={ours.pods(id)[0]['metadata']['labels']['corral.dev/cluster']}"
    kinds = "jobs,pods,secrets,configmaps"
    text = GUIDE.read_text()
    assert f"delete {kinds} -l corral.dev/cluster=" in text
    done = ours.kube.kubectl(
        "delete", kinds, "-l", label, "--grace-period=1", "--wait=false"
    )
    assert done.returncode == 0, done.stderr
    until(lambda: not ours.left() and not ours.kube.all("configmaps"))
    ours.house.up()
    until(lambda: len(ours.kube.all("configmaps")) == 1)
    until(lambda: ours.pods(id))  # nothing of the attempt was left, so it starts again


def test_an_end_on_a_node_that_was_deleted_is_recorded_by_the_next_head(
    ours: Team,
) -> None:
    flag = ours.claim("shared") / "reclaimed"
    ours.kube.add_node("spot", gpus=4, labels=LABELS)
    until(lambda: ours.house.nodes().get("spot") == "alive")
    run = f"{wait_in_shell(flag)}; touch {flag}.ended; exit 8"
    id = ours.house.submit("reclaimed", run, resources={"gpu": 4}, retry={"user": 0})
    ours.until_running(id)
    kubelet = ours.kube.kubelets["spot"]
    # it hangs; what it has started runs on
    ours.kube.do(lambda: setattr(kubelet, "dead", True))
    ours.kube.not_ready("spot")
    ours.house.kill_head()
    flag.touch()
    until(flag.with_name("reclaimed.ended").exists)
    ours.kube.delete("nodes", "spot", "")
    ours.house.up()
    job = ours.house.until_over(id)
    assert (job.state, job.exit_code, job.attempt) == ("FAILED", 8, 1)
    until(lambda: "spot" not in ours.house.nodes())
    ours.kube.do(kubelet.power_off)


def test_nothing_is_missed_when_watches_are_cut_and_history_is_forgotten(
    ours: Team,
) -> None:
    id = ours.house.submit("watched", HOUR)
    ours.until_running(id)
    ours.kube.do(ours.kube.watching.cut)
    ours.kube.do(ours.kube.storage.compact)
    ours.kube.add_node("late", gpus=1, labels=LABELS, kubelet=False)
    until(
        lambda: (
            "late" in [node["id"] for node in ours.house.answer("node", "ls")["nodes"]]
        )
    )
    ours.kube.change_node("late", lambda node: node["spec"].update(unschedulable=True))
    until(lambda: ours.house.node("late").closed)
    assert ours.house.job(id).attempt == 1


@pytest.mark.soak
def test_while_the_api_server_is_away_jobs_run_on_and_it_is_found_again(
    ours: Team,
) -> None:
    id = ours.house.submit("unmoved", HOUR)
    ours.until_running(id)
    ours.kube.server.down = True
    ours.kube.do(ours.kube.watching.cut)
    log = ours.house.place.head_log
    until(lambda: "Kubernetes cannot be queried" in log.read_text())
    ours.kube.server.down = False
    other = ours.house.submit("after", "true")
    assert ours.house.until_over(other).state == "DONE"
    assert (ours.house.job(id).state, ours.house.job(id).attempt) == ("RUNNING", 1)


def test_a_head_that_was_killed_finds_its_pods_and_their_ends_again(ours: Team) -> None:
    flag = ours.claim("shared") / "found"
    stays = ours.house.submit("stays", HOUR)
    ends = ours.house.submit("ends", f"{wait_in_shell(flag)}; exit 5")
    ours.until_running(stays)
    ours.until_running(ends)
    before = {pod["metadata"]["uid"] for pod in ours.pods()}
    ours.house.kill_head()
    flag.touch()
    ours.house.up()
    assert ours.house.until_over(ends).exit_code == 5
    assert ours.house.job(stays).state == "RUNNING"
    assert {pod["metadata"]["uid"] for pod in ours.pods(stays)} <= before


@pytest.mark.soak
def test_a_node_that_was_deleted_while_the_head_was_down_is_none_any_more(
    ours: Team,
) -> None:
    ours.kube.add_node("brief", gpus=1, labels=LABELS, kubelet=False)
    until(lambda: ours.house.nodes().get("brief") == "alive")
    ours.house.kill_head()
    ours.kube.delete("nodes", "brief", "")
    ours.house.up()
    until(lambda: "brief" not in ours.house.nodes())
    said = [event["text"] for event in ours.house.answer("events")["events"]]
    assert "node brief: node brief has been deleted from Kubernetes" in said
    ours.kube.add_node("brief", gpus=1, labels=LABELS, kubelet=False)
    until(lambda: ours.house.nodes().get("brief") == "alive")
    # nothing starts there: no other test is to place on it
    ours.kube.delete("nodes", "brief", "")
    until(lambda: "brief" not in ours.house.nodes())


@pytest.mark.soak
def test_two_clusters_in_one_namespace_do_not_touch_each_other(ours: Team) -> None:
    """Each has labels of its own; what one holds is foreign to the other."""
    with ours.neighbour() as other:
        mine = ours.house.submit("mine", HOUR, resources={"gpu": 2})
        ours.until_running(mine)
        (node,) = ours.house.job(mine).nodes
        until(lambda: other.node(node).gpus.taken == 2)
        theirs = other.submit("theirs", "true", resources={"gpu": 2})
        assert other.until_over(theirs).nodes != [node]
        assert ours.house.job(mine).state == "RUNNING"


@pytest.mark.soak
def test_a_job_of_kueues_queue_begins_when_kueue_lets_it(ours: Team) -> None:
    """Kueue admits a Job by taking `suspend` away:
    https://kueue.sigs.k8s.io/docs/tasks/run/jobs/"""
    with ours.neighbour("--set", "queue=research") as queued:
        id = queued.submit("queued", "true")
        until(
            lambda: (
                "Kueue has not admitted it yet from its queue research"
                in queued.ok("why", id)
            )
        )
        (job,) = ours.kube.all("jobs")
        assert (ours.pods(id), job["spec"]["suspend"]) == ([], True)
        assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "research"
        let_in = json.dumps({"spec": {"suspend": False}})
        name = job["metadata"]["name"]
        done = ours.kube.kubectl("patch", "job", name, "--type=merge", "-p", let_in)
        assert done.returncode == 0, done.stderr
        assert queued.until_over(id).state == "DONE"
