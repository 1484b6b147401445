"""A head on the tests' own Kubernetes: what a team has that lends Corral its
cluster."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import corral
from tests.kube.cluster import Cluster, kubernetes
from tests.kube.kinds import Json, Kind
from tests.kube.server import Rule
from tests.kube.waiting import until
from tests.scenarios.house import House, house

IMAGE = "corral:tests"
LABELS = {
    "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3",
    "topology.kubernetes.io/zone": "z1",
}


def image(driver: Path | None = None) -> dict[str, str]:
    """The environment of a container that holds Python and Corral: this one. `driver`:
    where that of its GPUs is, as `nvidia_machine` compiles it, and what it says."""
    own = str(Path(corral.__file__).parents[1])
    path = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
    said = (
        {}
        if driver is None
        else {"LD_LIBRARY_PATH": str(driver), "FAKE_NVML": f"{driver}/says"}
    )
    return {"PATH": path, "PYTHONPATH": own, "HOME": "/tmp", "LANG": "C.UTF-8", **said}


@dataclass(frozen=True, slots=True)
class Team:
    """`kube` is what it has, `house` the head that works on it."""

    kube: Cluster
    house: House
    config: Path
    images: dict[str, dict[str, str]]

    def up(self, *words: str) -> None:
        self.house.up(
            "--engine", "kubernetes", "--set", f"image={IMAGE}",
            "--set", f"kubeconfig={self.config}", *words,
        )  # fmt: skip

    def pods(self, job: str = "") -> list[Json]:
        """Corral's, of one job or of all."""
        return [
            pod
            for pod in self.kube.pods()
            if job in ("", pod["metadata"].get("labels", {}).get("corral.dev/job"))
            and "corral.dev/job" in pod["metadata"].get("labels", {})
        ]

    def left(self) -> list[str]:
        """Names of what is left of attempts."""
        plurals = ("jobs", "pods", "secrets")
        return [
            one["metadata"]["name"]
            for plural in plurals
            for one in self.kube.all(plural)
        ]

    def claim(self, name: str) -> Path:
        """Where its files are: under the same path in pods and outside of them."""
        return self.kube.place / "claims" / name

    def add_claim(self, name: str) -> Path:
        self.claim(name).mkdir(parents=True)
        spec = {
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "1Gi"}},
        }
        self.kube.create(
            "persistentvolumeclaims", {"metadata": {"name": name}, "spec": spec}
        )
        return self.claim(name)

    def why(self, job: str) -> str:
        return self.house.ok("why", job)

    @contextmanager
    def neighbour(self, *words: str) -> Iterator[House]:
        """Another cluster on the same Kubernetes, in the same namespace."""
        with house() as other:
            replace(self, house=other).up(*words)
            yield other

    def until_running(self, job: str) -> None:
        self.house.until_state(job, "RUNNING")

    def stop_all(self) -> None:
        for job in self.house.answer("ps")["jobs"]:
            self.house.corral("stop", job["id"], "-y")

    def until_nothing_is_left(self) -> None:
        until(lambda: not self.left())


@contextmanager
def team(
    place: Path,
    *,
    nodes: int = 2,
    gpus: int = 2,
    more: tuple[Kind, ...] = (),
    config: Callable[[], tuple[Rule, ...]] | None = None,
) -> Iterator[Team]:
    """Nodes gpu1, gpu2, ...; the head is not up yet. It may do what `config` says, or
    all."""
    place.mkdir(parents=True, exist_ok=True)
    images = {IMAGE: image()}
    with kubernetes(place, images, more) as kube:
        for number in range(1, nodes + 1):
            kube.add_node(f"gpu{number}", gpus=gpus, labels=LABELS)
        with house() as one:
            own = kube.kubeconfig() if config is None else kube.user("corral", config())
            yield Team(kube, one, own, images)
