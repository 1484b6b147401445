"""What an agent costs on a node where nothing runs: CPU as a share of one core, and memory.

Run: .venv/bin/python benchmarks/agent_idle.py [--seconds 60] [--write FILE.md]

A node of 8 pretend GPUs with a private root talks with a head in this process, beats each second
included. CPU is user and system time of the agent, its launcher and its probe's helper over the
seconds, from /proc; resident is what they hold at the end (Pss shares pages that both use).
To reach (design, section 6): <= 0.5 % of a core, <= 60 MB.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from corral.domain.ids import NodeId
from corral.wire.agent_messages import Heartbeat, HeartbeatAck, encode, from_agent
from corral.wire.node import NodeSettings, encode_settings

TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
WARM_SECONDS = 5.0


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and of the children that it has waited for."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(int(field) for field in fields[11:15]) / TICKS_PER_SECOND


def memory_mb(pid: int, kind: str) -> float:
    """Rss or Pss in MB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"no {kind} of process {pid}")


def prepare(root: Path) -> Path:
    node_dir = root / "nodes/n1"
    for name in ("attempts", "cache", "disk"):
        (node_dir / name).mkdir(parents=True)
    (root / "shared").mkdir()
    settings = NodeSettings(
        node=NodeId("n1"),
        head_file=str(root / "head.json"),
        pretend_gpus=8,
        shared=(str(root / "shared"),),
        hidden=(str(root),),
    )
    for name, content in (
        ("node.json", encode_settings(settings)),
        ("token", b"token"),
    ):
        (node_dir / name).touch(mode=0o600)
        (node_dir / name).write_bytes(content)
    return node_dir


@contextmanager
def agent_of(node_dir: Path) -> Iterator[int]:
    """A running agent's process id; the whole node is ended afterwards."""
    words = [sys.executable, "-m", "corral.agent"]
    process = subprocess.Popen([*words, str(node_dir)], start_new_session=True)
    try:
        yield process.pid
    finally:
        process.terminate()
        process.wait()
        subprocess.run([*words, "--kill", str(node_dir)], check=True)


async def measure(root: Path, seconds: float) -> dict[str, float]:
    node_dir = prepare(root)
    beats = 0

    async def talk(connection: ServerConnection) -> None:
        nonlocal beats
        with suppress(ConnectionClosed):
            async for frame in connection:
                message = from_agent(bytes(frame))  # type: ignore[arg-type]
                if isinstance(message, Heartbeat):
                    beats += 1
                    await connection.send(encode(HeartbeatAck(message.number)))

    async with serve(talk, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        (root / "head.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}"}))
        with agent_of(node_dir) as agent:
            await asyncio.sleep(WARM_SECONDS)
            launcher = int((node_dir / "launcher.pid").read_text().split()[0])
            began = {pid: cpu_seconds(pid) for pid in (agent, launcher)}
            beats = 0
            await asyncio.sleep(seconds)
            spent = {pid: cpu_seconds(pid) - began[pid] for pid in began}
            return {
                "beats": beats,
                "agent CPU, % of a core": 100 * spent[agent] / seconds,
                "launcher CPU, % of a core": 100 * spent[launcher] / seconds,
                "agent resident, MB": memory_mb(agent, "Rss"),
                "agent's share (Pss), MB": memory_mb(agent, "Pss"),
                "launcher resident, MB": memory_mb(launcher, "Rss"),
                "launcher's share (Pss), MB": memory_mb(launcher, "Pss"),
            }


def report(figures: dict[str, float], seconds: float) -> str:
    machine = f"{platform.system()} {platform.release()}, {os.cpu_count()} CPUs"
    rows = "\n".join(f"| {name} | {figure:.2f} |" for name, figure in figures.items())
    return (
        f"# An agent on an idle node\n\n{datetime.now(UTC):%Y-%m-%d}, {machine}, Python "
        f"{platform.python_version()}; {seconds:g} s after {WARM_SECONDS:g} s of warming up.\n"
        f"To reach: <= 0.5 % of a core, <= 60 MB.\n\n| what | figure |\n| --- | --- |\n{rows}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corral-agent-idle-") as folder:
        figures = asyncio.run(measure(Path(folder), asked.seconds))
    text = report(figures, asked.seconds)
    print(text)
    if asked.write:
        asked.write.write_text(text)


if __name__ == "__main__":
    main()
