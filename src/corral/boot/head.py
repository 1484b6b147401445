"""The head's process: `python -m corral.boot.head --dir DIR`. API and control share one
asyncio loop.

The head is ready when DIR/head.json names its process. It has ended when DIR/head.lock
can be acquired.
"""

import argparse
import asyncio
import os
import signal
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import uvloop

if __name__ == "__main__":
    sys.modules["numba"] = None  # type: ignore[assignment]  # a head never waits for a compiler

from corral import __version__
from corral.api import ApiSettings, Channels, Front, create_app, keep_batches
from corral.boot.alerts import alerting_of
from corral.boot.audit_syslog import syslog_of
from corral.boot.bug_replays import keeper_of_replays
from corral.boot.clock import SystemClock
from corral.boot.declared_settings import LOCAL
from corral.boot.directory_access import kept_out
from corral.boot.directory_lock import sole_head
from corral.boot.directory_tokens import DirectoryToken, keep_fresh
from corral.boot.engines import build_engine, invitation, needs_of, own_nodes
from corral.boot.first_steps import begin, open_with_keys
from corral.boot.gateway_process import GatewayProcess
from corral.boot.head_address import announce, keep_announced
from corral.boot.head_log import configure
from corral.boot.head_port import bind
from corral.boot.helper_processes import Beside, beside_of
from corral.boot.http_server import HttpServer, server_of, url_of
from corral.boot.initial_tokens import NodeTokens
from corral.boot.key_rotation import HeadKeys
from corral.boot.leader_election import LeaderTerm, Turns
from corral.boot.limit_settings import work_limits
from corral.boot.monitoring import Prometheus, prometheus_of
from corral.boot.oidc_provider import provider_of
from corral.boot.process_limits import (
    GIVEN_BACK_SECONDS,
    connection_limits,
    give_back,
    prepare,
    too_few_files,
)
from corral.boot.service_gateway import ServiceGateway
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.tls import (
    Tls,
    keep_renewed,
    names_in,
    names_of,
    tls_of,
)
from corral.control import Control, Forecasts, Recorder
from corral.domain.errors import CorralError
from corral.domain.units import DAY_SECONDS
from corral.engines.batch.engine import HeadLinks, LendingEngine
from corral.engines.local.engine import LocalEngine
from corral.engines.ray.engine import RayEngine
from corral.ingress.connections import ConnectionTable
from corral.ports.engine import LivingEngine
from corral.ports.log import HeadLogger
from corral.ports.store import Store
from corral.store.series import SeriesFile

LOOK_SECONDS: Final = 1.0
SETTLE_SECONDS: Final = 5.0  # that agents are given to let go of attempts that are over
EXIT_REFUSED: Final = 3
log = HeadLogger("corral.head")

HideText = Callable[[str], None]  # keeps a secret out of the log


@dataclass(slots=True, kw_only=True)
class HeadProcess:
    """All parts of one run of the head. `down` is true if the agents of the nodes shall
    end with the head."""

    turns: Turns
    here: LivingEngine | None  # whose nodes are of this machine, whoever leads
    server: HttpServer
    announce: Callable[[], None]
    keep_announced: Callable[[], None]
    renew: Callable[[], Tls | None]
    about: ApiSettings
    tokens: list[DirectoryToken]
    keys: HeadKeys
    gateway: GatewayProcess
    prometheus: Prometheus | None = None
    down: bool = False
    stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """End only the head. Its nodes and jobs continue to run."""
        self.stopping.set()

    def stop_with_nodes(self) -> None:
        """End the head and its agents. Unfinished jobs continue to run."""
        self.down = True
        self.stopping.set()

    async def run(self, listening: socket.socket) -> None:
        """Serve until stopped. An error in any part ends the whole head."""
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, self.stop)
        tasks = [
            asyncio.create_task(self._serve_when_ready(listening)),
            asyncio.create_task(self.turns.run()),
            asyncio.create_task(self._look_after()),
            asyncio.create_task(
                keep_renewed(self.renew, lambda: self.server.config.ssl)
            ),
            asyncio.create_task(keep_fresh(self.tokens)),
            asyncio.create_task(self.keys.keep(lambda: self.turns.term is not None)),
            asyncio.create_task(self.stopping.wait()),
        ]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        await self.turns.say_goodbye()
        jobs_left = await self._take_nodes_down() if self.down else True
        if self.here is not None:
            self.here.close()
        if self.prometheus is not None:
            self.prometheus.close()
        self.server.should_exit = True
        serving, *other_tasks = tasks
        if self.server.serving.is_set():
            await asyncio.wait([serving])
        await self.turns.leave()
        for task in [serving, *other_tasks]:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        if not jobs_left:  # else it serves on, as the replicas do
            await asyncio.to_thread(self.gateway.kill)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def _serve_when_ready(self, listening: socket.socket) -> None:
        """Serve requests as soon as the head can answer them."""
        await self.turns.ready.wait()
        await self.server.serve(sockets=[listening])

    async def _look_after(self) -> None:
        await self.server.serving.wait()
        self.announce()
        if self.here is not None:
            await self.here.start()
        clock = asyncio.get_running_loop().time
        given_back_at = clock()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.keep_announced()
            if clock() - given_back_at >= GIVEN_BACK_SECONDS:
                given_back_at = clock()
                give_back()
            if self.prometheus is not None:
                self.prometheus.look_after(self.about.url)
            if self.here is not None:
                self.here.look_after()

    async def _take_nodes_down(self) -> bool:
        """Stop the agents of the nodes, and return whether jobs are left that go on. If
        no job is unfinished, the agents get some time to clean up ended attempts first.
        If another head takes over, the agents of unfinished jobs continue to run for
        that head."""
        unfinished, engine = self.turns.has_jobs(), self.here or self.turns.lent
        if engine is None:
            return bool(unfinished)
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + (0 if unfinished else SETTLE_SECONDS)
        while clock() < give_up_at and not engine.is_empty():
            await asyncio.sleep(0.02)
        is_unfinished = not engine.is_empty() if unfinished is None else unfinished
        if self.turns.alone or not is_unfinished:
            await engine.down(kill=not is_unfinished)
        log.info("nodes_down", jobs_left=is_unfinished)
        return is_unfinished


