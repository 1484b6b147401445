"""The agent of one attempt (the pilot), started by a batch step or a pod; it exits when
its attempt is settled.

The batch system ends a pilot like all of its jobs, with SIGTERM first. The attempt is
then stopped as for a preemption, with a save if there is time, and its end is
attributed to the batch system.
"""

import asyncio
import logging
import signal
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from corral.agent.agent import Agent
from corral.agent.daemon import agent_of, sole_agent
from corral.agent.discovery.helper import pretend_gpus
from corral.agent.pilot.token import close_memory, exchange
from corral.agent.processes import ENDINGS, myself
from corral.agent.settings import TOKEN, load_settings, load_token
from corral.agent.supervisor.supervisor import Supervisor
from corral.domain.desired_state import Stop
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.domain.pilot import LEAVING, node_of
from corral.domain.resources import Gpu, Inventory
from corral.domain.trouble_kind import TroubleKind
from corral.wire.node import NodeSettings

# interval of checks for remaining work; settled attempts report without delay
LOOK_SECONDS: Final = 1.0
UNWANTED_SECONDS: Final = 60.0  # a part with no work for this long came too late
log = logging.getLogger(__name__)


class PartSupervisor(Supervisor):
    """Supervisor of a pilot. After the batch system's SIGTERM, it reports every end of
    an attempt as caused by the batch system."""

    leaving = False
    had = False  # anything of an attempt, ever
    # what had ended when the part was asked to leave
    over: frozenset[AttemptKey] = frozenset()

    def __init__(
        self, node_dir: Path, *, settings: NodeSettings, on_change: Callable[[], None]
    ) -> None:
        super().__init__(node_dir, settings=settings, on_change=on_change)
        self.settled = asyncio.Event()

    def settle(self, key: AttemptKey) -> None:
        super().settle(key)
        self.settled.set()

    def seen(self) -> tuple[Seen, ...]:
        seen_attempts = super().seen()
        self.had = self.had or bool(seen_attempts)
        if not self.leaving:
            return seen_attempts
        return tuple(
            attempt if attempt.key in self.over else _explained(attempt)
            for attempt in seen_attempts
        )

    def leave(self) -> None:
        """Stop all running attempts, each with its own grace period."""
        if not self.leaving:
            self.over = frozenset(
                attempt.key
                for attempt in super().seen()
                if attempt.phase == Phase.ENDED
            )
        self.leaving = True
        for key, launch in self.launches.items():
            self.stop(
                Stop(
                    key=key, grace_seconds=launch.grace_seconds, save=True, why=LEAVING
                )
            )


def serve(node_dir: Path) -> None:
    """Run the pilot's agent in its own folder, until its attempt is settled.

    Raises: Refusal when the folder cannot be used.
    """
    with sole_agent(node_dir):
        settings, token = load_settings(node_dir), load_token(node_dir)
        logging.basicConfig(
            level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s"
        )
        logging.getLogger("websockets").setLevel(logging.WARNING)
        myself().record(node_dir / "agent.pid")
        asyncio.run(_run_pilot(node_dir, settings, token))


async def _run_pilot(node_dir: Path, settings: NodeSettings, token: str) -> None:
    event = asyncio.Event()
    for number in ENDINGS:
        asyncio.get_running_loop().add_signal_handler(number, event.set)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDINGS)
    async with agent_of(node_dir, settings, token, PartSupervisor) as (
        agent,
        supervisor,
    ):
        assert isinstance(supervisor, PartSupervisor)
        if (inventory := inventory_of(settings)) is not None:
            agent.look = partial(_as_told, inventory)
        running = asyncio.create_task(_run_agent(agent, settings))
        leaving = asyncio.create_task(_leave_when(event, supervisor))
        settled = asyncio.create_task(_until_settled(agent, supervisor))
        try:
            done, _ = await asyncio.wait(
                (running, settled), return_when=asyncio.FIRST_COMPLETED
            )
            for task in done:
                task.result()
        finally:
            for task in (running, leaving, settled):
                task.cancel()
            await asyncio.gather(running, leaving, settled, return_exceptions=True)
    log.info("the pilot on node %s ends", node_of(settings.node))


async def _run_agent(agent: Agent, settings: NodeSettings) -> None:
    """Run the agent. If the ranks can read the pilot's folder, replace the token first,
    so that the token in the folder is no longer valid."""
    if settings.isolation == "none":
        close_memory()
        await exchange(agent.prepare.post, agent.use_token)
        (agent.node_dir / TOKEN).unlink(missing_ok=True)
    await agent.run()


def inventory_of(settings: NodeSettings) -> Inventory | None:
    """Return the resources granted to the pilot, as far as the environment of its ranks
    shows them; None if the machine must be queried. A query takes a process, and the
    head knows the node without it."""
    if settings.pretend_gpus is not None:
        return Inventory(gpus=pretend_gpus(settings))
    if settings.real_gpus is None:
        return None
    types = enumerate([settings.gpu_type] * len(settings.real_gpus))
    gpus = (
        Gpu(index=gpu_index, uuid=f"{gpu_index}", type=kind, memory_bytes=0)
        for gpu_index, kind in types
    )
    return Inventory(gpus=tuple(gpus))


async def _as_told(told: Inventory, _: frozenset[int]) -> Inventory:
    return told


async def _leave_when(asked: asyncio.Event, supervisor: PartSupervisor) -> None:
    await asked.wait()
    log.warning(LEAVING)
    supervisor.leave()


async def _until_settled(agent: Agent, supervisor: PartSupervisor) -> None:
    """Wait until the pilot can exit: the head has recorded the pilot's attempt, or has
    wanted no attempt for long. The attempt may have come and gone between two checks.
    """
    clock = asyncio.get_running_loop().time
    idle_since = clock()
    while True:
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_SECONDS):
                await supervisor.settled.wait()
        supervisor.settled.clear()
        unwanted = (
            agent.version() is not None and clock() - idle_since > UNWANTED_SECONDS
        )
        if agent.seen():
            idle_since = clock()
        elif supervisor.had or unwanted:
            return


def _explained(seen: Seen) -> Seen:
    """Return the attempt, with its end reported as one that the batch system requested.

    Programs that save on SIGTERM exit with code 0. Such an exit is the end of the job
    only if the training loop has made its last step; the attempt is then returned
    unchanged.
    """
    clean = bool(seen.exits) and all(rank_exit.clean for _, rank_exit in seen.exits)
    is_complete = clean and seen.progress is not None and seen.progress.is_complete
    if seen.phase != Phase.ENDED or is_complete or seen.trouble:
        return seen
    return replace(
        seen,
        trouble=LEAVING,
        trouble_kind=TroubleKind.ASKED_TO_END,
        trouble_is_infra=True,
    )
