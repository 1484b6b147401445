"""A whole head on a free port, for tests: the real Control over a memory store, the
real API under uvicorn in a thread of its own, and agents that say what the test tells
them."""

import asyncio
import hashlib
import socket
import threading
import time
import uuid
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar
from unittest import mock

import httpx2
import uvicorn
from websockets.sync.client import ClientConnection, connect

from corral.api import (
    ApiSettings,
    Channels,
    create_app,
    keep_batches,
    token_digest,
)
from corral.boot.planner_process import PlannerProcess
from corral.control import Control
from corral.domain.attempt import Exit
from corral.domain.content import ContentReport
from corral.domain.desired_state import DesiredState, Version
from corral.domain.engine_limit import EngineLimit
from corral.domain.ids import BootId, NodeId, UserName
from corral.domain.node import NodeKind
from corral.domain.node_signal import Signal
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.domain.quota import ClusterLimits
from corral.domain.resources import Inventory
from corral.domain.telemetry import NodeSample
from corral.domain.users import HEAD, AuditEntry, Role, Token, User, token_id
from corral.ports.series_store import SeriesStore
from corral.store.memory_store import MemoryStore
from corral.wire.agent_messages import (
    Heartbeat,
    HeartbeatAck,
    Hello,
    WantedNow,
    encode,
    from_head,
)
from corral.wire.users import KeyRotated
from tests.patience import NEVER_SECONDS, PATIENCE_SECONDS
from tests.worlds import inventory

T = TypeVar("T")
PLAN_SECONDS = 100_000.0  # an hour, of each user
LOG_BYTES = 400_000  # that its head keeps of a rank
ROLES = {
    "admin": "admin",
    "alice": "user",
    "bob": "user",
    "n1": "node:n1",
    "n2": "node:n2",
    "n3": "node:n3",
    "olga": "operator",
    "vera": "viewer",
    "join": "join",
    "gone": "user",  # a token that was revoked
}
TOKENS = {name: f"token-of-{name}-0123456789abcdef" for name in ROLES}


