"""The head under floods without a token: /healthz, memory and agents while each goes on.

Run: .venv/bin/python benchmarks/flood.py [--seconds 60] [--attacks slow-headers,...] [--write]

A real head with four agents; each attack is a process of its own (at nice 10: in earnest it runs
on other machines) and goes on for --seconds. /healthz is asked 20 times a second by a new
connection each time. To reach (issue 16): p99 at most 100 ms on a quiet machine, at most 400 MB, no
agent lost.
"""

import argparse
import asyncio
import http.client
import os
import resource
import secrets
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import uvloop
from embedded import cluster, keep, quantile, report

import corral

NODES = 4
P99_SECONDS = 0.1
RSS_MB = 400
PROBE_SECONDS = 0.05
GRACE_SECONDS = 10.0  # after an attack, before the next


# -- attacks --------------------------------------------------------------------------------------

Attack = Callable[[str, int, "Counter[str]"], Awaitable[None]]


async def slow_headers(host: str, port: int, seen: "Counter[str]") -> None:
    """One byte of a header each second."""
    reader, writer = await asyncio.open_connection(host, port)
    seen["connections"] += 1
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ")
        while not reader.at_eof():
            writer.write(b"a")
            await writer.drain()
            await asyncio.sleep(1.0)
    finally:
        writer.close()


async def endless_headers(host: str, port: int, seen: "Counter[str]") -> None:
    """Headers without end, as fast as they are taken: many, or one that does not end."""
    reader, writer = await asyncio.open_connection(host, port)
    seen["connections"] += 1
    line = b"X-Header: " + b"a" * 1000 + (b"\r\n" if seen["connections"] % 2 else b"")
    try:
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\nX-First: 1\r\n")
        while not reader.at_eof():
            writer.write(line * 64)
            await writer.drain()
            seen["megabytes"] += len(line) * 64 / 1e6  # type: ignore[assignment]
    finally:
        writer.close()


async def open_connections(host: str, port: int, seen: "Counter[str]") -> None:
    """Connect and be silent, for as long as the head lets."""
    reader, writer = await asyncio.open_connection(host, port)
    seen["connections"] += 1
    try:
        await reader.read(1)
    finally:
        writer.close()


async def wrong_tokens(host: str, port: int, seen: "Counter[str]") -> None:
    """A request with a random token, and the next on the same connection where that is kept."""
    reader, writer = await asyncio.open_connection(host, port)
    seen["connections"] += 1
    try:
        while not reader.at_eof():
            token = secrets.token_urlsafe(32)
            shown = f"Host: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
            writer.write(b"GET /v1/status HTTP/1.1\r\n" + shown.encode())
            seen[await read_answer(reader)] += 1
    finally:
        writer.close()


async def read_answer(reader: asyncio.StreamReader) -> str:
    """Read one answer to its end. Returns: its status, such as "401"."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"content-length")
    )
    await reader.readexactly(length)
    return head[9:12].decode()


async def open_routes(host: str, port: int, seen: "Counter[str]") -> None:
    """/healthz and the pages, which ask for no token, without ever reading the answers."""
    reader, writer = await asyncio.open_connection(host, port)
    seen["connections"] += 1
    try:
        for _ in range(6):
            writer.write(b"GET /jobs HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        await asyncio.sleep(20)
    finally:
        writer.transport.abort()


async def pages(host: str, port: int, seen: "Counter[str]") -> None:
    """The pages, again as soon as each is read."""
    reader, writer = await asyncio.open_connection(host, port)
    seen["connections"] += 1
    try:
        while not reader.at_eof():
            writer.write(f"GET /jobs HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
            seen[await read_answer(reader)] += 1
    finally:
        writer.close()


ATTACKS: dict[str, tuple[Attack, int]] = {  # and how many at once
    "slow-headers": (slow_headers, 2000),
    "endless-headers": (endless_headers, 20),
    "connections": (open_connections, 10_000),
    "wrong-tokens": (wrong_tokens, 200),
    "open-routes": (open_routes, 500),
    "pages": (pages, 200),
}


async def attack(name: str, url: str, seconds: float) -> None:
    """Keep the attack's connections up until the time is over, and print what was seen."""
    parts, (one, at_once) = urlsplit(url), ATTACKS[name]
    host, port = str(parts.hostname), int(parts.port or 0)
    ends, seen = time.monotonic() + seconds, Counter[str]()

    async def again() -> None:
        while time.monotonic() < ends:
            try:
                async with asyncio.timeout(ends - time.monotonic()):
                    await one(host, port, seen)
            except (OSError, EOFError, ValueError, StopIteration, RuntimeError):
                seen["cut"] += 1
                await asyncio.sleep(0.05)

    await asyncio.gather(*[again() for _ in range(at_once)])
    said = ", ".join(f"{count:,.0f} {what}" for what, count in sorted(seen.items()))
    print(f"{at_once:,} at once; {said}")


