"""One node of this machine, seen from outside: its folder, its processes, and the proof
of its death."""

import asyncio
import logging
import os
import secrets
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Final

from corral.domain.ids import NodeId
from corral.domain.node_policy import NodePolicy
from corral.domain.users import NODE_TOKEN_SECONDS
from corral.engines.local.processes import LocalProcess, reap, spawn
from corral.wire.node import NodeSettings, encode_settings
from corral.wire.node_policy import POLICY_FILE, encode_policy

# a power loss ends processes one after another: look when it is over
GATHER_SECONDS: Final = 0.15
CALM_SECONDS: Final = 5.0  # an agent that ends sooner is started again later and later
LONGEST_DELAY_SECONDS: Final = 10.0
# of agents in a row, after which a dead node keeps its ends to itself
MOST_QUICK_ENDS: Final = 3
LOG_BYTES: Final = 4 * 1024 * 1024
log = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class LocalNode:
    """Supervisor of the agent of one node.

    `proof` is set while the node is dead: its agent, its launcher and every shim are
    gone. `on_death` is called as soon as a process of the node has died. `env` is the
    agent's environment; None: that of this process. `start` is the function that starts
    the agent.
    """

    id: NodeId
    dir: Path
    reboot_seconds: float
    on_death: Callable[[], None]
    env: Mapping[str, str] | None = None
    start: Callable[[list[str], Mapping[str, str], Path], int] = spawn
    proof: str = ""
    kept_down: bool = False
    _agent: LocalProcess | None = None
    _watched: dict[LocalProcess, int] = field(default_factory=dict)
    _started_at: float = 0.0
    _died_at: float = 0.0
    _failures: int = 0
    _not_before: float = 0.0

    def prepare(self, settings: NodeSettings, policy: NodePolicy) -> str:
        """Write the files that the node's folder lacks. A complete folder needs no free
        space on its disk. Returns: the SHA-256 of the node's token, by which the head
        recognizes the node. Raises: OSError.

        Args:
            policy: the policy of a node without one; an existing policy.json stays as
                it is.
        """
        self.dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        for name in ("attempts", "cache", "disk"):
            (self.dir / name).mkdir(mode=0o700, exist_ok=True)
        if not _has_content(self.dir / "node.json", encode_settings(settings)):
            _write_private(self.dir / "node.json", encode_settings(settings))
        if not (self.dir / POLICY_FILE).exists():
            _write_private(self.dir / POLICY_FILE, encode_policy(policy))
        token = self.dir / "token"
        if not self._has_token(token):
            _write_private(token, secrets.token_urlsafe(32).encode() + b"\n")
        return sha256(token.read_bytes().strip()).hexdigest()

    def _has_token(self, token: Path) -> bool:
        """Return whether the file holds a token that is still valid for the agent; a
        running agent reads the file again."""
        if not token.exists() or not token.read_bytes().strip():
            return False
        now = time.clock_gettime(time.CLOCK_REALTIME)
        return now - token.stat().st_mtime < NODE_TOKEN_SECONDS

    def begin(self) -> None:
        """Adopt the living agent, or start one. If all processes of the node died
        unnoticed, the node gets a new boot id. It keeps the old one while it holds ends
        of attempts that are not recorded yet; its next agent then reports these ends,
        and what was lost."""
        self.kept_down = False
        self._agent = LocalProcess.recorded(self.dir / "agent.pid")
        if self._agent is None:
            if not self.others() and not self._keeps_ends():
                self._forget_boot()
            self._start()
        self._watch_all()

    def look_after(self) -> None:
        """Restart an agent that died alone, and reboot a dead node once
        `reboot_seconds` have passed."""
        self._watch_all()
        if self.kept_down or (self._agent is not None and self._agent.lives):
            return
        now = _loop_time()
        if self._agent is not None:
            self._take_note(now)
        self._agent = LocalProcess.recorded(self.dir / "agent.pid")
        if self._agent is not None or now < self._not_before:
            # it was started by another, such as a head that died before this one
            return
        has_ends = (
            not self.proof and self._failures < MOST_QUICK_ENDS and self._keeps_ends()
        )
        if self.others() or has_ends:  # a recorded end is reported first
            self.proof = ""
            self._start()
        elif not self.proof:
            self._declare_dead(now)
        elif now >= self._died_at + self.reboot_seconds:
            log.warning("node %s restarts", self.id)
            self._forget_boot()
            self._start()

    def is_there(self) -> bool:
        """Return whether any process of the node lives, whoever supervises it."""
        return bool(LocalProcess.recorded(self.dir / "agent.pid") or self.others())

    def others(self) -> list[LocalProcess]:
        """Return the living processes of the node other than its agent: the launcher
        and the shims."""
        launcher = LocalProcess.recorded(self.dir / "launcher.pid")
        return [*([launcher] if launcher else []), *self.shims()]

    def shims(self) -> list[LocalProcess]:
        """Return the node's shims. Each supervises an attempt, or keeps its end until
        the head has recorded it."""
        records = self.dir.glob("attempts/*/shim.pid")
        return [process for file in records if (process := LocalProcess.recorded(file))]

    def _keeps_ends(self) -> bool:
        """Return whether the node holds the end of an attempt, which is a shim's
        journal without the shim's process id. A shim that was killed leaves both files.
        """
        journals = self.dir.glob("attempts/*/journal.jsonl")
        return any(not file.with_name("shim.pid").exists() for file in journals)

    def stop_agent(self) -> None:
        """End only the agent, until `begin` is called; its ranks run on."""
        self.kept_down = True
        agent = self._agent or LocalProcess.recorded(self.dir / "agent.pid")
        if agent is not None:
            agent.signal(signal.SIGTERM)

    async def kill(self) -> None:
        """Kill all processes of the node at once, as a loss of power would. The node
        stays dead until it reboots."""
        command = [sys.executable, "-P", "-m", "corral.agent", "--kill", str(self.dir)]
        # nothing is restarted while it is killed
        kept_down, self.kept_down = self.kept_down, True
        try:
            helper = await asyncio.create_subprocess_exec(*command)
            await helper.wait()
        finally:
            self.kept_down = kept_down
        self.look_after()

    @property
    def agent(self) -> LocalProcess | None:
        return self._agent if self._agent is not None and self._agent.lives else None

    def close(self) -> None:
        """Stop watching the node's processes, which run on."""
        loop = asyncio.get_running_loop()
        for descriptor in self._watched.values():
            loop.remove_reader(descriptor)
            os.close(descriptor)
        self._watched.clear()

    def _take_note(self, now: float) -> None:
        """Record that the agent has died, and when it may be started again. Whether the
        whole node is dead is decided later, when the node's other processes have had
        time to end."""
        assert self._agent is not None
        reap(self._agent.pid)
        log.warning(
            "the agent of node %s (process %d) has died", self.id, self._agent.pid
        )
        quick = now - self._started_at < CALM_SECONDS
        self._failures = self._failures + 1 if quick else 0
        wait_seconds = GATHER_SECONDS * 2.0 ** min(self._failures, 8)
        self._not_before = now + min(wait_seconds, LONGEST_DELAY_SECONDS)
        self._agent = None
        asyncio.get_running_loop().call_at(self._not_before + 0.001, self._look_now)

    def _declare_dead(self, now: float) -> None:
        if not (self.dir / "launcher.pid").exists():
            self._start()  # it never came to be a node
            return
        self.proof = (
            f"the agent, the launcher and every shim of node {self.id} are gone"
        )
        self._died_at = now
        self.on_death()

    def _start(self) -> None:
        self.proof = ""
        output = self.dir / "agent.log"
        command = [sys.executable, "-P", "-m", "corral.agent", str(self.dir)]
        try:
            with suppress(FileNotFoundError):
                if output.stat().st_size > LOG_BYTES:
                    output.replace(output.with_suffix(".log.1"))
            pid = self.start(
                command, os.environ if self.env is None else self.env, output
            )
        except OSError as error:
            # such as a full disk: that ends neither the head nor other nodes
            log.warning("the agent of node %s cannot be started: %s", self.id, error)
            self._failures += 1
            self._not_before = _loop_time() + LONGEST_DELAY_SECONDS
            return
        self._agent = LocalProcess.find(pid)
        self._started_at = _loop_time()
        self._watch_all()

    def _forget_boot(self) -> None:
        """Delete the boot id, so that the next agent makes a new one."""
        (self.dir / "boot").unlink(missing_ok=True)

    def _watch_all(self) -> None:
        """Ask the kernel for a notification when the agent or another process of the
        node ends."""
        for process in (*([self._agent] if self._agent else []), *self.others()):
            if process not in self._watched:
                self._watch_process(process)

    def _watch_process(self, process: LocalProcess) -> None:
        with suppress(ProcessLookupError):
            descriptor = os.pidfd_open(process.pid)
            if not process.lives:
                os.close(descriptor)
                return  # it ended in between; the next look sees that
            self._watched[process] = descriptor
            asyncio.get_running_loop().add_reader(descriptor, self._ended, process)

    def _ended(self, process: LocalProcess) -> None:
        descriptor = self._watched.pop(process)
        asyncio.get_running_loop().remove_reader(descriptor)
        os.close(descriptor)
        reap(process.pid)
        self._look_now()

    def _look_now(self) -> None:
        self.look_after()
        self.on_death()


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def _has_content(file: Path, content: bytes) -> bool:
    """Return whether the file exists with this content, readable only by its owner."""
    try:
        return file.stat().st_mode & 0o077 == 0 and file.read_bytes() == content
    except FileNotFoundError:
        return False


def _write_private(file: Path, content: bytes) -> None:
    """Replace the file atomically, readable only by its owner."""
    staged_file = file.with_name(f".{file.name}.{os.getpid()}")
    with os.fdopen(
        os.open(staged_file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb"
    ) as opened:
        opened.write(content)
        opened.flush()
        os.fsync(opened.fileno())
    staged_file.rename(file)
