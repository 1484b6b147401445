"""The route of all GPUs as they are now, for `corral top`."""

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
async def gpus(house: Within, caller: Asker, nodes: Annotated[bool, Query()] = True) -> Response:
    """Return what every GPU does, which job holds it, and the hourly cost of all that is allocated.
    Nodes report every 10 s, so asking more often gains nothing. With `nodes=0` only the cost."""
    control = house.control
    money = hourly_money(control.world)
    held = holders(control.world, sight_of(control, caller))
    rows = []
    shown = sorted(control.world.nodes.values(), key=lambda one: one.id) if nodes else []
    for number, node in enumerate(shown):
        rows.append(row(node, control.sensed.newest.get(node.id), held))
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
    """Ids of the jobs that hold each GPU, joined by commas; each hidden one as the same word."""
    found: dict[tuple[NodeId, int], str] = {}
    for one in world.allocations.values():
        job = one.job if sight.id(one.job) else HIDDEN
        for index in one.seat.gpus:
            key = (one.seat.node, index)
            found[key] = f"{found[key]},{job}" if key in found else job
    return found


def row(node: Node, sample: NodeSample | None, held: Holders) -> dict[str, Any]:
    """A `wire.gpus.GpusOfNode` as JSON takes it: 8,000 GPUs are made into no further objects."""
    said = {gpu.index: gpu for gpu in sample.gpus} if sample else {}
    there = node.inventory.gpus
    seen = [said.get(gpu.index) for gpu in there]
    return {
        "node": node.id,
        "at": sample.at if sample else None,
        "index": [gpu.index for gpu in there],
        "utilisation": [_rounded(one.utilisation, 3) if one else None for one in seen],
        "memory": [_memory(one) if one else None for one in seen],
        "power_watts": [_rounded(one.power_watts, 1) if one else None for one in seen],
        "temperature_celsius": [_rounded(one.temperature_celsius, 1) if one else None
                                for one in seen],
        "holders": [held.get((node.id, gpu.index), "") for gpu in there],
        "signs": [_sign(one, taken=gpu.taken) for one, gpu in zip(seen, there, strict=True)],
        "pretend": node.inventory.pretend,
    }  # fmt: skip


def _rounded(value: float | None, digits: int) -> float | None:
    return None if value is None else round(value, digits)


def _memory(gpu: GpuSample) -> float | None:
    if gpu.memory_used_bytes is None or not gpu.memory_total_bytes:
        return None
    return round(gpu.memory_used_bytes / gpu.memory_total_bytes, 3)


def _sign(gpu: GpuSample | None, *, taken: bool) -> str:
    if gpu is not None and (gpu.lost or gpu.silent):
        return "lost" if gpu.lost else "silent"
    return "taken" if taken else ""
