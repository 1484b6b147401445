"""One process that serves requests: its loop, its signals, and its end."""

import asyncio
import logging
import os
import signal
import socket
import subprocess
from pathlib import Path
from typing import Final

from corral.gateway.counting.counter_file import decode_files, encode_files
from corral.gateway.counting.gateway_metrics import GatewayMetrics
from corral.gateway.counting.kept_counters import KeptCounters, kept_folder
from corral.gateway.framing.client_connection import ClientConnection
from corral.gateway.gateway_core import (
    DRAINING_IDLE_SECONDS,
    HANDED_OVER_IDLE_SECONDS,
    GatewayCore,
)
from corral.gateway.processes.certificate_watch import CertificateWatch
from corral.gateway.processes.listening_socket import (
    BACKLOG,
    METRICS_VARIABLE,
    parent_descriptor,
    report_ready,
    start_process,
)
from corral.gateway.processes.process_record import take_record
from corral.gateway.processes.settings import GatewaySettings
from corral.gateway.routes_watch import RoutesWatch
from corral.gateway.routing.response_files import ResponseFiles, response_folder
from corral.gateway.routing.response_places import SharedPlaces

log = logging.getLogger(__name__)

SUCCESSOR_SECONDS: Final = 60.0
LOOK_SECONDS: Final = 0.05
HANDSHAKE_SECONDS: Final = 10.0
TLS_BEGIN_SECONDS: Final = 1.0  # for handshakes under way, when the process is to end


