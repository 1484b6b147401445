"""Messages between the agent and its sensor reader: one JSON object a line over pipes.

The agent asks, the reader answers each question with one Reading; a Happening comes by
itself.
"""

import msgspec

from corral.domain.ids import AttemptNumber, JobId
from corral.domain.node_signal import SignalKind
from corral.domain.telemetry import NodeSample


class HeldAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt that is up, and its GPUs by Corral's indices. `use` and `memory` are
    for pretend GPUs: the share of time and of memory that its ranks shall seem to use;
    None leaves it to the model. `since` is the node's wall clock."""

    job: JobId
    attempt: AttemptNumber
    gpus: tuple[int, ...] = ()
    since: float = 0.0
    use: float | None = None
    memory: float | None = None


class SampleRequest(msgspec.Struct, frozen=True, kw_only=True):
    """`after`: how far an earlier reader had read the kernel's log."""

    held: tuple[HeldAttempt, ...] = ()
    after: int | None = None


class SensorReading(msgspec.Struct, frozen=True, kw_only=True, tag="reading"):
    """`place`: how far the kernel's log has been read."""

    sample: NodeSample
    place: int | None = None


class Happening(msgspec.Struct, frozen=True, kw_only=True, tag="happening"):
    """Fault that a driver or the kernel has reported once. `gpu` is Corral's index.

    `confirmed` False: a line of the kernel's log, which the GPU's driver has still to
    confirm.
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
