"""Whether a reader who follows a job's log sees every line of it, at 10 MB/s.

Run: .venv/bin/python benchmarks/log_tail.py [--rate MB] [--seconds 60] [--write FILE.md]

One rank writes numbered lines of 100 bytes on an embedded cluster. Three read along: `corral logs
-f` from the start, another one that comes when half is over, and one over the API that knows
nothing of Corral's client (bare HTTP, server-sent events). Each line's number must follow the last
one's; who comes late begins with the oldest that is still kept. What the product itself tells to be
missing is counted apart. CPU is of the head, the node's agent and the rank's shim, from /proc.
To reach (issue 6): 0 lost lines at 10 MB/s a job.
"""

import argparse
import http.client
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).parent))
from agent_idle import cpu_seconds
from embedded import CORRAL, cluster, report

LINE_BYTES: Final = 100
TURN_SECONDS: Final = 0.02
PIECE_BYTES: Final = 1024 * 1024
RANK: Final = """
import os, sys, time
rate, seconds = float(sys.argv[1]) * 1e6, float(sys.argv[2])
began, number, tail = time.monotonic(), 0, b" " + b"x" * 88 + b"\\n"
most = int(rate * seconds / 100)
while number < most:
    due = min(most, int(rate * (time.monotonic() - began) / 100))
    os.write(1, b"".join(b"%010d" % one + tail for one in range(number, min(due, number + 10000))))
    number = min(due, number + 10000)
    time.sleep(0.02 if number == due else 0)
"""


@dataclass(slots=True)
class Reader:
    """What one of them has seen."""

    first: int = -1
    last: int = -1
    lines: int = 0
    lost: int = 0
    disorder: int = 0
    broken: int = 0
    told: int = 0
    words: str = ""
    ended_at: float = 0.0

    def take(self, pieces: Iterator[bytes]) -> None:
        rest = b""
        for piece in pieces:
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                self._line(line)
        self.ended_at = time.monotonic()

    def _line(self, line: bytes) -> None:
        if len(line) == LINE_BYTES - 1 and line[:10].isdigit():
            number = int(line[:10])
            if self.first < 0:
                self.first = number
            elif number > self.last + 1:
                self.lost += number - self.last - 1
            elif number <= self.last:
                self.disorder += 1
            self.last = number
            self.lines += 1
        elif b"[corral]" in line:
            self.told += 1
            self.words = self.words or line.decode(errors="replace")
        elif line:
            self.broken += 1


def of_command(root: Path, job: str) -> Iterator[bytes]:
    words = [CORRAL, "logs", "-f", job, "--dir", str(root)]
    with subprocess.Popen(words, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while piece := process.stdout.read1(PIECE_BYTES):  # type: ignore[attr-defined]
            yield piece


def of_api(root: Path, job: str) -> Iterator[bytes]:
    """Server-sent events by hand: of each event the text of its data."""
    address = urlsplit(json.loads((root / "head.json").read_text())["url"]).netloc
    connection = http.client.HTTPConnection(address, timeout=120)
    token = (root / "token").read_text().strip()
    headers = {"Authorization": f"Bearer {token}"}
    connection.request("GET", f"/v1/jobs/{job}/logs?follow=1", headers=headers)
    answer = connection.getresponse()
    while line := answer.readline():
        if line.startswith(b"data: "):
            said = json.loads(line[6:])
            if said.get("end"):
                return
            yield said["data"].encode()


def begun(pieces: Iterator[bytes]) -> tuple[Reader, threading.Thread]:
    reader = Reader()
    thread = threading.Thread(target=reader.take, args=(pieces,), daemon=True)
    thread.start()
    return reader, thread


def measure(rate: float, seconds: float) -> tuple[dict[str, Reader], dict[str, float]]:
    with cluster("--nodes", "1", "--gpus", "1", "--pretend") as (root, client):
        script = root / "shared" / "rank.py"
        script.write_text(RANK)
        run = f"exec {sys.executable} {script} {rate} {seconds}"
        job = client.submit({"name": "loud", "run": run})[0].id
        began = time.monotonic()
        ways: dict[str, Callable[[Path, str], Iterator[bytes]]] = {
            "corral logs -f from the start": of_command,
            "the API from the start": of_api,
        }
        read = {name: begun(way(root, job)) for name, way in ways.items()}
        time.sleep(seconds / 4)
        pids = pids_of(root, job)
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        at = time.monotonic()
        time.sleep(seconds / 4)
        read["corral logs -f from the middle on"] = begun(of_command(root, job))
        time.sleep(seconds / 4)
        took = time.monotonic() - at
        figures = {
            f"CPU of the {name}, cores": (cpu_seconds(pid) - before[name]) / took
            for name, pid in pids.items()
        }
        ended = client.wait(job)
        figures["seconds from submit to the job's end"] = time.monotonic() - began
        done = time.monotonic()
        for reader, thread in read.values():
            thread.join()
            late = max(0.0, reader.ended_at - done)
            figures["last reader's end after the job's, s"] = late
        assert ended.state == "DONE", ended.reason
        kept = sum(file.stat().st_size for file in (root / "logs").rglob("*.log*"))
        figures["kept by the head in the end, MB"] = kept / 1e6
        return {name: reader for name, (reader, _) in read.items()}, figures


def pids_of(root: Path, job: str) -> dict[str, int]:
    node = root / "nodes/n1"
    head = int(json.loads((root / "head.json").read_text())["pid"])
    shim = int(next(node.glob(f"attempts/{job}.1/shim.pid")).read_text().split()[0])
    agent = next(
        int(path.name)
        for path in Path("/proc").glob("[0-9]*")
        if is_agent(path / "cmdline", str(node))
    )
    return {"head": head, "agent": agent, "shim": shim}


def is_agent(file: Path, node: str) -> bool:
    try:
        words = file.read_bytes().split(b"\0")
    except OSError:
        return False
    return b"corral.agent" in words and node.encode() in words


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rate", type=float, default=10.0, help="MB/s")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--write", type=Path)
    asked = parser.parse_args()
    read, figures = measure(asked.rate, asked.seconds)
    written = int(asked.rate * 1e6 * asked.seconds / LINE_BYTES)
    rows = [("lines that were written", f"{written}", "")]
    for name, one in read.items():
        ends = "all" if one.last == written - 1 else f"until {one.last}"
        rows += [
            (f"{name}: lost lines", f"{one.lost + written - 1 - one.last}", "0"),
            (f"{name}: seen", f"{one.lines}, {one.first} on, {ends}", ""),
            (
                f"{name}: out of order, cut in two",
                f"{one.disorder}, {one.broken}",
                "0, 0",
            ),
            (f"{name}: told by Corral", f"{one.told} {one.words}", ""),
        ]
    rows += [(name, f"{figure:.2f}", "") for name, figure in figures.items()]
    text = report(
        f"A log of {asked.rate:g} MB/s for {asked.seconds:g} s, followed", rows
    )
    print(text)
    if asked.write:
        asked.write.write_text(text)
    return int(any(one.lost or one.disorder for one in read.values()))


if __name__ == "__main__":
    sys.exit(main())
