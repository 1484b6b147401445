"""A Kubernetes of the tests: the API server, its controllers and its kubelets, in one
thread."""

import asyncio
import json
import os
import secrets
import shutil
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

import pytest
import uvicorn

from tests.kube.controllers import OUT_OF_SERVICE, UNREACHABLE, Controllers
from tests.kube.kinds import Json, Kind, Kinds
from tests.kube.kubelet import Kubelet
from tests.kube.server import ALL, Rule, Server
from tests.kube.storage import Change, Storage
from tests.kube.tls import certificate
from tests.kube.verbs import Verbs, Where
from tests.kube.waiting import until
from tests.kube.watching import Watching

T = TypeVar("T")
NAMESPACE: Final = "team"
START_SECONDS: Final = 60.0
INFO: Final = {
    "architecture": "amd64", "containerRuntimeVersion": "tests://1", "kernelVersion": "6.1",
    "kubeProxyVersion": "", "kubeletVersion": "v1.32.0", "machineID": "m", "operatingSystem":
    "linux", "osImage": "Debian", "systemUUID": "s",
}  # fmt: skip


class Cluster:
    """Started and stopped by `kubernetes`. Its methods may be called from any
    thread."""

    def __init__(
        self,
        place: Path,
        images: Mapping[str, Mapping[str, str]],
        more: tuple[Kind, ...],
    ) -> None:
        self.place = place
        self.images = images
        self.kinds = Kinds(more)
        self.storage = Storage()
        self.verbs = Verbs(storage=self.storage, kinds=self.kinds)
        self.watching = Watching(storage=self.storage)
        self.token = secrets.token_urlsafe(16)
        self.server = Server(
            verbs=self.verbs,
            watching=self.watching,
            users={self.token: ("admin", ALL)},
            logs={},
        )
        self.controllers = Controllers(
            storage=self.storage, verbs=self.verbs, kinds=self.kinds
        )
        self.kubelets: dict[str, Kubelet] = {}
        self.url = ""
        self._loop = asyncio.new_event_loop()
        self._due = False
        self._thread = threading.Thread(target=self._live, name="kubernetes")
        self._ready: Future[str] = Future()
        self._over: asyncio.Event | None = None

    def start(self) -> None:
        self._thread.start()
        self.url = self._ready.result(START_SECONDS)
        for name in ("default", NAMESPACE):
            self.create("namespaces", {"metadata": {"name": name}}, namespace="")

    def stop(self) -> None:
        assert self._over is not None
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join()

    def do(self, what: Callable[[], T]) -> T:
        """In the server's thread. Raises: what it raises."""

        async def run() -> T:
            return what()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(START_SECONDS)

    def _live(self) -> None:
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._over = asyncio.Event()
        self.storage.on_change = self._changed
        # the protocol by name: else asyncio leaves Nagle's algorithm on, which no API
        # server does
        listening = socket.socket(
            socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(
            self.server, log_config=None, lifespan="off", access_log=False,
            ssl_certfile=str(certificate(self.place)), ssl_keyfile=str(self.place / "key.pem"),
            timeout_graceful_shutdown=1,
        )  # fmt: skip
        serving = _Serving(config)
        task = asyncio.create_task(serving.serve(sockets=[listening]))
        await serving.up.wait()
        self._ready.set_result(f"https://127.0.0.1:{listening.getsockname()[1]}")
        await self._over.wait()
        for kubelet in self.kubelets.values():
            await kubelet.close()
        self.watching.cut()
        serving.should_exit = True
        await task
        left: set[Any] = set(serving.server_state.connections)
        # of clients that have gone without a word: TLS waits for one
        for connection in left:
            connection.transport.abort()
        await asyncio.sleep(0)
        listening.close()

    def _changed(self, change: Change) -> None:
        if not self._due:
            self._due = True
            self._loop.call_soon(self._reconcile)

    def _reconcile(self) -> None:
        self._due = False
        self.controllers.reconcile()
        for kubelet in list(self.kubelets.values()):
            kubelet.look()

    def add_node(
        self, name: str, *, gpus: int = 0, gpu_resource: str = "nvidia.com/gpu",
        labels: Mapping[str, str] | None = None, cpu: str = "8", memory: str = "16Gi",
        kubelet: bool = True,
    ) -> None:  # fmt: skip
        """A node that is ready; without `kubelet` its pods are never started."""
        size = {
            "cpu": cpu,
            "memory": memory,
            "pods": "110",
            "ephemeral-storage": "100Gi",
        }
        size |= {gpu_resource: str(gpus)} if gpus else {}
        address = f"127.0.1.{len(self.kubelets) + 1}"
        node = {
            "metadata": {
                "name": name,
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            },
            "spec": {},
            "status": {
                "capacity": dict(size),
                "allocatable": dict(size),
                "conditions": [_ready("True", "KubeletReady")],
                "addresses": [{"type": "InternalIP", "address": address}],
                "nodeInfo": {**INFO, "bootID": f"boot-1-of-{name}"},
            },
        }
        made = Kubelet(
            node=name, address=address, place=self.place / name, claims=self.place / "claims",
            storage=self.storage, verbs=self.verbs, kinds=self.kinds, images=self.images,
            logs=self.server.logs, tell=self.controllers.tell,
        )  # fmt: skip
        if kubelet:
            self.kubelets[name] = made
        self.do(lambda: self.storage.create(self.kinds["nodes"], node))

    def change_node(self, name: str, change: Callable[[Json], None]) -> None:
        """`change` edits the Node in place."""

        def run() -> None:
            node = self.storage.get(self.kinds["nodes"], "", name)
            change(node)
            self.storage.update(self.kinds["nodes"], node)

        self.do(run)

    def not_ready(self, name: str) -> None:
        """What the node controller says when a kubelet is not heard from.

        https://kubernetes.io/docs/concepts/architecture/nodes/#node-controller
        """

        def change(node: Json) -> None:
            node["status"]["conditions"] = [_ready("Unknown", "NodeStatusUnknown")]
            node["spec"]["taints"] = [
                {"key": UNREACHABLE, "effect": effect}
                for effect in ("NoSchedule", "NoExecute")
            ]

        self.change_node(name, change)

    def ready(self, name: str, boot: str | None = None) -> None:
        """It is back, under a new boot id where it was restarted."""

        def change(node: Json) -> None:
            node["status"]["conditions"] = [_ready("True", "KubeletReady")]
            node["spec"]["taints"] = []
            if boot:
                node["status"]["nodeInfo"]["bootID"] = boot

        self.change_node(name, change)

    def power_off(self, name: str) -> None:
        """The machine is dead; nobody has noticed yet."""
        self.do(self.kubelets[name].power_off)

    def power_on(self, name: str, boot: str) -> None:
        """It has restarted, and nothing of before runs on it."""
        kubelet = self.kubelets[name]
        self.do(kubelet.power_on)
        self.ready(name, boot)

    def out_of_service(self, name: str) -> None:
        """Somebody confirms that the node is shut down.

        https://kubernetes.io/docs/concepts/cluster-administration/node-shutdown/
        """

        def change(node: Json) -> None:
            taint = {
                "key": OUT_OF_SERVICE,
                "value": "nodeshutdown",
                "effect": "NoExecute",
            }
            node["spec"]["taints"] = [*(node["spec"].get("taints") or []), taint]

        self.change_node(name, change)

    def all(self, plural: str) -> list[Json]:
        return self.do(lambda: list(self.storage.all(self.kinds[plural])))

    def pods(self) -> list[Json]:
        return self.all("pods")

    def create(self, plural: str, object: Json, namespace: str = NAMESPACE) -> Json:
        """Raises: Refused."""
        where = Where(kind=self.kinds[plural], namespace=namespace)
        return self.do(lambda: self.verbs.create(where, object))

    def delete(
        self, plural: str, name: str, namespace: str = NAMESPACE, **options: Any
    ) -> None:
        """Raises: Refused."""
        where = Where(kind=self.kinds[plural], namespace=namespace, name=name)
        self.do(lambda: self.verbs.delete(where, options))

    def kubeconfig(self, token: str = "", namespace: str = NAMESPACE) -> Path:
        """A file that any client reads.
        https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/"""
        return write_kubeconfig(self.place, self.url, token or self.token, namespace)

    def version(self) -> str:
        """Of all that was there until now."""
        return str(self.storage.version)

    def forgotten_version(self) -> str:
        """One from which no watch can begin any more; called before a change."""
        version = self.version()
        self.create(
            "namespaces", {"metadata": {"generateName": "later-"}}, namespace=""
        )
        self.do(self.storage.compact)
        return version

    def until_watched(self) -> None:
        """Until somebody watches."""
        until(lambda: self.do(lambda: len(self.watching.open)) > 0)

    @property
    def has_nodes(self) -> bool:
        """Whether pods can run."""
        return True

    def user(self, name: str, rules: tuple[Rule, ...]) -> Path:
        """The kubeconfig of somebody who may do just this."""
        token = secrets.token_urlsafe(16)
        self.server.users[token] = (name, rules)
        return self.kubeconfig(token)

    def kubectl(self, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        file = self.kubeconfig()
        home = self.place / "home"
        return subprocess.run(
            ["kubectl", *words], input=stdin, capture_output=True, text=True, check=False,
            timeout=120, env={"KUBECONFIG": str(file), "HOME": str(home), "PATH": "/usr/bin:/bin"},
        )  # fmt: skip


def write_kubeconfig(
    place: Path, url: str, token: str, namespace: str = NAMESPACE
) -> Path:
    """Write one with a new name into the folder, which has the server's ca.pem."""
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "tests",
        "clusters": [
            {"name": "tests",
             "cluster": {"server": url, "certificate-authority": str(place / "ca.pem")}}
        ],
        "users": [{"name": "me", "user": {"token": token}}],
        "contexts": [
            {"name": "tests", "context": {"cluster": "tests", "user": "me", "namespace": namespace}}
        ],
    }  # fmt: skip
    file = place / f"kubeconfig-{secrets.token_hex(4)}"
    file.write_text(json.dumps(content))
    file.chmod(0o600)
    return file


class _Serving(uvicorn.Server):
    """Says when it serves, and leaves signals alone."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.up = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.up.set()


def _ready(status: str, reason: str) -> Json:
    return {"type": "Ready", "status": status, "reason": reason}


def require_kubelet() -> None:
    """Its containers need root and unshare: a clear skip elsewhere, under CI a
    failure."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        _absent("a kubelet of the tests needs root and unshare")


def require_kubectl() -> None:
    if shutil.which("kubectl") is None:
        _absent("no kubectl is installed here: https://kubernetes.io/docs/tasks/tools/")


def _absent(why: str) -> None:
    if os.environ.get("CI") == "true":
        pytest.fail(why)
    pytest.skip(why)


@contextmanager
def kubernetes(
    place: Path,
    images: Mapping[str, Mapping[str, str]] | None = None,
    more: tuple[Kind, ...] = (),
) -> Iterator[Cluster]:
    """One cluster, without nodes; ended with all that it started."""
    one = Cluster(place, images or {}, more)
    one.start()
    try:
        yield one
    finally:
        one.stop()
