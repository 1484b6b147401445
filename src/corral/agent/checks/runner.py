"""Runner of the check-up that the head wants of the node. The agent runs it in one
process, which it kills when an attempt is to start."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import msgspec

from corral.agent.checks.messages import CheckFinding, CheckRequest
from corral.agent.clocks import wall
from corral.agent.telemetry.sampler import Senses
from corral.domain.active_checks import CheckUp
from corral.domain.node_signal import FAILED, NOT_RUN, OVER, PASSED, Signal, SignalKind
from corral.domain.resources import Inventory
from corral.wire.node import NodeSettings

# that a killed one is waited for; one that hangs in a driver is left
END_SECONDS: Final = 2.0
LONGEST_SECONDS: Final = 600.0
MOST_DONE: Final = 64
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class Checks:
    """Runner of a node's check-ups. `is_idle` returns whether no process of an attempt
    is left on the node. `command` starts the check process."""

    node_dir: Path
    settings: NodeSettings
    senses: Senses
    inventory: Callable[[], Inventory]
    is_idle: Callable[[], bool]
    command: tuple[str, ...] = (sys.executable, "-m", "corral.agent.checks.process")
    _task: asyncio.Task[None] | None = None
    _doing: str = ""
    _done: list[str] = field(default_factory=list)
    _process: asyncio.subprocess.Process | None = None

    def want(self, checkup: CheckUp | None) -> None:
        """Run this check-up once; None means that no check-up is wanted. A different
        check-up that is running is ended."""
        wanted_id = checkup.id if checkup is not None else ""
        if self._doing and self._doing != wanted_id:
            self.end()
        if (
            checkup is None
            or wanted_id == self._doing
            or wanted_id in self._done
            or not self.is_idle()
        ):
            return
        if self._task is None or self._task.done():
            self._doing = wanted_id
            self._task = asyncio.create_task(self._run_checkup(checkup))

    def end(self) -> None:
        """Kill the check process now, with all processes that it has started."""
        process = self._process
        if process is not None and process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    async def clear(self) -> None:
        """End the check-up and wait until it has ended, because an attempt is to start."""
        if self._task is None or self._task.done():
            return
        self._doing, task = "", self._task
        self.end()
        if not (await asyncio.wait({task}, timeout=END_SECONDS))[0]:
            log.warning("a check-up does not end; jobs start while it still runs")

    async def close(self) -> None:
        await self.clear()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run_checkup(self, checkup: CheckUp) -> None:
        is_complete = False
        try:
            async with asyncio.timeout(LONGEST_SECONDS):
                is_complete = await self._run_check_process(checkup)
        except (OSError, ValueError, TimeoutError) as trouble:
            log.warning(
                "the check-up %s failed: %s",
                checkup.id,
                trouble or f"it did not end in {LONGEST_SECONDS:g} s",
            )
        finally:
            self.end()
            is_interrupted = self._doing != checkup.id
            self._doing, self._process = "", None
        self._done = [*self._done, checkup.id][-MOST_DONE:]
        code, text = (
            (None, "all checks are done")
            if is_complete
            else (NOT_RUN, "the check process failed")
        )
        if is_interrupted:
            code, text = (
                NOT_RUN,
                "the checks were stopped because a job is to start on the node",
            )
        self._report_signals([self._signal(checkup, OVER, text, code)])

    async def _run_check_process(self, checkup: CheckUp) -> bool:
        """Run the check process, and return whether it ended by itself."""
        self._process = await asyncio.create_subprocess_exec(
            *self.command,
            str(self.node_dir),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if self._doing != checkup.id:  # work came while it was started
            self.end()
        ask = CheckRequest(
            checkup=checkup,
            node=self.settings.node,
            gpus=self.inventory().gpus,
            shared=self.settings.shared,
            offset_seconds=self.senses.offset_seconds,
        )
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(msgspec.json.encode(ask) + b"\n")
            self._process.stdin.close()
        while line := await self._process.stdout.readline():
            self._report_signals(
                [
                    self._result_signal(
                        checkup, msgspec.json.decode(line, type=CheckFinding)
                    )
                ]
            )
        return await self._process.wait() == 0

    def _result_signal(self, checkup: CheckUp, found: CheckFinding) -> Signal:
        device = f"{found.kind}:{found.device}" if found.device else str(found.kind)
        code = None if found.failed is None else FAILED if found.failed else PASSED
        return self._signal(
            checkup,
            device,
            found.text,
            code if found.ran else NOT_RUN,
            gpu=found.gpu,
            value=found.value,
            unit=found.unit,
        )

    def _signal(
        self, checkup: CheckUp, device: str, text: str, code: int | None, **more: object
    ) -> Signal:
        return Signal(
            number=0,
            at=wall(),
            kind=SignalKind.CHECK,
            device=device,
            text=text,
            code=code,
            checkup=checkup.id,
            **more,  # type: ignore[arg-type]
        )

    def _report_signals(self, signals: Iterable[Signal]) -> None:
        self.senses.tell(tuple(signals))
