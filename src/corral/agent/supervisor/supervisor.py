"""The supervisor of attempts: launches, stops, adopts and reports them. Shims do the
rest.

The agent may die at any moment: launcher, shims and ranks continue, and the next
agent's supervisor finds them by their folders.
"""

import asyncio
import logging
import os
import shutil
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

import msgspec

from corral.agent import containment, journal
from corral.agent.clocks import wall
from corral.agent.image.root import ImageRoot
from corral.agent.job_account import JobAccount
from corral.agent.keeping.memory_folders import MemoryFolders
from corral.agent.launcher_client import LauncherClient
from corral.agent.outputs.kept_folders import KeptWorks
from corral.agent.outputs.work_record import MODEL, WORK
from corral.agent.processes import LocalProcess
from corral.agent.ray_program import launch_files
from corral.agent.shim.file_names import PID_FILE, SOCKET
from corral.agent.shim.user_isolation import TMP
from corral.agent.supervisor.attach import AttachRefused, Input, open_terminal
from corral.agent.supervisor.attempt import Supervised, connect_shim
from corral.agent.supervisor.kill_node import kill_node
from corral.agent.supervisor.shim_spec import folder_of, shim_spec_on
from corral.agent.supervisor.warm_standbys import WarmStandbys
from corral.agent.user_accounts import load_policy
from corral.agent.watching.rank_reports import RankReport
from corral.agent.watching.stall_evidence import EVIDENCE_FOLDER
from corral.domain.desired_state import Launch, Stop, TimeWarning
from corral.domain.errors import Trouble
from corral.domain.hang import StallPhase
from corral.domain.ids import AttemptNumber, JobId, UserName
from corral.domain.keep_rule import SaveKey
from corral.domain.node_policy import NodePolicy
from corral.domain.observed_state import AttemptKey, Seen
from corral.domain.pilot import is_part
from corral.wire.node import NodeSettings
from corral.wire.signals import To

__all__ = ["AttachRefused", "Supervisor", "kill_node"]

LAUNCH: Final = "launch.json"
log = logging.getLogger(__name__)


