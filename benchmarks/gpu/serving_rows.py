"""Times of streamed answers beside those of `corral plan serve`. Pure."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from smi import Row

MOST_ERROR: Final = 0.2  # of a planned time
# what a sleeping engine keeps of its GPU: the context of CUDA, and little else
SLEEPING_SHARE: Final = 0.25
NO_VLLM: Final = (
    "vLLM is not installed in this Python; run: pip install vllm, "
    "or set GPU_PYTHON to a Python that has it"
)
QUANTILES: Final = (0.5, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamTimes:
    """Moments of one streamed answer, in seconds of one clock.

    Args:
        sent: When the request was sent.
        events: When each event with a token came.
    """

    sent: float
    events: tuple[float, ...]

    @property
    def ttft(self) -> float:
        return self.events[0] - self.sent

    @property
    def itls(self) -> list[float]:
        return [
            after - before
            for before, after in zip(self.events, self.events[1:], strict=False)
        ]


def arrivals(rate: float, count: int, seed: int = 7) -> list[float]:
    """Return moments of `count` requests that arrive independently at this rate."""
    chance = random.Random(seed)
    moments = []
    at = 0.0
    for _ in range(count):
        at += chance.expovariate(rate)
        moments.append(at)
    return moments


def is_token(line: bytes) -> bool:
    """Return whether a line of a stream is an event with a token. Raises: ValueError on
    an event with an error."""
    if not line.startswith(b"data: {"):
        return False
    event = json.loads(line[6:])
    if event.get("error"):
        raise ValueError(f"the stream ended with an error: {event['error']}")
    return bool(event.get("choices"))


def quantile(values: Sequence[float], share: float) -> float:
    """Return the smallest value that this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def time_rows(
    planned: Mapping[str, Mapping[str, Any]], streams: Sequence[StreamTimes]
) -> list[Row]:
    """Return a row for each time: the measured one differs by more than a fifth or not.

    Args:
        planned: Answers of the plan by name; its times are in milliseconds.
    """
    measured = {
        "TTFT": [stream.ttft for stream in streams],
        "ITL": [seconds for stream in streams for seconds in stream.itls],
    }
    return [
        _time_row(
            f"{name} p{share * 100:.0f}",
            float(planned[f"{name} p{share * 100:.0f}"]["value"]),
            1000.0 * quantile(seconds, share),
        )
        for name, seconds in measured.items()
        for share in QUANTILES
    ]


def _time_row(what: str, planned: float, measured: float) -> Row:
    error = measured / planned - 1.0
    return Row(
        what=what,
        expected=f"{planned:.3g} ms +- {MOST_ERROR * 100:.0f} %",
        seen=f"{measured:.3g} ms ({error * 100:+.1f} %)",
        verdict="ok" if abs(error) <= MOST_ERROR else "differs",
    )


def sleep_rows(
    awake_bytes: float, asleep_bytes: float, wake_seconds: float, most_seconds: float
) -> list[Row]:
    """Return the rows of a sleep: GPU memory before and in it, and the time from the
    next request to its answer."""
    most_bytes = SLEEPING_SHARE * awake_bytes
    return [
        Row(
            what="GPU memory while asleep",
            expected=f"at most {most_bytes / 1e9:.1f} of {awake_bytes / 1e9:.1f} GB",
            seen=f"{asleep_bytes / 1e9:.1f} GB",
            verdict="ok" if asleep_bytes <= most_bytes else "differs",
        ),
        Row(
            what="wake, from the request to its answer",
            expected=f"at most {most_seconds:g} s",
            seen=f"{wake_seconds:.2f} s",
            verdict="ok" if wake_seconds <= most_seconds else "differs",
        ),
    ]


def not_run(reason: str) -> list[Row]:
    """Return the row of a stage that cannot run here."""
    return [Row(what="vLLM", expected="installed", seen=reason, verdict="not run")]
