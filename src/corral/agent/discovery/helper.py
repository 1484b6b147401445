"""A short-lived helper of the agent: it queries what may hang (GPU driver, network file
systems).

`python -m corral.agent.discovery.helper NODE_DIR SECONDS [PID]` prints one line of JSON
and exits. PID is a process inside the node's private root; the shared paths are checked
as that process sees them. Queries that have not answered within SECONDS are named in
`silent`. The agent kills a helper that does not print its line.
"""

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

import msgspec

from corral.agent.mig import MigPart
from corral.agent.nvml_gpus import driver_indices, text_of
from corral.agent.settings import load_settings
from corral.domain.gpu_types import short_type
from corral.domain.resources import Gpu
from corral.wire.node import NodeSettings

KFD: Final = Path("/sys/class/kfd/kfd/topology/nodes")
PCI: Final = Path("/sys/bus/pci/devices")
_MAKERS: Final = {"0x10de": "NVIDIA", "0x1002": "AMD"}
_GPU_CLASSES: Final = ("0x03", "0x12")
MARK: Final = ".corral-shared"
_GIB: Final = 1024**3
# Memory in GiB as the makers' data sheets name it; a type that is not here pretends to
# 16.
_PRETEND_GIB: Final = {
    "b200": 180,
    "h200": 141,
    "h100": 80,
    "gh200": 96,
    "a100": 80,
    "l40s": 48,
    "l40": 48,
    "l4": 24,
    "a40": 48,
    "a10": 24,
    "a10g": 24,
    "a6000": 48,
    "v100": 32,
    "t4": 16,
    "rtx4090": 24,
    "rtx5090": 32,
    "mi300x": 192,
}
# a pretend machine of eight GPUs and more has two, as servers do
_SOCKETS, _OF_TWO_SOCKETS = 2, 8


class Survey(msgspec.Struct, kw_only=True):
    """Result of a discovery. `shared` maps a declared path to its mark, a text by which
    nodes recognise the same folder. `troubles` are messages for the log. `parts` are
    the positions of the MIG devices, by name. `silent` names the queries that did not
    answer in time."""

    gpus: tuple[Gpu, ...] = ()
    parts: dict[str, MigPart] = {}
    shared: list[tuple[str, str]] = []
    troubles: list[str] = []
    silent: tuple[str, ...] = ()


def pretend_gpus(settings: NodeSettings) -> tuple[Gpu, ...]:
    """Return the pretend GPUs of the settings. If there are eight or more, they are
    spread over two sockets."""
    memory_bytes = _PRETEND_GIB.get(settings.gpu_type, 16) * _GIB
    count = settings.pretend_gpus or 0
    return tuple(
        Gpu(
            index=index,
            uuid=f"pretend-{settings.node}-{index}",
            type=settings.gpu_type,
            memory_bytes=memory_bytes,
            pretend=True,
            slices=tuple(
                f"MIG-pretend-{settings.node}-{index}-{slice_index}"
                for slice_index in range(settings.gpu_slices)
            ),
            numa=_SOCKETS * index // count if count >= _OF_TWO_SOCKETS else 0,
            taken=index >= count - settings.pretend_taken,
        )
        for index in range(count)
    )


def amd_gpus(settings: NodeSettings, topology: Path = KFD) -> tuple[Gpu, ...]:
    """Return the AMD GPUs of the settings, in the order of ROCm's indices.

    The settings hold their number and type, as detected by the system that provides the
    node. The memory comes from the kernel's driver, and is 0 where the driver does not
    report it.
    """
    memory = kfd_memory_bytes(topology)
    return tuple(
        Gpu(
            index=index,
            uuid=f"amd-{settings.node}-{index}",
            type=settings.gpu_type,
            memory_bytes=memory[index] if index < len(memory) else 0,
        )
        for index in range(settings.amd_gpus)
    )


def kfd_memory_bytes(topology: Path) -> list[int]:
    """Return the memory in bytes of each GPU that the kernel's AMD driver reports; an
    empty list without the driver.

    Source: Linux, drivers/gpu/drm/amd/amdkfd/kfd_topology.c; CPUs have no SIMD units.
    """
    return [
        sum(
            _kfd_number(bank, "size_in_bytes")
            for bank in node.glob("mem_banks/*/properties")
        )
        for node in _kfd_gpus(topology)
    ]


def render_minors(topology: Path = KFD) -> list[int]:
    """Return the minor number of /dev/dri/renderD* of each AMD GPU, in the order of
    ROCm's indices."""
    return [
        _kfd_number(node / "properties", "drm_render_minor")
        for node in _kfd_gpus(topology)
    ]