def engine_of(
    place: ClusterDir,
    settings: ClusterSettings,
    channels: Channels,
    tokens: NodeTokens,
    turns: Callable[[], Turns],
) -> LivingEngine:
    """Return the engine that the settings request, with its links to the current
    leader."""
    snapshots = Path(settings.shared_state or place.root) / "snapshots"
    links = HeadLinks(
        push=channels.push,
        hear=lambda word: turns().hear(word),
        register=tokens.register,
        forget=tokens.forget,
        wake=lambda: turns().wake(),
        serving=lambda: turns().serving_seconds(),
        cluster=lambda: turns().cluster(),
        hears=channels.is_connected,
        waiting=lambda: turns().waiting(),
        workdir=lambda digest: snapshots / f"{digest}.tar.gz",
        queues=lambda job: turns().queues(job),
    )
    engine = build_engine(place, settings, links)
    if isinstance(engine, LendingEngine):
        channels.lender = engine
    if isinstance(engine, RayEngine):
        channels.amend = engine.amend
    if isinstance(engine, LocalEngine | RayEngine):
        channels.taking.labels = engine.labels_of
    return engine


def _shared_folder(settings: ClusterSettings) -> Path | None:
    return Path(settings.shared_state) if settings.shared_state else None


def _served_names(settings: ClusterSettings, tls: Tls | None) -> tuple[str, ...]:
    """Return the host names that the certificate is for; none without TLS."""
    if tls is None:
        return ()
    return (*names_of(settings.host), *names_in(tls.certificate))


async def serve(place: ClusterDir, settings: ClusterSettings, hide: HideText) -> None:
    """Build one head, run it, and close all that it has opened."""
    clock = SystemClock()
    store, keys = open_with_keys(place, settings, clock)
    beside = beside_of(clock, place, settings)
    try:
        prometheus = prometheus_of(place, settings)
        tokens = await begin(store, place, settings, keys, prometheus, clock, hide)
        tls = tls_of(place, settings, clock.wall())
        with bind(place, settings.host, settings.port) as listening:
            table = ConnectionTable(connection_limits(), clock.monotonic)
            syslog = syslog_of(place, settings, store)
            about = ApiSettings(
                root=place.root,
                url=url_of(settings, listening, tls),
                pid=os.getpid(),
                started_at=clock.wall(),
                version=__version__,
                seals=keys.ring,
                rotate=keys.rotate,
                stop=lambda: head.stop_with_nodes(),
                hosts=_served_names(settings, tls),
                gateway_url=lambda: beside.gateway.url,
                trusted=lambda: "" if tls is None else tls.trusted.read_text(),
                fingerprint=lambda: "" if tls is None else tls.fingerprint,
                own_nodes=lambda: own_nodes(head.here or head.turns.lent),
                needs=lambda: needs_of(settings),
                invite=lambda node: invitation(head.turns.lent, node),
                kept_out=lambda users: kept_out(place.root, settings.engine, users),
                shared=_shared_folder(settings),
                heads=lambda: head.turns.heads(),
                sign_on=provider_of(settings, clock),
                too_few_files=too_few_files,
                connections=table,
                audit_trouble=lambda: "" if syslog is None else syslog.trouble(),
                token_seconds=settings.token_days * DAY_SECONDS,
                operators_add_machines=settings.operators_add_machines,
                fallback_private_ok=settings.fallback_private_ok,
                limits=settings.limits,
                work=work_limits(settings.keep_work_days, settings.keep_work_size),
            )
            turns, here = turns_of(place, settings, store, clock, about, beside)
            turns.syslog = syslog
            head = HeadProcess(
                turns=turns,
                here=here,
                server=server_of(settings, turns.front, tls, table),
                renew=lambda: tls_of(place, settings, clock.wall()),
                announce=lambda: announce(place, about),
                keep_announced=lambda: keep_announced(place, about, tokens[0].secret),
                about=about,
                tokens=tokens,
                keys=keys,
                gateway=beside.gateway,
                prometheus=prometheus,
            )
            await head.run(listening)
    finally:
        await beside.close()
        await store.close()


