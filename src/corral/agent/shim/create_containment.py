"""Creation of the containment that the spec of an attempt plans."""

from collections.abc import Callable

from corral.agent import containment
from corral.agent.shim.file_names import SOCKET
from corral.agent.shim.user_isolation import Apart
from corral.wire.shim_spec import ShimSpec


def create_containment(
    spec: ShimSpec, say: Callable[[str], None]
) -> containment.Containment:
    """Create the containment that the spec plans, or the next weaker kind that works
    now. `say` is called with the reason for each kind that does not. Raises: OSError."""
    limits = containment.ContainmentLimits(
        pids=spec.pids,
        cpu_millis=spec.cpu_millis,
        memory_bytes=spec.memory_bytes,
        devices=None
        if spec.devices is None
        else {rank: tuple(rank_devices) for rank, rank_devices in spec.devices},
    )
    mark = f"CORRAL_SOCKET={spec.folder}/{SOCKET}"
    furnish = Apart(**spec.apart).furnish if spec.apart is not None else None
    for kind in containment.from_on(spec.containment):
        try:
            return containment.create(
                kind, name=spec.group, mark=mark, limits=limits, furnish=furnish
            )
        except OSError as trouble:
            say(f"the processes cannot be contained by a {kind}: {trouble}")
    raise OSError("no containment is available for the processes")
