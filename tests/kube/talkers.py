"""Four clients that were written by others, each asked for the same things."""

import asyncio
import json
import selectors
import subprocess
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import kubernetes
import kubernetes_asyncio
import lightkube
from lightkube.models.meta_v1 import ObjectMeta
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Pod

from tests.kube.cluster import NAMESPACE
from tests.kube.kinds import Json

T = TypeVar("T")
BACKGROUND: Final = "Background"


class Denied(Exception):
    """The server's reason: AlreadyExists, Conflict, Invalid, Forbidden, NotFound,
    Expired."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason


class Talker(Protocol):
    """All in one namespace, of Jobs, but for `log` and `pods`. Each raises Denied."""

    def create(self, job: Json) -> None: ...

    def replace(self, job: Json) -> None: ...

    def get(self, name: str) -> Json: ...

    def names(self, labels: str) -> list[str]:
        """In pages of two."""
        ...

    def label(self, name: str, label: str, value: str) -> None: ...

    def delete(self, name: str) -> None:
        """With its pods."""
        ...

    def first_events(self, version: str, many: int) -> list[tuple[str, str]]:
        """(type, name) of the first so many changes since the version."""
        ...

    def pods(self, fields: str) -> list[str]: ...

    def log(self, pod: str) -> str: ...

    def close(self) -> None: ...


class Kubectl:
    """https://kubernetes.io/docs/reference/kubectl/"""

    def __init__(self, config: Path) -> None:
        home = config.with_name("home")
        self._env = {
            "KUBECONFIG": str(config),
            "HOME": str(home),
            "PATH": "/usr/bin:/bin",
        }

    def _run(self, *words: str, stdin: str = "") -> str:
        done = subprocess.run(
            ["kubectl", *words], input=stdin, capture_output=True, text=True, timeout=120,
            env=self._env, check=False,
        )  # fmt: skip
        if done.returncode:
            reason = done.stderr.partition("(")[2].partition(")")[0]
            invalid = "is invalid" in done.stderr
            raise Denied("Invalid" if invalid else reason, done.stderr)
        return done.stdout

    def create(self, job: Json) -> None:
        self._run("create", "-f", "-", stdin=json.dumps(job))

    def replace(self, job: Json) -> None:
        self._run("replace", "-f", "-", stdin=json.dumps(job))

    def get(self, name: str) -> Json:
        found: Json = json.loads(self._run("get", "job", name, "-o", "json"))
        return found

    def names(self, labels: str) -> list[str]:
        said = self._run("get", "jobs", "-l", labels, "--chunk-size=2", "-o", "name")
        return [line.partition("/")[2] for line in said.split()]

    def label(self, name: str, label: str, value: str) -> None:
        self._run("label", "job", name, f"{label}={value}")

    def delete(self, name: str) -> None:
        self._run("delete", "job", name, "--wait=false")

    def first_events(self, version: str, many: int) -> list[tuple[str, str]]:
        """kubectl cannot be told a version: it lists, and watches from there."""
        words = ["kubectl", "get", "jobs", "-w", "--output-watch-events", "-o", "json"]
        told: list[tuple[str, str]] = []
        with subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True, env=self._env
        ) as process:
            assert process.stdout is not None
            while len(told) < many and (line := process.stdout.readline()):
                event = json.loads(line)
                told.append((event["type"], event["object"]["metadata"]["name"]))
            process.terminate()
        return told

    def pods(self, fields: str) -> list[str]:
        said = self._run("get", "pods", "--field-selector", fields, "-o", "name")
        return [line.partition("/")[2] for line in said.split()]

    def log(self, pod: str) -> str:
        return self._run("logs", pod)

    def close(self) -> None:
        pass