def _kfd_gpus(topology: Path) -> list[Path]:
    nodes = (node for node in topology.glob("*") if node.name.isdecimal())
    in_order = sorted(nodes, key=lambda node: int(node.name))
    return [node for node in in_order if _kfd_number(node / "properties", "simd_count")]


def _kfd_number(file: Path, name: str) -> int:
    with suppress(OSError, ValueError):
        lines = (line.split() for line in file.read_text().splitlines())
        return next(
            (int(line_fields[1]) for line_fields in lines if line_fields[:1] == [name]),
            0,
        )
    return 0


def real_gpus(chosen: tuple[int, ...] | None) -> tuple[Gpu, ...]:
    """Return the machine's NVIDIA GPUs whose index in the driver is in `chosen`; None
    means all GPUs. Without a driver the result is empty.

    Raises: RuntimeError when there is a driver and it fails.
    """
    import pynvml  # type: ignore[import-untyped]

    selected_indices = driver_indices(chosen)
    try:
        return tuple(
            _nvidia_gpu(local_index, index)
            for local_index, index in enumerate(selected_indices)
        )
    except pynvml.NVMLError as trouble:
        raise RuntimeError(f"the NVIDIA driver (NVML) failed: {trouble}") from trouble


def _nvidia_gpu(place: int, index: int) -> Gpu:
    import pynvml

    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    return Gpu(
        index=place,
        uuid=text_of(pynvml.nvmlDeviceGetUUID(handle)),
        type=short_type(text_of(pynvml.nvmlDeviceGetName(handle))),
        memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        slices=_mig_slice_names(handle),
        numa=numa_of(_bus_of(handle)),
    )


def _bus_of(handle: Any) -> str:
    """Return the PCI address of the GPU; "" if the driver does not report it."""
    import pynvml

    try:
        return text_of(pynvml.nvmlDeviceGetPciInfo(handle).busId)
    except pynvml.NVMLError:
        return ""


def numa_of(bus_id: str, devices: Path = Path("/sys/bus/pci/devices")) -> int:
    """Return the NUMA node of a PCI device; 0 where the machine has only one, or does
    not report it.

    NVML writes the domain of a bus id with eight digits, Linux with at least four.
    """
    try:
        domain, _, rest = bus_id.lower().partition(":")
        return max(
            0,
            int((devices / f"{int(domain, 16):04x}:{rest}" / "numa_node").read_text()),
        )
    except (OSError, ValueError):
        return 0


def _mig_slice_names(handle: Any) -> tuple[str, ...]:
    """Return the names of the MIG devices that the GPU is divided into now; an empty
    tuple where MIG mode is off, or where the driver is too old to report it."""
    import pynvml

    try:
        if not pynvml.nvmlDeviceGetMigMode(handle)[0]:
            return ()
        max_mig_devices = pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except pynvml.NVMLError:
        return ()
    slices = []
    for index in range(max_mig_devices):
        with suppress(pynvml.NVMLError):  # no part has this index
            mig_handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            slices.append(text_of(pynvml.nvmlDeviceGetUUID(mig_handle)))
    return tuple(slices)


def mig_parts(chosen: tuple[int, ...] | None) -> dict[str, MigPart]:
    """Return the position of each MIG device of the machine's NVIDIA GPUs, as far as
    the driver reports it.

    Raises: RuntimeError when there is a driver and it fails.
    """
    import pynvml

    mig_devices: dict[str, MigPart] = {}
    for index in driver_indices(chosen):
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByIndex(index)
            if _mig_slice_names(handle):
                mig_devices |= _mig_parts_of_gpu(
                    handle, int(pynvml.nvmlDeviceGetMinorNumber(handle))
                )
    return mig_devices


