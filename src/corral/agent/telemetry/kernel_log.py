"""Faults in the kernel's log: XIDs of GPUs, SXIDs of NVSwitches, memory and disks.

The log is /dev/kmsg, whose records are numbered, or a file that grows; reading
continues where an earlier reader stopped. Any user can make the kernel print text of
their choice inside a line (the name of a process, of a file, of an overlay's folder),
so a pattern counts only at the beginning of a record that the kernel itself wrote.
"""

import os
import re
import select
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from corral.agent.clocks import wall
from corral.agent.telemetry.messages import Happening
from corral.domain.node_signal import CORRECTED, FULL, UNCORRECTED, SignalKind

Bus = tuple[int, int, int]
LOOK_SECONDS: Final = 0.5  # between two looks at a file
RECORD_BYTES: Final = 8192  # the longest of /dev/kmsg
CHUNK_BYTES: Final = 65536

NEEDS_CONFIRMATION: Final = frozenset({SignalKind.XID, SignalKind.SXID})
# the XID that the driver does not print where it never had the GPU
FELL_OFF_THE_BUS: Final = 79

# Sources: NVIDIA, "XID Errors" and "Fabric Manager user guide"; Linux, drivers/edac,
# block, nvme, ext4, xfs, amdgpu/amdgpu_ras.c, mm/oom_kill.c, mm/memory-failure.c,
# net/sunrpc; Lustre, ptlrpc.
_XID: Final = re.compile(
    r"NVRM: Xid \((?:PCI:)?([0-9a-fA-F:]+)[^)]*\): (\d{1,6})(?:, )?(.*)"
)
# its name is its user's choice
_OF_A_PROCESS: Final = re.compile(r".{0,15}\[\d+\][: ]")
_KERNEL_FACILITY: Final = 0  # a record that a program writes to /dev/kmsg has another
_PRIORITY_BITS: Final = 3
# What dmesg, journalctl and syslog put before a record in a file.
_BEFORE_RECORD: Final = re.compile(
    r"(?:kern *:\w+ *: (?=[\d\[]))?(?:\[[^\]]*\] |\d{4}-\d\d-\d\dT\S+ (?:\S+ kernel: )?"
    r"|[A-Z][a-z]{2} [ \d]\d [\d:]{8} \S+ kernel: (?:\[[^\]]*\] )?)?"
)
_PROCESS: Final = re.compile(r"^(?:pid=[^,]*(?:, |$))?(?:name=[^,]*(?:, |$))?")
_SXID: Final = re.compile(
    r"(nvidia-nvswitch\d{1,6}): SXid \([^)]*\): (\d{1,6})(?:, )?(.*)"
)
_RECOVERY: Final = re.compile(
    r"recovery action changed from .* to 0x[0-9a-f]+ \(([^)]+)\)", re.I
)
_LOST: Final = re.compile(
    r"NVRM: (?:The NVIDIA )?GPU ([0-9a-fA-F:]+)\.\d.*fallen off the bus", re.DOTALL
)
_AMD: Final = re.compile(
    r"amdgpu ([0-9a-f:]+)\.\d:.*?(?:[1-9]\d* (?:new )?(un)?correctable hardware errors|"
    r"(un)correctable hardware error\(ERREVENT)(.*)"
)
_EDAC: Final = re.compile(r"EDAC (MC\d{1,6}): (?:(\d{1,9}) )?([CU])E (.*)")
_MEMORY: Final = re.compile(r"Memory failure: 0x[0-9a-f]+: (.*)")
_FULL: Final = re.compile(
    r"Out of memory: Kill(?:ed)? process (\d{1,9}) \(([^)]*)\)"
)  # not of a group
_SERVER: Final = re.compile(
    r"nfs: (server \S+) not responding|ceph: (mds\d+) (?:hung|caps went stale)"
    r"|LustreError?: .*?Connection to (\S+) .*?was lost"
)
# drives without a medium complain at every start
_NO_DISK: Final = r"(?!(?:fd|sr|loop|ram)\d)"
_BLOCK: Final = re.compile(
    r"(?:(?:blk_update_request: |print_req_error: )?"
    rf"(?:I/O|critical medium) error, dev {_NO_DISK}([\w-]+)"
    rf"|Buffer I/O error on dev(?:ice)? {_NO_DISK}([\w-]+)"
    r"|(?:EXT4-fs|BTRFS) (?:error|critical) \(device ([\w-]+)\)"
    r"|EXT4-fs \(([\w-]+)\): (?=Remounting filesystem read-only)"
    r"|XFS \(([\w-]+)\): (?=.*(?:I/O error|[Cc]orruption|shutting down|shut down))"
    r"|nvme (nvme\d+): (?=controller is down)"
    r"|(nvme\w+): I/O Cmd(?=.*I/O Error))(.*)"
)


