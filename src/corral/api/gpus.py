"""The route of the current state of all GPUs, for `corral top`."""

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Query, Response

from corral.api.job_visibility import HIDDEN, CallerView, sight_of
from corral.api.jobs import Asker, Within
from corral.domain.ids import NodeId
from corral.domain.node import Node
from corral.domain.telemetry import GpuSample, NodeSample
from corral.domain.world import World
from corral.insight.open_accounts import hourly_money
from corral.wire import gpus as answers

router = APIRouter()
NODES_AT_ONCE: Final = 100
Holders = Mapping[tuple[NodeId, int], str]


@router.get("/v1/gpus", response_model=answers.GpusNow)
async def gpus(
    house: Within, caller: Asker, nodes: Annotated[bool, Query()] = True
) -> Response:
    """Return the activity of every GPU, the job that holds it, and the hourly cost of
    all allocated resources. Nodes report every 10 s, so more frequent requests gain
    nothing. With `nodes=0`, return only the cost."""
    control = house.control
    money = hourly_money(control.world)
    holder_names = holders(control.world, sight_of(control, caller))
    rows = []
    listed_nodes = (
        sorted(control.world.nodes.values(), key=lambda one: one.id) if nodes else []
    )
    for number, node in enumerate(listed_nodes):
        rows.append(row(node, control.sensed.newest.get(node.id), holder_names))
        if number % NODES_AT_ONCE == 0:
            await asyncio.sleep(0)  # let the loop process agents' messages
    body = {
        "cost_per_hour": round(money.own, 4),
        "currency": control.world.queues.currency,
        "list_cost_per_hour": round(money.listed, 4),
        "unpriced_gpus": money.unpriced_gpus,
        "nodes": rows,
    }
    return Response(msgspec.json.encode(body), media_type="application/json")


def holders(world: World, sight: CallerView) -> Holders:
    """Return, for each (node, GPU index), the ids of the jobs that hold the GPU, joined
    by commas. The id of a job that the caller may not see is replaced by HIDDEN."""
    names: dict[tuple[NodeId, int], str] = {}
    for allocation in world.allocations.values():
        job = allocation.job if sight.id(allocation.job) else HIDDEN
        for index in allocation.seat.gpus:
            key = (allocation.seat.node, index)
            names[key] = f"{names[key]},{job}" if key in names else job
    return names


def row(node: Node, sample: NodeSample | None, held: Holders) -> dict[str, Any]:
    """Return a `wire.gpus.GpusOfNode` for the node as a plain dictionary for JSON. With
    8,000 GPUs, an object for each GPU would be slow. `held` is the result of `holders`.
    """
    sample_by_index = {gpu.index: gpu for gpu in sample.gpus} if sample else {}
    node_gpus = node.inventory.gpus
    readings = [sample_by_index.get(gpu.index) for gpu in node_gpus]
    return {
        "node": node.id,
        "at": sample.at if sample else None,
        "index": [gpu.index for gpu in node_gpus],
        "utilisation": [
            _round_optional(reading.utilisation, 3) if reading else None
            for reading in readings
        ],
        "memory": [_memory_share(reading) if reading else None for reading in readings],
        "power_watts": [
            _round_optional(reading.power_watts, 1) if reading else None
            for reading in readings
        ],
        "temperature_celsius": [
            _round_optional(reading.temperature_celsius, 1) if reading else None
            for reading in readings
        ],
        "holders": [held.get((node.id, gpu.index), "") for gpu in node_gpus],
        "signs": [
            _gpu_condition(reading, taken=gpu.taken)
            for reading, gpu in zip(readings, node_gpus, strict=True)
        ],
        "pretend": node.inventory.pretend,
    }


def _round_optional(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _memory_share(gpu: GpuSample) -> float | None:
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return None
    return round(gpu.memory_used_bytes / gpu.memory_total_bytes, 3)


def _gpu_condition(gpu: GpuSample | None, *, taken: bool) -> str:
    if gpu is not None and (gpu.lost or gpu.silent):
        return "lost" if gpu.lost else "silent"
    return "taken" if taken else ""