class Supervisor:
    """Supervisor of all attempts of one node. Used in one event loop, which also calls
    `on_change` after a change."""

    def __init__(
        self, node_dir: Path, *, settings: NodeSettings, on_change: Callable[[], None]
    ) -> None:
        self.containment = containment.probe(settings.containment)
        self._node_dir = node_dir.absolute()
        self._settings = settings
        self._on_change = on_change
        self._attempts: dict[AttemptKey, Supervised] = {}
        self._launches: dict[AttemptKey, Launch] = {}
        self._launcher = LauncherClient(self._node_dir, self._living_shim)
        self._background: set[asyncio.Task[None]] = set()
        self._warm = WarmStandbys(self._node_dir, self._launcher.fork)
        self._memory = MemoryFolders(node_dir=self._node_dir)
        self.kept_works = KeptWorks(attempts=self._node_dir / "attempts")

    async def start(self) -> None:
        """Reach or start the launcher, adopt the attempts that run, and read how the
        others ended.

        Raises: NoLauncher.
        """
        if self.containment.kind != containment.CGROUP:
            log.warning("attempts are contained by a %s: %s", *self.containment)
        await self._launcher.start()
        self._memory.root = _root_of(self._launcher.pid)
        await asyncio.to_thread(self._memory.sweep)
        paths = (self._node_dir / "attempts").glob(f"*/{journal.FILE}")
        await asyncio.gather(*(self._adopt_attempt(file.parent) for file in paths))

    @property
    def launcher_pid(self) -> int | None:
        """Return the process id of the launcher, which runs inside the node's private
        root."""
        return self._launcher.pid

    @property
    def launches(self) -> Mapping[AttemptKey, Launch]:
        """Return the launch of each attempt that is present, including those of an
        earlier agent."""
        return self._launches

    async def launch(
        self,
        launch: Launch,
        work: Path,
        env: Mapping[str, str],
        image: ImageRoot | None = None,
        account: JobAccount | None = None,
    ) -> None:
        """Start the attempt, once however often this is called.

        `env`: secrets and variables that only the node knows; `image`: the image that
        the ranks run in; `account`: the account that the ranks run as, None for the
        agent's. An attempt that cannot be started is reported as REFUSED.
        """
        if launch.key in self._attempts:
            return
        attempt = self._new(launch.key)
        attempt.known = True
        self._launches[launch.key] = launch
        try:
            attempt.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_private(
                attempt.folder / LAUNCH, msgspec.json.encode(launch.without_key)
            )
            if launch.ray:
                launch_files.lay_out(attempt.folder, launch)
            spec = shim_spec_on(
                launch,
                node_dir=self._node_dir,
                work=work,
                env={**env, **self._prepare_memory(launch, account)},
                settings=self._settings,
                containment=self.containment.kind,
                image=image,
                account=account,
                policy=load_policy(self._node_dir)
                if account is not None
                else NodePolicy(),
            )
            spec, standby = self._warm.take(spec)
            await attempt.start(self._warm.fork_for(standby), spec)
        except (OSError, Trouble) as trouble:
            reason = f"the attempt cannot be started on this node: {trouble}"
            attempt.refuse(reason, infra=True)

    def _prepare_memory(
        self, launch: Launch, account: JobAccount | None
    ) -> Mapping[str, str]:
        """Return the variable with the folder of the job's saves in memory. A pilot's
        node has none, because no next attempt comes to it."""
        if is_part(self._settings.node):
            return {}
        present = {job for job, _ in self._attempts}
        return self._memory.prepare(launch, account, present=present)

    def free_memory(self) -> None:
        """Free the memory of saves of jobs that have had no attempt here for long."""
        self._memory.free_waiting({job for job, _ in self._attempts})

    def stop(self, stop: Stop) -> None:
        """Stop the attempt: SIGTERM, grace period, SIGKILL, until no process is left. A
        shorter grace period cuts a running one short."""
        attempt = self._attempts.get(stop.key)
        if attempt is not None:
            attempt.stop(stop, time.monotonic())

    def committed(
        self,
        key: AttemptKey,
        steps: tuple[int, ...],
        pinned: tuple[SaveKey, ...] = (),
    ) -> None:
        """Notify the attempt's ranks that the head has recorded these saves. `pinned`:
        saves of the job that must not be pruned."""
        if key in self._attempts:
            self._attempts[key].committed(steps, pinned)

    def warn(self, notice: TimeWarning) -> None:
        """Warn the attempt's ranks that its time is nearly over.

        Repeated notices warn them only once.
        """
        if notice.key in self._attempts:
            self._attempts[notice.key].warn(notice)

    def overrun(self, key: AttemptKey, why: str) -> None:
        """End the attempt, which uses more than the node allows, as a failure of the
        job itself."""
        if key in self._attempts:
            self._attempts[key].overrun(why)

    def signal(self, key: AttemptKey, number: int, to: To) -> None:
        """Send the signal that a user has requested to the attempt's processes."""
        if key in self._attempts:
            self._attempts[key].signal(number, to)

    def settle(self, key: AttemptKey) -> None:
        """Remove the attempt's folder, once the head has recorded the end and keeps the
        logs.

        An attempt that still runs stays. Files that were written into the work folder,
        within limits, and a save in it also stay: they are all that the next attempt
        has. A pilot's node, which serves one attempt, keeps saves only.
        """
        attempt = self._attempts.get(key)
        if attempt is None or not attempt.is_over:
            return
        del self._attempts[key]
        launch = self._launches.pop(key, None)
        self._in_background(attempt.close())
        if all(job != key[0] for job, _ in self._attempts):
            exits = attempt.seen.exits
            is_clean = bool(exits) and all(exit.clean for _, exit in exits)
            self._memory.ended(key[0], is_clean=is_clean)
        work = attempt.folder / WORK
        saves = [Path(save.path) for save in attempt.seen.saves if not save.quarantined]
        has_saves = any(path.is_relative_to(work) for path in saves)
        stays = has_saves
        if launch is not None and not is_part(self._settings.node):
            stays = self.kept_works.settle(
                attempt.folder, UserName(launch.owner), has_saves=has_saves
            )
        if not stays:
            self._remove_folder(attempt.folder)
            return
        for name in (journal.FILE, LAUNCH, SOCKET, PID_FILE):
            with suppress(OSError):
                (attempt.folder / name).unlink(missing_ok=True)
        for name in ("logs", EVIDENCE_FOLDER, TMP, launch_files.FOLDER, MODEL):
            self._remove_folder(attempt.folder / name)
        if not is_part(self._settings.node):
            self._in_background(asyncio.to_thread(self.kept_works.sift, attempt.folder))

    def refuse(self, key: AttemptKey, why: str, infra: bool, of: str = "") -> None:
        """Report that the attempt could not be started on this node, until it is
        settled.

        Args:
            infra: whether the cluster is at fault, not the job.
            of: the cause if it is not the node.
        """
        attempt = self._attempts.get(key)
        if attempt is None:
            self._new(key).refuse(why, infra=infra, of=of)

    def seen(self) -> tuple[Seen, ...]:
        """Return the full state of every attempt on this node, whether the head wants
        it or not."""
        return tuple(
            attempt.seen for attempt in self._attempts.values() if attempt.known
        )

    def rank_reports(self, key: AttemptKey) -> Mapping[int, RankReport]:
        """Return what the ranks of an attempt that make no steps report themselves, by
        rank. It changes with each report."""
        attempt = self._attempts.get(key)
        return {} if attempt is None else attempt.reports

    def declared_phases(self, key: AttemptKey) -> frozenset[StallPhase]:
        """Return the phases without steps in which ranks of an attempt say that they
        are."""
        attempt = self._attempts.get(key)
        return frozenset() if attempt is None else attempt.declared_phases

    async def attach(
        self,
        key: AttemptKey,
        rank: int,
        shell: bool,
        rows: int = 24,
        columns: int = 80,
        command: str = "",
    ) -> tuple[asyncio.StreamReader, Input]:
        """Return output and input of a new shell or command next to the rank, or of the
        rank itself if `shell` is False.

        The rank's output starts from now on, and comes with its input.

        Raises: AttachRefused when there is nothing to attach to.
        """
        connection = connect_shim(folder_of(self._node_dir, key))
        if connection is None:
            raise AttachRefused(
                f"attempt {key[1]} of {key[0]} does not run on node {self._settings.node}",
                hint=f"run: corral show {key[0]}",
            )
        return await open_terminal(
            connection, rank, shell=shell, rows=rows, columns=columns, command=command
        )

    async def close(self) -> None:
        """Disconnect from the launcher and the shims, which continue with their ranks."""
        await self._warm.close()
        self._launcher.close()
        await asyncio.gather(*(attempt.close() for attempt in self._attempts.values()))
        await asyncio.gather(*self._background)

    def _new(self, key: AttemptKey) -> Supervised:
        attempt = Supervised(
            key=key,
            folder=folder_of(self._node_dir, key),
            on_change=partial(self._attempt_changed, key),
            wall=wall,
        )
        self._attempts[key] = attempt
        return attempt

    def _attempt_changed(self, key: AttemptKey) -> None:
        # a pilot's node serves one attempt
        if key in self._attempts and not is_part(self._settings.node):
            self._warm.look(self._attempts[key])
        self._on_change()

    async def _adopt_attempt(self, folder: Path) -> None:
        job, _, number = folder.name.rpartition(".")
        if not number.isdecimal():
            return
        key = (JobId(job), AttemptNumber(int(number)))
        attempt = self._new(key)
        with suppress(OSError, ValueError):
            launch = msgspec.json.decode((folder / LAUNCH).read_bytes(), type=Launch)
            self._launches[key] = launch
        try:
            await attempt.adopt()
        except (OSError, ValueError) as trouble:
            reason = f"the attempt's journal cannot be read: {trouble}"
            attempt.refuse(reason, infra=True)

    def _living_shim(self) -> int | None:
        files = (self._node_dir / "attempts").glob(f"*/{PID_FILE}")
        living = (LocalProcess.recorded(file) for file in files)
        return next((shim.pid for shim in living if shim is not None), None)

    def _remove_folder(self, folder: Path) -> None:
        """Remove the folder in the background, because it may hold very many files."""
        removed_folder = folder.with_name(f".{folder.name}.gone")
        with suppress(OSError):
            folder.rename(removed_folder)
            self._in_background(asyncio.to_thread(shutil.rmtree, removed_folder, True))

    def _in_background(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)


def _root_of(launcher_pid: int | None) -> Path:
    """Return the root directory that the launcher, and so the ranks, see."""
    return Path("/") if launcher_pid is None else Path(f"/proc/{launcher_pid}/root")


def _write_private(file: Path, content: bytes) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
    with os.fdopen(os.open(file, flags, 0o600), "wb") as opened:
        opened.write(content)