def _mig_parts_of_gpu(handle: Any, minor: int) -> dict[str, MigPart]:
    import pynvml

    mig_devices = {}
    for index in range(pynvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
        with suppress(pynvml.NVMLError):
            mig_handle = pynvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
            mig_devices[text_of(pynvml.nvmlDeviceGetUUID(mig_handle))] = MigPart(
                gpu=minor,
                gpu_instance=int(pynvml.nvmlDeviceGetGpuInstanceId(mig_handle)),
                compute_instance=int(pynvml.nvmlDeviceGetComputeInstanceId(mig_handle)),
            )
    return mig_devices


def mark_of(path: str, inside: int | None) -> str:
    """Return the mark of a shared path, by which nodes recognise the same folder. The
    mark is a file in the path, with random text; the first node that looks at the path
    writes the file.

    Raises: OSError when the path does not exist, or is another folder inside the
    private root than on the machine.
    """
    shared_dir = Path(path)
    if inside is not None:
        shared_dir = Path(f"/proc/{inside}/root{os.path.realpath(path)}")
        ours, path_stat = os.stat(path), os.stat(shared_dir)
        if (ours.st_dev, ours.st_ino) != (path_stat.st_dev, path_stat.st_ino):
            raise OSError(
                f"{path} is a different folder in the node's private root than on the machine"
            )
    file = shared_dir / MARK
    try:
        descriptor = os.open(
            file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644
        )
    except FileExistsError:
        return _written_mark(file)
    except OSError:
        if not file.exists():
            raise
        return _written_mark(file)
    with os.fdopen(descriptor, "w") as opened:
        mark = os.urandom(16).hex()
        opened.write(f"{mark}\n")
        opened.flush()
        os.fsync(opened.fileno())
    return mark


def common_mark(path: str, cluster_mark: str, inside: int | None) -> str:
    """Return the mark of a path that all nodes of one machine have in common with the
    machine.

    The mark is derived from the mark of the cluster's own folder, so nothing is written
    to the path.

    Raises: OSError when the path does not exist, or the node sees another folder in its
    place.
    """
    host_stat = os.stat(path)
    if inside is not None and not os.path.samestat(
        host_stat, os.stat(f"/proc/{inside}/root{path}")
    ):
        raise OSError(
            f"{path} is a different folder in the node's private root than on the machine"
        )
    return sha256(f"{cluster_mark} {path}".encode()).hexdigest()[:32]


def _written_mark(file: Path) -> str:
    """Return the mark in the file. Another process may have just created the file, so
    wait until the mark is written completely."""
    pause_event = threading.Event()
    for _ in range(50):
        text = file.read_text()
        if text.endswith("\n"):
            return text.strip()
        pause_event.wait(0.02)
    raise OSError(f"{file} is incomplete; run: rm {file} (Corral creates it again)")


def survey(settings: NodeSettings, seconds: float, inside: int | None) -> Survey:
    """Return the results of all queries. They run at the same time, so that a query
    that hangs delays no other."""
    findings = Survey()
    steps: dict[str, Callable[[], None]] = {
        "GPUs": lambda: _ask_gpus(settings, findings)
    }
    for path in settings.shared:
        steps[path] = lambda path=path: _ask_shared(path, inside, findings)  # type: ignore[misc]
    if settings.isolation == "hide" and settings.shared:
        for path in settings.common:
            steps.setdefault(
                path, partial(_ask_common, path, settings.shared[0], inside, findings)
            )
    threads = {
        name: threading.Thread(
            target=_run_discovery_step, args=(step, findings), daemon=True
        )
        for name, step in steps.items()
    }
    for thread in threads.values():
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads.values():
        thread.join(max(0.0, deadline - time.monotonic()))
    findings.silent = tuple(
        name for name, thread in threads.items() if thread.is_alive()
    )
    findings.shared.sort()
    return findings


def _run_discovery_step(step: Callable[[], None], found: Survey) -> None:
    try:
        step()
    except (OSError, RuntimeError) as trouble:
        found.troubles.append(str(trouble))


def _ask_gpus(settings: NodeSettings, found: Survey) -> None:
    if settings.pretend_gpus is not None:
        found.gpus = pretend_gpus(settings)
    elif settings.amd_gpus:
        found.gpus = amd_gpus(settings)
    else:
        found.gpus = real_gpus(settings.real_gpus)
        found.parts = mig_parts(settings.real_gpus)


def _ask_shared(path: str, inside: int | None, found: Survey) -> None:
    found.shared.append((path, mark_of(path, inside)))


def _ask_common(path: str, cluster: str, inside: int | None, found: Survey) -> None:
    found.shared.append((path, common_mark(path, mark_of(cluster, inside), inside)))


def main() -> None:
    folder, seconds, *inside = sys.argv[1:]
    settings = load_settings(Path(folder))
    survey_result = survey(settings, float(seconds), int(inside[0]) if inside else None)
    os.write(1, msgspec.json.encode(survey_result) + b"\n")
    os._exit(0)  # a thread that hangs in the driver would keep an ordinary exit waiting


if __name__ == "__main__":
    main()


def unread_gpus(devices: Path = PCI) -> tuple[str, ...]:
    """Return the makers of the GPUs on the machine's PCI bus, sorted and without
    duplicates. A GPU counts whether or not its driver answers.

    Source: the PCI ID repository; classes 03 (display) and 12 (processing accelerator).
    """
    unread = set()
    for device in devices.glob("*"):
        with suppress(OSError):
            kind = (device / "class").read_text().strip()
            maker = _MAKERS.get((device / "vendor").read_text().strip())
            if maker and kind.startswith(_GPU_CLASSES):
                unread.add(maker)
    return tuple(sorted(unread))
