"""GPUs are found through the driver's library, and one that hangs costs no more than
its answer."""

import asyncio
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from corral.agent.discovery.client import Probe
from corral.agent.discovery.helper import (
    amd_gpus,
    mark_of,
    numa_of,
    pretend_gpus,
    survey,
)
from corral.agent.mig import read_parts
from corral.agent.port_range import PORTS, PortBlock
from corral.domain.gpu_types import short_type
from corral.domain.ids import NodeId
from corral.domain.resources import Inventory
from corral.wire.node import Isolation, NodeSettings, encode_settings
from tests.patience import PATIENCE_SECONDS

FAKE_NVML = r"""
#include <string.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
typedef struct { unsigned long long total, free, used; } memory_t;
static int hangs(const char *call) {
    const char *named = getenv("FAKE_NVML_HANGS");
    if (named && !strcmp(named, call)) for (;;) pause();
    return 0;
}
int nvmlInitWithFlags(unsigned flags) { return hangs("init"); }
int nvmlInit_v2(void) { return hangs("init"); }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 8; return hangs("count"); }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(unsigned long)(index + 1);
    return index == 5 ? hangs("fifth") : 0;
}
int nvmlDeviceGetUUID(void *device, char *text, unsigned length) {
    snprintf(text, length, "GPU-%08lx-0000-0000-0000-000000000000", (unsigned long)device);
    return 0;
}
int nvmlDeviceGetName(void *device, char *text, unsigned length) {
    snprintf(text, length, "NVIDIA H100 80GB HBM3");
    return 0;
}
int nvmlDeviceGetMemoryInfo(void *device, memory_t *memory) {
    memory->total = 85520809984ULL;
    memory->free = memory->total;
    memory->used = 0;
    return 0;
}
int nvmlDeviceGetMigMode(void *device, unsigned *now, unsigned *later) {
    *now = *later = getenv("FAKE_NVML_MIG") && (unsigned long)device == 2;
    return 0;
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned *count) { *count = 7; return 0; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned index, void **part) {
    *part = (void *)(0x100 + (unsigned long)index);
    return index % 2 ? 6 : 0; /* NVML_ERROR_NOT_FOUND */
}
int nvmlDeviceGetMinorNumber(void *device, unsigned *minor) {
    *minor = (unsigned long)device - 1;
    return 0;
}
int nvmlDeviceGetGpuInstanceId(void *part, unsigned *id) {
    *id = (unsigned long)part - 0x100 + 7;
    return 0;
}
int nvmlDeviceGetComputeInstanceId(void *part, unsigned *id) { *id = 0; return 0; }
const char *nvmlErrorString(int result) { return "fake"; }
"""


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a library that says that there are eight H100."""
    if shutil.which("gcc") is None:
        pytest.skip("no compiler for the fake driver library")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(FAKE_NVML)
    output = ["-Wl,-soname,libnvidia-ml.so.1", "-o", "libnvidia-ml.so.1"]
    subprocess.run(
        ["gcc", "-shared", "-fPIC", *output, "nvml.c"], cwd=folder, check=True
    )
    return folder


def look(
    node_dir: Path,
    settings: NodeSettings,
    seconds: float = PATIENCE_SECONDS,
    **env: str,
) -> Inventory:
    """What the probe finds, asked with these variables in the helper's environment."""
    node_dir.mkdir(exist_ok=True)
    (node_dir / "node.json").write_bytes(encode_settings(settings))
    (node_dir / "node.json").chmod(0o600)
    words = [sys.executable, "-m", "corral.agent.discovery.helper"]
    variables = [f"{name}={value}" for name, value in env.items()]

    async def ask() -> Inventory:
        ports = PortBlock(node_dir / "ports", settings.index)
        probe = Probe(
            node_dir=node_dir,
            settings=settings,
            containment="cgroup",
            ports=ports,
            deadline_seconds=seconds,
            command=("/usr/bin/env", *variables, *words),
        )
        try:
            return await probe.look(None)
        finally:
            ports.close()

    return asyncio.run(ask())


