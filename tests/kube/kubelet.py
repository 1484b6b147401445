"""A kubelet that really starts what pods ask for, as processes of this machine.

https://kubernetes.io/docs/concepts/workloads/pods/pod-lifecycle/. Needs root: each
container has a mount and a PID namespace of its own, so that it ends as a whole.
"""

import asyncio
import os
import shutil
import signal
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.kube.controllers import set_condition
from tests.kube.kinds import Json, Kinds
from tests.kube.memory import MemoryLimit
from tests.kube.quantities import amount
from tests.kube.scheduling import is_over
from tests.kube.security import as_user
from tests.kube.status import Refused
from tests.kube.storage import Storage, now
from tests.kube.verbs import Verbs, Where
from tests.kube.volumes import (
    Unmountable,
    expanded,
    mounts_of,
    prepare_volumes,
    value_of,
)

SCRIPT: Final = Path(__file__).with_name("container.sh")
LOOK_SECONDS: Final = 0.1
UNSHARE: Final = ("unshare", "--mount", "--propagation", "private", "--pid", "--fork",
                  "--kill-child=KILL")  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Running:
    """What the kubelet has of one pod. `blamed`: why it was killed, where that is
    known."""

    folder: Path
    process: asyncio.subprocess.Process | None = None
    task: asyncio.Task[None] | None = None
    stopping: asyncio.Task[None] | None = None
    blamed: str = ""


