"""What an agent and the reader of its sensors cost on a node where nothing runs.

Run: .venv/bin/python benchmarks/agent_telemetry.py [--seconds 60] [--write FILE.md]

Two nodes, one after the other, each with a head in this process: one of 8 pretend GPUs, and one of
8 GPUs behind a fake libnvidia-ml.so.1 (tests/agent/telemetry/fake_nvml.c, built with gcc here), of
18 NVLinks each. CPU is user and system time of the agent, its launcher and its reader over the
seconds, from /proc; resident is what they hold at the end (Pss shares pages that all use).
The fake answers at once, so that its figure is Corral's own; a real driver takes time of its own.
To reach (issue 6): <= 0.5 % of a core for all.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed

sys.path.insert(0, str(Path(__file__).parent))
from agent_idle import agent_of, cpu_seconds, memory_mb, prepare

from corral.domain.telemetry import NodeSample
from corral.wire.agent_messages import Heartbeat, HeartbeatAck, encode, from_agent
from corral.wire.node import decode_settings, encode_settings

WARM_SECONDS = 15.0  # the second sample has been read, links and all
FAKE = Path(__file__).parents[1] / "tests/agent/telemetry/fake_nvml.c"
GPUS, LINKS = 8, 18


def fake_driver(root: Path, node_dir: Path) -> None:
    """The node's GPUs are those of the fake library from now on."""
    library = root / "libnvidia-ml.so.1"
    words = ["gcc", "-shared", "-fPIC", "-O1", "-o", str(library), str(FAKE)]
    subprocess.run([*words, f"-Wl,-soname,{library.name}"], check=True)
    lines = [
        f"count {GPUS}",
        "pause_ms 10000",
        *(f"{gpu}.field.91 {LINKS}" for gpu in range(GPUS)),
    ]
    lines += [f"{gpu}.field.{total} 0" for gpu in range(GPUS) for total in (38, 52, 59)]
    (root / "driver").write_text("\n".join(lines) + "\n")
    os.environ.update(LD_LIBRARY_PATH=str(root), FAKE_NVML=str(root / "driver"))
    file = node_dir / "node.json"
    settings = msgspec.structs.replace(
        decode_settings(file.read_bytes()), pretend_gpus=None
    )
    file.write_bytes(encode_settings(settings))


def reader_of(agent: int) -> int:
    """The process id of the agent's reader."""
    children = Path(f"/proc/{agent}/task/{agent}/children").read_text().split()
    for child in map(int, children):
        if b"telemetry.reader" in Path(f"/proc/{child}/cmdline").read_bytes():
            return child
    raise ValueError(f"agent {agent} has no reader")


async def measure(root: Path, seconds: float, fake: bool) -> dict[str, float]:
    node_dir = prepare(root)
    if fake:
        fake_driver(root, node_dir)
    samples: list[NodeSample] = []

    async def talk(connection: ServerConnection) -> None:
        with suppress(ConnectionClosed):
            async for frame in connection:
                message = from_agent(bytes(frame))  # type: ignore[arg-type]
                if isinstance(message, Heartbeat):
                    samples.extend([message.sample] if message.sample else [])
                    await connection.send(encode(HeartbeatAck(message.number)))

    async with serve(talk, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        (root / "head.json").write_text(json.dumps({"url": f"http://127.0.0.1:{port}"}))
        with agent_of(node_dir) as agent:
            await asyncio.sleep(WARM_SECONDS)
            pids = {
                "agent": agent,
                "reader": reader_of(agent),
                "launcher": int((node_dir / "launcher.pid").read_text().split()[0]),
            }
            began = {name: cpu_seconds(pid) for name, pid in pids.items()}
            samples.clear()
            await asyncio.sleep(seconds)
            spent = {name: cpu_seconds(pid) - began[name] for name, pid in pids.items()}
            shares = {
                f"{name} CPU, % of a core": 100 * spent[name] / seconds for name in pids
            }
            return {
                "samples": len(samples),
                "GPUs in a sample": len(samples[-1].gpus),
                "NVLinks in a sample": sum(
                    len(gpu.nvlinks) for gpu in samples[-1].gpus
                ),
                "sample, bytes in a beat": len(encode(samples[-1])),
                "all CPU, % of a core": 100 * sum(spent.values()) / seconds,
                **shares,
                **{
                    f"{name} resident, MB": memory_mb(pid, "Rss")
                    for name, pid in pids.items()
                },
                **{
                    f"{name}'s share (Pss), MB": memory_mb(pid, "Pss")
                    for name, pid in pids.items()
                },
            }


def report(pretend: dict[str, float], fake: dict[str, float], seconds: float) -> str:
    machine = f"{platform.system()} {platform.release()}, {os.cpu_count()} CPUs"
    rows = "\n".join(
        f"| {name} | {pretend[name]:.2f} | {fake[name]:.2f} |" for name in pretend
    )
    return (
        "# An agent and the reader of its sensors on an idle node\n\n"
        f"{datetime.now(UTC):%Y-%m-%d}, {machine}, Python {platform.python_version()}; "
        f"{seconds:g} s after {WARM_SECONDS:g} s of warming up,\na sample each 10 s. "
        "To reach: <= 0.5 % of a core for all.\n\n"
        f"| what | 8 pretend GPUs | 8 GPUs of the fake NVML |\n| --- | --- | --- |\n{rows}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    found = []
    for fake in (False, True):
        with tempfile.TemporaryDirectory(prefix="corral-agent-telemetry-") as folder:
            found.append(asyncio.run(measure(Path(folder), asked.seconds, fake)))
    text = report(found[0], found[1], asked.seconds)
    print(text)
    if asked.write:
        asked.write.write_text(text)


if __name__ == "__main__":
    main()