def control_of(
    place: ClusterDir,
    settings: ClusterSettings,
    store: Store,
    clock: SystemClock,
    engine: LivingEngine,
    beside: Beside,
) -> Control:
    """Return the control loop for one term of leadership, not started yet."""
    return Control(
        store=store,
        engine=engine,
        clock=clock,
        placer=engine.placer if isinstance(engine, LendingEngine) else None,
        reader=beside.reader,
        keep_replay=keeper_of_replays(place, clock),
        retention=settings.retention,
        health=settings.health_rules,
    )


def service_gateway_of(
    control: Control, about: ApiSettings, beside: Beside
) -> ServiceGateway:
    """Return the work of a leading head for its gateway."""
    return ServiceGateway(
        control=control,
        process=beside.gateway,
        seals=about.seals,
        quotas=about.limits.quotas,
        fallback_private_ok=about.fallback_private_ok,
    )


def turns_of(
    place: ClusterDir,
    settings: ClusterSettings,
    store: Store,
    clock: SystemClock,
    about: ApiSettings,
    beside: Beside,
) -> tuple[Turns, LivingEngine | None]:
    """Return the object that leads and stands by in turn, and the local engine for
    nodes of this machine; None if another engine provides the nodes."""
    channels, tokens = (
        Channels(),
        NodeTokens(store, clock.wall, settings.node_token_seconds),
    )
    channels.renewed = tokens.renewed
    turns: Turns

    def engine() -> LivingEngine:
        return engine_of(place, settings, channels, tokens, lambda: turns)

    local_engine = engine() if settings.engine == LOCAL else None

    def term() -> LeaderTerm:
        works = local_engine or engine()
        control = control_of(place, settings, store, clock, works, beside)
        forecasts = Forecasts(control, beside.foreteller)
        series, alerting = SeriesFile(place.series), alerting_of(control, place.root)
        app = create_app(
            control,
            channels=channels,
            settings=about,
            forecasts=forecasts,
            series=series,
            alerting=alerting,
            planner=beside.planner,
        )
        return LeaderTerm(
            control=control,
            forecasts=forecasts,
            recorder=Recorder(control, series),
            gateway=service_gateway_of(control, about, beside),
            alerting=alerting,
            app=app,
            log_quota=app.state.house.log_quota,
            batches=lambda: keep_batches(app.state.house),
            lent=None if works is local_engine else works,
        )

    turns = Turns(
        store=store,
        clock=clock,
        about=about,
        front=Front(),
        channels=channels,
        build=term,
        name=settings.head_name,
        alone=settings.store_file is None,
    )
    return turns, local_engine


def main() -> int:
    parser = argparse.ArgumentParser(prog="corral-head", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True)
    cluster_dir = ClusterDir.chosen(parser.parse_args().dir)
    try:
        cluster_dir.create()
        os.chdir("/")  # do not block the removal of the current directory
        with sole_head(cluster_dir):
            redaction = configure(cluster_dir.head_log)
            prepare()
            settings = ClusterSettings.load(cluster_dir) or ClusterSettings()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve(cluster_dir, settings, redaction.hide))
    except CorralError as error:
        log.error("head_refused", code=error.code, error=error.message, hint=error.hint)
        print(f"{error.message}\n{error.hint}", file=sys.stderr)
        return EXIT_REFUSED
    except Exception:
        log.exception("head_failed")
        raise
    log.info("stopped")
    return 0


if __name__ == "__main__":
    sys.exit(main())
