"""Lines of the kernel's log, as drivers write them."""

import asyncio
import os
import tty
from pathlib import Path
from typing import Any

import pytest
import yaml

from corral.agent.telemetry.kernel_log import (
    Bus,
    KernelLog,
    bus_of,
    happening_of,
    record_of,
)
from corral.agent.telemetry.messages import Happening
from corral.domain.node_signal import SignalKind
from tests.patience import PATIENCE_SECONDS

Told = tuple[SignalKind, int | None, int | None, str, str]


def gpu_at(bus: Bus) -> int | None:
    return {(0, 0x3B, 0): 2, (1, 0xC1, 0): 5}.get(bus)


@pytest.mark.parametrize(
    ("line", "told"),
    [
        (
            "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, "
            "GPU has fallen off the bus.",
            (SignalKind.XID, 79, 2, "", ""),
        ),
        (
            "[ 12.3] NVRM: Xid (PCI:0001:c1:00): 154, GPU recovery action changed from 0x0 (None) "
            "to 0x1 (GPU Reset Required)",
            (SignalKind.XID, 154, 5, "", "GPU Reset"),
        ),
        ("NVRM: Xid (0000:3b:00): 43, Ch 00000010", (SignalKind.XID, 43, 2, "", "")),
        (
            "NVRM: Xid (PCI:0000:99:00): 31, x",
            (SignalKind.XID, 31, None, "0000:99:00", ""),
        ),
        (
            "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 28 LTSSM Fault Up",
            (SignalKind.SXID, 20034, None, "nvidia-nvswitch3", ""),
        ),
        (
            "EDAC MC1: 2 UE memory read error on CPU_SrcID#1_MC#0",
            (SignalKind.MEMORY, 1, None, "MC1", ""),
        ),
        (
            "EDAC MC0: 1 CE memory scrubbing error",
            (SignalKind.MEMORY, 0, None, "MC0", ""),
        ),
        (
            "Memory failure: 0x1a2b: recovery action",
            (SignalKind.MEMORY, 1, None, "", ""),
        ),
        (
            "blk_update_request: I/O error, dev nvme0n1, sector 123",
            (SignalKind.DISK_ERRORS, None, None, "nvme0n1", ""),
        ),
        (
            "EXT4-fs error (device sda1): ext4_lookup: deleted inode",
            (SignalKind.DISK_ERRORS, None, None, "sda1", ""),
        ),
        ("usb 1-1: new high-speed USB device", None),
        ("NVRM: loading NVIDIA UNIX x86_64 Kernel Module", None),
        ("EDAC MC: Ver: 3.0.0", None),
    ],
)
def test_a_line_of_a_fault_is_told_and_no_other(line: str, told: Told | None) -> None:
    found = happening_of(record_of(line), gpu_at, 1.0)
    seen = found and (found.kind, found.code, found.gpu, found.device, found.recovery)
    assert seen == told


@pytest.mark.parametrize(
    "line",
    [
        "overlayfs: failed to resolve 'NVRM: Xid (PCI:0000:3b:00): 79, pid=1, fallen': -2",
        "overlay: ./NVRM: Xid (PCI:0000:3b:00): 79, x",
        "audit: type=1400 comm='nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal'",
        "EDAC MC0: 1 UE [4242]: segfault at 0 ip 00007f sp 00007f error 4 in (a page:0x1[55+1000]",
        "XFS (sda1): [4242]: segfault at 0 ip 00007f in I/O error shut down[55e+1000]",
        "traps: NVRM[77] general protection fault ip:7f in NVRM: Xid (PCI:0000:3b:00): 79, x[0+1]",
        "FAT-fs (loop0): error, I/O error, dev sda, sector 1",
    ],
)
def test_text_that_a_user_has_put_into_a_line_reports_no_fault(line: str) -> None:
    assert happening_of(line, gpu_at, 1.0) is None
    assert happening_of(record_of(f"[ 12.3] {line}"), gpu_at, 1.0) is None


PLACES: dict[Bus, int] = {
    (0, 0x3B, 0): 2,
    (0, 0xDC, 0): 7,
    (0x18, 1, 0): 4,
    (0, 0x68, 0): 3,
}
LINES = yaml.safe_load(Path(__file__).with_name("kernel_lines.yaml").read_text())


@pytest.mark.parametrize("row", LINES, ids=lambda row: row["line"][:40])
def test_lines_of_real_kernels_are_told_or_left(row: dict[str, Any]) -> None:
    found = happening_of(record_of(row["line"]), PLACES.get, 1.0)
    seen = found and [found.kind, found.code, found.gpu, found.device, found.recovery]
    assert seen == row["tells"]


def test_the_drivers_words_are_told_without_the_process() -> None:
    line = "NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off."
    found = happening_of(line, gpu_at, 1.0)
    assert found is not None
    assert found.text == "GPU 2: XID 79: GPU has fallen off"


def test_a_place_on_the_bus_reads_as_nvml_and_linux_write_it() -> None:
    assert bus_of("00000000:3B:00.0") == bus_of("0000:3b:00") == (0, 0x3B, 0)
    assert bus_of("nonsense") is None


async def came(told: list[Happening], count: int) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while len(told) < count:
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.005)


async def test_records_of_the_kernel_are_told_from_their_number_on() -> None:
    told = list[Happening]()
    # a device as /dev/kmsg is one, which gives a record at a time
    kernel, log = os.openpty()
    tty.setraw(log)
    follows = KernelLog(Path(os.ttyname(log)), gpu_at, told.append)
    follows.follow(11)
    for number in (11, 12):
        text = f"NVRM: Xid (PCI:0000:3b:00): {number}, x"
        os.write(kernel, f"6,{number},123,-;{text}\n SUBSYSTEM=pci\n".encode())
        while number > 11 and follows.place != number:
            await asyncio.sleep(0.005)
        await asyncio.sleep(0.05)
    await came(told, 1)
    assert [one.code for one in told] == [12]


async def test_a_record_that_a_program_wrote_to_the_log_reports_no_fault() -> None:
    told = list[Happening]()
    kernel, log = os.openpty()
    tty.setraw(log)
    follows = KernelLog(Path(os.ttyname(log)), gpu_at, told.append)
    follows.follow(0)
    # 12 and 14 are of the facility "user"
    for number, priority in ((1, 12), (2, 14), (3, 4)):
        text = f"NVRM: Xid (PCI:0000:3b:00): {number}, x"
        os.write(kernel, f"{priority},{number},123,-;{text}\n".encode())
        while follows.place != number:
            await asyncio.sleep(0.005)
    await came(told, 1)
    assert [one.code for one in told] == [3]


async def test_a_log_is_read_on_from_where_it_was_read_to(tmp_path: Path) -> None:
    log, told = tmp_path / "kernel.log", list[Happening]()

    def say(*codes: int) -> None:
        with log.open("a") as opened:
            opened.writelines(
                f"NVRM: Xid (PCI:0000:3b:00): {code}, x\n" for code in codes
            )

    async def until(count: int) -> list[int | None]:
        await came(told, count)
        return [one.code for one in told]

    say(1)
    first = KernelLog(log, gpu_at, told.append)
    first.follow(None)
    while first.place is None:
        await asyncio.sleep(0.001)
    say(2, 3)
    assert await until(2) == [2, 3], "what was there before was another's"
    place, size = first.place, log.stat().st_size
    assert place == size
    log.unlink()
    say(4)
    assert await until(3) == [2, 3, 4], (
        "a log that is started again is read from its beginning"
    )
    second = KernelLog(log, gpu_at, told.append)
    second.follow(0)
    assert await until(4) == [2, 3, 4, 4]
