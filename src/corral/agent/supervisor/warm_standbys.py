"""Standbys of a node: for each job whose attempt makes steps, a shim with a warm
interpreter that waits for the job's next attempt."""

import asyncio
import json
import logging
import re
import shutil
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from corral.agent.outputs.work_record import WORK
from corral.agent.shim import host_file
from corral.agent.shim.user_isolation import TMP
from corral.agent.shim.warm_command import python_command
from corral.agent.shim.warm_imports import read_imports
from corral.agent.shim.warm_standby import standby_line
from corral.agent.supervisor.attempt import Supervised
from corral.agent.supervisor.shim_spec import folder_of
from corral.agent.watching.hook_file import FOLDER
from corral.domain.errors import Trouble
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.observed_state import AttemptKey
from corral.wire.shim_spec import ShimSpec

LEARNED_STEPS: Final = 2
LINGER_SECONDS: Final = 30.0  # after an attempt, for the next one to come
NEEDED_MEMORY_BYTES: Final = 2 * 1024**3
# fields that may differ from what the containment and the interpreter were made for;
# the interpreter compares the environments of the ranks
_VARIABLE: Final = frozenset({"attempt", "env", "rank_env", "ranks", "group"})
_MEMORY: Final = Path("/proc/meminfo")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingStandby:
    """A shim that waits for the attempt of `spec`, and the connection to it."""

    spec: ShimSpec
    connection: socket.socket


class WarmStandbys:
    """All standbys of a node, at most one for each job. Used in one event loop."""

    def __init__(
        self, node_dir: Path, fork: Callable[[], Awaitable[socket.socket]]
    ) -> None:
        """`fork` starts a shim and returns a connection to it."""
        self._node_dir = node_dir
        self._fork = fork
        self._specs: dict[JobId, ShimSpec] = {}  # of the newest attempts
        self._standbys: dict[JobId, WaitingStandby] = {}
        self._starting: dict[JobId, asyncio.Task[None]] = {}
        self._timers: dict[JobId, asyncio.TimerHandle] = {}

    def take(self, spec: ShimSpec) -> tuple[ShimSpec, socket.socket | None]:
        """Return the spec with which to start an attempt, and the connection to its
        standby; None without one that fits. No other standby of the job stays."""
        job = JobId(spec.job)
        self._specs[job] = spec
        standby = self._standbys.pop(job, None)
        self._cancel(job)
        if standby is None:
            return spec, None
        name = different_field(standby.spec, spec)
        if name:
            log.info(
                "%s.%s gets no warm start: its %s differs", job, spec.attempt, name
            )
            standby.connection.close()
            return spec, None
        return replace(spec, group=standby.spec.group), standby.connection

    def look(self, attempt: Supervised) -> None:
        """Start a standby once the attempt has made steps; end it when the attempt has
        ended well, or no next one comes."""
        job, number = attempt.key
        spec = self._specs.get(job)
        if spec is None or spec.attempt != number:
            return
        if attempt.is_over:
            self._look_at_end(attempt, job)
            return
        progress = attempt.seen.progress
        if job in self._starting or progress is None or progress.step < LEARNED_STEPS:
            return
        if not is_eligible(spec) or not (imports := read_imports(attempt.folder)):
            return
        next_spec = prediction(spec, self._node_dir)
        starting = self._try_start(job, next_spec, imports)
        self._starting[job] = asyncio.get_running_loop().create_task(starting)

    def _look_at_end(self, attempt: Supervised, job: JobId) -> None:
        exits = attempt.seen.exits
        if exits and all(exit.clean for _, exit in exits):
            self._end(job)
        elif job not in self._timers:
            loop = asyncio.get_running_loop()
            self._timers[job] = loop.call_later(LINGER_SECONDS, self._end, job)

    async def _try_start(
        self, job: JobId, spec: ShimSpec, imports: Sequence[str]
    ) -> None:
        try:
            await self._start(job, spec, imports)
        except (OSError, Trouble) as trouble:
            log.warning("%s gets no warm interpreter: %s", job, trouble)

    async def _start(self, job: JobId, spec: ShimSpec, imports: Sequence[str]) -> None:
        if await asyncio.to_thread(_free_memory_bytes) < NEEDED_MEMORY_BYTES:
            log.info("%s gets no warm interpreter: the node lacks the memory", job)
            return
        connection = await self._fork()
        try:
            Path(spec.folder).mkdir(mode=0o700, parents=True, exist_ok=True)
            line = standby_line(spec, imports)
            await asyncio.get_running_loop().sock_sendall(connection, line)
        except BaseException:
            connection.close()
            raise
        self._standbys[job] = WaitingStandby(spec=spec, connection=connection)

    def _end(self, job: JobId) -> None:
        """End the standby of a job, and remove what it has put into the folder of an
        attempt that does not come."""
        self._specs.pop(job, None)
        self._cancel(job)
        standby = self._standbys.pop(job, None)
        if standby is not None:
            standby.connection.close()
            _remove_folder(Path(standby.spec.folder))

    def _cancel(self, job: JobId) -> None:
        if (timer := self._timers.pop(job, None)) is not None:
            timer.cancel()
        if (starting := self._starting.pop(job, None)) is not None:
            starting.cancel()

    def fork_for(
        self, standby: socket.socket | None
    ) -> Callable[[], Awaitable[socket.socket]]:
        """Return the function that starts a shim for an attempt: the standby first, if
        there is any, and a new shim if it has ended."""
        standbys = [standby] if standby is not None else []

        async def fork() -> socket.socket:
            return standbys.pop() if standbys else await self._fork()

        return fork

    async def close(self) -> None:
        """End all standbys."""
        starting = list(self._starting.values())
        for job in list(self._specs):
            self._end(job)
        await asyncio.gather(*starting, return_exceptions=True)