def settings_of(tmp_path: Path, **more: object) -> NodeSettings:
    values = {"node": NodeId("n1"), "head_file": str(tmp_path / "head.json"), **more}
    return NodeSettings(**values)  # type: ignore[arg-type]


def test_eight_h100_are_found_with_their_uuid_and_memory(
    tmp_path: Path, nvml: Path
) -> None:
    found = look(tmp_path / "n1", settings_of(tmp_path), LD_LIBRARY_PATH=str(nvml))
    assert [gpu.type for gpu in found.gpus] == ["h100"] * 8
    assert [gpu.index for gpu in found.gpus] == list(range(8))
    assert len({gpu.uuid for gpu in found.gpus}) == 8
    assert found.gpus[0].memory_bytes == 85520809984
    assert not any(gpu.pretend for gpu in found.gpus)


def test_a_gpu_that_is_cut_is_found_with_the_names_of_its_parts(
    tmp_path: Path, nvml: Path
) -> None:
    library = str(nvml)
    found = look(
        tmp_path / "n1",
        settings_of(tmp_path),
        LD_LIBRARY_PATH=library,
        FAKE_NVML_MIG="1",
    )
    cut = [gpu for gpu in found.gpus if gpu.slices]
    assert [gpu.index for gpu in cut] == [1]
    assert [name[:12] for name in cut[0].slices] == [
        f"GPU-0000010{at}" for at in (0, 2, 4, 6)
    ]
    assert found.gpu_slices == 4
    parts = read_parts(tmp_path / "n1")
    assert set(parts) == set(cut[0].slices)
    assert [(one.gpu, one.gpu_instance, one.compute_instance) for one in parts.values()] == [
        (1, 7, 0), (1, 9, 0), (1, 11, 0), (1, 13, 0)
    ]  # fmt: skip
    look(tmp_path / "n1", settings_of(tmp_path), LD_LIBRARY_PATH=library)
    assert read_parts(tmp_path / "n1") == {}, "it is cut no more"


def test_a_node_takes_only_its_own_gpus_of_the_machine(
    tmp_path: Path, nvml: Path
) -> None:
    settings = settings_of(tmp_path, real_gpus=(4, 5, 9))
    found = look(tmp_path / "n1", settings, LD_LIBRARY_PATH=str(nvml))
    assert [(gpu.index, gpu.uuid[:12]) for gpu in found.gpus] == [
        (0, "GPU-00000005"),
        (1, "GPU-00000006"),
    ]


def test_amds_gpus_are_those_that_the_lender_has_detected(
    tmp_path: Path, nvml: Path
) -> None:
    settings = settings_of(tmp_path, amd_gpus=2, gpu_type="mi300x")
    found = look(tmp_path / "n1", settings, LD_LIBRARY_PATH=str(nvml))
    assert [(gpu.index, gpu.type, gpu.pretend) for gpu in found.gpus] == [
        (0, "mi300x", False),
        (1, "mi300x", False),
    ]
    assert len({gpu.uuid for gpu in found.gpus}) == 2


def test_the_memory_of_amds_gpus_is_what_the_kernel_says_in_the_order_of_their_indices(
    tmp_path: Path,
) -> None:
    for number, simds, sizes in (
        (0, 0, [2**38]),
        (2, 1216, [2**37]),
        (10, 1216, [2**36, 2**35]),
    ):
        node = tmp_path / str(number)
        for bank, size in enumerate(sizes):
            (node / "mem_banks" / str(bank)).mkdir(parents=True)
            text = f"heap_type 1\nsize_in_bytes {size}\nflags 0\n"
            (node / "mem_banks" / str(bank) / "properties").write_text(text)
        (node / "properties").write_text(f"cpu_cores_count 0\nsimd_count {simds}\n")
    settings = settings_of(tmp_path, amd_gpus=3, gpu_type="mi300x")
    found = amd_gpus(settings, topology=tmp_path)
    assert [gpu.memory_bytes for gpu in found] == [2**37, 2**36 + 2**35, 0]
    assert [
        gpu.memory_bytes for gpu in amd_gpus(settings, topology=tmp_path / "none")
    ] == [0] * 3


