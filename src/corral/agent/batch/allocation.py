"""The first node of a batch job: it keeps the connections to its helpers (the other
nodes), and starts the steps that srun requests."""

import os
import socket
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from corral.agent.batch import environment
from corral.agent.batch.frames import FIRST, HELPER, Frames, Message, Stranger, key_of
from corral.agent.batch.known_env import without_known
from corral.agent.batch.layout import CannotStep, SrunOptions, TaskLayout, lay_out
from corral.agent.batch.tasks import Tasks
from corral.wire.slurm.batch_plan import BatchPlan
from corral.wire.slurm.hostlist import expand

HELPERS_SECONDS: Final = 300.0  # for the other nodes to come up


@dataclass(slots=True, kw_only=True)
class _Step:
    """A step that one srun process has requested. `places` maps each of the step's
    nodes to its position in the step."""

    srun: Frames
    layout: TaskLayout
    local: Tasks | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


class BatchAllocation:
    """The allocation of a batch job, and the helpers (the other nodes) that have
    joined. Steps are numbered from 0."""

    def __init__(self, plan: BatchPlan, own: Mapping[str, str]) -> None:
        self._plan = plan
        self._own = own
        self._hosts = expand(own["SLURM_JOB_NODELIST"])
        self._helpers: dict[int, Frames] = {}
        # digests of what a helper has
        self._known_env: dict[int, Mapping[str, str]] = {}
        self._names: list[set[str]] = [{host} for host in self._hosts]
        self._names[0].add(own["CORRAL_NODE"])
        # places of helpers that left, or were notified of the end
        self._departed: set[int] = set()
        self._is_over = False
        self._changed = threading.Condition()
        self._steps: dict[int, _Step] = {}
        self._next = 0

    def serve(self, path: str) -> None:
        """Accept requests of srun at the socket `path` and, if the job has more than
        one node, connections of helpers.

        Raises: OSError when the socket cannot be made.
        """
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(path)
        os.chmod(path, 0o600)
        listener.listen(64)
        threading.Thread(
            target=self._accept_connections,
            args=(listener, self._serve_srun),
            daemon=True,
        ).start()
        if len(self._hosts) > 1:
            joined = socket.create_server(
                ("", int(self._own["MASTER_PORT"])), backlog=1024
            )
            threading.Thread(
                target=self._accept_connections,
                args=(joined, self._helper),
                daemon=True,
            ).start()

    def over(self) -> None:
        """End all steps and all helpers, including helpers that join later, because the
        script has ended."""
        with self._changed:
            self._is_over = True
            for node_index, frames in self._helpers.items():
                self._release_helper_node(node_index, frames)
            for step in self._steps.values():
                if step.local is not None:
                    step.local.end()

    def wait_for_departures(self, seconds: float = HELPERS_SECONDS) -> None:
        """Wait at most `seconds` until all helpers know that the job is over. A node
        may come up after a short script has ended, and would otherwise wait for the
        first node for ever."""
        helpers = len(self._hosts) - 1
        with self._changed:
            self._changed.wait_for(lambda: len(self._departed) == helpers, seconds)

    def _release_helper_node(self, place: int, frames: Frames) -> None:
        with suppress(OSError):
            frames.send({"type": "over"})
        self._departed.add(place)
        self._changed.notify_all()

    def _accept_connections(self, server: socket.socket, serve: Any) -> None:
        while True:
            connection, _ = server.accept()
            threading.Thread(
                target=serve, args=(Frames(connection),), daemon=True
            ).start()

    # -- helpers

    def _helper(self, frames: Frames) -> None:
        try:
            # a job of one node needs none
            from corral.agent.batch.encryption import Encryption

            frames.greet(self._connection_key, own=FIRST, other=HELPER, seal=Encryption)
            heard = frames.receive()
        except (OSError, EOFError, ValueError, Stranger):
            heard = None
        if heard is None or not 0 < heard[0].get("place", 0) < len(self._hosts):
            frames.close()
            return
        node_index = int(heard[0]["place"])
        with self._changed:
            self._helpers[node_index] = frames
            self._names[node_index].add(str(heard[0]["node"]))
            self._known_env[node_index] = heard[0].get("has", {})
            self._changed.notify_all()
            if self._is_over:
                self._release_helper_node(node_index, frames)
        while (heard := frames.receive()) is not None:
            self._send_to_srun(*heard)
        with self._changed:
            self._helpers.pop(node_index, None)
            self._departed.add(node_index)
            self._changed.notify_all()
        frames.close()
        for number, step in list(self._steps.items()):
            self._report_lost_tasks(number, step, node_index)

    def _report_lost_tasks(self, number: int, step: _Step, place: int) -> None:
        if place not in step.layout.nodes:
            return
        layout_index = step.layout.nodes.index(place)
        first_task_id = step.layout.first_task(layout_index)
        for task in range(
            first_task_id, first_task_id + step.layout.tasks[layout_index]
        ):
            self._send_to_srun(
                {"type": "end", "step": number, "task": task, "code": -9}, b""
            )

    def _wait_for_helpers(self, places: tuple[int, ...]) -> None:
        """Wait until the helpers on the nodes at these positions in the job have
        joined.

        Raises: CannotStep when one has not joined in time.
        """
        needed = {node_index for node_index in places if node_index}
        with self._changed:
            has_all_helpers = self._changed.wait_for(
                lambda: needed <= self._helpers.keys(), HELPERS_SECONDS
            )
        if not has_all_helpers:
            raise CannotStep(
                "Unable to create step for job: a node of the job does not answer"
            )

    # -- steps

    def _serve_srun(self, frames: Frames) -> None:
        """Serve one srun process until it ends: it first sends its request, then the
        input and signals for its tasks."""
        heard = frames.receive()
        if heard is None or heard[0].get("type") != "run":
            frames.close()
            return
        number = -1
        try:
            number = self._start(frames, heard[0])
            while (heard := frames.receive()) is not None:
                self._pass_on(number, *heard)
        except (CannotStep, ValueError, OSError) as trouble:
            with suppress(OSError):
                frames.send({"type": "refused", "why": str(trouble)})
        finally:
            self._end_step(number)
            frames.close()

    def _start(self, frames: Frames, message: Message) -> int:
        """Start the step that srun requests in `message`, and return the step's number.

        Raises: CannotStep, ValueError, OSError when it cannot be started.
        """
        srun_options = SrunOptions(
            **{**message["asked"], **_node_name_tuples(message["asked"])}
        )
        if srun_options.on or srun_options.off:
            # they say how they are called
            self._wait_for_helpers(tuple(range(len(self._hosts))))
        layout = lay_out(
            srun_options, self._plan, [sorted(name) for name in self._names]
        )
        self._wait_for_helpers(layout.nodes)
        with self._changed:
            number, self._next = self._next, self._next + 1
            step = self._steps[number] = _Step(srun=frames, layout=layout)
        hosts = [self._hosts[node_index] for node_index in layout.nodes]
        cpus = srun_options.cpus_per_task or (
            self._plan.cpus_per_task if self._plan.cpus_given else None
        )
        step_variables = environment.of_step(number, layout, hosts, cpus)
        nodes = [
            sorted(self._names[node_index], key=self._is_host)[0]
            for node_index in layout.nodes
        ]
        frames.send(
            {"type": "began", "step": number, "nodes": nodes, "layout": asdict(layout)}
        )
        for layout_index, node_index in enumerate(layout.nodes):
            step_message = {
                "type": "step",
                "step": number,
                "words": message["words"],
                "env": {**message["env"], **step_variables},
                "folder": message["folder"],
                "input": message["input"],
                "place": layout_index,
                "first_task": layout.first_task(layout_index),
                "tasks": layout.tasks[layout_index],
                "task_gpus": message["task_gpus"] or self._plan.task_gpus,
            }
            if node_index:
                env, known_names = without_known(
                    step_message["env"],
                    self._known_env[node_index],
                    self._connection_key,
                )
                self._helpers[node_index].send(
                    {**step_message, "env": env, "same": known_names}
                )
            else:
                step.local = Tasks(step_message, self._own, self._send_to_srun)
                step.local.start()
        return number

    @property
    def _connection_key(self) -> bytes:
        return key_of(self._own["CORRAL_TOKEN"])

    def _is_host(self, name: str) -> bool:
        """Return whether the name is one of the job's host names. As a sort key it puts
        names of nodes before addresses."""
        return name in self._hosts

    def _send_to_srun(self, message: Message, data: bytes) -> None:
        """Send a task's output to the srun process of its step."""
        step = self._steps.get(message["step"])
        if step is not None:
            with suppress(OSError):
                step.srun.send(message, data)

    def _pass_on(self, number: int, message: Message, data: bytes) -> None:
        step = self._steps[number]
        for node_index in step.layout.nodes:
            if node_index and (frames := self._helpers.get(node_index)):
                frames.send({**message, "step": number}, data)
        if step.local is not None and message["type"] == "input":
            step.local.feed(data)
        elif step.local is not None and message["type"] == "signal":
            step.local.signal(int(message["number"]))

    def _end_step(self, number: int) -> None:
        """End the remaining tasks of a step whose srun has exited."""
        step = self._steps.pop(number, None)
        if step is None:
            return
        if step.local is not None:
            step.local.end()
        for node_index in step.layout.nodes:
            if node_index and (frames := self._helpers.get(node_index)):
                with suppress(OSError):
                    frames.send({"type": "end", "step": number})


def _node_name_tuples(asked: Message) -> dict[str, tuple[str, ...]]:
    return {name: tuple(asked.get(name, ())) for name in ("on", "off")}
