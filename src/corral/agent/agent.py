"""The parts of one agent, how they call each other, and what the agent exchanges with
the head."""

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final, TypeVar

from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosedOK, WebSocketException

from corral.agent.checks.runner import Checks
from corral.agent.connection import Dialler
from corral.agent.content_cache.keeper import ContentKeeper
from corral.agent.content_cache.launch_models import LaunchModels
from corral.agent.content_cache.peer_lookup import PeerLookup
from corral.agent.content_cache.store import ContentStore
from corral.agent.converge import Obedience, Ranks
from corral.agent.disk_room import closed_by, room_at
from corral.agent.disk_use import keep_bounded
from corral.agent.engine_sleep import EngineSleep
from corral.agent.fetch_inputs import Prepare
from corral.agent.head_channel import HEARTBEATS, Heartbeats
from corral.agent.head_silence import overdue
from corral.agent.host_environment import interface
from corral.agent.last_desired import LastDesired
from corral.agent.leftover_folders import keep_swept
from corral.agent.log_shipping import LOGS, LogShipper, Read
from corral.agent.outputs.kept_folders import KeptWorks
from corral.agent.outputs.server import OutputServer
from corral.agent.own_address import address_towards
from corral.agent.readiness_probe import ReadinessProbes
from corral.agent.telemetry.sampler import Senses
from corral.agent.token_renewal import Renewal
from corral.agent.user_accounts import Accounts
from corral.agent.watching.hang_watch import HangWatch, RankReports
from corral.agent.watching.stack_server import StackServer
from corral.domain.content import ContentReport
from corral.domain.desired_state import DesiredState, Launch, Version
from corral.domain.errors import CorralError
from corral.domain.ids import BootId, JobId
from corral.domain.node_signal import Signal
from corral.domain.observed_state import AttemptKey, Seen
from corral.domain.pilot import is_part
from corral.domain.resources import Inventory
from corral.domain.telemetry import NodeSample
from corral.wire.agent_messages import (
    PROTOCOL,
    AttachNow,
    FilesNow,
    Hello,
    SignalNow,
    StacksNow,
)
from corral.wire.content_messages import ContentNow
from corral.wire.node import NodeSettings
from corral.wire.rank_environment import of_node

CONTENT: Final = "content"  # folder of the cache, in the node's directory
ATTACH: Final = "/v1/agents/attach/"
LEASE_SECONDS: Final = 1.0
DISK_SECONDS: Final = 1.0
PROBE_SECONDS: Final = 60.0
log = logging.getLogger(__name__)

Look = Callable[[frozenset[int]], Awaitable[Inventory]]
Carried = TypeVar("Carried", AttachNow, FilesNow, StacksNow)
Carry = Callable[[Carried, ClientConnection], Awaitable[None]]
Pump = Callable[[AttachNow, ClientConnection], Awaitable[None]]
Send = Callable[[SignalNow], None]


