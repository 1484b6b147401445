"""The agent's sensors: periodic samples of all of them, and the signals that follow."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, Protocol

from corral.agent.clocks import wall
from corral.agent.telemetry.fault_rules import RuleMemory, hear, notice
from corral.agent.telemetry.helper import SensorHelper
from corral.agent.telemetry.messages import Happening, HeldAttempt, SampleRequest
from corral.agent.telemetry.pretend import MEMORY, USE
from corral.agent.telemetry.signal_journal import FILE, Notebook
from corral.domain.desired_state import Launch
from corral.domain.ids import BootId
from corral.domain.node_signal import Signal
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.domain.pilot import is_part, may_tell
from corral.domain.telemetry import SENSORS, GpuSample, NodeSample
from corral.wire.node import NodeSettings

SOON_SECONDS: Final = 0.2  # ranks that fail together are looked for together
FIRST_SECONDS: Final = 1.0  # what an agent begins with goes first
RUNNING: Final = (Phase.UP, Phase.STOPPING)


class Attempts(Protocol):
    """Launches and reports of the node's attempts."""

    @property
    def launches(self) -> Mapping[AttemptKey, Launch]: ...

    def seen(self) -> tuple[Seen, ...]: ...


@dataclass(slots=True, kw_only=True)
class Senses:
    """Sensors of a node. `attempts`: the attempts that run on it; `sample`: the last
    sensor values.

    `signals` are the signals that the head has not recorded yet.
    """

    node_dir: Path
    settings: NodeSettings
    boot: BootId
    attempts: Attempts | None = None
    sample: NodeSample | None = None
    helper: SensorHelper = field(init=False)
    notebook: Notebook = field(init=False)
    _wake: Callable[[], None] = lambda: None
    _soon: asyncio.Event = field(default_factory=asyncio.Event)
    _offset: float | None = None  # the node's clock less the head's
    _offset_trip: float = float("inf")

    def __post_init__(self) -> None:
        self.helper = SensorHelper(node_dir=self.node_dir, happened=self._on_happening)
        self.notebook = Notebook(self.node_dir / FILE, self.boot)

    @property
    def signals(self) -> tuple[Signal, ...]:
        return self.notebook.to_tell

    @property
    def offset_seconds(self) -> float | None:
        """Return the offset of the node's clock: its time minus the head's time. None
        if unknown."""
        return self._offset

    def tell(self, signals: tuple[Signal, ...]) -> None:
        """Add signals that do not come from a sensor, and report them to the head."""
        self.notebook.take(self.notebook.memory, signals)
        self._wake()

    async def keep(self, attempts: Attempts, wake: Callable[[], None]) -> None:
        """Read the sensors periodically, without end. `wake` is called when a signal
        must be reported at once."""
        self.attempts, self._wake = attempts, wake
        if self.settings.sample_seconds <= 0:
            return
        clock = asyncio.get_running_loop().time
        try:
            await asyncio.sleep(FIRST_SECONDS)
            while True:
                began = clock()
                self._soon.clear()
                await self.look()
                remaining_seconds = self.settings.sample_seconds - (clock() - began)
                with suppress(TimeoutError):
                    async with asyncio.timeout(max(0.0, remaining_seconds)):
                        await self._soon.wait()
                    await asyncio.sleep(SOON_SECONDS)
        finally:
            await self.helper.close()

    def look_soon(self) -> None:
        """Request a reading of the sensors now instead of at the next period. Reason: a
        rank has failed on this node, or a line of the kernel's log waits for the driver
        to confirm it."""
        self._soon.set()

    async def look(self) -> None:
        """Read the sensors once."""
        reading = await self.helper.ask(
            SampleRequest(
                held=tuple(self._held()), after=self.notebook.memory.log_read_to
            )
        )
        sample = self._silent() if reading is None else reading.sample
        sample = replace(sample, clock_offset_seconds=self._offset)
        self._offset_trip = float("inf")
        self.sample = sample
        memory, signals = notice(self.notebook.memory, sample)
        if reading is not None and reading.place is not None:
            memory = replace(memory, log_read_to=reading.place)
        self._keep(memory, signals)

    def recorded(self, signals: int, head_wall: float, trip_seconds: float) -> None:
        """Record that the head has stored the signals up to this number. `head_wall`:
        the head's clock; `trip_seconds`: the duration of the round trip.

        The quickest round trip since the last sample sets the clock's offset. Its error
        is at most half of that trip.
        """
        self.notebook.recorded(signals)
        if head_wall and trip_seconds <= self._offset_trip:
            self._offset = wall() - trip_seconds / 2 - head_wall
            self._offset_trip = trip_seconds

    def _on_happening(self, happening: Happening) -> None:
        memory, signals = hear(self.notebook.memory, happening)
        self._keep(memory, signals)
        if memory.waiting:
            self.look_soon()

    def _keep(self, memory: RuleMemory, signals: Iterable[Signal]) -> None:
        """Save the state of the rules in the journal, with the new signals that this
        node may report to the head."""
        is_node_part, uuids = is_part(self.settings.node), {}
        if is_node_part:
            signals = [signal for signal in signals if may_tell(signal)]
            uuids = (
                {gpu.index: gpu.uuid for gpu in self.sample.gpus} if self.sample else {}
            )
        new_signals = tuple(
            self._with_attempts(_add_gpu_uuid(signal, uuids)) for signal in signals
        )
        waiting_signals = {
            key: self._with_attempts(signal) for key, signal in memory.waiting.items()
        }
        self.notebook.take(replace(memory, waiting=waiting_signals), new_signals)
        if new_signals:
            self._wake()

    def _held(self) -> Iterator[HeldAttempt]:
        if self.attempts is None:
            return
        launches = self.attempts.launches
        for seen_attempt in self.attempts.seen():
            launch = launches.get(seen_attempt.key)
            if launch is not None and seen_attempt.phase in RUNNING:
                env = dict(launch.env)
                yield HeldAttempt(
                    job=seen_attempt.key[0],
                    attempt=seen_attempt.key[1],
                    gpus=self._gpus(launch),
                    since=seen_attempt.started_at or 0.0,
                    use=_parse_share(env.get(USE)),
                    memory=_parse_share(env.get(MEMORY)),
                )

    def _with_attempts(self, signal: Signal) -> Signal:
        """Return the signal with the attempts that run now on its GPU, or on the node.
        If none run there, use the attempts that ended there and are not yet settled,
        because the same fault may have ended them."""
        if self.attempts is None or signal.attempts:
            return signal
        launches = self.attempts.launches
        phases = {attempt.key: attempt.phase for attempt in self.attempts.seen()}
        present_keys = [
            key
            for key, launch in launches.items()
            if signal.gpu is None or signal.gpu in self._gpus(launch)
        ]
        running = [key for key in present_keys if phases.get(key) in RUNNING]
        return replace(signal, attempts=tuple(running or present_keys))

    def _gpus(self, launch: Launch) -> tuple[int, ...]:
        """Return the launch's GPUs by the indices that the sensors use."""
        numbers, gpus = self.settings.gpu_numbers, launch.seat.gpus
        return (
            gpus
            if numbers is None
            else tuple(
                numbers[gpu_index] for gpu_index in gpus if gpu_index < len(numbers)
            )
        )

    def _silent(self) -> NodeSample:
        """Return a sample in which all sensors are silent: only the GPUs of the last
        sample are known."""
        gpus = self.sample.gpus if self.sample is not None else ()
        return NodeSample(
            at=wall(),
            seconds=self.settings.sample_seconds,
            gpus=tuple(
                GpuSample(
                    index=gpu_sample.index,
                    uuid=gpu_sample.uuid,
                    type=gpu_sample.type,
                    pretend=gpu_sample.pretend,
                    silent=True,
                )
                for gpu_sample in gpus
            ),
            silent=(SENSORS,),
        )


def _add_gpu_uuid(signal: Signal, uuids: Mapping[int, str]) -> Signal:
    """Return the signal with its GPU's uuid, if that GPU's index is in `uuids`. The
    index alone may change."""
    uuid = uuids.get(signal.gpu, "") if signal.gpu is not None else ""
    if not uuid:
        return signal
    text = signal.text if uuid in signal.text else f"{signal.text} ({uuid})"
    return replace(signal, uuid=uuid, text=text)


def _parse_share(text: str | None) -> float | None:
    """Parse the utilisation that a job sets for its pretend GPUs, limited to 0 to 1;
    None without a number."""
    try:
        return None if text is None else min(1.0, max(0.0, float(text)))
    except ValueError:
        return None
