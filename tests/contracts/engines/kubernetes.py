"""The Kubernetes engine: two nodes of the tests' own Kubernetes (tests/kube says what
keeps that honest), with GPUs that only its API server knows."""

import os
import signal
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Final

from tests.agent.telemetry.nvidia_machine import compiled
from tests.engines.kubernetes.team import IMAGE, Team, image, team
from tests.kube.cluster import require_kubelet
from tests.kube.waiting import until
from tests.patience import own_loopback
from tests.scenarios.house import House

OTHERS: Final = (
    "Kubernetes itself pulls a job's image and runs it, which tests/engines/kubernetes see with "
    "the images that the kubelet of the tests has; while one cannot be pulled, `corral why` says so"
)
EXCEPTIONS: Final = {
    **dict.fromkeys(
        (
            "test_an_image_is_what_the_ranks_run_in",
            "test_what_setup_changes_in_an_image_its_ranks_see_and_nobody_else",
            "test_the_shared_folder_and_the_workdir_are_seen_in_an_image",
            "test_a_job_in_an_image_is_cancelled_whole",
            "test_an_image_that_cannot_be_had_is_told_and_tried_no_more",
        ),
        OTHERS,
    ),
}
CLAIM: Final = "shared"
BUSY: Final = "0.use 70\n1.use 70\n"  # what the driver in the pods says


@dataclass(slots=True, kw_only=True)
class OnKubernetes:
    """Implements Landlord. What all nodes see is a PersistentVolumeClaim."""

    team: Team
    boots: int = 1
    name: ClassVar[str] = "kubernetes"
    exceptions: ClassVar[dict[str, str]] = EXCEPTIONS

    @property
    def house(self) -> House:
        return self.team.house

    @property
    def shared(self) -> Path:
        return self.team.claim(CLAIM)

    @property
    def nodes(self) -> tuple[str, str]:
        return "gpu1", "gpu2"

    def processes(self, id: str, attempt: int) -> list[int]:
        return self.team.kube.do(lambda: self._ranks(id, attempt))

    def _ranks(self, id: str, attempt: int) -> list[int]:
        marks = (
            f"CORRAL_JOB_ID={id}\0".encode(),
            f"CORRAL_ATTEMPT={attempt}\0".encode(),
        )
        inside = [
            pid
            for kubelet in self.team.kube.kubelets.values()
            for pid in kubelet.processes()
        ]
        return [
            pid for pid in inside if all(mark in _environment(pid) for mark in marks)
        ]

    def kill_agent(self, node: str, id: str) -> None:
        """It is the main process of its container."""
        kubelet = self.team.kube.kubelets[node]
        for pod in self.team.pods(id):
            main = self.team.kube.do(partial(kubelet.main, pod["metadata"]["uid"]))
            if main is not None:
                os.kill(main, signal.SIGKILL)

    def private_folders(self, node: str, id: str) -> list[Path]:
        """The pods', on the kubelet's disk."""
        return [self.team.kube.kubelets[node].place]

    def kill_node(self, node: str) -> None:
        """Its power is lost, and somebody who knows says so."""
        self.team.kube.power_off(node)
        self.team.kube.not_ready(node)
        self.team.kube.out_of_service(node)

    def revive(self, node: str) -> None:
        self.boots += 1
        self.team.kube.power_on(node, boot=f"boot-{self.boots}-of-{node}")
        until(lambda: self.house.node(node).liveness == "alive")

    def tell_xid(self, node: str, id: str, gpu: int, code: int) -> None:
        """Pods of one GPU call theirs 0."""
        driver = self.shared / "driver"
        fresh = driver / "fresh"
        fresh.write_text(f"{BUSY}xid {code}\nxid.gpu 0\nxid.code {code}\n")
        fresh.rename(driver / "says")
        until(lambda: self.house.job(id).receipts)
        fresh.write_text(BUSY)
        fresh.rename(driver / "says")

    @contextmanager
    def others(self) -> Iterator[str]:
        container = {
            "name": "others",
            "image": IMAGE,
            "command": ["sleep", "3600"],
            "resources": {"limits": {"nvidia.com/gpu": "2"}},
        }
        spec = {"containers": [container], "restartPolicy": "Never", "nodeName": "gpu1"}
        self.team.kube.create(
            "pods", {"metadata": {"name": "others"}, "spec": spec}, "default"
        )
        yield "gpu1"
        self.team.kube.delete("pods", "others", "default", gracePeriodSeconds=0)


def _environment(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return b""


@contextmanager
def landlord() -> Iterator[OnKubernetes]:
    require_kubelet()
    with (
        tempfile.TemporaryDirectory(prefix="corral-k-", dir="/tmp") as place,
        team(Path(place)) as one,
    ):
        path = one.add_claim(CLAIM)
        driver = path / "driver"  # of what is here, pods see the claim alone
        driver.mkdir()
        (compiled(driver) / "says").write_text(BUSY)
        one.images[IMAGE] = image(driver)
        one.up("--set", f"claims={CLAIM}:{path}", "--host", own_loopback())
        yield OnKubernetes(team=one)