@dataclass(slots=True, kw_only=True)
class Kubelet:
    """One node's. `images`: those that can be pulled, each with the environment that it
    brings, and with files: of these the name begins with a slash, and the value is what
    is in them."""

    node: str
    address: str
    place: Path
    claims: Path
    storage: Storage
    verbs: Verbs
    kinds: Kinds
    images: Mapping[str, Mapping[str, str]]
    logs: dict[str, Path]
    tell: Callable[[Json, str, str, str], None]
    dead: bool = False
    pods: dict[str, Running] = field(default_factory=dict)

    def look(self) -> None:
        """Do what the API server says of this node's pods; called after each change."""
        if self.dead:
            return
        known = set()
        for pod in self.storage.all(self.kinds["pods"]):
            if pod["spec"].get("nodeName") != self.node:
                continue
            uid = pod["metadata"]["uid"]
            known.add(uid)
            if (
                uid not in self.pods
                and not is_over(pod)
                and "deletionTimestamp" not in pod["metadata"]
            ):
                running = Running(folder=self.place / uid)
                self.pods[uid] = running
                running.task = asyncio.get_running_loop().create_task(
                    self._run(pod, running)
                )
            elif "deletionTimestamp" in pod["metadata"]:
                self._end(pod)
        # removed by force: it is killed when that is seen
        for uid in self.pods.keys() - known:
            self._kill(self.pods[uid])

    async def _run(self, pod: Json, running: Running) -> None:
        try:
            folders = prepare_volumes(
                pod, running.folder, self.claims, self.storage, self.kinds
            )
        except Unmountable as absent:
            self.tell(pod, "FailedMount", str(absent), "Warning")
            return
        for container in [
            *(pod["spec"].get("initContainers") or []),
            *pod["spec"]["containers"][:1],
        ]:
            if container["image"] not in self.images:
                self._waits(pod, container)
                return
            try:
                code = await self._run_container(pod, container, running, folders)
            except OSError as wrong:
                self._ended(pod, running, 128, f"StartError: {wrong}")
                return
            if code or running.blamed:
                break
        self._ended(pod, running, code)

    async def _run_container(
        self, pod: Json, container: Json, running: Running, folders: Mapping[str, Path]
    ) -> int:
        """Returns: its exit code, 128 + the signal where one ended it."""
        image = self.images[container["image"]]
        environment = {name: value for name, value in image.items() if name[0] != "/"}
        for one in container.get("env") or []:
            environment[one["name"]] = value_of(
                one, pod, self.node, self.address, environment, self.storage, self.kinds
            )
        # the tests' own interpreter is in every image, also where it lies in /tmp
        programs = [
            sys.prefix,
            sys.base_prefix,
            *environment.get("PYTHONPATH", "").split(":"),
        ]
        own = [(Path(at), at) for at in programs if at]
        binds = [*own, *mounts_of(container, folders, environment)]
        root = running.folder / "root"
        root.mkdir(exist_ok=True)
        words = [expanded(word, environment) for word in (container.get("command") or [])
                 + (container.get("args") or [])]  # fmt: skip
        words = [*as_user(pod, container), *words]
        log = running.folder / "log"
        self.logs[pod["metadata"]["uid"]] = log
        limit = (container.get("resources") or {}).get("limits", {}).get("memory")
        group = MemoryLimit(
            f"kube-{pod['metadata']['uid']}", limit and int(amount(limit))
        )
        with log.open("ab") as output:
            running.process = await asyncio.create_subprocess_exec(
                *group.enter, *UNSHARE, "sh", str(SCRIPT),
                str(root), container.get("workingDir", "/"),
                str(_files_of(image, running.folder / "image")),
                *(str(word) for bind in binds for word in bind), "--", *words,
                stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output,
                env=environment, start_new_session=True,
            )  # fmt: skip
        if container in pod["spec"]["containers"]:
            self._status(pod, "Running", {"running": {"startedAt": now()}}, ready=True)
        code = await self._until_ended(running, group)
        return 128 - code if code < 0 else code

    async def _until_ended(self, running: Running, group: MemoryLimit) -> int:
        """Within its memory, where it has a limit."""
        assert running.process is not None
        while running.process.returncode is None:
            if group.is_over:
                running.blamed = "OOMKilled"
                self._kill(running)
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS if group.holds else None):
                    await running.process.wait()
        group.close()
        return running.process.returncode

    def _ended(self, pod: Json, running: Running, code: int, message: str = "") -> None:
        if self.dead:
            return
        reason = running.blamed or ("Completed" if code == 0 else "Error")
        told = {
            "exitCode": code,
            "reason": reason,
            "finishedAt": now(),
            "message": message,
        }
        if code > 128:
            told["signal"] = code - 128
        why = running.blamed if running.blamed == "Evicted" else ""
        phase = "Succeeded" if code == 0 and not why else "Failed"
        self._status(pod, phase, {"terminated": told}, reason=why)
        found = self._find(pod)
        if found is not None and "deletionTimestamp" in found["metadata"]:
            self._gone(found)

    def _waits(self, pod: Json, container: Json) -> None:
        said = f'Back-off pulling image "{container["image"]}"'
        self._status(
            pod, "Pending", {"waiting": {"reason": "ImagePullBackOff", "message": said}}
        )
        self.tell(
            pod,
            "Failed",
            f'Failed to pull image "{container["image"]}": not found',
            "Warning",
        )

    def _status(
        self,
        pod: Json,
        phase: str,
        state: Json,
        *,
        ready: bool = False,
        reason: str = "",
    ) -> None:
        found = self._find(pod)
        if found is None or self.dead:
            return
        status = {
            **found["status"],
            "phase": phase,
            "podIP": self.address,
            "hostIP": self.address,
        }
        status["podIPs"] = [{"ip": self.address}]
        status.setdefault("startTime", now())
        if reason:
            status |= {
                "reason": reason,
                "message": "The node was low on resource: memory.",
            }
        container = pod["spec"]["containers"][0]
        set_condition(status, "Ready", "True" if ready else "False", "", "")
        status["containerStatuses"] = [
            {"name": container["name"], "state": state, "ready": ready, "restartCount": 0,
             "image": container["image"], "imageID": "", "lastState": {}}
        ]  # fmt: skip
        self.storage.update(self.kinds["pods"], {**found, "status": status})

    def _find(self, pod: Json) -> Json | None:
        about = pod["metadata"]
        found = self.storage.find(self.kinds["pods"], about["namespace"], about["name"])
        return found if found and found["metadata"]["uid"] == about["uid"] else None

    def _end(self, pod: Json) -> None:
        """TERM to the main process, the grace, KILL; then it is gone from the API."""
        running = self.pods.get(pod["metadata"]["uid"])
        if (
            running is None
            or running.process is None
            or running.process.returncode is not None
        ):
            self._gone(pod)
        elif running.stopping is None:
            grace = float(pod["metadata"].get("deletionGracePeriodSeconds", 30))
            running.stopping = asyncio.get_running_loop().create_task(
                self._stop(running, grace)
            )

    async def _stop(self, running: Running, grace_seconds: float) -> None:
        process = running.process
        assert process is not None
        main = _main_process(process.pid)
        if main is not None and process.returncode is None:
            os.kill(main, signal.SIGTERM)
        try:
            async with asyncio.timeout(grace_seconds):
                await process.wait()
        except TimeoutError:
            self._kill(running)

    def _kill(self, running: Running) -> None:
        if running.process is not None and running.process.returncode is None:
            main = _main_process(running.process.pid)
            with suppress(ProcessLookupError):  # it may end by itself meanwhile
                os.kill(main or running.process.pid, signal.SIGKILL)

    def _gone(self, pod: Json) -> None:
        found = self._find(pod)
        if found is None:
            return
        about = found["metadata"]
        if not is_over(found):  # what never ran, has ended all the same
            status = {**found["status"], "phase": "Failed"}
            self.storage.update(self.kinds["pods"], {**found, "status": status})
        where = Where(
            kind=self.kinds["pods"], namespace=about["namespace"], name=about["name"]
        )
        found = self._find(pod)
        if found is None or found["metadata"].get("deletionGracePeriodSeconds") == 0:
            return
        try:
            self.verbs.delete(where, {"gracePeriodSeconds": 0})
        except Refused:
            return  # it went meanwhile

    def evict(self, uid: str) -> None:
        """For want of memory or disk on the node.

        https://kubernetes.io/docs/concepts/scheduling-eviction/node-pressure-eviction/
        """
        self._end_with(uid, "Evicted")

    def out_of_memory(self, uid: str) -> None:
        """As the kernel does when the container is over its limit."""
        self._end_with(uid, "OOMKilled")

    def _end_with(self, uid: str, blamed: str) -> None:
        self.pods[uid].blamed = blamed
        self._kill(self.pods[uid])

    def main(self, uid: str) -> int | None:
        """The main process of the pod's container, as the machine counts it."""
        running = self.pods.get(uid)
        process = running.process if running is not None else None
        return None if process is None else _main_process(process.pid)

    def processes(self) -> list[int]:
        """All that live in its containers."""
        spaces = {
            _space(main) for uid in self.pods if (main := self.main(uid)) is not None
        }
        found = (
            int(entry.name)
            for entry in Path("/proc").iterdir()
            if entry.name.isdecimal()
        )
        return [pid for pid in found if _space(pid) in spaces - {""}]

    def power_off(self) -> None:
        """All of the node is gone at once, and nobody is left to say so."""
        self.dead = True
        for running in self.pods.values():
            self._kill(running)

    def power_on(self) -> None:
        self.pods.clear()
        self.dead = False

    async def close(self) -> None:
        """End all that it started."""
        self.power_off()
        tasks = [
            one
            for running in self.pods.values()
            for one in (running.task, running.stopping)
        ]
        await asyncio.gather(*filter(None, tasks), return_exceptions=True)
        shutil.rmtree(self.place, ignore_errors=True)


def _files_of(image: Mapping[str, str], folder: Path) -> Path:
    """A folder with the files that the image has beyond this machine's own."""
    folder.mkdir(exist_ok=True)
    for name, content in image.items():
        if name[0] == "/":
            file = folder / name[1:]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(content)
    return folder


def _space(pid: int) -> str:
    """Its PID namespace; "" of a process that is gone."""
    try:
        return os.readlink(f"/proc/{pid}/ns/pid")
    except OSError:
        return ""


def _main_process(unshare: int) -> int | None:
    """The first process in the container's PID namespace: the only child of
    `unshare`."""
    try:
        children = Path(f"/proc/{unshare}/task/{unshare}/children").read_text().split()
    except OSError:
        return None
    return int(children[0]) if children else None
