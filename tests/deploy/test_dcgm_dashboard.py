"""NVIDIA's public dashboard for DCGM (Grafana 12239): each of its panels has data.

The queries name the same series and labels as that dashboard does, in a form of our
own.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest

from corral.api.metrics.devices import gpu_families
from corral.domain.ids import NodeId
from corral.domain.telemetry import GpuSample, NodeSample
from tests.deploy.promtool import run_tests, series
from tests.worlds import Cluster, node

MIG = "Hostname, gpu, GPU_I_ID, GPU_I_PROFILE"
PANELS = {
    "temperature": "max by (Hostname, gpu, uuid) (DCGM_FI_DEV_GPU_TEMP{SELECTED})",
    "mean temperature": "avg(DCGM_FI_DEV_GPU_TEMP{SELECTED})",
    "power": "max by (Hostname, gpu, uuid) (DCGM_FI_DEV_POWER_USAGE{SELECTED})",
    "power of all": "sum(max by (gpu) (DCGM_FI_DEV_POWER_USAGE{SELECTED}))",
    "clocks": "max by (Hostname, UUID, gpu) (DCGM_FI_DEV_SM_CLOCK{SELECTED} * 1000000)",
    "utilisation": f"max by ({MIG}) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{{SELECTED}})",
    "tensor cores": f"max by ({MIG}) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{SELECTED}})",
    "memory": f"max by ({MIG}) (DCGM_FI_DEV_FB_USED{{SELECTED}})",
}
VARIABLES = (
    "count by (Hostname) (DCGM_FI_DEV_FB_FREE)",
    "count by (gpu) (DCGM_FI_DEV_FB_FREE)",
)
HOPPER = GpuSample(
    index=0, uuid="GPU-0", type="h100", utilisation=0.9, graphics_active=0.8, tensor_active=0.4,
    memory_used_bytes=2**30, memory_total_bytes=2**33, power_watts=500.0,
    temperature_celsius=60, sm_clock_mhz=1980,
)  # fmt: skip


def exported(*gpus: GpuSample) -> list[dict[str, str]]:
    """Return the series of these GPUs as /metrics writes them."""
    cluster, n1 = Cluster(node("n1")), NodeId("n1")
    text = "".join(
        gpu_families(cluster.world, {n1: NodeSample(at=1.0, gpus=gpus)}, counters=True)
    )
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [series(*line.rsplit(" ", 1)) for line in lines]


def has_data(folder: Path, query: str, gpus: GpuSample) -> str:
    expression = query.replace("SELECTED", 'Hostname=~"n1", gpu=~"0"')
    test: dict[str, Any] = {
        "input_series": exported(gpus),
        "promql_expr_test": [
            {
                "expr": f"count({expression}) > bool 0",
                "eval_time": "0",
                "exp_samples": [{"labels": "{}", "value": 1}],
            }
        ],
    }
    return run_tests(folder, tests=[test])


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs promtool")
@pytest.mark.parametrize(
    "query", [*PANELS.values(), *VARIABLES], ids=[*PANELS, "node", "gpu"]
)
def test_each_panel_and_each_variable_has_data(tmp_path: Path, query: str) -> None:
    assert has_data(tmp_path, query, HOPPER) == ""
