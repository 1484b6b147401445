"""Real agents, shims and ranks with a head in the test: what survives, and who sees
what."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from corral.agent.processes import LocalProcess
from corral.domain.desired_state import Launch
from corral.domain.ids import NodeId
from corral.domain.job import Per
from corral.domain.observed_state import AttemptKey, Phase
from corral.wire.agent_messages import AttachNow, encode
from corral.wire.node import NodeSettings, encode_settings
from tests.agent.bench import key_of, launch_of, stop_of
from tests.agent.fakehead import TOKEN, FakeHead
from tests.agent.nodes import write_policy
from tests.patience import PATIENCE_SECONDS

ONE, TWO = key_of(1), key_of(2)


class RealNode:
    """A node's folder in a cluster's, a head of its own, and the agent's process."""

    def __init__(self, cluster: Path, node: str) -> None:
        self.cluster = cluster
        self.dir = cluster / "nodes" / node
        self.head = FakeHead(file=cluster / f"head-{node}.json", node=NodeId(node))
        self.process: subprocess.Popen[bytes] | None = None
        for name in ("attempts", "cache", "disk"):
            (self.dir / name).mkdir(parents=True)
        (cluster / "shared").mkdir(exist_ok=True)
        settings = NodeSettings(
            node=NodeId(node),
            head_file=str(self.head.file),
            pretend_gpus=2,
            shared=(str(cluster / "shared"),),
            hidden=(str(cluster),),
        )
        self.write("node.json", encode_settings(settings))
        self.write("token", TOKEN.encode())
        write_policy(self.dir)

    def write(self, name: str, content: bytes) -> None:
        (self.dir / name).touch(mode=0o600)
        (self.dir / name).write_bytes(content)

    def start(self) -> None:
        words = [sys.executable, "-m", "corral.agent", str(self.dir)]
        with (self.dir / "agent.log").open("ab") as log:
            self.process = subprocess.Popen(
                words, stdout=log, stderr=log, start_new_session=True
            )

    def end(self, number: signal.Signals) -> int:
        assert self.process is not None
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_SECONDS)

    async def up(self) -> None:
        self.head.beats.clear()
        self.start()
        await self.head.until(lambda: self.head.beats)

    def kill(self) -> None:
        words = [sys.executable, "-m", "corral.agent", "--kill", str(self.dir)]
        subprocess.run(words, check=True)
        if self.process is not None:
            self.process.wait()

    def phase(self, key: AttemptKey) -> Phase | None:
        seen = self.head.seen(key)
        return seen.phase if seen else None

    async def until_phase(self, key: AttemptKey, phase: Phase) -> None:
        await self.head.until(lambda: self.phase(key) == phase)

    async def run(self, counter: int, launch: Launch) -> bytes:
        """The whole output of a job that is run to its end."""
        await self.head.want(counter, run=(launch,))
        await self.until_phase(launch.key, Phase.ENDED)
        await self.head.want(counter + 1, settled=(launch.key,))
        await self.head.until(lambda: self.phase(launch.key) is None)
        return self.head.log(launch.key)


@asynccontextmanager
async def nodes(*names: str) -> AsyncIterator[list[RealNode]]:
    with tempfile.TemporaryDirectory(
        prefix="corral-", ignore_cleanup_errors=True
    ) as folder:
        here = [RealNode(Path(folder), name) for name in names]
        try:
            for node in here:
                await node.head.start()
                await node.up()
            yield here
        finally:
            for node in here:
                node.kill()
                await node.head.die()


def exit_code(node: RealNode, key: AttemptKey) -> int | None:
    seen = node.head.seen(key)
    assert seen is not None
    return seen.exits[0][1].code


def test_an_exit_during_the_agents_absence_is_reported_true_by_the_next_agent() -> None:
    async def story() -> None:
        async with nodes("n1") as (node,):
            script = (
                "echo one; while [ ! -e go ]; do sleep 0.02; done; echo two; exit 7"
            )
            await node.head.want(1, run=(launch_of(ONE, script),))
            await node.until_phase(ONE, Phase.UP)
            boot = node.head.hellos[-1].boot
            node.end(signal.SIGKILL)
            (node.dir / "attempts/j1.1/work/go").touch()
            await node.head.until(
                lambda: not (node.dir / "attempts/j1.1/shim.sock").exists()
            )
            await node.up()
            await node.until_phase(ONE, Phase.ENDED)
            assert exit_code(node, ONE) == 7
            assert node.head.hellos[-1].boot == boot
            await node.head.want(2, settled=(ONE,))
            await node.head.until(lambda: node.phase(ONE) is None)
            assert node.head.log(ONE) == b"one\ntwo\n"

    asyncio.run(story())


