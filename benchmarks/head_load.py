"""What a head costs with 1,000 agents that beat each second: CPU as a share of a core, and memory.

Run: .venv/bin/python benchmarks/head_load.py [--nodes N] [--seconds S] [--write FILE.md]

A head as anybody starts it, which machines can join, over TLS; the agents are those of fleet.py, in
one other process: each joins by a token of its own, holds two connections (beats and logs), beats
each second and on any change, sends a sample of 8 GPUs each 10 s, and notices something now and
then. Gangs of four nodes, jobs of a node and short jobs of one GPU hold nearly all GPUs, some wait;
what runs tells of its steps and prints. CPU is user and system time of the head's process from
/proc over the seconds, after warming up; resident is at the end, and at the most. A trip is from a
beat's leaving to its answer: the longest holds the loop's longest pause, and what the agents' own
process came late by, which is told beside it.
The peer is the least that could be: uvicorn with the same sockets and the same TLS, which decodes
the same beats with msgspec, answers them, and does nothing else.
To reach (issue 6): <= 0.5 core and <= 400 MB, no beat lost.
"""

import argparse
import hashlib
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import uvicorn
import uvloop

sys.path.insert(0, str(Path(__file__).parent))
from agent_idle import TICKS_PER_SECOND
from embedded import cluster, quantile, report
from fleet import LIVES, Plan, Tally

import corral
from corral.wire.agent_messages import (
    FRAME_BYTES,
    Heartbeat,
    HeartbeatAck,
    LogAt,
    LogChunk,
    encode,
    from_agent,
)
from corral.wire.tls import trusting

DIAL_SECONDS: Final = 20.0  # over which the agents come
SIGNAL_SECONDS: Final = 600.0  # of one node: of a thousand, five in three seconds
SHORT_SECONDS: Final = (120, 1800)  # so that one ends each two seconds
RESERVE_AFTER_SECONDS: Final = 180.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """CPU in shares of a core, memory in MB."""

    cpu: float
    system: float
    resident: float
    most: float
    tally: Tally


def own_address() -> str:
    """This machine's, towards others; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as towards:
        towards.connect(("192.0.2.1", 9))
        return str(towards.getsockname()[0])


def ticks(pid: int) -> tuple[int, int]:
    """User and system time of the process's threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]), int(fields[12])


def resident_mb(pid: int, name: str) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024 / 1e6
    raise ValueError(f"no {name} of process {pid}")


class Fleet:
    """The agents' process."""

    def __init__(self, plan: Path) -> None:
        words = [sys.executable, str(Path(__file__).with_name("fleet.py")), str(plan)]
        self._process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )

    def ask(self, what: str) -> Tally:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{what}\n".encode())
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=Tally)

    def close(self) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        self._process.wait()


@contextmanager
def fleet(folder: Path, plan: Plan) -> Iterator[Fleet]:
    file = folder / "fleet.json"
    file.write_bytes(msgspec.json.encode(plan))
    agents = Fleet(file)
    try:
        yield agents
    finally:
        agents.close()


def joined(client: "corral.Client", trusted: Path, nodes: int) -> dict[str, str]:
    """As many nodes by the way on which machines join; the token of each."""
    made = client.create_join_token(uses=nodes, expires_seconds=3600)
    tokens = {f"n{number:04d}": secrets.token_urlsafe(32) for number in range(nodes)}
    headers = {
        "Authorization": f"Bearer {made.token}",
        "Content-Type": "application/json",
    }
    head = http.client.HTTPSConnection(
        urlsplit(made.url).netloc, context=trusting(trusted)
    )
    with closing(head):
        for name, token in tokens.items():
            body = {"node": name, "sha256": hashlib.sha256(token.encode()).hexdigest()}
            head.request("POST", "/v1/nodes/join", json.dumps(body), headers)
            answer = head.getresponse()
            said = answer.read()
            assert answer.status == 201, said
    return tokens