class RealClock:
    def wall(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def fresh_id(self) -> str:
        return uuid.uuid4().hex


@dataclass
class PushingEngine:
    """Hands every word to the channels, as the local engine does."""

    channels: Channels
    name: str = "test"
    cannot: Mapping[str, EngineLimit] = field(
        default_factory=lambda: {
            "image": EngineLimit(reason="no images here", hint="run: corral status")
        }
    )
    could_bring: Sequence[NodeKind] = ()
    restarts_in_place: bool = True
    shown_by: str = ""
    trouble: str = ""
    is_unreachable: bool = False
    proofs: dict[NodeId, str] = field(default_factory=dict)

    def observe(self) -> Mapping[NodeId, str]:
        return self.proofs

    def gone(self) -> Set[NodeId]:
        return frozenset()

    def says(self, key: AttemptKey) -> str:
        return ""

    def apply(self, wanted: DesiredState) -> None:
        self.channels.push(wanted)


class PlainSeals:
    """Not secret, but not the value either."""

    def seal(self, name: str, value: bytes) -> bytes:
        return name.encode() + b":" + value[::-1]

    def open(self, name: str, sealed: bytes) -> bytes:
        return sealed.removeprefix(name.encode() + b":")[::-1]

    def sign(self, text: str) -> str:
        return hashlib.sha256(text.encode()).hexdigest()

    def signatures(self, text: str, made_at: float = 0.0) -> list[str]:
        return [self.sign(text)]


async def rotated(entry: AuditEntry) -> KeyRotated:
    return KeyRotated(key="ab", sealed=1, unreadable=0, earlier_until=2.0)


class Head:
    """A head that serves in its own thread."""

    def __init__(
        self,
        root: Path,
        *,
        store: MemoryStore | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        series: SeriesStore | None = None,
        more: Mapping[str, Any] | None = None,
        user_requests: float = 10_000.0,
    ) -> None:
        self.root = root
        self.more = more or {}
        self.user_requests = user_requests
        self.series = series
        self.store = store or MemoryStore()
        self.channels = Channels()
        self.planner = PlannerProcess(clock=time.monotonic, hourly_seconds=PLAN_SECONDS)
        self.engine = PushingEngine(self.channels)
        self.stopped = threading.Event()
        self.ready = threading.Event()
        # With the protocol said, asyncio switches Nagle off: else an answer waits 40
        # ms.
        self.socket = socket.socket(
            socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
        )
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind((host, port))
        self.port = int(self.socket.getsockname()[1])
        self.url = f"http://{host}:{self.port}"
        self.app: Any = None
        self.control: Control
        self.loop: asyncio.AbstractEventLoop
        self._server: uvicorn.Server
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), daemon=True
        )

    def _works(self) -> list[Coroutine[Any, Any, None]]:
        """Return the work of a head that leads, which goes on between requests."""
        return [self.control.run(), keep_batches(self.app.state.house)]

    def start(self) -> "Head":
        self._thread.start()
        assert self.ready.wait(PATIENCE_SECONDS), "the head did not start"
        return self

    def close(self) -> None:
        self.loop.call_soon_threadsafe(setattr, self._server, "should_exit", True)
        self._thread.join(PATIENCE_SECONDS)
        assert not self._thread.is_alive()

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        for name in ROLES:
            await self._admit(name)
        self.control = Control(store=self.store, engine=self.engine, clock=RealClock())
        await self.control.start()
        settings = ApiSettings(
            root=self.root,
            url=self.url,
            pid=4711,
            started_at=1.0,
            version="0.0.test",
            python="",  # the same on every machine
            seals=PlainSeals(),
            stop=self.stopped.set,
            rotate=rotated,
            snapshot_bytes=100_000,
            log_bytes=LOG_BYTES,
            **(
                {"limits": ClusterLimits(user_requests=self.user_requests)}
                | dict(self.more)
            ),
        )
        self.app = self._app(settings)
        running = asyncio.gather(*self._works())
        self._server = self._server_of(self.app)
        self._server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
        serving = asyncio.create_task(self._server.serve(sockets=[self.socket]))
        while not self._server.started and not serving.done():
            await asyncio.sleep(0.005)
        self.ready.set()
        await serving
        left: set[Any] = set(self._server.server_state.connections)
        for connection in left:  # of who does not read what is still to be sent
            connection.transport.abort()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await self.planner.close()

    def _server_of(self, app: Any) -> uvicorn.Server:
        """Plain uvicorn: what the head puts around it has tests of its own."""
        config = uvicorn.Config(
            app,
            log_level="critical",
            ws="websockets-sansio",
            lifespan="off",
            timeout_graceful_shutdown=1,
        )
        return uvicorn.Server(config)

    def _app(self, settings: ApiSettings) -> Any:
        return create_app(
            self.control,
            channels=self.channels,
            settings=settings,
            series=self.series,
            planner=self.planner,
        )

    async def _admit(self, name: str) -> None:
        """A user (or a node) and their token."""
        role, _, node = ROLES[name].partition(":")
        digest, user = token_digest(TOKENS[name]), UserName(name)
        entry = AuditEntry(at=1.0, by=HEAD, token=None, what="token.create", on=name)
        if not node and role != Role.JOIN:
            person = User(name=user, role=Role(role), created_at=1.0)
            await self.store.add_user(person, entry=entry)
        token = Token(
            id=token_id(digest),
            sha256=digest,
            user=UserName("olga") if role == Role.JOIN else user,
            role=Role(role),
            uses_left=1_000 if role == Role.JOIN else None,
            node=NodeId(node) if node else None,
            created_at=1.0,
            revoked_at=2.0 if name == "gone" else None,
        )
        await self.store.add_token(token, entry=entry)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Something on the head's own loop."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(
            PATIENCE_SECONDS
        )

    def http(self, who: str | None = "admin") -> httpx2.Client:
        headers = {"Authorization": f"Bearer {TOKENS[who]}"} if who else {}
        return httpx2.Client(
            base_url=self.url,
            headers=headers,
            timeout=PATIENCE_SECONDS,
            trust_env=False,
        )

    @contextmanager
    def dial(self, who: str, path: str) -> Iterator[ClientConnection]:
        with connect(
            f"ws://127.0.0.1:{self.port}{path}",
            additional_headers={"Authorization": f"Bearer {TOKENS[who]}"},
            compression=None,
            ping_interval=None,
            proxy=None,
        ) as connection:
            yield connection