def test_without_a_driver_there_are_no_gpus_and_all_else_is_there(
    tmp_path: Path,
) -> None:
    found = look(tmp_path / "n1", settings_of(tmp_path))
    if not found.gpus:  # a machine with GPUs runs this test too
        assert found.cpu_millis >= 1000
    assert found.memory_bytes > 0
    assert len(found.ports) == PORTS


@pytest.mark.parametrize("call", ["init", "count", "fifth"])
def test_a_driver_that_hangs_does_not_hold_up_the_rest(
    call: str, tmp_path: Path, nvml: Path
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    settings = settings_of(tmp_path, shared=(str(shared),))
    found = look(
        tmp_path / "n1",
        settings,
        seconds=2.0,
        LD_LIBRARY_PATH=str(nvml),
        FAKE_NVML_HANGS=call,
    )
    assert found.gpus == ()
    assert [path for path, _ in found.shared] == [str(shared)]


def test_gpus_known_before_the_driver_hung_stay_known(
    tmp_path: Path, nvml: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_of(tmp_path)
    flag = tmp_path / "flag"
    script = tmp_path / "helper"
    script.write_text(
        f"#!/bin/sh\nif [ -e {flag} ]; then exec sleep 600; fi\ntouch {flag}\n"
        f"LD_LIBRARY_PATH={nvml} exec {sys.executable} -m corral.agent.discovery.helper $*\n"
    )
    script.chmod(0o755)
    (tmp_path / "node.json").write_bytes(encode_settings(settings))
    (tmp_path / "node.json").chmod(0o600)

    monkeypatch.setattr("corral.agent.discovery.client.START_SECONDS", 0.1)

    async def ask() -> tuple[Inventory, Inventory]:
        probe = Probe(
            node_dir=tmp_path,
            settings=settings,
            containment="cgroup",
            ports=PortBlock(tmp_path / "ports"),
            command=(str(script),),
            deadline_seconds=PATIENCE_SECONDS,
        )
        first = await probe.look(None)
        probe.deadline_seconds = 0.1
        second = await probe.look(None)
        probe.ports.close()
        return first, second

    first, second = asyncio.run(ask())
    assert len(first.gpus) == 8
    assert second == first


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla T4", "t4"),
        ("NVIDIA B200", "b200"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA GeForce RTX 4070 Ti SUPER", "rtx4070tisuper"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx6000ada"),
        ("Quadro RTX 8000", "rtx8000"),
        ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtxpro6000"),
        ("NVIDIA Graphics Device", "gpu"),
    ],
)
def test_a_type_is_what_people_ask_for(name: str, short: str) -> None:
    assert short_type(name) == short


def test_pretend_gpus_are_told_apart_by_node_and_index(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, pretend_gpus=2, gpu_type="a100")
    gpus = pretend_gpus(settings)
    assert [gpu.uuid for gpu in gpus] == ["pretend-n1-0", "pretend-n1-1"]
    assert {gpu.type for gpu in gpus} == {"a100"}
    assert gpus[0].memory_bytes == 80 * 1024**3
    assert all(gpu.pretend for gpu in gpus)


def test_pretend_gpus_are_cut_into_as_many_parts_as_was_asked_for(
    tmp_path: Path,
) -> None:
    gpus = pretend_gpus(settings_of(tmp_path, pretend_gpus=2, gpu_slices=7))
    names = [name for gpu in gpus for name in gpu.slices]
    assert (len(names), len(set(names)), names[0]) == (14, 14, "MIG-pretend-n1-0-0")


