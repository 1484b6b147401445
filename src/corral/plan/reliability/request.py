"""A request about the reliability of a long run."""

from dataclasses import KW_ONLY, dataclass
from typing import Annotated, Final

from corral.catalog.devices import device
from corral.plan.bounds import (
    COUNT,
    DAYS,
    NODE_GPUS,
    PARAMETERS,
    Above,
    Gpus,
    NumberBound,
    Usd,
    check,
)

ENOUGH: Final = NumberBound(
    0.001, 1 - 1e-9, hint="give a share of the time below 1, for example 0.99"
)


@dataclass(frozen=True, slots=True)
class ReliabilityRequest:
    """Request about a long run. Values that are not given get usual ones, which the
    report lists.

    Attributes:
        model: Model that is trained, as in plan model; it determines the size of a
            checkpoint.
        gpus: Number of GPUs of the run.
        gpu: Type of GPU.
        days: Days that the training would take without any failure.
        parameters: Number of parameters, instead of a model, for example 70B.
        node_gpus: GPUs of a node; a node fails as a whole.
        rate: Measured failures that end a run, per 1,000 node-days of your nodes.
        counted: Number of failures from which the rate was measured; it determines the
            error band.
        stall_seconds: Seconds that training stops for one checkpoint.
        async_saves: Write checkpoints in the background.
        write_gb_per_s: Write rate of the storage for all nodes together, in GB/s.
        restart_minutes: Minutes from a failure until training continues.
        interval_minutes: Minutes between checkpoints, to compare with the best
            interval.
        repair_hours: Hours until a failed node is repaired.
        crews: Number of nodes that can be repaired at the same time.
        availability: Target: the share of the time in which enough nodes work for the
            run. It determines the number of spare nodes.
        usd_per_gpu_hour: Price of a GPU-hour in USD, for the cost of failures.
    """

    model: str = ""
    _: KW_ONLY
    gpus: Gpus
    days: Annotated[float, DAYS]
    gpu: str = "h100-sxm"
    parameters: Annotated[float | None, PARAMETERS] = None
    node_gpus: Annotated[int | None, NODE_GPUS] = None
    rate: Above = None
    counted: Annotated[int | None, COUNT] = None
    stall_seconds: Above = None
    async_saves: bool = False
    write_gb_per_s: Above = None
    restart_minutes: Above = None
    interval_minutes: Above = None
    repair_hours: Above = None
    crews: Annotated[int | None, COUNT] = None
    availability: Annotated[float, ENOUGH] = 0.99
    usd_per_gpu_hour: Usd = None

    def __post_init__(self) -> None:
        check(self)

    @property
    def nodes(self) -> int:
        """Return how many nodes the run needs at once. Raises: NotFound for an unknown
        type of GPU."""
        return -(-self.gpus // self._node)

    @property
    def each(self) -> int:
        """Return the GPUs that the run uses on one of its nodes."""
        return min(self._node, self.gpus)

    @property
    def held_gpus(self) -> int:
        """Return the GPUs on all nodes of the run, used or unused."""
        return self.nodes * self.each

    @property
    def architecture(self) -> str:
        return device(self.gpu).architecture

    @property
    def _node(self) -> int:
        return self.node_gpus or device(self.gpu).node_gpus
