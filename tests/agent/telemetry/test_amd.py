"""AMD's GPUs, as a tree that the tests write shows them, and a library that they
write."""

from pathlib import Path

import pytest

from corral.agent.telemetry import amd
from corral.agent.telemetry.amd_smi import AmdSmi
from corral.domain.resources import Gpu
from corral.domain.telemetry import GpuProcess, GpuSample
from tests.agent.telemetry.test_machine import write

GPUS = tuple(
    Gpu(index=index, uuid=f"amd-n1-{index}", type="mi300x", memory_bytes=0)
    for index in range(2)
)
KFD = "sys/class/kfd/kfd/"
CARD = "sys/class/drm/renderD129/device/"
MACHINE_FILES = {
    KFD + "topology/nodes/0/properties": "cpu_cores_count 64\ndrm_render_minor 0\n",
    KFD + "topology/nodes/2/properties": "simd_count 304\ndrm_render_minor 128\n",
    KFD + "topology/nodes/2/gpu_id": "77\n",
    KFD + "topology/nodes/10/properties": "simd_count 304\ndrm_render_minor 129\n",
    KFD + "topology/nodes/10/gpu_id": "88\n",
    KFD + "proc/4711/vram_77": "5\n",
    KFD + "proc/4711/vram_88": "1000\n",
    KFD + "proc/4712/vram_88": "0\n",
    CARD + "gpu_busy_percent": "75\n",
    CARD + "mem_busy_percent": "20\n",
    CARD + "mem_info_vram_used": "4000\n",
    CARD + "mem_info_vram_total": "9000\n",
    CARD + "hwmon/hwmon3/power1_average": "500000000\n",
    CARD + "hwmon/hwmon3/power1_cap": "750000000\n",
    CARD + "hwmon/hwmon3/temp2_label": "junction\n",
    CARD + "hwmon/hwmon3/temp2_input": "61000\n",
    CARD + "hwmon/hwmon3/temp3_label": "mem\n",
    CARD + "hwmon/hwmon3/temp3_input": "55000\n",
    CARD + "hwmon/hwmon3/freq1_input": "2100000000\n",
    CARD + "ras/umc_err_count": "ue: 1\nce: 2\n",
    CARD + "ras/gfx_err_count": "ue: 0\nce: 3\n",
    CARD + "current_link_speed": "16.0 GT/s PCIe\n",
    CARD + "max_link_speed": "32.0 GT/s PCIe\n",
    CARD + "current_link_width": "8\n",
    CARD + "max_link_width": "16\n",
    CARD + "pcie_replay_count": "4\n",
}


def test_what_the_kernel_shows_of_a_gpu_is_in_the_sample_and_one_that_is_gone_is_lost(
    tmp_path: Path,
) -> None:
    write(tmp_path, MACHINE_FILES)
    first, second = amd.read(tmp_path, GPUS, AmdSmi("a_library_that_nobody_has"))
    assert first == GpuSample(index=0, uuid="amd-n1-0", type="mi300x", lost=True)
    assert second == GpuSample(
        index=1,
        uuid="amd-n1-1",
        type="mi300x",
        utilisation=0.75,
        memory_utilisation=0.2,
        memory_used_bytes=4000,
        memory_total_bytes=9000,
        power_watts=500.0,
        power_limit_watts=750.0,
        temperature_celsius=61.0,
        memory_temperature_celsius=55.0,
        sm_clock_mhz=2100,
        ecc_volatile_corrected=5,
        ecc_volatile_uncorrected=1,
        pcie_generation=4,
        pcie_width=8,
        pcie_generation_most=5,
        pcie_width_most=16,
        pcie_replays=4,
        processes=(GpuProcess(pid=4711, memory_bytes=1000),),
    )


LIBRARY = """
def amdsmi_init(): pass
def amdsmi_get_processor_handles(): return ["one", "two"]
def amdsmi_get_gpu_device_bdf(handle): return {"one": "0000:C1:00.0", "two": "0000:c2:00.0"}[handle]
def amdsmi_get_energy_count(handle):
    return {"energy_accumulator": 2_000_000, "counter_resolution": 15.0, "timestamp": 1}
def amdsmi_get_violation_status(handle):
    if handle == "two":
        raise RuntimeError("not supported")
    return {"active_ppt_pwr": "N/A", "active_hbm_thrm": True, "active_vr_thrm": False}
"""


def test_what_only_amds_library_says_is_in_the_sample_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fake_amdsmi.py").write_text(LIBRARY)
    monkeypatch.syspath_prepend(tmp_path)
    smi = AmdSmi("fake_amdsmi")
    assert smi.read("0000:c1:00.0") == (("hw_thermal_slowdown",), 30.0)
    assert smi.read("0000:c2:00.0") == ((), 30.0)
    assert smi.read("0000:c3:00.0") == ((), None)
    assert AmdSmi("a_library_that_nobody_has").read("0000:c1:00.0") == ((), None)
