"""Messages between the agent and its sensor reader: one JSON object per line, over
pipes.

The agent sends requests, and the reader answers each with one SensorReading. It sends a
Happening without a request.
"""

import msgspec

from corral.domain.ids import AttemptNumber, JobId
from corral.domain.node_signal import SignalKind
from corral.domain.telemetry import NodeSample


class HeldAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that is running, and its GPUs by Corral's indices. `use` and `memory`
    are for pretend GPUs: the share of time and of memory that the attempt's ranks shall
    seem to use; None leaves the value to the model. `since` is by the node's wall
    clock."""

    job: JobId
    attempt: AttemptNumber
    gpus: tuple[int, ...] = ()
    since: float = 0.0
    use: float | None = None
    memory: float | None = None


class SampleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Request for a reading of the sensors. `held`: the running attempts and their
    GPUs. `after`: the position up to which an earlier reader had read the kernel's log.
    """

    held: tuple[HeldAttempt, ...] = ()
    after: int | None = None


class SensorReading(msgspec.Struct, frozen=True, kw_only=True, tag="reading"):
    """Answer with a sample of all sensors. `place`: the position up to which the
    kernel's log has been read."""

    sample: NodeSample
    place: int | None = None


class Happening(msgspec.Struct, frozen=True, kw_only=True, tag="happening"):
    """A fault that a driver or the kernel has reported once. `gpu` is Corral's index.

    `confirmed` is False for a line of the kernel's log that the GPU's driver has not
    confirmed yet.
    """

    at: float
    kind: SignalKind
    text: str
    code: int | None = None
    gpu: int | None = None
    device: str = ""
    recovery: str = ""
    confirmed: bool = True


Said = SensorReading | Happening
