"""The only process of a head that communicates with Ray: `python -m
corral.engines.ray.helper`.

Each line of JSON `{"id", "call", "args"}` on its input is answered by a line `{"id",
"found"}` or `{"id", "trouble"}` on its output, in the order in which the calls end. The
process ends when its input ends, even while a call to Ray has not been answered. This
keeps Ray's client, with its threads and its memory, out of the head.
"""

import base64
import json
import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any, Final

import ray
from ray.autoscaler._private.commands import request_resources
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.util.placement_group import (
    get_placement_group,
    placement_group,
    placement_group_table,
    remove_placement_group,
)
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from corral.engines.ray import start_options
from corral.engines.ray.actor import AgentActor

ANSWER_SECONDS: Final = 20
THREADS: Final = 16


class RayCalls:
    """The calls that the helper accepts, by name. Each is bounded in time; its
    exceptions are reported as trouble."""

    def __init__(self, address: str, namespace: str) -> None:
        self._address = address
        self._namespace = namespace
        self._prefix = start_options.hold_prefix(namespace)
        ray.init(
            address=address,
            namespace=namespace,
            log_to_driver=False,
            logging_level=logging.ERROR,
            configure_logging=False,
        )

    def look(self) -> dict[str, Any]:
        """Return the nodes in Ray's table, the resources in use on them, and the
        requests that wait for room."""
        status = get_cluster_status(self._address, ANSWER_SECONDS)
        living = [*status.active_nodes, *status.idle_nodes]
        used_by_node = {
            node.node_id: {
                resource_usage.resource_name: resource_usage.used
                for resource_usage in node.resource_usage.usage
            }
            for node in living
            if node.resource_usage is not None
        }
        nodes = ray.nodes()  # type: ignore[no-untyped-call]
        own_count = self._pending_gpu_count(
            {node["NodeID"] for node in nodes if node["Alive"]}
        )
        demands = status.resource_demands
        pending_bundles = [
            {
                "resources": dict(request_by_count.bundle),
                "count": request_by_count.count,
            }
            for demand in [
                *demands.ray_task_actor_demand,
                *demands.placement_group_demand,
            ]
            for request_by_count in demand.bundles_by_count
        ]
        return {
            "nodes": nodes,
            "used": used_by_node,
            "waiting": pending_bundles,
            "own": own_count,
        }

    def _pending_gpu_count(self, living: set[str]) -> int:
        """Return how many GPU reservations of Corral are pending in Ray. Those on a
        dead node would wait forever, so they are released. `living`: the ids of the
        living nodes."""
        names = [
            group["name"]
            for group in _placement_groups()
            if group["state"] in ("PENDING", "RESCHEDULING")
        ]
        own_names = [name for name in names if name.startswith(self._prefix)]
        dead = [name for name in own_names if start_options.held_on(name) not in living]
        for name in dead:
            self.let_go(name)
        return len(own_names)

    def outfit(
        self, name: str, ray_node: str, node: str, folder: str, files: Any
    ) -> Any:
        """Give these files (base64) to the node's actor, which is created if it does
        not exist."""
        actor = self._create_actor(name, ray_node, node, folder)
        decoded_files = {file: base64.b64decode(text) for file, text in files.items()}
        return _get_result(actor.outfit.remote(decoded_files))

    def look_at(self, name: str) -> Any:
        return _get_result(self._known(name).look.remote())

    def lives(self, name: str, folder: str) -> Any:
        """Return whether any process of the node with this folder lives, by asking an
        actor on the same machine."""
        return _get_result(self._known(name).lives.remote(folder))

    def end(self, name: str, kill: bool) -> None:
        """End the agent that the actor keeps running, then the actor for good; do
        nothing if there is no actor."""
        try:
            actor = self._known(name)
        except ValueError:
            return
        try:
            _get_result(actor.end.remote(kill))
        finally:
            ray.kill(actor, no_restart=True)

    def hold(self, name: str, ray_node: str) -> Any:
        """Reserve a GPU of the node in Ray's accounting and return its index on the
        node. The same name returns the same GPU. Raises: Exception if no GPU is free.
        """
        try:
            group = get_placement_group(name)
        except ValueError:
            group = placement_group(
                [{"GPU": 1}],
                bundle_label_selector=[{"ray.io/node-id": ray_node}],
                lifetime="detached",
                name=name,
            )
        if not group.wait(2.0):
            remove_placement_group(group)
            raise TimeoutError("no GPU is free on this node")
        strategy = PlacementGroupSchedulingStrategy(group)
        return _get_result(_gpu_indices.options(scheduling_strategy=strategy).remote())

    def let_go(self, name: str) -> None:
        try:
            remove_placement_group(get_placement_group(name))
        except ValueError:
            return

    def held(self) -> list[str]:
        """Return the names of the placement groups that exist."""
        return [
            group["name"]
            for group in _placement_groups()
            if group["state"] != "REMOVED"
        ]

    def ask_for(self, bundles: list[dict[str, float]]) -> None:
        """Let Ray's autoscaler start nodes that could hold all these bundles at once;
        an empty list withdraws the request."""
        request_resources(bundles=bundles)

    def _known(self, name: str) -> Any:
        return ray.get_actor(name, namespace=self._namespace)

    def _create_actor(self, name: str, ray_node: str, node: str, folder: str) -> Any:
        return (
            ray.remote(AgentActor)
            .options(
                name=name,
                lifetime="detached",
                get_if_exists=True,
                num_cpus=0,
                max_restarts=-1,
                max_concurrency=8,
                scheduling_strategy=NodeAffinitySchedulingStrategy(
                    ray_node, soft=False
                ),
            )
            .remote(node, folder)
        )


@ray.remote(num_gpus=1, num_cpus=0, max_retries=0)
def _gpu_indices() -> list[str]:
    return [str(get_gpu_id) for get_gpu_id in ray.get_gpu_ids()]


def _placement_groups() -> list[Any]:
    return list(placement_group_table().values())


def _get_result(reference: Any) -> Any:
    return ray.get(reference, timeout=ANSWER_SECONDS)


def _execute_call(
    helper: RayCalls, line: bytes, tell: Callable[[Mapping[str, Any]], None]
) -> None:
    call_request = json.loads(line)
    try:
        result = getattr(helper, call_request["call"])(**call_request["args"])
        tell({"id": call_request["id"], "found": result})
    except Exception as trouble:
        # whatever Ray raises is a fault of Ray, and reported as such
        message_lines = str(trouble).strip().splitlines() or [""]
        tell(
            {
                "id": call_request["id"],
                "trouble": f"{type(trouble).__name__}: {message_lines[0]}",
            }
        )


def main() -> None:
    output_pipe = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)  # what Ray prints is for the log
    lock = threading.Lock()

    def tell(answer: Mapping[str, Any]) -> None:
        with lock:
            output_pipe.write(json.dumps(answer).encode() + b"\n")

    lines: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_enqueue_lines, args=[lines], daemon=True).start()
    address, namespace = sys.argv[1:]
    helper = RayCalls(address, namespace)
    tell({"id": 0, "found": ray.__version__})
    with ThreadPoolExecutor(THREADS) as pool:
        while True:
            pool.submit(_execute_call, helper, lines.get(), tell)


def _enqueue_lines(lines: "SimpleQueue[bytes]") -> None:
    """Put the request lines from the input into the queue `lines`. The end of the input
    means that the caller has ended, so the process then exits."""
    for line in sys.stdin.buffer:
        lines.put(line)
    os._exit(0)  # a call that hangs in Ray would keep an ordinary exit waiting


if __name__ == "__main__":
    main()
