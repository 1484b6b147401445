"""A node of the tests: its folder, a supervisor, and launches that end by
themselves."""

import asyncio
import os
import pwd
import shutil
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from corral.agent.job_account import JobAccount, account_in_system
from corral.agent.supervisor.kill_node import kill_node
from corral.agent.supervisor.supervisor import Supervisor
from corral.domain.attempt import Exit, Seat
from corral.domain.desired_state import Launch, Stop
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job import Per
from corral.domain.node_policy import NodePolicy
from corral.domain.observed_state import AttemptKey, Phase, Seen
from corral.wire.node import NodeSettings, encode_settings
from corral.wire.node_policy import POLICY_FILE, encode_policy, own_policy
from tests.patience import PATIENCE_SECONDS

# whom ranks run as where a test says nothing else
ME = pwd.getpwuid(os.geteuid()).pw_name


@contextmanager
def node_folder() -> Iterator[Path]:
    """A node's folder; at the end nothing of the node lives and nothing of it is
    left."""
    node_dir = Path(tempfile.mkdtemp(prefix="corral-node-"))
    (node_dir / "attempts").mkdir(mode=0o700)
    try:
        yield node_dir
    finally:
        kill_node(node_dir)
        if (log := node_dir / "launcher.log").exists():
            print(log.read_text(), file=sys.stderr, end="")  # shown when the test fails
        shutil.rmtree(node_dir)


def settings_of(node_dir: Path, containment: str | None = None) -> NodeSettings:
    settings = NodeSettings(
        node=NodeId("n1"),
        head_file=str(node_dir / "head.json"),
        pretend_gpus=2,
        isolation="none",
        containment=containment,
    )
    file = node_dir / "node.json"
    file.write_bytes(encode_settings(settings))
    file.chmod(0o600)
    return settings


def write_policy(node_dir: Path, policy: NodePolicy | None = None) -> None:
    """The policy of a node, by default that of one which this account starts for
    itself."""
    file = node_dir / POLICY_FILE
    file.write_bytes(encode_policy(policy or own_policy()))
    file.chmod(0o600)


def account_for(owner: str) -> JobAccount | None:
    """The machine's account of this name, whatever a policy says."""
    found = account_in_system(owner) if os.geteuid() == 0 else None
    return None if found is None or found.uid == 0 else found


@dataclass(slots=True)
class Node:
    dir: Path
    supervisor: Supervisor
    changed: asyncio.Event

    def key(self, name: str = "j1", attempt: int = 1) -> AttemptKey:
        return (JobId(name), AttemptNumber(attempt))

    async def launch(
        self, launch: Launch, env: dict[str, str] | None = None
    ) -> AttemptKey:
        work = self.work(launch.key)
        work.mkdir(parents=True, exist_ok=True)
        await self.supervisor.launch(
            launch, work, env or {}, account=account_for(launch.owner)
        )
        return launch.key

    def work(self, key: AttemptKey) -> Path:
        return self.dir / "attempts" / f"{key[0]}.{key[1]}" / "work"

    def log(self, key: AttemptKey, rank: int = 0) -> str:
        file = self.work(key).parent / "logs" / f"rank-{rank}.log"
        return file.read_text(errors="replace") if file.exists() else ""

    def seen(self, key: AttemptKey) -> Seen:
        found = {one.key: one for one in self.supervisor.seen()}
        assert key in found, f"{key} is not among {sorted(found)}"
        return found[key]

    async def until(self, true: Callable[[], bool], what: str = "it") -> None:
        """Wait until it holds, looking whenever something changes and 100 times a
        second."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not true():
            assert time.monotonic() < deadline, (
                f"{what} never came: {self.supervisor.seen()}"
            )
            self.changed.clear()
            try:
                await asyncio.wait_for(self.changed.wait(), 0.01)
            except TimeoutError:
                continue

    async def phase(self, key: AttemptKey, *phases: Phase) -> Seen:
        await self.until(lambda: self.seen(key).phase in phases, f"{phases} of {key}")
        return self.seen(key)

    async def ended(self, key: AttemptKey) -> Seen:
        return await self.phase(key, Phase.ENDED, Phase.REFUSED)

    async def exit_of(self, run: str, name: str = "j1") -> Exit:
        """The exit of a job of one rank that runs this."""
        seen = await self.ended(await self.launch(launch_of(run, name)))
        assert not seen.trouble
        ((_, end),) = seen.exits
        return end

    async def says(self, key: AttemptKey, words: str, rank: int = 0) -> str:
        await self.until(lambda: words in self.log(key, rank), f"{words!r} in the log")
        return self.log(key, rank)


@asynccontextmanager
async def node(node_dir: Path, containment: str | None = None) -> AsyncIterator[Node]:
    """A supervisor over the folder, as one life of an agent has it."""
    changed = asyncio.Event()
    supervisor = Supervisor(
        node_dir, settings=settings_of(node_dir, containment), on_change=changed.set
    )
    await supervisor.start()
    try:
        yield Node(node_dir, supervisor, changed)
    finally:
        await supervisor.close()


def launch_of(
    run: str, name: str = "j1", attempt: int = 1, **changes: object
) -> Launch:
    launch = Launch(
        key=(JobId(name), AttemptNumber(attempt)),
        job_name=name,
        seat=Seat(node=NodeId("n1")),
        node_rank=0,
        nodes=("127.0.0.1",),
        first_rank=0,
        ranks=1,
        world_size=1,
        master_address="127.0.0.1",
        master_port=29500,
        run=run,
        setup=None,
        per=Per.GPU,
        env=(),
        secrets=(),
        workdir=None,
        owner=ME,
        array_index=None,
        checkpoint=None,
        resume=(),
        grace_seconds=5.0,
        node_mtbf_seconds=1e6,
    )
    return replace(launch, **changes)  # type: ignore[arg-type]


def unaged(seen: Seen) -> Seen:
    """Without what grows with time alone."""
    return replace(seen, ran_seconds=None)


def stop_of(key: AttemptKey, grace_seconds: float, *, save: bool = False) -> Stop:
    return Stop(key=key, grace_seconds=grace_seconds, save=save, why="a test")


def marked_processes(mark: str) -> list[int]:
    """Living processes that have this in their command line or environment."""
    found = []
    for name in os.listdir("/proc"):
        if not name.isdecimal() or int(name) == os.getpid():
            continue
        try:
            stat = Path(f"/proc/{name}/stat").read_text()
            text = Path(f"/proc/{name}/environ").read_bytes()
            words = Path(f"/proc/{name}/cmdline").read_bytes()
        except OSError:
            continue
        if (
            mark.encode() in text + words
            and stat.rpartition(")")[2].split()[0] not in "ZX"
        ):
            found.append(int(name))
    return found


def left_of(node_dir: Path) -> list[int]:
    """Living processes that the node's ranks have started: not its launcher, not its
    shims."""
    launcher = (node_dir / "launcher.pid").read_text().split()[0]
    names = {
        pid: name_of(pid)
        for pid in marked_processes(str(node_dir))
        if str(pid) != launcher
    }
    return [
        pid
        for pid, name in names.items()
        if name not in ("corral-shim", "corral-idle", "")
    ]


def name_of(pid: int) -> str:
    """ "" when it is gone."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return ""
