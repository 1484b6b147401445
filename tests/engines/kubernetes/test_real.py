"""Corral on Kubernetes itself, by binaries that are at hand: what only a real kubelet
does."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from tests.kube.real import RealCluster, assets, real_kubernetes
from tests.kube.waiting import until
from tests.scenarios.house import House, house

FOLDER = assets()
pytestmark = [
    pytest.mark.root,
    pytest.mark.xdist_group("kubernetes-real"),
    pytest.mark.skipif(FOLDER is None, reason="KUBEBUILDER_ASSETS names no binaries"),
]
AGENT = "docker.io/library/corral-agent:tests"
SAVES = "trap 'echo saved; exit 0' TERM; echo up; while :; do sleep 0.1; done"


@dataclass(frozen=True, slots=True)
class Real:
    """A head on one real node of two GPUs, whose jobs run in an image of busybox
    alone."""

    kube: RealCluster
    house: House

    def printed(self, job: str) -> str:
        """What it has printed until now."""
        with self.house.client() as client:
            return "".join(piece.data for piece in client.logs(job, follow=False))

    def pods(self, job: str) -> list[str]:
        return [
            one["metadata"]["name"]
            for one in self.kube.pods()
            if one["metadata"]["labels"].get("corral.dev/job") == job
        ]


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Real]:
    place = tmp_path_factory.mktemp("real")
    assert FOLDER is not None
    with real_kubernetes(place, FOLDER) as kube:
        if not kube.has_nodes:
            pytest.skip("no kubelet can run pods here")
        kube.add_node("a", gpus=2)
        assert kube.node is not None
        made = place / "bundle"
        subprocess.run(
            [sys.executable, "-m", "corral.agent.self_contained", str(made)], check=True
        )
        kube.node.add_image(AGENT, made, "opt/corral-agent")
        with house() as own:
            own.up(
                "--engine", "kubernetes", "--host", kube.node.address,
                "--set", "image=docker.io/library/busybox:tests", "--set", f"agent_image={AGENT}",
                "--set", f"kubeconfig={kube.kubeconfig()}",
            )  # fmt: skip
            yield Real(kube, own)


def test_a_job_runs_in_an_image_that_holds_no_python(real: Real) -> None:
    id = real.house.submit("plain", "echo here; id -u", resources={"gpu": 1})
    assert real.house.until_over(id).state == "DONE"
    assert real.house.logs(id).split() == ["here", "1000"]


@pytest.mark.parametrize(
    ("how", "why"),
    [
        ("evict", "the pod was evicted through the Kubernetes API"),
        ("delete", "the pod was deleted in Kubernetes"),
        ("preempt", "Kubernetes preempted the pod for a pod of higher priority"),
    ],
)
def test_what_saves_and_exits_0_when_kubernetes_ends_it_continues(
    real: Real, how: str, why: str
) -> None:
    run = f'if [ "$CORRAL_ATTEMPT" = 1 ]; then {SAVES}; fi; echo again'
    id = real.house.submit(how, run, resources={"gpu": 2})
    until(lambda: "up" in real.printed(id))
    (pod,) = real.pods(id)
    if how == "evict":
        real.kube.evict(pod)
    elif how == "delete":
        real.kube.delete("pods", pod)
    else:
        real.kube.preempt()
    job = real.house.until_over(id)
    assert (job.state, job.attempt) == ("DONE", 2)
    assert why in job.receipts[0].evidence