class Official:
    """https://github.com/kubernetes-client/python"""

    def __init__(self, config: Path) -> None:
        read: Any = kubernetes.config.new_client_from_config
        made = read(str(config))
        self._batch: Any = kubernetes.client.BatchV1Api(made)
        self._core: Any = kubernetes.client.CoreV1Api(made)
        self._made = made

    def _denied(self, what: Callable[[], T]) -> T:
        try:
            return what()
        except kubernetes.client.exceptions.ApiException as wrong:
            raise _denied(wrong.body, wrong.status) from wrong

    def create(self, job: Json) -> None:
        self._denied(lambda: self._batch.create_namespaced_job(NAMESPACE, job))

    def replace(self, job: Json) -> None:
        name = job["metadata"]["name"]
        self._denied(lambda: self._batch.replace_namespaced_job(name, NAMESPACE, job))

    def get(self, name: str) -> Json:
        found = self._denied(lambda: self._batch.read_namespaced_job(name, NAMESPACE))
        plain: Json = self._made.sanitize_for_serialization(found)
        return plain

    def names(self, labels: str) -> list[str]:
        found: list[str] = []
        more = ""
        while True:
            page = self._batch.list_namespaced_job(
                NAMESPACE,
                label_selector=labels,
                limit=2,
                **({"_continue": more} if more else {}),
            )
            found += [item.metadata.name for item in page.items]
            more = page.metadata._continue
            if not more:
                return found

    def label(self, name: str, label: str, value: str) -> None:
        patch = {"metadata": {"labels": {label: value}}}
        self._denied(lambda: self._batch.patch_namespaced_job(name, NAMESPACE, patch))

    def delete(self, name: str) -> None:
        self._denied(
            lambda: self._batch.delete_namespaced_job(
                name, NAMESPACE, propagation_policy=BACKGROUND
            )
        )

    def first_events(self, version: str, many: int) -> list[tuple[str, str]]:
        watch: Any = kubernetes.watch.Watch  # its own types stop short of it
        watch = watch()
        told: list[tuple[str, str]] = []
        try:
            for event in watch.stream(
                self._batch.list_namespaced_job, NAMESPACE, resource_version=version
            ):
                told.append((event["type"], event["object"].metadata.name))
                if len(told) == many:
                    break
        except kubernetes.client.exceptions.ApiException as wrong:
            raise _denied(wrong.reason, wrong.status) from wrong
        return told

    def pods(self, fields: str) -> list[str]:
        found = self._core.list_namespaced_pod(NAMESPACE, field_selector=fields)
        return [pod.metadata.name for pod in found.items]

    def log(self, pod: str) -> str:
        return str(self._core.read_namespaced_pod_log(pod, NAMESPACE))

    def close(self) -> None:
        self._made.close()
        self._made.rest_client.pool_manager.clear()


class Asyncio:
    """https://github.com/tomplus/kubernetes_asyncio; a loop for each call."""

    def __init__(self, config: Path) -> None:
        self._config = config

    def _do(self, what: Callable[[Any, Any], Coroutine[Any, Any, T]]) -> T:
        async def run() -> T:
            made = await kubernetes_asyncio.config.new_client_from_config(
                str(self._config)
            )
            try:
                async with made:
                    batch = kubernetes_asyncio.client.BatchV1Api(made)
                    core = kubernetes_asyncio.client.CoreV1Api(made)
                    return await what(batch, core)
            finally:
                # A watch gives its connection back half read; nothing waits for the
                # end of its TLS, and a loop that stops before leaves the socket open.
                while len(sockets.get_map()) > 1:  # the loop's own remains
                    await asyncio.sleep(0.01)
                await asyncio.sleep(0)  # a connection closes in the loop's next round

        sockets = selectors.DefaultSelector()
        try:
            with asyncio.Runner(
                loop_factory=lambda: asyncio.SelectorEventLoop(sockets)
            ) as runner:
                return runner.run(run())
        except kubernetes_asyncio.client.exceptions.ApiException as wrong:
            raise _denied(wrong.body or wrong.reason, wrong.status) from wrong

    def create(self, job: Json) -> None:
        self._do(lambda batch, core: batch.create_namespaced_job(NAMESPACE, job))

    def replace(self, job: Json) -> None:
        name = job["metadata"]["name"]
        self._do(lambda batch, core: batch.replace_namespaced_job(name, NAMESPACE, job))

    def get(self, name: str) -> Json:
        async def run(batch: Any, core: Any) -> Json:
            found = await batch.read_namespaced_job(name, NAMESPACE)
            plain: Json = batch.api_client.sanitize_for_serialization(found)
            return plain

        return self._do(run)

    def names(self, labels: str) -> list[str]:
        async def run(batch: Any, core: Any) -> list[str]:
            found: list[str] = []
            more = ""
            while True:
                page = await batch.list_namespaced_job(
                    NAMESPACE, label_selector=labels, limit=2, _continue=more
                )
                found += [item.metadata.name for item in page.items]
                more = page.metadata._continue
                if not more:
                    return found

        return self._do(run)

    def label(self, name: str, label: str, value: str) -> None:
        patch = {"metadata": {"labels": {label: value}}}
        self._do(lambda batch, core: batch.patch_namespaced_job(name, NAMESPACE, patch))

    def delete(self, name: str) -> None:
        self._do(
            lambda batch, core: batch.delete_namespaced_job(
                name, NAMESPACE, propagation_policy=BACKGROUND
            )
        )

    def first_events(self, version: str, many: int) -> list[tuple[str, str]]:
        async def run(batch: Any, core: Any) -> list[tuple[str, str]]:
            told: list[tuple[str, str]] = []
            async with kubernetes_asyncio.watch.Watch() as watch:
                async for event in watch.stream(
                    batch.list_namespaced_job, NAMESPACE, resource_version=version
                ):
                    told.append((event["type"], event["object"].metadata.name))
                    if len(told) == many:
                        break
            return told

        return self._do(run)

    def pods(self, fields: str) -> list[str]:
        async def run(batch: Any, core: Any) -> list[str]:
            found = await core.list_namespaced_pod(NAMESPACE, field_selector=fields)
            return [pod.metadata.name for pod in found.items]

        return self._do(run)

    def log(self, pod: str) -> str:
        return str(
            self._do(lambda batch, core: core.read_namespaced_pod_log(pod, NAMESPACE))
        )

    def close(self) -> None:
        pass


