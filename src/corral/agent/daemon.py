"""The agent as a process: one for each node, with one asyncio thread, running until
SIGTERM."""

import asyncio
import fcntl
import logging
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from ssl import SSLContext
from typing import Final

from websockets.asyncio.client import ClientConnection

from corral.agent import output_capture
from corral.agent.agent import Agent
from corral.agent.clocks import since_boot
from corral.agent.connection import Dialler, first_of
from corral.agent.discovery.client import Probe
from corral.agent.fetch_inputs import Prepare
from corral.agent.head_addresses import HeadAddresses
from corral.agent.image.image_cache import Images
from corral.agent.last_desired import LastDesired
from corral.agent.node_boot import boot_id
from corral.agent.outputs.server import OutputServer
from corral.agent.port_range import PortBlock
from corral.agent.processes import ENDINGS, myself
from corral.agent.settings import load_settings, load_token, trust
from corral.agent.supervisor.supervisor import Supervisor
from corral.agent.telemetry.sampler import Senses
from corral.agent.terminal_bridge import carry
from corral.agent.user_accounts import Accounts
from corral.agent.watching.stack_server import StackServer
from corral.domain.errors import Refusal
from corral.domain.ids import BootId
from corral.domain.resources import Inventory
from corral.wire.agent_messages import AttachNow, SignalNow
from corral.wire.node import NodeSettings

PORTS: Final = "ports"
log = logging.getLogger(__name__)


class AlreadyRunning(Refusal):
    """Another agent already runs in this node's directory."""

    code = "already_running"


def serve(node_dir: Path) -> None:
    """Run the agent of the node until SIGTERM; its attempts continue after that.

    Raises: Refusal when the folder cannot be used or has an agent already.
    """
    settings, token = load_settings(node_dir), load_token(node_dir)
    with sole_agent(node_dir):
        logging.basicConfig(
            level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
        )
        logging.getLogger("websockets").setLevel(logging.WARNING)
        myself().record(node_dir / "agent.pid")
        os.chdir("/")
        asyncio.run(_run_agent_daemon(node_dir, settings, token))


@contextmanager
def sole_agent(node_dir: Path) -> Iterator[None]:
    """Hold the node's lock, which the kernel releases when its holder ends.

    Raises: AlreadyRunning when another agent holds it.
    """
    with (node_dir / "agent.lock").open("a") as lock:
        os.fchmod(lock.fileno(), 0o600)  # whoever may open it could hold the lock
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"another agent runs in {node_dir}",
                hint="use another directory, or stop the agent whose process id is in "
                f"{node_dir / 'agent.pid'}",
            ) from None
        yield


async def _run_agent_daemon(node_dir: Path, settings: NodeSettings, token: str) -> None:
    stopped = asyncio.Event()
    for number in ENDINGS:
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    async with agent_of(node_dir, settings, token, Supervisor) as (agent, _):
        await _run_until_stopped(agent.run(), stopped)


@asynccontextmanager
async def agent_of(
    node_dir: Path, settings: NodeSettings, token: str, kind: type[Supervisor]
) -> AsyncIterator[tuple[Agent, Supervisor]]:
    """Yield an agent, with its supervisor of class `kind`, that has taken over the
    attempts of an earlier agent. When the block ends, the attempts continue."""
    changed = _Changes()
    supervisor = kind(node_dir, settings=settings, on_change=changed)
    boot = boot_id(node_dir)
    await supervisor.start()
    ports = PortBlock(node_dir / PORTS, settings.index)
    agent = assemble(node_dir, settings, token, boot, supervisor, ports)
    changed.tell = agent.changed
    try:
        yield agent, supervisor
    finally:
        await supervisor.close()
        ports.close()


class _Changes:
    """Callback for the supervisor's changes. It can be used before the agent exists."""

    def __init__(self) -> None:
        self.tell: Callable[[], None] = lambda: None

    def __call__(self) -> None:
        self.tell()


def assemble(
    node_dir: Path,
    settings: NodeSettings,
    token: str,
    boot: BootId,
    supervisor: Supervisor,
    ports: PortBlock,
) -> Agent:
    """Build an agent from its parts.

    Raises: SettingsInvalid, OSError when the node's settings or folder cannot be used.
    """
    trusted = trust(settings)
    heads = HeadAddresses(Path(settings.head_file), node_dir)
    probe = Probe(
        node_dir=node_dir,
        settings=settings,
        containment=supervisor.containment.kind,
        ports=ports,
    )

    async def look(held_ports: frozenset[int]) -> Inventory:
        return await probe.look(supervisor.launcher_pid, held_ports)

    async def pump(request: AttachNow, connection: ClientConnection) -> None:
        await carry(
            connection,
            *await supervisor.attach(
                (request.job, request.attempt),
                request.rank,
                request.shell,
                request.rows,
                request.columns,
                request.command,
            ),
        )

    def send(request: SignalNow) -> None:
        supervisor.signal((request.job, request.attempt), request.number, request.to)

    return Agent(
        node_dir=node_dir,
        settings=settings,
        boot=boot,
        ranks=supervisor,
        known=LastDesired(node_dir, since_boot()),
        dialler=Dialler(heads=heads, token=token, trusted=trusted),
        prepare=_preparing(node_dir, settings, heads, token, trusted),
        read=output_capture.read,
        look=look,
        pump=pump,
        send=send,
        clock=since_boot,
        senses=Senses(node_dir=node_dir, settings=settings, boot=boot),
        outputs=OutputServer(node_dir / "attempts"),
        stacks=StackServer(node_dir / "attempts"),
        rank_reports=supervisor,
        kept_works=supervisor.kept_works,
    )


def _preparing(
    node_dir: Path,
    settings: NodeSettings,
    heads: HeadAddresses,
    token: str,
    trusted: SSLContext | None,
) -> Prepare:
    accounts = Accounts(node_dir=node_dir, settings=settings)
    path = Path(settings.images) if settings.images else None
    return Prepare(
        node_dir=node_dir,
        heads=heads,
        token=token,
        images=Images(node_dir, path, policy=accounts.policy),
        accounts=accounts,
        shared=settings.shared,
        trusted=trusted,
    )


async def _run_until_stopped(
    running: Coroutine[None, None, None], stopped: asyncio.Event
) -> None:
    """Run the coroutine until it fails or the process is asked to end (`stopped`). A
    failure raises the coroutine's exception."""

    async def wait() -> None:
        await stopped.wait()
        log.info("the agent ends as requested; attempts on the node continue")

    await first_of(running, wait())