def is_eligible(spec: ShimSpec) -> bool:
    """Return whether ranks of such an attempt can be forked from a warm interpreter. A
    setup may change the packages after they have been imported."""
    return spec.watch and spec.setup is None and python_command(spec.run) is not None


def prediction(spec: ShimSpec, node_dir: Path) -> ShimSpec:
    """Return the spec of the attempt after this one, if it runs on the same seats. Its
    group has a name that no other attempt uses."""
    number = AttemptNumber(spec.attempt + 1)
    key: AttemptKey = (JobId(spec.job), number)
    present, following = (
        json.dumps(text)[1:-1] for text in (spec.folder, str(folder_of(node_dir, key)))
    )
    text = re.sub(
        re.escape(present) + r"(?!\d)", lambda match: following, spec.encode().decode()
    )
    moved = ShimSpec(**json.loads(text))
    group = f"{spec.group.removesuffix(f'.{spec.attempt}')}.{number}.next"
    return replace(moved, attempt=number, group=group)


def different_field(prepared: ShimSpec, spec: ShimSpec) -> str:
    """Return a field in which the prepared attempt differs from the one that comes; ""
    without one."""
    if prepared.attempt != spec.attempt:
        return "attempt"
    coming = json.loads(spec.encode())
    expected = json.loads(prepared.encode())
    return next(
        (
            name
            for name in sorted(coming.keys() - _VARIABLE)
            if expected[name] != coming[name]
        ),
        "",
    )


def _remove_folder(folder: Path) -> None:
    """Remove the folder, unless something else has put files into it."""
    for name in (FOLDER, TMP):
        shutil.rmtree(folder / name, ignore_errors=True)
    with suppress(OSError):
        (folder / WORK).rmdir()
    with suppress(OSError):
        if {file.name for file in folder.iterdir()} <= {host_file.FILE_NAME}:
            shutil.rmtree(folder, ignore_errors=True)


def _free_memory_bytes() -> int:
    for line in _MEMORY.read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return 0