class Lightkube:
    """https://github.com/gtsystem/lightkube"""

    def __init__(self, config: Path) -> None:
        read = lightkube.KubeConfig.from_file(config)
        self._client = lightkube.Client(config=read.get())

    def _denied(self, what: Callable[[], T]) -> T:
        try:
            return what()
        except lightkube.ApiError as wrong:
            raise Denied(
                wrong.status.reason or "", wrong.status.message or ""
            ) from wrong

    def create(self, job: Json) -> None:
        self._denied(lambda: self._client.create(_job(job)))

    def replace(self, job: Json) -> None:
        self._denied(lambda: self._client.replace(_job(job)))

    def get(self, name: str) -> Json:
        found = self._denied(lambda: self._client.get(Job, name))
        plain: Json = found.to_dict()
        return plain

    def names(self, labels: str) -> list[str]:
        label, value = labels.split("=")
        found = self._client.list(Job, chunk_size=2, labels={label: value})
        return [_about(job.metadata).name or "" for job in found]

    def label(self, name: str, label: str, value: str) -> None:
        patch = {"metadata": {"labels": {label: value}}}
        self._denied(lambda: self._client.patch(Job, name, patch))

    def delete(self, name: str) -> None:
        policy = lightkube.types.CascadeType.BACKGROUND
        self._denied(lambda: self._client.delete(Job, name, cascade=policy))

    def first_events(self, version: str, many: int) -> list[tuple[str, str]]:
        told: list[tuple[str, str]] = []
        try:
            for type, job in self._client.watch(Job, resource_version=version):
                told.append((str(type), _about(job.metadata).name or ""))
                if len(told) == many:
                    break
        except lightkube.ApiError as wrong:
            raise Denied(wrong.status.reason or "") from wrong
        return told

    def pods(self, fields: str) -> list[str]:
        field, value = fields.split("=")
        found = self._client.list(Pod, fields={field: value})
        return [_about(pod.metadata).name or "" for pod in found]

    def log(self, pod: str) -> str:
        return "".join(self._client.log(pod))

    def close(self) -> None:
        self._client.close()


def _job(job: Json) -> Job:
    made = Job.from_dict(job)
    assert isinstance(made, Job)
    return made


def _about(metadata: ObjectMeta | None) -> ObjectMeta:
    assert metadata is not None
    return metadata


def _denied(body: Any, status: int | None) -> Denied:
    """The body is a Status; of an error within a watch it is "Reason: message"."""
    try:
        said = json.loads(body)
        return Denied(said["reason"], said["message"])
    except (ValueError, TypeError, KeyError):
        reason = str(body).partition(":")[0]
        return Denied("Expired" if status == 410 else reason, str(body))


TALKERS: Final[dict[str, Callable[[Path], Talker]]] = {
    "kubectl": Kubectl,
    "kubernetes": Official,
    "kubernetes-asyncio": Asyncio,
    "lightkube": Lightkube,
}
