"""What a node's sensors say, as `corral node show` prints it."""

import json

import pytest

from corral.cli.main import run
from corral.domain.telemetry import (
    DiskSample,
    GpuSample,
    NodeSample,
    NvLink,
    PortSample,
)
from tests.api.heads import Agent

SAMPLE = NodeSample(
    at=1000.0,
    cpu_utilisation=0.25,
    memory_used_bytes=4_000_000_000,
    memory_total_bytes=16_000_000_000,
    pressure_cpu=0.5,
    pressure_memory=0.0,
    clock_offset_seconds=-0.25,
    gpus=(
        GpuSample(
            index=0,
            uuid="GPU-0",
            utilisation=0.97,
            memory_used_bytes=41_500_000_000,
            memory_total_bytes=85_900_000_000,
            power_watts=651.2,
            power_limit_watts=700.0,
            temperature_celsius=71.0,
        ),
        GpuSample(
            index=1,
            uuid="GPU-1",
            utilisation=0.0,
            ecc_volatile_uncorrected=2,
            remap_failed=True,
            nvlinks=(NvLink(link=3, up=False), NvLink(link=4, up=True)),
        ),
        GpuSample(index=2, uuid="GPU-2", lost=True),
        GpuSample(index=3, uuid="GPU-3", silent=True),
    ),
    ports=(
        PortSample(
            name="mlx5_0/1",
            kind="infiniband",
            up=True,
            bits_per_second=4e11,
            errors=3,
            downs=1,
        ),
    ),
    disks=(
        DiskSample(
            path="/data", total_bytes=10**12, free_bytes=25 * 10**10, read_only=True
        ),
        DiskSample(path="/nfs", silent=True),
    ),
    silent=("/nfs",),
)
SHOWN = """
GPU   USE              MEMORY         POWER  HEAT  ERRORS
  0  97 %  41.5 GB of 85.9 GB  651 of 700 W  71 C  none
  1   0 %                                          2 uncorrected ECC; \
row remap failed; NVLink 3 down
  2                                                lost
  3                                                its driver does not answer

machine's CPU     25 %
machine's memory  4 GB of 16 GB
pressure          CPU 50 %, memory 0 %
disk /data        250 GB of 1 TB free, read-only
disk /nfs         does not answer
port mlx5_0/1     infiniband, up, 400 Gbit/s, 3 errors, went down once
clock             250 ms behind the head's
no answer from    /nfs
"""


def test_a_node_is_shown_with_what_its_sensors_said_last(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["node", "show", agent.node]) == 0
    assert "HEAT" not in capsys.readouterr().out, "they have said nothing yet"
    agent.beat(sample=SAMPLE)
    assert run(["node", "show", agent.node]) == 0
    shown = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert shown[-len(SHOWN.splitlines()) :] == SHOWN.splitlines()
    assert run(["node", "show", agent.node, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["sample"]
    assert (told["at"], told["gpus"][1]["ecc_volatile_uncorrected"]) == (1000.0, 2)
    assert told["gpus"][1]["nvlinks"][0]["up"] is False