def work_of(nodes: int) -> list[dict[str, Any]]:
    """Two fifths of the nodes in gangs of four, two fifths each with a job of its own, the rest for
    short jobs of one GPU, of which half as many again wait."""
    whole: dict[str, Any] = {"run": "python train.py", "per": "gpu"}
    gang = whole | {"name": "pretrain", "nodes": 4, "resources": {"gpu": 8}}
    single = whole | {"name": "finetune", "resources": {"gpu": 8}}
    short = {"name": "eval", "run": "python eval.py", "resources": {"gpu": 1}}
    low, high = SHORT_SECONDS
    count = nodes // 5 * 8 * 3 // 2
    shorts = (
        short | {"env": {LIVES: str(low + number * 7919 % (high - low))}}
        for number in range(count)
    )
    return [*[gang] * (nodes // 10), *[single] * (nodes * 2 // 5), *shorts]


def until(what: str, is_so: Any) -> None:
    give_up_at = time.monotonic() + RESERVE_AFTER_SECONDS
    while not is_so():
        if time.monotonic() > give_up_at:
            raise TimeoutError(f"{what}: not within {RESERVE_AFTER_SECONDS:g} s")
        time.sleep(1.0)


def measured(pid: int, agents: Fleet, warm: float, seconds: float) -> Found:
    time.sleep(warm)
    agents.ask("begin")
    began, before = time.monotonic(), ticks(pid)
    time.sleep(seconds)
    after, took = ticks(pid), time.monotonic() - began
    user, system = (
        (one - other) / TICKS_PER_SECOND / took
        for one, other in zip(after, before, strict=True)
    )
    return Found(
        cpu=user + system,
        system=system,
        resident=resident_mb(pid, "VmRSS"),
        most=resident_mb(pid, "VmHWM"),
        tally=agents.ask("tell"),
    )


def of_head(asked: argparse.Namespace) -> tuple[Found, dict[str, int], Found | None]:
    """The head's figures, what its world was like at the end, and the peer's figures."""
    with cluster("--host", own_address(), "--nodes", "0") as (root, client):
        plan = Plan(
            head_file=str(root / "head.json"),
            trusted=str(root / "ca.pem"),
            tokens=joined(client, root / "ca.pem", asked.nodes),
            signal_seconds=SIGNAL_SECONDS,
            dial_seconds=DIAL_SECONDS,
        )
        pid = int(json.loads((root / "head.json").read_text())["pid"])
        with fleet(root, plan) as agents:
            until("all agents talk", lambda: agents.ask("tell").talks >= asked.nodes)
            work = work_of(asked.nodes)
            for first in range(0, len(work), 500):
                client.submit(work[first : first + 500])
            parts = (
                asked.nodes * 4 // 5
            )  # of the gangs and of the jobs with a node of their own
            until("the work runs", lambda: agents.ask("tell").attempts > parts)
            print(f"head {pid} is under load", flush=True)
            found = measured(pid, agents, asked.warm, asked.seconds)
            world = world_of(client)
        os.kill(
            pid, signal.SIGTERM
        )  # the head alone: `corral down` would end each job first
        until("the head has ended", lambda: not Path(f"/proc/{pid}").exists())
        return found, world, None if asked.no_peer else of_peer(root, plan, asked)


def world_of(client: "corral.Client") -> dict[str, int]:
    told = [event.kind for event in client.events()]
    return {
        "nodes alive at the end": alive(client),
        "nodes that were told silent": told.count("node_silent"),
        "jobs that run at the end": running(client),
        "jobs that waited at the end": client.status().jobs.get("QUEUED", 0),
        "attempts that ended meanwhile": told.count("finished"),
    }


def alive(client: "corral.Client") -> int:
    return sum(
        node.has_heartbeat and node.liveness == "alive" for node in client.nodes()
    )


def running(client: "corral.Client") -> int:
    return client.status().jobs.get("RUNNING", 0)


# -- the peer ------------------------------------------------------------------------------------


async def answer(scope: Mapping[str, Any], receive: Any, send: Any) -> None:
    """Whoever beats is heard, and logs are taken."""
    await receive()
    await send({"type": "websocket.accept"})
    while (message := await receive())["type"] == "websocket.receive":
        match from_agent(message["bytes"]):
            case Heartbeat(number=number):
                said: HeartbeatAck | LogAt = HeartbeatAck(number, wall=time.time())
            case LogChunk() as chunk:
                key = {"job": chunk.job, "attempt": chunk.attempt, "rank": chunk.rank}
                said = LogAt(**key, offset=chunk.offset + len(chunk.data))
            case _:
                continue
        await send({"type": "websocket.send", "bytes": encode(said)})


def serve(tls: Path, port: int) -> None:
    """In a process of its own, until it is ended."""
    config = uvicorn.Config(
        answer,
        host=own_address(),
        port=port,
        ws="websockets-sansio",
        ws_max_size=FRAME_BYTES,
        lifespan="off",
        log_config=None,
        access_log=False,
        ssl_certfile=str(tls / "head.pem"),
        ssl_keyfile=str(tls / "head.key"),
    )
    uvloop.run(uvicorn.Server(config).serve())


def of_peer(root: Path, plan: Plan, asked: argparse.Namespace) -> Found:
    """The same agents, to whom nobody says what is wanted: their beats tell of no attempt."""
    with socket.socket() as free:
        free.bind((own_address(), 0))
        port = free.getsockname()[1]
    words = [
        sys.executable,
        __file__,
        "--serve",
        str(root / "tls"),
        "--port",
        str(port),
    ]
    peer = subprocess.Popen(words)
    try:
        with tempfile.TemporaryDirectory(prefix="corral-bench-") as folder:
            file = Path(folder) / "head.json"
            file.write_text(json.dumps({"url": f"https://{own_address()}:{port}"}))
            with fleet(
                Path(folder), msgspec.structs.replace(plan, head_file=str(file))
            ) as agents:
                return measured(
                    peer.pid, agents, DIAL_SECONDS + 15.0, asked.seconds / 2
                )
    finally:
        peer.terminate()
        peer.wait()


# -- what is told --------------------------------------------------------------------------------


def rows_of(
    found: Found, peer: Found | None, seconds: float
) -> list[tuple[str, str, str]]:
    tally = found.tally
    trips = [1000 * one for one in tally.trips]
    rows = [
        ("CPU of the head, cores", f"{found.cpu:.3f}", "<= 0.5"),
        ("of it in the kernel", f"{found.system:.3f}", ""),
        ("resident at the end, MB", f"{found.resident:.0f}", "<= 400"),
        ("resident at the most, MB", f"{found.most:.0f}", "<= 400"),
        ("beats sent", f"{tally.sent} ({tally.sent / seconds:.0f} a second)", ""),
        ("beats without an answer", f"{tally.lost}", "0"),
        ("connections that were dialled again", f"{tally.talks}", "0"),
        ("samples of 8 GPUs", f"{tally.samples}", ""),
        ("signals", f"{tally.signals}", ""),
        ("lines that were printed", f"{tally.lines}", ""),
        ("parts of attempts that began", f"{tally.attempts}", ""),
        ("trip of a beat, median, ms", f"{quantile(trips, 0.5):.1f}", ""),
        ("trip of a beat, 99th of 100, ms", f"{quantile(trips, 0.99):.1f}", ""),
        ("longest trip, ms", f"{max(trips):.0f}", ""),
        (
            "the agents' own process came late by, at the most, ms",
            f"{lag(tally):.0f}",
            "",
        ),
    ]
    if peer is not None:
        beats = peer.tally.sent / (seconds / 2)
        each, other = found.cpu / tally.sent * seconds, peer.cpu / beats
        rows += [
            (
                "bare uvicorn and msgspec, cores",
                f"{peer.cpu:.3f} ({beats:.0f} beats a second)",
                "",
            ),
            ("the same, resident, MB", f"{peer.resident:.0f}", ""),
            ("CPU of a beat against it", f"{each / other:.2f} x", ""),
        ]
    return rows


def lag(tally: Tally) -> float:
    return 1000 * tally.lag_most_seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nodes", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=150.0)
    parser.add_argument("--warm", type=float, default=60.0)
    parser.add_argument("--no-peer", action="store_true")
    parser.add_argument("--write", type=Path)
    parser.add_argument("--serve", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.serve:
        serve(asked.serve, asked.port)
        return
    before = os.getloadavg()[0]
    found, world, peer = of_head(asked)
    rows = rows_of(found, peer, asked.seconds)
    rows += [(name, f"{count}", "") for name, count in world.items()]
    notes = f"Over {asked.seconds:g} s, after {asked.warm:g} s; load when it began: {before:.1f}."
    text = report(f"A head with {asked.nodes} agents", rows, notes)
    print(text)
    if asked.write:
        asked.write.write_text(text)


if __name__ == "__main__":
    main()