def test_sigterm_ends_the_agent_alone_and_the_next_one_adopts() -> None:
    async def story() -> None:
        async with nodes("n1") as (node,):
            script = (
                "echo begun; while [ ! -e go ]; do sleep 0.02; done; echo done; exit 3"
            )
            await node.head.want(1, run=(launch_of(ONE, script),))
            await node.until_phase(ONE, Phase.UP)
            assert node.end(signal.SIGTERM) == 0
            shim = LocalProcess.recorded(node.dir / "attempts/j1.1/shim.pid")
            assert shim is not None
            await node.up()
            await node.until_phase(ONE, Phase.UP)
            (node.dir / "attempts/j1.1/work/go").touch()
            await node.until_phase(ONE, Phase.ENDED)
            assert exit_code(node, ONE) == 3
            await node.head.until(lambda: node.head.log(ONE) == b"begun\ndone\n")

    asyncio.run(story())


def test_a_second_agent_of_a_node_is_refused_loudly() -> None:
    async def story() -> None:
        async with nodes("n1") as (node,):
            words = [sys.executable, "-m", "corral.agent", str(node.dir)]
            twin = subprocess.run(
                words, capture_output=True, text=True, timeout=PATIENCE_SECONDS
            )
            assert twin.returncode == 3
            assert "another agent runs" in twin.stderr
            assert node.process is not None
            assert node.process.poll() is None

    asyncio.run(story())


def test_settings_that_others_may_read_are_refused(tmp_path: Path) -> None:
    node = RealNode(tmp_path, "n1")
    (node.dir / "token").chmod(0o644)
    words = [sys.executable, "-m", "corral.agent", str(node.dir)]
    refused = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert refused.returncode == 3
    assert "chmod 600" in refused.stderr


def test_what_an_agent_cannot_read_it_names(tmp_path: Path) -> None:
    node = RealNode(tmp_path, "n1")
    node.write("node.json", b'{"node": "n1", "head_file": "x", "pretend_gpu": 2}')
    words = [sys.executable, "-m", "corral.agent", str(node.dir)]
    refused = subprocess.run(
        words, capture_output=True, text=True, timeout=PATIENCE_SECONDS
    )
    assert refused.returncode == 3
    assert "pretend_gpu" in refused.stderr


def test_a_rank_sees_its_nodes_disk_and_no_other_and_no_secret() -> None:
    async def story() -> None:
        async with nodes("n1", "n2") as (one, two):
            if not one.head.inventory.private_root:
                pytest.skip("no private root is to be had here")
            mark = f"corral-{os.getpid()}"
            shared = one.cluster / "shared"
            write = (
                f"for p in ~ /tmp /var/tmp . {shared}; do echo here > $p/{mark}; done; "
                f"cat {one.dir}/token {one.cluster}/nodes/n2/token {one.cluster}/head-n1.json; true"
            )
            look = (
                f"for p in ~ /tmp /var/tmp . {shared}; do [ -e $p/{mark} ] && echo $p; "
                "done; true"
            )
            written = await one.run(1, launch_of(ONE, write))
            assert TOKEN.encode() not in written
            assert b"http" not in written
            assert written.count(b"No such file") == 3
            assert await one.run(3, launch_of(TWO, look)) == (
                b"".join(
                    b"%s\n" % p.encode() for p in [str(Path.home()), "/tmp", "/var/tmp"]
                )
                + f"{shared}\n".encode()
            )
            assert await two.run(1, launch_of(ONE, look)) == f"{shared}\n".encode()
            for place in (Path.home(), Path("/tmp"), Path("/var/tmp")):
                assert not (place / mark).exists()
            assert (shared / mark).read_text() == "here\n"
            assert one.head.inventory.shared == two.head.inventory.shared != ()

    asyncio.run(story())


