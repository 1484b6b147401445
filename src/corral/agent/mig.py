"""Capabilities of MIG: device files that a process must open to use a MIG device of a
divided GPU.

Each GPU instance and each compute instance has a file /dev/nvidia-caps/nvidia-capN,
whose minor N is in /proc/driver/nvidia/capabilities. Source: NVIDIA Multi-Instance GPU
User Guide, "Device nodes and capabilities".
"""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

CAPABILITIES: Final = Path("/proc/driver/nvidia/capabilities")
MIG_FILE: Final = "mig.json"  # in the node's folder
_MINOR: Final = "DeviceFileMinor"


class MigPart(msgspec.Struct, frozen=True):
    """Position of a MIG device: the minor number of its GPU, and the numbers of its GPU
    instance and of its compute instance."""

    gpu: int
    gpu_instance: int
    compute_instance: int


def write_parts(node_dir: Path, parts: Mapping[str, MigPart]) -> None:
    """Store the positions of the node's MIG devices by name.

    Raises: OSError when the file cannot be written.
    """
    file = node_dir / MIG_FILE
    content = msgspec.json.encode(parts)
    if not parts and not file.exists():
        return
    with suppress(FileNotFoundError):
        if file.read_bytes() == content:
            return
    temporary_file = file.with_suffix(".fresh")
    temporary_file.write_bytes(content)
    temporary_file.replace(file)


def read_parts(node_dir: Path) -> dict[str, MigPart]:
    """Return the positions that `write_parts` has stored, by MIG device; nothing where
    they cannot be read."""
    with suppress(OSError, msgspec.DecodeError):
        return msgspec.json.decode(
            (node_dir / MIG_FILE).read_bytes(), type=dict[str, MigPart]
        )
    return {}


def capability_minors(
    names: Sequence[str], parts: Mapping[str, MigPart], root: Path = CAPABILITIES
) -> list[int] | None:
    """Return the minor numbers of the device files (capabilities) that a process needs
    for these MIG devices; None if the position of one device is not known."""
    minors: set[int] = set()
    try:
        for name in names:
            mig_device = parts[name]
            instance = (
                root / f"gpu{mig_device.gpu}" / "mig" / f"gi{mig_device.gpu_instance}"
            )
            minors.add(_read_device_minor(instance / "access"))
            minors.add(
                _read_device_minor(
                    instance / f"ci{mig_device.compute_instance}" / "access"
                )
            )
    except (KeyError, OSError, ValueError):
        return None
    return sorted(minors)


def _read_device_minor(access: Path) -> int:
    """Return the minor number in an access file of a MIG capability.

    Raises: OSError, ValueError when it cannot be read.
    """
    for line in access.read_text().splitlines():
        name, _, value = line.partition(":")
        if name.strip() == _MINOR:
            return int(value)
    raise ValueError(
        f"the MIG device file {access} does not list a minor number (line {_MINOR!r} is "
        "missing)"
    )
