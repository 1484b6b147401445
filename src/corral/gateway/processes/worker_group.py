"""Group of worker processes on one listening socket, and the process that keeps it."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
from contextlib import suppress
from typing import Final

from corral.gateway.counting.counter_file import (
    MOST_COUNTER_FILES,
    CounterFile,
    decode_files,
    encode_files,
)
from corral.gateway.processes.listening_socket import (
    METRICS_VARIABLE,
    PARENT_VARIABLE,
    WORKER_VARIABLE,
    report_ready,
    start_process,
)
from corral.gateway.processes.process_record import write_record
from corral.gateway.processes.settings import GatewaySettings

log = logging.getLogger(__name__)

LOOK_SECONDS: Final = 0.1
# a worker that ends sooner after its start is started again later, and later again
STEADY_SECONDS: Final = 5.0
RESTART_SECONDS: Final = 0.5
MOST_RESTART_SECONDS: Final = 30.0
START_SECONDS: Final = 60.0


class WorkerGroup:
    """Workers of one gateway. A worker that has died is started again."""

    def __init__(self, settings: GatewaySettings, listening: socket.socket) -> None:
        self._settings = settings
        self._listening = listening
        self._workers: dict[int, subprocess.Popen[bytes]] = {}
        self._parent_pipe = os.pipe()
        _, inherited = decode_files(os.environ.get(METRICS_VARIABLE, ""))
        # files without names: none is left behind, however the gateway ends
        files = [CounterFile.create() for _ in range(settings.workers)]
        self._metrics = files + inherited[: MOST_COUNTER_FILES - len(files)]
        self._is_ending = False
        self._wants_successor = False
        self._news = asyncio.Event()
        # by number: when the worker was started, its early ends in a row, and when it
        # may be started again
        self._started_at: dict[int, float] = {}
        self._early_ends: dict[int, int] = {}
        self._restart_at: dict[int, float] = {}

    async def run(self) -> int:
        """Keep the workers until a signal ends them; return the exit code."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._end, signal.SIGTERM)
        loop.add_signal_handler(signal.SIGINT, self._end, signal.SIGTERM)
        loop.add_signal_handler(signal.SIGUSR2, self._request_successor)
        for number in range(self._settings.workers):
            if not await self._start(number):
                self._end(signal.SIGTERM)
                return 1
        write_record(self._settings, self._listening)
        report_ready(os.environ)
        while not self._is_ending:
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._news.wait()
            self._news.clear()
            if self._wants_successor:
                self._wants_successor = False
                await self._hand_over()
            else:
                await self._replace_dead()
        while any(worker.poll() is None for worker in self._workers.values()):
            await asyncio.sleep(LOOK_SECONDS)
        return 0

    async def _start(self, number: int) -> bool:
        """Start a worker and wait until it accepts requests; False if it has died."""
        written = self._metrics[number]
        others = [file for file in self._metrics if file is not written]
        process, ready = start_process(
            self._listening,
            variables={
                WORKER_VARIABLE: str(number),
                PARENT_VARIABLE: str(self._parent_pipe[0]),
                METRICS_VARIABLE: encode_files(written, others),
            },
            descriptors=[self._parent_pipe[0], *self._descriptors],
        )
        self._workers[number] = process
        self._restart_at.pop(number, None)
        self._started_at[number] = asyncio.get_running_loop().time()
        self._watch(process)
        return await _is_ready(process, ready)

    def _watch(self, process: subprocess.Popen[bytes]) -> None:
        """Wake up when the process ends. Elsewhere than on Linux, the next look is in
        LOOK_SECONDS."""
        if not hasattr(os, "pidfd_open"):
            return
        loop = asyncio.get_running_loop()
        descriptor = os.pidfd_open(process.pid)

        def note_end() -> None:
            loop.remove_reader(descriptor)
            os.close(descriptor)
            self._news.set()

        loop.add_reader(descriptor, note_end)

    @property
    def _descriptors(self) -> list[int]:
        return [file.descriptor for file in self._metrics]

    async def _replace_dead(self) -> None:
        """Start the workers that have ended: at once, or later if they end again and
        again. The socket keeps connections that come meanwhile."""
        now = asyncio.get_running_loop().time()
        for number, worker in list(self._workers.items()):
            code = worker.poll()
            if code is None:
                continue
            if number not in self._restart_at:
                log.error("worker %d has ended with code %d", number, code)
                self._restart_at[number] = now + self._restart_seconds(number, now)
            if now >= self._restart_at[number] and not self._is_ending:
                await self._start(number)

    def _restart_seconds(self, number: int, now: float) -> float:
        if now - self._started_at[number] >= STEADY_SECONDS:
            self._early_ends[number] = 0
            return 0.0
        early = self._early_ends.get(number, 0)
        self._early_ends[number] = early + 1
        if not early:
            return 0.0
        return min(MOST_RESTART_SECONDS, RESTART_SECONDS * 2.0 ** min(early, 8))

    def _end(self, number: signal.Signals) -> None:
        self._is_ending = True
        self._listening.close()  # nothing may wait in a socket that no worker serves
        for worker in self._workers.values():
            if worker.poll() is None:
                worker.send_signal(number)

    def _request_successor(self) -> None:
        self._wants_successor = True

    async def _hand_over(self) -> None:
        """Start a successor of the group; end the workers when it accepts requests."""
        process, ready = start_process(
            self._listening,
            variables={METRICS_VARIABLE: encode_files(None, self._metrics)},
            descriptors=self._descriptors,
        )
        if await _is_ready(process, ready):
            log.info("process %d has taken over", process.pid)
            self._end(signal.SIGUSR1)
        else:
            log.error("the successor has not started; these workers stay")


async def _is_ready(process: subprocess.Popen[bytes], ready: int) -> bool:
    """Wait for the report of a process; a process without one is ended."""
    loop = asyncio.get_running_loop()
    reported = asyncio.Event()
    loop.add_reader(ready, reported.set)
    try:
        async with asyncio.timeout(START_SECONDS):
            await reported.wait()
        report = os.read(ready, 1)
    except TimeoutError:
        report = b""
    finally:
        loop.remove_reader(ready)
        os.close(ready)
    if not report:
        process.kill()
        process.wait()
    return bool(report)