@contextmanager
def serving(root: Path, **how: Any) -> Iterator[Head]:
    with no_haste():
        head = Head(root, **how).start()
        try:
            yield head
        finally:
            head.close()


@contextmanager
def no_haste() -> Iterator[None]:
    """The agents of these tests say only what the test tells them, however long that
    takes: a silence means nothing here. What silence means is told in tests of health
    and reconcile."""
    with ExitStack() as patches:
        for name in (
            "corral.health.liveness.SILENT_AFTER_SECONDS",
            "corral.health.liveness.BOUND_SECONDS",
            "corral.api.agent_channel.GONE_SECONDS",
            "corral.api.agent_channel.AGAIN_SECONDS",
        ):
            patches.enter_context(mock.patch(name, NEVER_SECONDS))
        yield


class Agent:
    """One node's agent, by hand."""

    def __init__(
        self, head: Head, node: str, *, boot: str = "boot-1", gpus: int = 2
    ) -> None:
        self.head = head
        self.node = NodeId(node)
        self.boot = BootId(boot)
        self.inventory: Inventory = inventory(gpus)
        self.number = 0
        self.wanted: list[DesiredState] = []
        self.heard = HeartbeatAck(0)
        self._open = ExitStack()
        self.connection = self._open.enter_context(
            head.dial(node, "/v1/agents/heartbeats")
        )

    @property
    def version(self) -> Version | None:
        return self.wanted[-1].version if self.wanted else None

    def hello(self, **other: Any) -> "Agent":
        own: dict[str, Any] = {
            "protocol": 1,
            "node": self.node,
            "boot": self.boot,
            "address": "127.0.0.1",
            "inventory": self.inventory,
        }
        self.connection.send(encode(Hello(**(own | other))))
        return self

    def beat(
        self,
        *seen: Seen,
        sample: NodeSample | None = None,
        signals: tuple[Signal, ...] = (),
        content: ContentReport | None = None,
    ) -> None:
        """Say it, and take in what comes until it was heard."""
        self.number += 1
        beat = Heartbeat(
            number=self.number,
            version=self.version,
            seen=seen,
            sample=sample,
            signals=signals,
            content=content,
        )
        self.connection.send(encode(beat))
        while True:
            message = self.receive()
            if isinstance(message, HeartbeatAck) and message.number == self.number:
                self.heard = message
                return

    def receive(self, timeout: float = PATIENCE_SECONDS) -> Any:
        message = from_head(self.connection.recv(timeout, decode=False))
        if isinstance(message, WantedNow):
            self.wanted.append(message.wanted)
        return message

    def until(self, met: Callable[[], bool]) -> None:
        """Take in what comes until it is so."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not met():
            assert time.monotonic() < deadline, "it did not come"
            self.receive()

    def close(self) -> None:
        self._open.close()


def eventually(met: Callable[[], bool], seconds: float = PATIENCE_SECONDS) -> None:
    deadline = time.monotonic() + seconds
    while not met():
        assert time.monotonic() < deadline, "it did not come to be"
        time.sleep(0.01)


def up(key: tuple[str, int], **more: Any) -> Seen:
    return Seen(key=key, phase=Phase.UP, started_at=1.0, **more)  # type: ignore[arg-type]


def ended(key: tuple[str, int], code: int = 0, ranks: int = 1, **more: Any) -> Seen:
    exits = tuple((rank, Exit(code=code)) for rank in range(ranks))
    return Seen(key=key, phase=Phase.ENDED, exits=exits, **more)  # type: ignore[arg-type]
