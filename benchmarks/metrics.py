"""How long the head takes to answer /metrics for 8,000 GPUs.

    python benchmarks/metrics.py [--nodes 1000]

One real head over loopback HTTP. The peer is prometheus-client itself with the same series.
"""

import argparse
import json
import statistics
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.registry import Collector

from corral.api.metrics.devices import GPUS
from corral.domain.ids import NodeId
from corral.domain.node import Liveness
from corral.domain.telemetry import GpuSample, NodeSample, NvLink
from tests.api.heads import Head, serving
from tests.worlds import node

RUNS = 5


def sample_of(number: int) -> NodeSample:
    gpu = GpuSample(
        index=0, uuid="", type="h100", utilisation=0.93, memory_utilisation=0.41,
        memory_used_bytes=70 * 2**30, memory_total_bytes=80 * 2**30, power_watts=612.5,
        power_limit_watts=700.0, energy_joules=1e9, temperature_celsius=61.0,
        memory_temperature_celsius=70.0, sm_clock_mhz=1980, memory_clock_mhz=2619,
        ecc_volatile_corrected=0, ecc_volatile_uncorrected=0, ecc_aggregate_corrected=0,
        ecc_aggregate_uncorrected=0, remapped_corrected=0, remapped_uncorrected=0,
        remap_pending=False, remap_failed=False, pcie_generation=5, pcie_width=16,
        pcie_replays=0, pcie_sent_bytes_per_second=1e9, pcie_received_bytes_per_second=1e9,
        nvlinks=tuple(NvLink(link=link, up=True) for link in range(18)),
    )  # fmt: skip
    gpus = tuple(
        replace(gpu, index=index, uuid=f"GPU-{number:08x}-0000-4000-8000-{index:012x}")
        for index in range(8)
    )
    return NodeSample(at=1.0, cpu_utilisation=0.3, memory_used_bytes=2**38, gpus=gpus)


def fill(head: Head, nodes: int) -> None:
    """As if so many nodes had spoken."""
    control = head.control
    for number in range(nodes):
        id = f"node-{number:04d}"
        one = node(id, gpus=8)
        control.world.nodes[NodeId(id)] = replace(one, liveness=Liveness.ALIVE)
        control.sensed.newest[NodeId(id)] = sample_of(number)


class Peer(Collector):
    """The same series by the library that most exporters use."""

    def __init__(self, samples: dict[NodeId, NodeSample]) -> None:
        self.samples = samples

    def collect(self) -> list[Metric]:
        labels = (
            "gpu",
            "UUID",
            "device",
            "modelName",
            "Hostname",
            "job",
            "user",
            "queue",
        )
        found: list[Metric] = []
        for series in GPUS:
            family = GaugeMetricFamily(series.name, series.help, labels=labels)
            for id, sample in self.samples.items():
                for gpu in sample.gpus:
                    value = series.of(gpu)
                    if value is not None:
                        who = (
                            str(gpu.index),
                            gpu.uuid,
                            f"nvidia{gpu.index}",
                            gpu.type,
                            str(id),
                        )
                        family.add_metric((*who, "", "", ""), float(value))
            found.append(family)
        return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=1000)
    nodes = parser.parse_args().nodes
    took, size, series = [], 0, 0
    with tempfile.TemporaryDirectory() as folder, serving(Path(folder)) as head:
        fill(head, nodes)
        with head.http("vera") as http:
            for _ in range(RUNS):
                before = time.perf_counter()
                text = http.get("/metrics", timeout=60).content
                took.append(time.perf_counter() - before)
                size, series = len(text), text.count(b"\n")
        registry = CollectorRegistry(auto_describe=False)
        registry.register(Peer(dict(head.control.sensed.newest)))
        before = time.perf_counter()
        generate_latest(registry)
        peer = time.perf_counter() - before
    print(
        json.dumps(
            {
                "gpus": nodes * 8,
                "bytes": size,
                "lines": series,
                "seconds_median": round(statistics.median(took), 3),
                "seconds_max": round(max(took), 3),
                "prometheus_client_seconds": round(peer, 3),
                "ratio": round(statistics.median(took) / peer, 3),
            }
        )
    )


if __name__ == "__main__":
    main()
