"""A control plane of Kubernetes itself, by binaries that are at hand.

KUBEBUILDER_ASSETS names their folder, as envtest has it: etcd and kube-apiserver; here
also kube-controller-manager and kube-scheduler, and kubelet where containerd runs.
Source: https://book.kubebuilder.io/reference/envtest
"""

import json
import os
import secrets
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import httpx2

from tests.kube.cluster import NAMESPACE, write_kubeconfig
from tests.kube.kinds import Json
from tests.kube.processes import Processes, free_ports
from tests.kube.real_node import Node, can_run_nodes
from tests.kube.tls import certificate, signing_key
from tests.kube.waiting import until

ASSETS: Final = "KUBEBUILDER_ASSETS"
NEEDED: Final = ("etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler")
OLD_VERSION: Final = "2"  # no API server has kept what it had then
STRANGER: Final = "stranger"
PATHS: Final = {
    "jobs": ("batch/v1", "Job", "/apis/batch/v1"),
    "pods": ("v1", "Pod", "/api/v1"),
    "resourcequotas": ("v1", "ResourceQuota", "/api/v1"),
    "nodes": ("v1", "Node", "/api/v1"),
    "namespaces": ("v1", "Namespace", "/api/v1"),
}


def assets() -> Path | None:
    """The folder of the binaries; None where there are none, or not all."""
    folder = Path(os.environ.get(ASSETS) or "/usr/local/kubebuilder/bin")
    has_all = all(os.access(folder / name, os.X_OK) for name in NEEDED)
    return folder if has_all else None


