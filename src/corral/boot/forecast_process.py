"""Helper process of the head that simulates the future from the current state.

Start it with `python -m corral.boot.forecast_process`.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import msgspec

from corral.boot.clock import SystemClock
from corral.boot.helper_process import HelperProcess, answer_on
from corral.domain.errors import Trouble
from corral.domain.run_history import Question, StartForecast
from corral.ports.log import HeadLogger

THINK_SECONDS: Final = 2.0  # then no further run of the present is begun
ANSWER_SECONDS: Final = 20.0  # then the process is taken for lost
MOST_IN_LINE: Final = 16
log = HeadLogger("corral.boot")


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastAnswer:
    """The forecast that answers one question. `fault` describes a bug that occurred
    during this question; it does not affect the next question."""

    forecast: StartForecast | None = None
    fault: str = ""


_QUESTIONS: Final = msgspec.msgpack.Decoder(Question)
_ANSWERS: Final = msgspec.msgpack.Decoder(ForecastAnswer)


@dataclass(slots=True)
class ForetellerProcess:
    """Implementation of ports.Foreteller by a helper process."""

    _helper: HelperProcess = field(
        default_factory=lambda: HelperProcess("corral.boot.forecast_process")
    )
    _in_line: int = 0

    @property
    def pid(self) -> int | None:
        """The id of the helper process; None before the first question."""
        return self._helper.pid

    async def forecast(self, question: Question) -> StartForecast | None:
        if self._in_line >= MOST_IN_LINE:
            raise Trouble(
                "too many start forecasts are requested now",
                hint="try again in a moment",
            )
        self._in_line += 1
        try:
            answer_bytes = await self._helper.ask(
                lambda: msgspec.msgpack.encode(question), ANSWER_SECONDS
            )
            answer = _ANSWERS.decode(answer_bytes)
        except (TimeoutError, OSError, EOFError, msgspec.MsgspecError) as error:
            log.warning("foreteller_lost", error=repr(error))
            raise Trouble(
                "the start forecast was not ready in time", hint="try again"
            ) from error
        finally:
            self._in_line -= 1
        if answer.fault:
            raise Trouble(
                f"the start forecast failed because of a bug in Corral: {answer.fault}",
                hint="look for this error in head.log",
            )
        return answer.forecast

    async def close(self) -> None:
        """End the process, and wait until it has ended."""
        await self._helper.close()


def main() -> None:
    """Answer questions, one after the other, until the pipe is closed."""
    sys.modules["numba"] = None  # type: ignore[assignment]  # nothing here waits for a compiler
    from corral.reconcile.start_forecast import foretell

    clock = SystemClock()

    def answer(text: bytes) -> bytes:
        is_within = partial(_is_within, clock.monotonic(), clock)
        return msgspec.msgpack.encode(
            _compute_forecast(foretell, _QUESTIONS.decode(text), is_within)
        )

    answer_on(answer)


def _is_within(began: float, clock: SystemClock, part: float) -> bool:
    return clock.monotonic() - began < part * THINK_SECONDS


def _compute_forecast(
    foretell: Callable[[Question, Callable[[float], bool]], StartForecast | None],
    question: Question,
    is_within: Callable[[float], bool],
) -> ForecastAnswer:
    try:
        return ForecastAnswer(forecast=foretell(question, is_within))
    except Exception as error:
        return ForecastAnswer(fault=repr(error))


if __name__ == "__main__":
    main()
