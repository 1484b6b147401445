"""Device files of GPUs that an attempt may open; all other devices of these kinds are
denied to it."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from corral.agent.discovery.helper import KFD, render_minors
from corral.agent.mig import CAPABILITIES, MigPart, capability_minors
from corral.domain.desired_state import Launch
from corral.wire.node import NodeSettings

NVIDIA_MAJOR: Final = 195
NVIDIA_SHARED: Final = (254, 255)  # modeset and control: every user of a GPU needs them
DRM_MAJOR: Final = 226
_NVIDIA: Final = Path("/dev/nvidiactl")
_MAJORS: Final = Path("/proc/devices")
_MIG_CAPABILITIES: Final = "nvidia-caps"
NO_PARTS: Final[Mapping[str, MigPart]] = MappingProxyType({})
Devices = list[tuple[int, list[int]]]  # major and its allowed minors


def gpu_devices(
    launch: Launch,
    settings: NodeSettings,
    *,
    control: Path = _NVIDIA,
    majors: Path = _MAJORS,
    topology: Path = KFD,
    parts: Mapping[str, MigPart] = NO_PARTS,
    mig: Path = CAPABILITIES,
) -> Devices | None:
    """Return the device files that the attempt may open: the GPUs' major numbers, each
    with the allowed minor numbers.

    None means that no device has to be hidden from the attempt. On a GPU in MIG mode, a
    job may open the capabilities of its own MIG devices if `parts` has all of them, and
    otherwise the capabilities of any MIG device. A job without MIG devices may open
    none. AMD's /dev/kfd stays open to every job: it gives no access to a GPU whose
    render node is denied.
    """
    if settings.pretend_gpus is not None:
        return None
    seat_gpus = launch.seat.gpus
    if settings.amd_gpus:
        minors = render_minors(topology)
        return [
            (DRM_MAJOR, [minors[index] for index in seat_gpus if index < len(minors)])
        ]
    if not control.exists():
        return None
    chosen = settings.real_gpus
    own_minors = [index if chosen is None else chosen[index] for index in seat_gpus]
    devices: Devices = [(NVIDIA_MAJOR, [*own_minors, *NVIDIA_SHARED])]
    capabilities = _major_of(_MIG_CAPABILITIES, majors)
    allowed = capability_minors(launch.seat.slices, parts, mig)
    if capabilities is not None and allowed is not None:
        devices.append((capabilities, allowed))
    return devices


def _major_of(name: str, majors: Path) -> int | None:
    """Return the major number of the kind of character device called `name`; None if
    the kernel has no such kind."""
    for line in majors.read_text().splitlines():
        line_fields = line.split()
        if line_fields[1:] == [name]:
            return int(line_fields[0])
        if line.startswith("Block devices"):
            break
    return None