class RealCluster:
    """Started and stopped by `real_kubernetes`."""

    def __init__(self, place: Path, folder: Path) -> None:
        self.place = place
        self.folder = folder
        self.token = secrets.token_urlsafe(16)
        self.strangers_token = secrets.token_urlsafe(16)
        self.processes = Processes(place)
        self.node: Node | None = None
        self.url = ""
        self._api_server: list[object] = []
        self._is_anew = False
        self._http = httpx2.Client(verify=False, timeout=30.0)

    @property
    def has_nodes(self) -> bool:
        """Whether pods can run."""
        return can_run_nodes(self.folder)

    def start(self) -> None:
        etcd, peer, port, kcm, scheduler = free_ports(5)
        cert = certificate(self.place)
        tokens = self.place / "tokens.csv"
        tokens.write_text(
            f'{self.token},admin,admin,"system:masters"\n'
            # fmt: skip
            f"{self.strangers_token},{STRANGER},{STRANGER}\n"
        )
        key, signer = self.place / "key.pem", signing_key(self.place)
        at = f"http://127.0.0.1:{etcd}"
        self._run("etcd", "--data-dir", self.place / "etcd", "--listen-client-urls", at,
                  "--advertise-client-urls", at, "--listen-peer-urls",
                  f"http://127.0.0.1:{peer}", "--unsafe-no-fsync")  # fmt: skip
        self.url = f"https://127.0.0.1:{port}"
        self._api_server = ["kube-apiserver", "--etcd-servers", at, "--secure-port", port,
                  "--bind-address", "127.0.0.1", "--tls-cert-file", cert,
                  "--tls-private-key-file", key, "--token-auth-file", tokens,
                  "--authorization-mode", "RBAC", "--service-cluster-ip-range", "10.99.0.0/24",
                  "--service-account-issuer", "https://kubernetes.default.svc",
                  "--service-account-key-file", signer,
                  "--service-account-signing-key-file", signer,
                  "--kubelet-preferred-address-types", "InternalIP"]  # fmt: skip
        self._run(*self._api_server)
        until(self._is_ready)
        config = self.kubeconfig()
        for name, own in (
            ("kube-controller-manager", kcm),
            ("kube-scheduler", scheduler),
        ):
            more = ("--service-account-private-key-file", signer, "--root-ca-file",
                    self.place / "ca.pem")  # fmt: skip
            self._run(name, "--kubeconfig", config, "--secure-port", own, "--bind-address",
                      "127.0.0.1", "--leader-elect=false",
                      *(more if name == "kube-controller-manager" else ()))  # fmt: skip
        self.create("namespaces", {"metadata": {"name": NAMESPACE}}, namespace="")
        account = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default"
        until(lambda: self._ask("GET", account).status_code == 200)

    def stop(self) -> None:
        if self.node is not None:
            self.node.stop()
        self.processes.stop()
        self._http.close()

    def add_node(self, name: str, *, gpus: int) -> None:
        """Of this machine, with GPUs that are mere numbers.

        Source:
        https://kubernetes.io/docs/tasks/administer-cluster/extended-resource-node/
        """
        self.node = Node(name=name, place=self.place, folder=self.folder)
        self.node.start(self.kubeconfig())
        path = f"/api/v1/nodes/{name}"
        until(lambda: self._ask("GET", path).status_code == 200)
        patch = {"status": {"capacity": {"nvidia.com/gpu": f"{gpus}"}}}
        self._ask("PATCH", f"{path}/status", patch).raise_for_status()
        until(lambda: _offers(self._ask("GET", path).json()))

    def all(self, plural: str) -> list[Json]:
        answer = self._ask("GET", self._path(plural, NAMESPACE))
        found: list[Json] = answer.raise_for_status().json()["items"]
        return found

    def pods(self) -> list[Json]:
        return self.all("pods")

    def create(self, plural: str, object: Json, namespace: str = NAMESPACE) -> Json:
        version, kind, _ = PATHS[plural]
        whole = {"apiVersion": version, "kind": kind, **object}
        answer = self._ask("POST", self._path(plural, namespace), whole)
        if answer.status_code >= 300:
            raise RuntimeError(answer.text)
        made: Json = answer.json()
        return made

    def delete(
        self, plural: str, name: str, namespace: str = NAMESPACE, **options: Any
    ) -> None:
        whole = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        self._ask("DELETE", f"{self._path(plural, namespace)}/{name}", whole)

    def evict(self, pod: str) -> None:
        """As kubectl drain does."""
        about = {"name": pod, "namespace": NAMESPACE}
        whole = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}
        path = f"{self._path('pods', NAMESPACE)}/{pod}/eviction"
        self._ask("POST", path, whole).raise_for_status()

    def preempt(self) -> None:
        """Run a pod of higher priority for a moment, which needs all GPUs of the
        node."""
        urgent = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1000,
                  "metadata": {"name": "urgent"}}  # fmt: skip
        path = "/apis/scheduling.k8s.io/v1/priorityclasses"
        self._ask("POST", path, urgent).raise_for_status()
        container = {
            "name": "theirs", "image": "busybox:tests", "command": ["sleep", "3"],
            "resources": {"limits": {"nvidia.com/gpu": "2"}},
        }  # fmt: skip
        spec = {
            "containers": [container],
            "restartPolicy": "Never",
            "priorityClassName": "urgent",
        }
        self.create("pods", {"metadata": {"name": "theirs"}, "spec": spec})

    def version(self) -> str:
        """Of all that was there until now."""
        answer = self._ask("GET", self._path("jobs", NAMESPACE))
        return str(answer.json()["metadata"]["resourceVersion"])

    def forgotten_version(self) -> str:
        """One from which no watch can begin any more: an API server keeps what has
        happened since its own start."""
        if not self._is_anew:
            self.processes.stop_one("kube-apiserver")
            self._run(*self._api_server)
            until(self._is_ready)
            self._is_anew = True
        return OLD_VERSION

    def until_watched(self) -> None:
        """Until somebody watches the namespace's Jobs."""
        until(
            lambda: any(
                _is_watch(line)
                for line in self._ask("GET", "/metrics").text.split("\n")
            )
        )

    def kubeconfig(self, token: str = "") -> Path:
        return write_kubeconfig(self.place, self.url, token or self.token)

    def user(self, name: str, rules: tuple[()]) -> Path:
        """The kubeconfig of somebody who may do nothing."""
        assert (name, rules) == (STRANGER, ())
        return self.kubeconfig(self.strangers_token)

    def kubectl(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        env = {"KUBECONFIG": str(self.kubeconfig()), "HOME": str(self.place / "home"),
               "PATH": "/usr/bin:/bin"}  # fmt: skip
        return subprocess.run(
            ["kubectl", *words], input=stdin, capture_output=True, text=True, check=False,
            timeout=120, env=env,
        )  # fmt: skip

    def _run(self, name: object, *words: object) -> None:
        self.processes.start(
            str(name), [str(self.folder / str(name)), *map(str, words)]
        )

    def _path(self, plural: str, namespace: str) -> str:
        within = f"/namespaces/{namespace}" if namespace else ""
        return f"{PATHS[plural][2]}{within}/{plural}"

    def _ask(self, method: str, path: str, body: Json | None = None) -> httpx2.Response:
        kind = (
            "application/merge-patch+json" if method == "PATCH" else "application/json"
        )
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": kind}
        content = None if body is None else json.dumps(body)
        return self._http.request(
            method, self.url + path, headers=headers, content=content
        )

    def _is_ready(self) -> bool:
        try:
            return self._ask("GET", "/readyz").text == "ok"
        except httpx2.HTTPError:
            return False


def _offers(node: Json) -> bool:
    status = node["status"]
    ready = any(
        one["type"] == "Ready" and one["status"] == "True"
        for one in status["conditions"]
    )
    return ready and "nvidia.com/gpu" in status.get("allocatable", {})


def _is_watch(line: str) -> bool:
    wanted = ('resource="jobs"', 'scope="namespace"', 'verb="WATCH"')
    is_count = line.startswith("apiserver_longrunning_requests{")
    return is_count and all(one in line for one in wanted) and not line.endswith(" 0")


@contextmanager
def real_kubernetes(place: Path, folder: Path) -> Iterator[RealCluster]:
    """One cluster, without nodes; ended with all that it started."""
    one = RealCluster(place, folder)
    try:
        one.start()
        yield one
    finally:
        one.stop()
