"""The head's process: `python -m corral.boot.head --dir DIR`. One asyncio loop for API and control.

It is ready when DIR/head.json names its process; it is gone when DIR/head.lock can be taken.
"""

import argparse
import asyncio
import fcntl
import getpass
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import structlog
import uvicorn
import uvloop
from fastapi import FastAPI

if __name__ == "__main__":
    sys.modules["numba"] = None  # type: ignore[assignment]  # a head never waits for a compiler

from corral import __version__
from corral.api import ApiSettings, Channels, create_app
from corral.boot.admit import admit_admin, admit_node
from corral.boot.clock import SystemClock
from corral.boot.foreteller import ForetellerProcess
from corral.boot.garbage import search_rarely
from corral.boot.log import configure
from corral.boot.sealing import KeyRing
from corral.boot.settings import (
    ClusterDir,
    ClusterSettings,
    once,
    read_json,
    write_atomically,
)
from corral.boot.sweep import keep_swept
from corral.control import Control, Forecasts
from corral.domain.errors import Conflict, CorralError
from corral.domain.ids import NodeId
from corral.engines.local.engine import LocalEngine
from corral.engines.local.settings import LocalSettings
from corral.store.sqlite import SqliteStore
from corral.wire.channel import FRAME_BYTES

LOOK_SECONDS: Final = 1.0
LOCK_SECONDS: Final = 2.0
SETTLE_SECONDS: Final = 5.0  # that agents are given to let go of attempts that are over
CLOSE_SECONDS: Final = 1
REPLAYS: Final = 20
EXIT_REFUSED: Final = 3
log = structlog.get_logger("corral.head")


@contextmanager
def sole_head(place: ClusterDir) -> Iterator[None]:
    """Hold the cluster's lock, which the kernel lets go of with its holder.

    Raises: Conflict when another head holds it.
    """
    clock = SystemClock()
    give_up_at = clock.monotonic() + LOCK_SECONDS
    with place.head_lock.open("a") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if clock.monotonic() > give_up_at:
                    raise Conflict(
                        f"a head runs in {place.root} already",
                        hint=f"see it: corral status --dir {place.root}",
                    ) from None
                time.sleep(0.02)  # who only looks whether a head runs lets go at once
        yield