def test_two_nodes_read_the_same_mark_in_a_folder_that_they_share(
    tmp_path: Path,
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    first, second = mark_of(str(tmp_path), None), mark_of(str(tmp_path), None)
    assert first == second
    assert len(first) == 32
    assert mark_of(str(other), None) != first


def test_nodes_of_one_machine_read_one_mark_of_a_path_and_leave_nothing_in_it(
    tmp_path: Path,
) -> None:
    cluster, other, home = (tmp_path / name for name in ("shared", "other", "home"))
    for folder in (cluster, other, home):
        folder.mkdir()

    def mark(of: Path, isolation: Isolation = "hide") -> dict[str, str]:
        own = settings_of(
            tmp_path,
            pretend_gpus=0,
            shared=(str(of),),
            common=(str(home),),
            isolation=isolation,
        )
        return dict(survey(own, PATIENCE_SECONDS, None).shared)

    assert mark(cluster)[str(home)] == mark(cluster)[str(home)]
    assert mark(cluster)[str(home)] != mark(other)[str(home)]
    assert list(home.iterdir()) == []
    assert str(home) not in mark(cluster, "disk")


def test_a_shared_path_that_is_not_there_is_not_proven(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, pretend_gpus=0, shared=(str(tmp_path / "gone"),))
    assert look(tmp_path / "n1", settings).shared == ()


def test_a_mark_of_which_nothing_was_written_proves_nothing(tmp_path: Path) -> None:
    (tmp_path / ".corral-shared").touch()
    with pytest.raises(OSError, match="is incomplete; run: rm"):
        mark_of(str(tmp_path), None)


def test_nodes_of_one_machine_offer_different_ports(tmp_path: Path) -> None:
    blocks = [PortBlock(tmp_path / f"ports{index}", 0) for index in range(3)]
    offers = [set(block.free()) for block in blocks]
    for block in blocks:
        block.close()
    assert [len(offer) for offer in offers] == [PORTS] * 3
    assert len(set.union(*offers)) == 3 * PORTS


def test_a_new_agent_of_a_node_keeps_its_ports(tmp_path: Path) -> None:
    far_from_others = 60 + os.getpid() % 100
    first = PortBlock(tmp_path / "ports", far_from_others)
    offered = first.free()
    first.close()
    again = PortBlock(tmp_path / "ports", far_from_others + 2)
    assert again.free() == offered
    again.close()


def test_a_port_that_a_stranger_took_is_replaced_and_one_of_our_own_is_kept(
    tmp_path: Path,
) -> None:
    block = PortBlock(tmp_path / "ports")
    before = block.free()
    with socket.create_server(("127.0.0.1", before[0])):
        assert before[0] not in block.free()
        assert len(block.free()) == PORTS
        assert before[0] in block.free(held=[before[0]])
    block.close()


def test_ports_lie_outside_those_of_outgoing_connections(tmp_path: Path) -> None:
    low, high = map(
        int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()
    )
    block = PortBlock(tmp_path / "ports")
    assert not any(low <= port <= high for port in block.ports)
    block.close()


def test_eight_pretend_gpus_are_on_two_sockets(tmp_path: Path) -> None:
    few = pretend_gpus(settings_of(tmp_path, pretend_gpus=4))
    many = pretend_gpus(settings_of(tmp_path, pretend_gpus=8))
    assert {gpu.numa for gpu in few} == {0}
    assert [gpu.numa for gpu in many] == [0, 0, 0, 0, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("bus_id", "numa"),
    [
        ("00000000:17:00.0", 1),
        ("00010000:01:00.0", 2),
        ("00000000:AB:00.0", 0),  # the kernel says -1: there is one NUMA node
        ("00000000:FF:00.0", 0),  # it says nothing
        ("", 0),
    ],
)
def test_the_numa_node_of_a_gpu_is_that_of_its_place_on_the_bus(
    tmp_path: Path, bus_id: str, numa: int
) -> None:
    for name, told in (
        ("0000:17:00.0", "1"),
        ("10000:01:00.0", "2"),
        ("0000:ab:00.0", "-1"),
    ):
        (tmp_path / name).mkdir()
        (tmp_path / name / "numa_node").write_text(f"{told}\n")
    assert numa_of(bus_id, tmp_path) == numa
