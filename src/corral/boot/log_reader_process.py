"""Helper process of the head that reads the last lines of logs.

Run it with `python -m corral.boot.log_reader_process`. Programs print arbitrary text.
The expressions that parse it are linear, but the tails of a thousand ranks take
seconds. In the head's event loop, heartbeats would not be processed during that time.
"""

import sys
from dataclasses import dataclass, field
from typing import Final

import msgspec

from corral.boot.helper_process import HelperProcess, answer_on
from corral.domain.diagnosis import RankEnds
from corral.domain.errors import Trouble
from corral.domain.failure_class import Failure
from corral.ports.log import HeadLogger

READ_SECONDS: Final = 5.0  # for one attempt
log = HeadLogger("corral.boot")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReaderAnswer:
    """The cause of failure found in one set of log tails, if any. `fault`: a bug of the
    reader that these lines caused."""

    failure: Failure | None = None
    fault: str = ""


_ENDS: Final = msgspec.msgpack.Decoder(RankEnds)
_ANSWERS: Final = msgspec.msgpack.Decoder(LogReaderAnswer)


@dataclass(slots=True)
class ReaderProcess:
    """Implementation of ports.Reader in a separate process."""

    _helper: HelperProcess = field(
        default_factory=lambda: HelperProcess("corral.boot.log_reader_process")
    )

    @property
    def pid(self) -> int | None:
        """Return the id of the helper process; None before the first reading."""
        return self._helper.pid

    async def failure(self, ends: RankEnds) -> Failure | None:
        try:
            answer_bytes = await self._helper.ask(
                lambda: msgspec.msgpack.encode(ends), READ_SECONDS
            )
            answer = _ANSWERS.decode(answer_bytes)
        except (TimeoutError, OSError, EOFError, msgspec.MsgspecError) as error:
            log.warning("reader_lost", error=repr(error))
            reason = (
                f"the log reader did not answer within {READ_SECONDS:g} s"
                if isinstance(error, TimeoutError)
                else f"the log reader has failed: {error!r}"
            )
            raise Trouble(f"{_lines_text(ends)} could not be read: {reason}") from error
        if answer.fault:
            log.error("reader_fault", error=answer.fault)
            raise Trouble(
                f"{_lines_text(ends)} could not be read: a bug of the log reader: "
                f"{answer.fault}"
            )
        return answer.failure

    async def close(self) -> None:
        """End the process, and wait until it is gone."""
        await self._helper.close()


def _lines_text(ends: RankEnds) -> str:
    """Return which lines were to be read, for an error text."""
    return f"the last log lines of the attempt (ranks: {len(ends)})"


def main() -> None:
    """Answer requests one after the other until the pipe is closed."""
    sys.modules["numba"] = None  # type: ignore[assignment]  # nothing here waits for a compiler
    from corral.health.gang_failure import failure_of

    def answer(text: bytes) -> bytes:
        try:
            result = LogReaderAnswer(failure=failure_of(_ENDS.decode(text)))
        except Exception as error:
            result = LogReaderAnswer(fault=repr(error)[:1000])
        return msgspec.msgpack.encode(result)

    answer_on(answer)


if __name__ == "__main__":
    main()