def happening_of(
    text: str, gpu_at: Callable[[Bus], int | None], at: float
) -> Happening | None:
    """Return the fault that a record of the kernel's log reports; None if it reports no
    fault."""
    if _OF_A_PROCESS.match(text):
        return None
    if match := _XID.match(text):
        bus = bus_of(match[1])
        gpu = None if bus is None else gpu_at(bus)
        recovery = _RECOVERY.search(match[3])
        name = f"GPU {gpu}" if gpu is not None else f"the GPU at {match[1]}"
        return Happening(
            at=at,
            kind=SignalKind.XID,
            text=f"{name}: XID {match[2]}" + _driver_text(match[3]),
            code=int(match[2]),
            gpu=gpu,
            device="" if gpu is not None else match[1],
            recovery=recovery[1].removesuffix(" Required") if recovery else "",
        )
    if match := _SXID.match(text):
        fault_text = f"{match[1]}: SXID {match[2]}" + _driver_text(match[3])
        return Happening(
            at=at,
            kind=SignalKind.SXID,
            text=fault_text,
            code=int(match[2]),
            device=match[1],
        )
    return _of_gpu(text, gpu_at, at) or _of_machine(text, at)


def _of_gpu(
    text: str, gpu_at: Callable[[Bus], int | None], at: float
) -> Happening | None:
    """Return the fault of a GPU that the line reports without a code; None without such
    a fault."""
    if match := _LOST.match(text):
        kind, code, fault_text = (
            SignalKind.XID,
            FELL_OFF_THE_BUS,
            "has fallen off the bus",
        )
    elif match := _AMD.match(text):
        code = UNCORRECTED if match[2] or match[3] else CORRECTED
        kind, fault_text = (
            SignalKind.ECC,
            f"{'un' if code else ''}corrected errors{match[4].rstrip()}",
        )
    else:
        return None
    bus = bus_of(match[1])
    gpu = None if bus is None else gpu_at(bus)
    name = f"GPU {gpu}" if gpu is not None else f"the GPU at {match[1]}"
    device = "" if gpu is not None else match[1]
    return Happening(
        at=at,
        kind=kind,
        text=f"{name}: {fault_text}",
        code=code,
        gpu=gpu,
        device=device,
    )


def _driver_text(words: str) -> str:
    """Return the driver's text without the name of the process, with ": " in front; ""
    if nothing remains.

    The user of the GPU is known from the attempts that hold it.
    """
    plain = _PROCESS.sub("", words).strip().rstrip(".")
    return f": {plain}" if plain else ""


def _of_machine(text: str, at: float) -> Happening | None:
    if match := _EDAC.match(text):
        code = UNCORRECTED if match[3] == "U" else CORRECTED
        error_kind = "uncorrected" if code else "corrected"
        message = f"{match[2] or 1} {error_kind} errors of the machine's memory: {match[4].strip()}"
        return Happening(
            at=at, kind=SignalKind.MEMORY, text=message, code=code, device=match[1]
        )
    if match := _MEMORY.match(text):
        message = f"the machine's memory fails: {match[1]}"
        return Happening(at=at, kind=SignalKind.MEMORY, text=message, code=UNCORRECTED)
    if match := _FULL.match(text):
        message = (
            f"the machine's memory was full: the kernel killed {match[2]} (process "
            f"{match[1]})"
        )
        return Happening(at=at, kind=SignalKind.MEMORY, text=message, code=FULL)
    if match := _SERVER.match(text):
        server = next(group for group in match.groups() if group)
        message = f"storage does not answer: {server}"
        return Happening(at=at, kind=SignalKind.SILENT, text=message, device=server)
    if match := _BLOCK.match(text):
        *disks, error_details = match.groups()
        disk = next(disk_name for disk_name in disks if disk_name)
        message = f"disk {disk}: errors{error_details.rstrip()}"
        return Happening(at=at, kind=SignalKind.DISK_ERRORS, text=message, device=disk)
    return None