def test_a_launcher_that_died_is_replaced_inside_the_same_disk() -> None:
    """Its shims live, with the disk mounted: the next launcher joins them."""

    async def story() -> None:
        async with nodes("n1") as (node,):
            script = "echo mine > /tmp/corral-launcher; while [ ! -e go ]; do sleep 0.02; done"
            await node.head.want(1, run=(launch_of(ONE, script),))
            await node.until_phase(ONE, Phase.UP)
            launcher = LocalProcess.recorded(node.dir / "launcher.pid")
            assert launcher is not None
            launcher.signal(signal.SIGKILL)
            look = launch_of(TWO, "cat /tmp/corral-launcher; rm /tmp/corral-launcher")
            await node.head.want(2, run=(launch_of(ONE, script), look))
            await node.until_phase(TWO, Phase.ENDED)
            assert exit_code(node, TWO) == 0
            (node.dir / "attempts/j1.1/work/go").touch()
            await node.until_phase(ONE, Phase.ENDED)
            assert exit_code(node, ONE) == 0
            await node.head.until(lambda: node.head.log(TWO) == b"mine\n")

    asyncio.run(story())


def test_a_stop_ends_a_job_and_its_log_is_whole() -> None:
    async def story() -> None:
        async with nodes("n1") as (node,):
            launch = launch_of(
                ONE,
                "trap 'echo bye; exit' TERM; echo up; sleep 60 & wait",
                per=Per.GPU,
                ranks=2,
                world_size=2,
            )
            await node.head.want(1, run=(launch,))
            await node.until_phase(ONE, Phase.UP)
            await node.head.until(
                lambda: node.head.log(ONE, 0) == node.head.log(ONE, 1) == b"up\n"
            )
            await node.head.want(2, stop=(stop_of(ONE),))
            await node.until_phase(ONE, Phase.ENDED)
            whole = b"up\nbye\n"
            await node.head.until(
                lambda: node.head.log(ONE, 0) == node.head.log(ONE, 1) == whole
            )

    asyncio.run(story())


def test_a_flood_of_output_stays_bounded_and_the_agent_well() -> None:
    async def story() -> None:
        async with nodes("n1") as (node,):
            await node.head.want(1, run=(launch_of(ONE, "exec cat /dev/urandom"),))
            await node.until_phase(ONE, Phase.UP)
            await node.head.until(lambda: len(node.head.log(ONE)) > 8_000_000)
            beats = len(node.head.beats)
            await node.head.until(lambda: len(node.head.beats) >= beats + 2)
            assert node.process is not None
            status = Path(f"/proc/{node.process.pid}/status").read_text()
            resident_kb = int(status.split("VmHWM:")[1].split()[0])
            assert resident_kb < 90_000
            await node.head.want(2, stop=(stop_of(ONE),))
            await node.until_phase(ONE, Phase.ENDED)

    asyncio.run(story())


def test_a_shell_beside_the_ranks_is_in_their_place() -> None:
    async def story() -> None:
        async with nodes("n1") as (node,):
            await node.head.want(1, run=(launch_of(ONE, "sleep 60"),))
            await node.until_phase(ONE, Phase.UP)
            request = AttachNow(
                session="s7", job=ONE[0], attempt=ONE[1], rank=0, shell=True
            )
            for connection in list(node.head.connections):
                if connection.request and connection.request.path.endswith(
                    "heartbeats"
                ):
                    await connection.send(encode(request))
            await node.head.until(lambda: node.head.terminals)
            terminal = node.head.terminals["s7"]
            await terminal.send(b"echo job=$CORRAL_JOB_ID in $PWD; exit\n")
            said = b""
            async with asyncio.timeout(PATIENCE_SECONDS):
                while b"job=j1" not in said:
                    said += bytes(await terminal.recv())  # type: ignore[arg-type]
            assert b"attempts/j1.1/work" in said

    asyncio.run(story())


def test_a_killed_node_says_nothing_of_exits_that_nobody_saw() -> None:
    """After a loss of power the attempt is reported as lost, not as ended well."""

    async def story() -> None:
        async with nodes("n1") as (node,):
            await node.head.want(1, run=(launch_of(ONE, "sleep 60"),))
            await node.until_phase(ONE, Phase.UP)
            boot = node.head.hellos[-1].boot
            node.kill()
            (node.dir / "boot").unlink()
            await node.up()
            await node.until_phase(ONE, Phase.ENDED)
            seen = node.head.seen(ONE)
            assert seen is not None
            assert seen.exits == ()
            assert seen.trouble
            assert seen.trouble_is_infra
            assert node.head.hellos[-1].boot != boot

    asyncio.run(story())