class GatewayWorker:
    """Server of requests on a listening socket, until it has drained."""

    def __init__(
        self, settings: GatewaySettings, listening: socket.socket, *, share: float
    ) -> None:
        self._settings = settings
        self._listening = listening
        self._share = share
        self._drain: asyncio.Future[tuple[float, float]] | None = None
        self._successor: subprocess.Popen[bytes] | None = None
        self._metrics: GatewayMetrics | None = None
        self._is_cut_short = False
        self._parent_pid = os.getppid()

    async def run(self) -> None:
        """Serve until a signal ends it. Raises: RoutesInvalid, CertificateInvalid."""
        loop = asyncio.get_running_loop()
        self._drain = loop.create_future()
        file, others = decode_files(os.environ.get(METRICS_VARIABLE, ""))
        metrics = GatewayMetrics(file, others)
        core = GatewayCore(
            loop,
            share=self._share,
            metrics=metrics,
            counters_key=self._settings.counters_key,
            head_address=self._settings.head,
            shared_places=self._shared_places(metrics.own.process),
        )
        self._metrics = core.metrics
        watch = RoutesWatch(core, self._settings.routes, self._settings.host)
        watch.start(loop)
        certificate = self._certificate(loop)
        server = await loop.create_server(
            lambda: ClientConnection(core),
            sock=self._listening,
            backlog=BACKLOG,
            ssl=None if certificate is None else certificate.context,
            ssl_handshake_timeout=None if certificate is None else HANDSHAKE_SECONDS,
        )
        core.start_sweep()
        counters = self._keep_counters(core, loop)
        self._add_signals(loop)
        address = self._listening.getsockname()
        log.info("listening on %s, port %d", address[0], address[1])
        report_ready(os.environ)
        idle_seconds, seconds = await self._drain
        server.close()
        core.drain(idle_seconds)
        # what was accepted just now is not among the connections yet
        await asyncio.sleep(LOOK_SECONDS if certificate is None else TLS_BEGIN_SECONDS)
        await self._wait_for_end(core, seconds)
        core.stop_sweep()
        core.publish_metrics()
        if counters is not None:
            counters.stop()
        if certificate is not None:
            certificate.stop()
        watch.stop()

    def _shared_places(self, process: str) -> SharedPlaces | None:
        """Return the places of responses that all processes of the gateway share, in
        the directory of the record, if the settings name one."""
        if self._settings.record is None:
            return None
        return SharedPlaces(
            ResponseFiles(response_folder(self._settings.record), process)
        )

    def _certificate(self, loop: asyncio.AbstractEventLoop) -> CertificateWatch | None:
        """Return the certificate of the settings, which is watched from now on; None
        without one. Raises: CertificateInvalid."""
        certificate, key = self._settings.tls_certificate, self._settings.tls_key
        if certificate is None or key is None:
            return None
        watch = CertificateWatch(certificate, key)
        watch.start(loop)
        return watch

    def _keep_counters(
        self, core: GatewayCore, loop: asyncio.AbstractEventLoop
    ) -> KeptCounters | None:
        """Keep the counters in the directory of the record, if the settings name one."""
        if self._settings.record is None:
            return None
        folder = kept_folder(self._settings.record)
        counters = KeptCounters(folder, core.metrics.own, core.publish_metrics)
        counters.start(loop)
        return counters

    async def _wait_for_end(self, core: GatewayCore, seconds: float) -> None:
        end = core.now() + seconds
        while core.connections and core.now() < end and not self._is_cut_short:
            await asyncio.sleep(LOOK_SECONDS)
        core.end_tunnels()
        await asyncio.sleep(
            0
        )  # closing after what was written takes a turn of the loop
        for client in list(core.connections):
            client.abort()

    def _add_signals(self, loop: asyncio.AbstractEventLoop) -> None:
        drain = (DRAINING_IDLE_SECONDS, self._settings.drain_seconds)
        loop.add_signal_handler(signal.SIGTERM, self._terminate, drain)
        loop.add_signal_handler(signal.SIGINT, self._terminate, drain)
        hand_over = (HANDED_OVER_IDLE_SECONDS, self._settings.hand_over_seconds)
        loop.add_signal_handler(signal.SIGUSR1, self._end, hand_over)
        loop.add_signal_handler(signal.SIGUSR2, self._hand_over, loop)
        parent = parent_descriptor(os.environ)
        if parent is not None:
            loop.add_reader(parent, self._lose_parent, loop, parent, drain)

    def _lose_parent(
        self, loop: asyncio.AbstractEventLoop, parent: int, drain: tuple[float, float]
    ) -> None:
        """Serve on without a parent until another group has the socket."""
        loop.remove_reader(parent)
        assert self._drain is not None
        if self._drain.done():
            log.error("the parent process has died; this worker ends at once")
            self._is_cut_short = True
        elif self._settings.record is None:
            log.error("the parent process has died; this worker ends")
            self._end(drain)
        else:
            log.error("the parent process has died; another one is started")
            self._replace_parent(loop, self._settings.record)

    def _replace_parent(self, loop: asyncio.AbstractEventLoop, record: Path) -> None:
        """Start a successor, or leave it to the worker that has done so. That worker is
        recorded as the gateway until the successor serves."""
        try:
            is_first = take_record(
                record, self._settings, self._listening, self._parent_pid
            )
        except OSError as error:
            log.error("the process cannot be recorded: %s", error.strerror)
            is_first = False
        if is_first:
            self._hand_over(loop)
        else:
            self._end((HANDED_OVER_IDLE_SECONDS, self._settings.hand_over_seconds))

    def _terminate(self, drain: tuple[float, float]) -> None:
        """End, and end a successor that does not serve yet."""
        if self._successor is not None:
            self._successor.terminate()
        self._end(drain)

    def _end(self, drain: tuple[float, float]) -> None:
        assert self._drain is not None
        if not self._drain.done():
            self._drain.set_result(drain)

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start a successor on the listening socket; end when it accepts requests."""
        if self._successor is not None:
            log.warning("a successor is being started already")
            return
        try:
            assert self._metrics is not None
            files = self._metrics.share()
            self._successor, ready = start_process(
                self._listening,
                variables={METRICS_VARIABLE: encode_files(None, files)},
                descriptors=[file.descriptor for file in files],
            )
        except OSError as error:
            log.error("a successor cannot be started: %s", error)
            return
        timer = loop.call_later(SUCCESSOR_SECONDS, self._successor.kill)
        loop.add_reader(ready, self._successor_reports, loop, ready, timer)

    def _successor_reports(
        self,
        loop: asyncio.AbstractEventLoop,
        ready: int,
        timer: asyncio.TimerHandle,
    ) -> None:
        loop.remove_reader(ready)
        timer.cancel()
        report = os.read(ready, 1)
        os.close(ready)
        assert self._successor is not None
        if not report:
            code = self._successor.wait()
            self._successor = None
            log.error("the successor has ended with code %d; this process stays", code)
            return
        log.info("process %d has taken over", self._successor.pid)
        self._successor = None
        self._end((HANDED_OVER_IDLE_SECONDS, self._settings.hand_over_seconds))