@dataclass(slots=True, kw_only=True)
class Agent:
    """The agent of a node, assembled from its parts; implements
    head_channel.ChannelNode. `clock` counts seconds since the machine's boot, including
    sleep.

    `look` returns the inventory, given the ports that the node's own attempts use.
    `pump` carries bytes between a terminal and a rank until one of them ends. `send`
    sends a signal to a running rank.
    """

    node_dir: Path
    settings: NodeSettings
    boot: BootId
    ranks: Ranks
    known: LastDesired
    dialler: Dialler
    prepare: Prepare
    read: Read
    look: Look
    pump: Pump
    send: Send
    clock: Callable[[], float]
    senses: Senses
    outputs: OutputServer
    stacks: StackServer
    rank_reports: RankReports
    kept_works: KeptWorks
    inventory_now: Inventory = field(default_factory=Inventory)
    beats: Heartbeats = field(init=False)
    shipper: LogShipper = field(init=False)
    checks: Checks = field(init=False)
    probes: ReadinessProbes = field(init=False)
    engine_sleep: EngineSleep = field(init=False)
    hang_watch: HangWatch = field(init=False)
    obedience: Obedience = field(init=False)
    content_keeper: ContentKeeper = field(init=False)
    renewal: Renewal = field(init=False)
    _closed: str = ""  # why the node takes no new work
    _observes: bool = False
    _failed: set[AttemptKey] = field(default_factory=set)
    _beside: set[asyncio.Task[None]] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.prepare.accounts.changed = self._accounts_changed
        self.beats = Heartbeats(node=self, clock=self.clock)
        self.probes = ReadinessProbes(on_change=self.beats.wake)
        self.engine_sleep = EngineSleep(on_change=self.beats.wake)
        self.hang_watch = HangWatch(
            self.node_dir / "attempts",
            self.rank_reports,
            on_change=self.beats.wake,
            clock=self.clock,
        )
        self.content_keeper = ContentKeeper(
            ContentStore(self.node_dir / CONTENT),
            PeerLookup(self.prepare.fetch_bytes).peers,
            on_change=self.beats.wake,
        )
        self.shipper = LogShipper(
            attempts_dir=self.node_dir / "attempts",
            read=self.read,
            drained=self._on_logs_drained,
        )
        self.checks = Checks(
            node_dir=self.node_dir,
            settings=self.settings,
            senses=self.senses,
            inventory=self.inventory,
            is_idle=self._is_idle,
        )
        self.obedience = Obedience(
            ranks=self.ranks,
            known=self.known,
            prepare=self.prepare,
            changed=self.changed,
            drained=self.shipper.is_drained,
            environment=self.environment,
            boot=self.boot,
            checks=self.checks,
            models=LaunchModels(self.node_dir, self.content_keeper),
        )

        self.renewal = Renewal(
            node_dir=self.node_dir,
            token=self.dialler.token,
            post=self.prepare.post,
            use=self.use_token,
            refused=self.dialler.refused,
        )

    def use_token(self, token: str) -> None:
        """Use this token for all further connections to the head."""
        self.dialler.token = self.prepare.token = token

    def changed(self) -> None:
        """Send a heartbeat and follow the new logs, because the state of an attempt has
        changed."""
        self.beats.wake()
        if not self._observes:  # what comes together is looked at together
            self._observes = True
            asyncio.get_running_loop().call_soon(self._observe_attempts)

    def _observe_attempts(self) -> None:
        self._observes = False
        observed_attempts = self.obedience.seen()
        self.shipper.observe(observed_attempts)
        self.probes.follow(self.obedience.launches, observed_attempts)
        self.engine_sleep.follow(
            self.obedience.launches, self.obedience.asleep, observed_attempts
        )
        self.hang_watch.follow(self.obedience.launches, observed_attempts)
        failed = {
            attempt.key
            for attempt in observed_attempts
            if any(not exit.clean for _, exit in attempt.exits)
        }
        if failed - self._failed:
            self.senses.look_soon()
        self._failed = failed

    async def run(self) -> None:
        """Run the agent until it is cancelled. A lost connection to the head raises
        nothing.

        Raises: any exception that comes from a bug or a broken disk.
        """
        self.shipper.start()
        self.changed()
        try:
            await self.look_now()
            async with asyncio.TaskGroup() as task_group:
                task_group.create_task(self.dialler.keep(HEARTBEATS, self.beats.talk))
                task_group.create_task(self.dialler.keep(LOGS, self.shipper.talk))
                task_group.create_task(self.obedience.run())
                task_group.create_task(self.content_keeper.keep(self._own_address))
                task_group.create_task(self._watch_leases())
                task_group.create_task(self._look_again())
                task_group.create_task(self.senses.keep(self.ranks, self.beats.wake))
                # whose token lasts as long as its attempt
                if not is_part(self.settings.node):
                    task_group.create_task(self.renewal.keep())
                    task_group.create_task(self._watch_disk())
                if os.geteuid() == 0:  # else all attempts have one account
                    policy, overrun = self.prepare.accounts.policy, self.ranks.overrun
                    task_group.create_task(keep_bounded(self.node_dir, policy, overrun))
                task_group.create_task(
                    keep_swept(self.node_dir / "attempts", self._ask_forgotten)
                )
                if not is_part(self.settings.node):  # whose folders go with it
                    task_group.create_task(self.kept_works.keep())
        finally:
            await self.obedience.close()
            await self.probes.close()
            await self.engine_sleep.close()
            await self.hang_watch.close()
            await self.checks.close()
            await self.content_keeper.close()
            self.prepare.close()
            self.shipper.close()
            self.known.close()

    async def look_now(self) -> None:
        """Query the inventory again."""
        launches = self.ranks.launches.values()
        held_ports = frozenset(
            port
            for launch in launches
            if launch.node_rank == 0
            for port in launch.ports
        )
        accounts = self.prepare.accounts
        new_inventory, _ = await asyncio.gather(self.look(held_ports), accounts.look())
        new_inventory = replace(
            with_accounts(new_inventory, accounts), closed=self._closed
        )
        if new_inventory != self.inventory_now:
            self.inventory_now = new_inventory
            self.beats.wake()

    async def _ask_forgotten(self, jobs: Sequence[JobId]) -> Sequence[JobId]:
        """Return those of the jobs that the head has deleted. The head's answer also
        updates the limits for kept work folders."""
        answer = await self.prepare.forgotten(jobs)
        if answer.work is not None:
            self.kept_works.limits = answer.work
        return answer.forgotten

    def _accounts_changed(self) -> None:
        """Send the changed accounts to the head, which uses them for placement: the
        node now refuses a user, or accepts the user again."""
        self.inventory_now = with_accounts(self.inventory_now, self.prepare.accounts)
        self.beats.wake()

    def environment(self, launch: Launch) -> dict[str, str]:
        """Return the environment variables of an attempt's ranks whose values only the
        node knows."""
        gpus = [gpu for gpu in self.inventory_now.gpus if gpu.index in launch.seat.gpus]
        return {
            **interface(launch.nodes, launch.node_rank, dict(launch.env)),
            **of_node(
                launch,
                shared=self.settings.shared,
                gpu_type=gpus[0].type if gpus else "",
                pretend=any(gpu.pretend for gpu in gpus),
            ),
        }

    def address(self) -> str:
        """Return the address of this node from which it connects to the head.

        Raises: OSError, ValueError when the head's address cannot be found out.
        """
        return address_towards(self.dialler.heads.url())

    def _own_address(self) -> str:
        """Return the address at which other nodes reach this one. Raises: OSError,
        ValueError."""
        return self.settings.address or self.address()

    def hello(self) -> Hello:
        """Return the first message of a connection to the head, with the node's
        identity and inventory.

        Raises: OSError, ValueError when the node's address cannot be found out.
        """
        return Hello(
            protocol=PROTOCOL,
            node=self.settings.node,
            boot=self.boot,
            address=self._own_address(),
            inventory=self.inventory_now,
        )

    def seen(self) -> tuple[Seen, ...]:
        seens = self.engine_sleep.reported(self.probes.reported(self.obedience.seen()))
        return self.hang_watch.reported(seens)

    def _is_idle(self) -> bool:
        return all(attempt.phase.is_over for attempt in self.obedience.seen())

    def version(self) -> Version | None:
        return self.obedience.version

    def inventory(self) -> Inventory:
        return self.inventory_now

    def sample(self) -> NodeSample | None:
        return self.senses.sample

    def signals(self) -> tuple[Signal, ...]:
        return self.senses.signals

    def content(self) -> ContentReport:
        return self.content_keeper.report()

    def request_content(self, request: ContentNow) -> None:
        self.content_keeper.request(request)

    def heard(self, sent_at: float) -> None:
        self.known.hear(sent_at)

    def recorded(self, signals: int, wall: float, trip_seconds: float) -> None:
        self.senses.recorded(signals, wall, trip_seconds)

    def named(self, heads: tuple[str, ...]) -> None:
        self.dialler.heads.named(heads)

    def users(self, names: tuple[str, ...]) -> None:
        self._keep(self.prepare.accounts.watch(names))

    def wanted(self, wanted: DesiredState) -> None:
        self.obedience.wanted(wanted)

    def attach(self, request: AttachNow) -> None:
        self._start_dial_back(request, self.pump)

    def send_files(self, request: FilesNow) -> None:
        self._start_dial_back(request, self.outputs.serve)

    def send_stacks(self, request: StacksNow) -> None:
        self._start_dial_back(request, self.stacks.serve)

    def _start_dial_back(self, request: Carried, carry: Carry[Carried]) -> None:
        self._keep(self._dial_back(request, carry))

    def _keep(self, work: Coroutine[None, None, None]) -> None:
        """Run the coroutine as a background task, concurrently with the connection to
        the head."""
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    def signal(self, request: SignalNow) -> None:
        self.send(request)

    async def _dial_back(self, request: Carried, carry: Carry[Carried]) -> None:
        try:
            async with await self.dialler.dial(
                f"{ATTACH}{request.session}"
            ) as connection:
                await carry(request, connection)
        except ConnectionClosedOK:
            pass  # the head has all that it needs
        except (CorralError, OSError, ValueError, WebSocketException) as trouble:
            log.warning(
                "the terminal or file connection of attempt %s.%s was lost: %s",
                request.job,
                request.attempt,
                trouble,
            )

    def _on_logs_drained(self, key: AttemptKey) -> None:
        self.obedience.settle_drained()

    async def _watch_leases(self) -> None:
        """Each second, stop the attempts whose jobs request a stop when the head has
        been silent for long, and remove the attempts whose end the head has recorded.
        """
        while True:
            await asyncio.sleep(LEASE_SECONDS)
            self.obedience.settle_drained()
            silent_seconds = self.clock() - self.known.heard_at()
            present = {attempt.key for attempt in self.ranks.seen()}
            for stop in overdue(self.ranks.launches.values(), silent_seconds):
                if stop.key in present:
                    self.ranks.stop(stop)

    async def _watch_disk(self) -> None:
        """Check the disk each second: a node whose disk is full takes no new attempts.
        Running attempts continue."""
        attempts = self.node_dir / "attempts"
        while True:
            try:
                room = await asyncio.to_thread(room_at, attempts)
            except OSError as trouble:
                log.warning(
                    "the free space on the disk cannot be read, trying again: %s",
                    trouble,
                )
            else:
                self._set_closed_reason(closed_by(room, is_closed=bool(self._closed)))
            await asyncio.sleep(DISK_SECONDS)

    def _set_closed_reason(self, why: str) -> None:
        if why != self._closed:
            self._closed = why
            self.inventory_now = replace(self.inventory_now, closed=why)
            self.beats.wake()

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(PROBE_SECONDS)
            self.ranks.free_memory()
            await self.look_now()


def with_accounts(inventory: Inventory, accounts: Accounts) -> Inventory:
    """Return the inventory with the shared account and the refused users that
    `accounts` has found."""
    return replace(
        inventory,
        shared_account=accounts.shared_account,
        refused_users=accounts.refused,
    )