def record_of(line: str) -> str:
    """Return the record in a line of a log file, without the time and host that precede
    it."""
    match = _BEFORE_RECORD.match(line)
    return line[match.end() :] if match else line


def bus_of(text: str) -> Bus | None:
    """Parse PCI addresses such as 0000:3b:00 and 00000000:3B:00.0."""
    with suppress(ValueError, IndexError):
        address_fields = text.partition(".")[0].split(":")
        return (
            int(address_fields[0], 16),
            int(address_fields[1], 16),
            int(address_fields[2], 16),
        )
    return None


@dataclass(slots=True)
class KernelLog:
    """The kernel's log, which a thread follows. `tell` is called with each fault.

    `place`: the position up to which it has been read, a record's number or a byte
    offset; None until that is known. `confirms`: whether the GPUs' driver reports its
    faults by another way too, which must then confirm the log's reports about a GPU.
    """

    file: Path
    gpu_at: Callable[[Bus], int | None]
    tell: Callable[[Happening], None]
    confirms: Callable[[], bool] = lambda: False
    place: int | None = None
    _after: int | None = None
    _follows: bool = False

    def follow(self, after: int | None) -> None:
        """Follow the log from this position; None skips the records that exist already.
        Further calls have no effect."""
        if not self._follows:
            self._follows, self._after = True, after
            threading.Thread(target=self._follow_log, daemon=True).start()

    def _follow_log(self) -> None:
        with suppress(OSError):  # an unreadable log yields no reports
            lines = (
                self._kmsg_records() if self.file.is_char_device() else self._lines()
            )
            for log_position, text in lines:
                self.place = log_position
                happening = happening_of(text, self.gpu_at, wall())
                if happening is not None:
                    of_gpu = happening.kind in NEEDS_CONFIRMATION
                    self.tell(
                        msgspec.structs.replace(
                            happening, confirmed=not (of_gpu and self.confirms())
                        )
                    )

    def _kmsg_records(self) -> Iterator[tuple[int, str]]:
        """Yield records of /dev/kmsg with their numbers. Source: Linux,
        Documentation/ABI/testing/dev-kmsg."""
        descriptor = os.open(self.file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if self._after is None:
            os.lseek(descriptor, 0, os.SEEK_END)
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        while True:
            poller.poll()
            try:
                record = os.read(descriptor, RECORD_BYTES).decode("utf-8", "replace")
            except BlockingIOError:
                continue
            except BrokenPipeError:  # some were overwritten before they were read
                continue
            head, _, text = record.partition(";")
            priority, number = (int(field) for field in head.split(",")[:2])
            is_kernel = priority >> _PRIORITY_BITS == _KERNEL_FACILITY
            if self._after is None or number > self._after:
                yield number, text.partition("\n")[0] if is_kernel else ""

    def _lines(self) -> Iterator[tuple[int, str]]:
        """Yield lines of a growing file with their positions. A file that appears
        later, or has become shorter, is read from its beginning."""
        with suppress(OSError):
            self.place = (
                self.file.stat().st_size if self._after is None else self._after
            )
        offset, rest = self.place or 0, b""
        while True:
            with suppress(OSError):
                size = self.file.stat().st_size
                offset, rest = (0, b"") if size < offset else (offset, rest)
                if size > offset:
                    with self.file.open("rb") as opened:
                        opened.seek(offset)
                        data = opened.read(CHUNK_BYTES)
                    offset += len(data)
                    *lines, rest = (rest + data).split(b"\n")
                    rest = rest[-RECORD_BYTES:]
                    for line in lines:
                        yield (
                            offset - len(rest),
                            record_of(line.decode("utf-8", "replace")),
                        )
                    continue
            time.sleep(LOOK_SECONDS)