def bind(place: ClusterDir, host: str) -> socket.socket:
    """The port of the last head, so that agents and people find this one; else a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for port in (_last_port(place), 0):
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, port))
            return listening
        except OSError as error:
            listening.close()
            if port == 0:
                raise Conflict(
                    f"no port can be had on {host}: {error.strerror}",
                    hint="keep to loopback: corral up --host 127.0.0.1",
                ) from error
            log.warning("port_taken", port=port, error=str(error))
    raise AssertionError("a free port is bound or refused")


def _last_port(place: ClusterDir) -> int:
    with suppress(CorralError, KeyError, TypeError, ValueError):
        return urlsplit(str((read_json(place.head_json) or {})["url"])).port or 0
    return 0


class Server(uvicorn.Server):
    """Uvicorn that leaves signals to the head and says when it serves."""

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.serving = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        self.serving.set()


@dataclass(slots=True, kw_only=True)
class Head:
    """What is built for one run. `down` is set when the nodes are to go with the head."""

    control: Control
    forecasts: Forecasts
    engine: LocalEngine
    server: Server
    announce: Callable[[], None]
    keep_announced: Callable[[], None]
    stopping: asyncio.Event
    about: ApiSettings
    down: bool = False

    def stop(self) -> None:
        """End the head alone: its nodes and jobs run on."""
        self.stopping.set()

    def stop_with_nodes(self) -> None:
        """End the head and its agents; jobs that are not over run on."""
        self.down = True
        self.stopping.set()

    async def run(self, listening: socket.socket) -> None:
        """Serve until told to stop. A fault in any part ends the whole: nothing runs half."""
        parts = [
            asyncio.create_task(self.server.serve(sockets=[listening])),
            asyncio.create_task(self.control.run()),
            asyncio.create_task(self.forecasts.run()),
            asyncio.create_task(self._look_after()),
            asyncio.create_task(keep_swept(self.control, self.about)),
            asyncio.create_task(self.stopping.wait()),
        ]
        await asyncio.wait(parts, return_when=asyncio.FIRST_COMPLETED)
        if self.down:
            await self._take_nodes_down()
        self.engine.close()
        self.server.should_exit = True
        serving, *others = parts
        await asyncio.wait([serving])
        for part in others:
            part.cancel()
        for outcome in await asyncio.gather(*parts, return_exceptions=True):
            if isinstance(outcome, Exception):
                raise outcome

    async def _look_after(self) -> None:
        await self.server.serving.wait()
        self.announce()
        await self.engine.start()
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.keep_announced()
            self.engine.look_after()

    async def _take_nodes_down(self) -> None:
        """Agents let go of attempts that are over first: what is left then is of living jobs."""
        unfinished = bool(self.control.world.jobs)
        clock = asyncio.get_running_loop().time
        give_up_at = clock() + (0 if unfinished else SETTLE_SECONDS)
        while clock() < give_up_at and any(node.shims() for node in self.engine.nodes.values()):
            await asyncio.sleep(0.02)
        await self.engine.down(kill=not unfinished)
        log.info("nodes_down", jobs_left=len(self.control.world.jobs))


def local_settings(settings: ClusterSettings) -> LocalSettings:
    return LocalSettings(
        nodes=settings.nodes,
        gpus=settings.gpus,
        gpu_type=settings.gpu_type,
        pretend=settings.pretend,
        gpu_shares=settings.gpu_shares,
        gpu_slices=settings.gpu_slices,
        labels=settings.labels,
        topology=settings.topology,
        shared=settings.shared,
        reboot_seconds=settings.reboot_seconds,
    )


def keeper_of_replays(place: ClusterDir, clock: SystemClock) -> Callable[[str, str], None]:
    """Keeps what was being decided when a bug was met; the first few of a run say it all."""
    kept = 0

    def keep(name: str, text: str) -> None:
        nonlocal kept
        kept += 1
        if kept <= REPLAYS:
            place.replays.mkdir(mode=0o700, exist_ok=True)
            write_atomically(place.replays / f"{clock.wall():.3f}-{name}.txt", text)

    return keep


async def serve(place: ClusterDir, settings: ClusterSettings, token: str) -> None:
    """Build one head, run it, and close what it has opened."""
    clock = SystemClock()
    channels = Channels()
    store = SqliteStore(place.database, fresh_id=clock.fresh_id)
    foreteller = ForetellerProcess()
    try:
        await admit_admin(store, token, clock.wall())
        head: Head

        async def register(node: NodeId, sha256: str) -> None:
            await admit_node(store, node, sha256, clock.wall())

        engine = LocalEngine(
            cluster_dir=place.root,
            settings=local_settings(settings),
            push=channels.push,
            register=register,
            on_death=lambda: head.control.wake(),
        )
        keep = keeper_of_replays(place, clock)
        control = Control(
            store=store,
            engine=engine,
            clock=clock,
            keep_replay=keep,
            retention=settings.retention,
        )
        await control.start()
        search_rarely()
        with bind(place, settings.host) as listening:
            about = ApiSettings(
                root=place.root,
                url=url_of(settings, listening),
                pid=os.getpid(),
                started_at=clock.wall(),
                version=__version__,
                seals=KeyRing.load(place.key),
                stop=lambda: head.stop_with_nodes(),
                account=getpass.getuser() if os.geteuid() != 0 else None,
            )
            forecasts = Forecasts(control, foreteller)
            app = create_app(control, channels=channels, settings=about, forecasts=forecasts)
            head = Head(
                control=control,
                forecasts=forecasts,
                engine=engine,
                server=Server(uvicorn_config(app, settings)),
                announce=lambda: announce(place, about),
                keep_announced=lambda: keep_announced(place, about, token),
                stopping=asyncio.Event(),
                about=about,
            )
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, head.stop)
            await head.run(listening)
    finally:
        await foreteller.close()
        await store.close()


def uvicorn_config(app: FastAPI, settings: ClusterSettings) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        ws="websockets-sansio",
        ws_max_size=FRAME_BYTES,
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        timeout_graceful_shutdown=CLOSE_SECONDS,
    )


def url_of(settings: ClusterSettings, listening: socket.socket) -> str:
    scheme = "https" if settings.tls_certificate else "http"
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    return f"{scheme}://{host}:{listening.getsockname()[1]}"


def announce(place: ClusterDir, about: ApiSettings) -> None:
    """Say where the head is, now that it serves."""
    found = {name: getattr(about, name) for name in ("pid", "url", "version", "started_at")}
    write_atomically(place.head_json, json.dumps(found))
    log.info("serving", **found)


def keep_announced(place: ClusterDir, about: ApiSettings, token: str) -> None:
    """A head whose files somebody has removed could not be found or stopped any more."""
    if not place.head_json.exists():
        announce(place, about)
    once(place.token, token.encode())


def main() -> int:
    parser = argparse.ArgumentParser(prog="corral-head", description=__doc__)
    parser.add_argument("--dir", type=Path, required=True)
    place = ClusterDir.chosen(parser.parse_args().dir)
    try:
        place.create()
        os.chdir("/")  # a folder that somebody stood in shall be free to go
        with sole_head(place):
            token = place.admin_token()
            configure(place.head_log, (token,))
            settings = ClusterSettings.load(place) or ClusterSettings()
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(serve(place, settings, token))
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
