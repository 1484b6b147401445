"""Recorder of time series. Values of nodes are recorded from their samples, all other
values every 10 s."""

import asyncio
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Final

from corral.control.control import Control
from corral.control.services.service_series import series_values
from corral.domain.ids import NodeId, QueueName
from corral.domain.job_states import JobState
from corral.domain.node import Liveness
from corral.domain.observed_state import Progress
from corral.domain.telemetry import GpuSample, NodeSample
from corral.domain.time_series import HIGH, LOW
from corral.domain.units import MILLIS_PER_GPU
from corral.domain.world import World
from corral.ports.series_store import SeriesStore

STEP_SECONDS: Final = 10.0
KEEP_SECONDS: Final = 60.0
CLUSTER: Final = "cluster"
MOST_FLOAT32: Final = 3.4e38
Values = dict[str, float | None]


class Recorder:
    """Writer of time series while one head leads."""

    def __init__(self, control: Control, series: SeriesStore) -> None:
        self._control = control
        self._series = series
        self._put_at: dict[NodeId, float] = {}
        control.sensed.listen(self.take)

    def take(self, node: NodeId, sample: NodeSample, at: float) -> None:
        """Record a sample of a node. For a node with several pilots, at most one sample
        in half a recording interval is kept."""
        if self._control.sensed.parts(node) > 1:
            last_put_at = self._put_at.get(node)
            if last_put_at is not None and 0 <= at - last_put_at < STEP_SECONDS / 2:
                return
            self._put_at[node] = at
        self._series.put(f"node:{node}", at, node_values(sample))

    async def run(self) -> None:
        """Record values forever. When the loop ends, write down what is not yet
        written."""
        kept_at = float("-inf")
        try:
            while True:
                await asyncio.sleep(STEP_SECONDS)
                now = self._control.now()
                self._look(now.wall)
                if now.serving - kept_at >= KEEP_SECONDS:
                    kept_at = now.serving
                    await self._series.keep(now.wall)
        finally:
            await self._series.close()

    def _look(self, at: float) -> None:
        world = self._control.world
        self._series.put(
            CLUSTER, at, cluster_values(world, self._control.sensed.newest)
        )
        for queue, values in queue_values(world).items():
            self._series.put(f"queue:{queue}", at, values)
        now = self._control.serving_seconds()
        for service in world.services.values():
            rates = self._control.traffic.service_rates(service.name, now)
            self._series.put(
                f"service:{service.name}", at, series_values(service, rates)
            )
        for job in world.in_state(JobState.RUNNING).values():
            progress = self._control.progress(job)
            if progress is not None:
                row: Values = {
                    "step": progress.step,
                    "loss": progress.loss,
                    "samples_per_second": progress.samples_per_second,
                    "data_seconds": progress.data_seconds,
                    "compute_seconds": progress.compute_seconds,
                    "save_seconds": progress.save_seconds,
                }
                self._series.put(f"job:{job.id}", at, scalar_values(progress) | row)


def scalar_values(progress: Progress) -> Values:
    """Return each logged scalar by its name, with its least and greatest value since
    the last report."""
    values: Values = {}
    for name, value, least_value, greatest_value in progress.scalars:
        values |= {
            name: value,
            f"{name}{LOW}": least_value,
            f"{name}{HIGH}": greatest_value,
        }
    return {name: _float32_or_none(value) for name, value in values.items()}


def _float32_or_none(value: float | None) -> float | None:
    """Return None for a value that a 32-bit float cannot hold, because the time series
    are stored as such floats."""
    return value if value is not None and abs(value) < MOST_FLOAT32 else None


def node_values(sample: NodeSample) -> Values:
    """Return the values of a node by field name: shares from 0 to 1, watts and degrees
    Celsius. The field names of GPU 3 begin with "gpu3."."""
    values: Values = {
        "cpu": sample.cpu_utilisation,
        "memory": _used_share(sample.memory_used_bytes, sample.memory_total_bytes),
        "pressure_io": sample.pressure_io,
        "received_bytes": sum(port.received_bytes for port in sample.ports),
        "sent_bytes": sum(port.sent_bytes for port in sample.ports),
    }
    for gpu in sample.gpus:
        values.update(zip(_names_of_gpu(gpu.index), _of_gpu(gpu), strict=True))
    return values


@cache
def _names_of_gpu(index: int) -> tuple[str, ...]:
    metric_names = (
        "utilisation",
        "memory",
        "power_watts",
        "temperature_celsius",
        "sm_clock_mhz",
    )
    return tuple(f"gpu{index}.{metric}" for metric in metric_names)


def _of_gpu(gpu: GpuSample) -> tuple[float | None, ...]:
    """Return the values of a GPU in the order of the field names."""
    return (
        gpu.utilisation,
        _used_share(gpu.memory_used_bytes, gpu.memory_total_bytes),
        gpu.power_watts,
        gpu.temperature_celsius,
        gpu.sm_clock_mhz,
    )


def _used_share(used: int | None, total: int | None) -> float | None:
    return used / total if used is not None and total else None


def cluster_values(world: World, newest: Mapping[NodeId, NodeSample]) -> Values:
    """Return the number of GPUs in the cluster, the number of allocated GPUs, and the
    average utilisation of the allocated ones. `newest` is the newest sample of each
    node."""
    alive = {id for id, node in world.nodes.items() if node.liveness == Liveness.ALIVE}
    taken_gpus = {
        (allocation.seat.node, gpu_index)
        for allocation in world.allocations.values()
        for gpu_index in allocation.seat.gpus
    }
    busy, watts = [], 0.0
    for id in alive & newest.keys():
        for gpu in newest[id].gpus:
            watts += gpu.power_watts or 0.0
            if (id, gpu.index) in taken_gpus and gpu.utilisation is not None:
                busy.append(gpu.utilisation)
    return {
        "nodes": len(alive),
        "gpus": sum(len(world.nodes[id].inventory.gpus) for id in alive),
        "held_gpus": sum(
            allocation.seat.gpu_millis for allocation in world.allocations.values()
        )
        / MILLIS_PER_GPU,
        "utilisation": sum(busy) / len(busy) if busy else None,
        "power_watts": watts if newest else None,
        "queued": len(world.in_state(JobState.QUEUED)),
        "running": len(world.in_state(JobState.RUNNING)),
    }


def queue_values(world: World) -> Mapping[QueueName, Values]:
    """Return for each queue the GPUs that its jobs hold and the number of its waiting
    jobs. Jobs of queues below it are not counted."""
    held_counts: Counter[QueueName] = Counter()
    for allocation in world.allocations.values():
        job = world.jobs.get(allocation.job)
        if job is not None:
            held_counts[job.spec.queue] += allocation.seat.gpu_millis
    queued_counts = Counter(
        job.spec.queue for job in world.in_state(JobState.QUEUED).values()
    )
    return {
        name: {
            "held_gpus": held_counts[name] / MILLIS_PER_GPU,
            "queued": queued_counts[name],
        }
        for name in {*world.queues.by_name, *held_counts, *queued_counts}
    }