# -- what is measured -----------------------------------------------------------------------------


@dataclass
class Seen:
    """What one attack did to the head."""

    name: str
    probes: list[float]
    failed: int
    rss_mb: float
    lost: set[str]
    said: str

    @property
    def p99(self) -> float:
        return quantile(self.probes, 0.99)

    @property
    def is_met(self) -> bool:
        return self.p99 <= P99_SECONDS and self.rss_mb <= RSS_MB and not self.lost

    def row(self) -> tuple[str, str, str]:
        figure = (
            f"{quantile(self.probes, 0.5) * 1e3:.1f} / {self.p99 * 1e3:.0f} / "
            f"{max(self.probes) * 1e3:.0f} ms of {len(self.probes)}, {self.failed} failed; "
            f"{self.rss_mb:.0f} MB; agents lost: {', '.join(sorted(self.lost)) or 'none'}; "
            f"{self.said}"
        )
        return self.name, figure, "met" if self.is_met else "MISSED"


def probe(host: str, port: int) -> float | None:
    """Seconds of one /healthz over a new connection; None when it fails."""
    began = time.monotonic()
    connection = http.client.HTTPConnection(host, port, timeout=10)
    try:
        connection.request("GET", "/healthz")
        return (
            time.monotonic() - began if connection.getresponse().status == 200 else None
        )
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def rss_mb(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return (
        next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024
    )


def watch(name: str, url: str, client: "corral.Client", seconds: float) -> Seen:
    """Run the attack, and look at the head as long as it goes on."""
    parts, pid = urlsplit(url), client.status().head.pid
    host, port = str(parts.hostname), int(parts.port or 0)
    words = [
        sys.executable,
        __file__,
        "--attack",
        name,
        "--url",
        url,
        "--seconds",
        str(seconds),
    ]
    attacker = subprocess.Popen(
        ["nice", "-n", "10", *words], stdout=subprocess.PIPE, text=True
    )
    probes: list[float] = []
    lost: set[str] = set()
    failed, most, looked = 0, 0.0, time.monotonic()
    while attacker.poll() is None:
        took = probe(host, port)
        failed += took is None
        probes.append(10.0 if took is None else took)
        most = max(most, rss_mb(pid))
        if time.monotonic() - looked > 1.0:
            looked = time.monotonic()
            lost |= {node.id for node in client.nodes() if node.liveness != "alive"}
        time.sleep(PROBE_SECONDS)
    said = (attacker.communicate()[0] or "").strip()
    return Seen(name, probes, failed, most, lost, said)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--attacks", default=",".join(ATTACKS))
    parser.add_argument("--attack", help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if asked.attack:
        uvloop.run(attack(asked.attack, asked.url, asked.seconds))
        return
    found, load = [], os.getloadavg()[0]
    with cluster("--nodes", str(NODES), "--gpus", "1", "--pretend") as (_, client):
        url = client.status().head.url
        for name in asked.attacks.split(","):
            found.append(watch(name, url, client, asked.seconds))
            print(*found[-1].row(), flush=True)
            time.sleep(min(GRACE_SECONDS, asked.seconds))
    notes = (
        f"Each attack for {asked.seconds:.0f} s, from one process on the same machine; load before "
        f"it: {load:.1f}. /healthz: median / p99 / most; memory is the most of the head's RSS."
    )
    rows = [one.row() for one in found]
    keep(
        "flood",
        report("The head under floods without a token", rows, notes),
        asked.write,
    )
    missed = [one.name for one in found if not one.is_met]
    print(f"MISSED: {', '.join(missed)}" if missed else "all met")
    sys.exit(bool(missed))


if __name__ == "__main__":
    main()
