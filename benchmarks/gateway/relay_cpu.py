"""Requests per CPU-second of the gateway, at a closed loop before three mock engines.

Run: python -m benchmarks.gateway.relay_cpu [SECONDS] [ROUNDS]. The engines and the load
generator are C programs that gcc compiles here; nginx is the peer where it is installed.
"""

import json
import os
import platform
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from statistics import median
from time import sleep
from typing import Final
from urllib.request import Request, urlopen

from benchmarks.gateway.peers import installed_peers

HERE: Final = Path(__file__).parent
RESULTS: Final = HERE.parent / "results"
CONNECTIONS: Final = 64
ENGINES: Final = 3
WARM_UP_SECONDS: Final = 1.0
KEY: Final = "sk-benchmark-0123456789abcdef0123456789abcdef"
GOAL: Final = 25_000
START_SECONDS: Final = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One run of the load against one proxy."""

    requests: int
    failures: int
    seconds: float
    p50_us: float
    p99_us: float
    cpu_seconds: float
    resident_mb: float

    @property
    def per_cpu_second(self) -> float:
        return self.requests / self.cpu_seconds if self.cpu_seconds else 0.0


def compile_programs(directory: Path) -> None:
    for name in ("mock_engine", "load"):
        source = HERE / f"{name}.c"
        command = ["gcc", "-O2", "-Wall", "-o", str(directory / name), str(source)]
        subprocess.run(command, check=True)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(port: int) -> None:
    for _ in range(int(START_SECONDS / 0.05)):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        sleep(0.05)
    raise TimeoutError(f"nothing listens on port {port}")


def wait_for_answer(port: int) -> None:
    """Wait until a request gets an answer: some routers look for engines first."""
    body = {"model": "chat", "messages": [{"role": "user", "content": "1"}]}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}
    url = f"http://127.0.0.1:{port}/v1/chat/completions"
    request = Request(url, data=json.dumps(body).encode(), headers=headers)
    for _ in range(int(START_SECONDS / 0.2)):
        with suppress(OSError), urlopen(request):
            return
        sleep(0.2)
    raise TimeoutError(f"no answer comes from port {port}")


@contextmanager
def running(command: list[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program that listens on a port, and end it."""
    quiet = subprocess.DEVNULL
    process = subprocess.Popen(command, stdout=quiet, stderr=quiet)
    try:
        wait_for(port)
        wait_for_answer(port)
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def cpu_seconds(pid: int) -> float:
    """CPU seconds of a process, its children and its threads."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    own = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    return own + sum(cpu_seconds(child) for child in children_of(pid))


def children_of(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(child) for child in text.split()]


def resident_mb(pid: int) -> float:
    """Memory of a process and its children; pages that they share count once."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    kilobytes = next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    children = sum(resident_mb(child) for child in children_of(pid))
    return kilobytes * 1024 / 1e6 + children


def measure(directory: Path, port: int, pid: int, seconds: float) -> Measurement:
    run_load(directory, port, WARM_UP_SECONDS)
    before = cpu_seconds(pid)
    answers = run_load(directory, port, seconds)
    return Measurement(
        requests=int(answers[0]),
        failures=int(answers[1]),
        seconds=float(answers[2]),
        p50_us=float(answers[3]),
        p99_us=float(answers[4]),
        cpu_seconds=cpu_seconds(pid) - before,
        resident_mb=resident_mb(pid),
    )


def run_load(directory: Path, port: int, seconds: float) -> list[str]:
    load = str(directory / "load")
    command = [load, str(port), str(CONNECTIONS), str(seconds), KEY]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return done.stdout.split()


def write_routes(path: Path, ports: list[int]) -> None:
    """Write routes with a key, limits, and an allow list: all that a request passes."""
    replicas = [
        {"name": f"chat-{port}", "host": "127.0.0.1", "port": port, "key": "engine"}
        for port in ports
    ]
    caller = {
        "name": "bench",
        "key_sha256": sha256(KEY.encode()).hexdigest(),
        "requests_per_minute": 100_000_000,
        "tokens_per_minute": 10_000_000_000,
        "concurrency": 10_000,
    }
    service = {
        "name": "chat",
        "models": ["chat"],
        "replicas": replicas,
        "allow": ["bench"],
    }
    state = {"version": 1, "services": [service], "callers": [caller]}
    path.write_text(json.dumps(state))


def gateway_command(directory: Path, ports: list[int], port: int) -> list[str]:
    routes = directory / "routes.json"
    write_routes(routes, ports)
    program = "from corral.cli.main import main; main()"
    arguments = ["gateway", "--routes", str(routes), "--port", str(port)]
    return [sys.executable, "-c", program, *arguments]


def run_rounds(
    directory: Path, ports: list[int], seconds: float, rounds: int
) -> dict[str, list[Measurement]]:
    """Measure each proxy in each round; the order turns."""
    commands = {"corral gateway": gateway_command, **installed_peers()}
    names = list(commands)
    runs: dict[str, list[Measurement]] = {name: [] for name in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            port = free_port()
            command = commands[name](directory, ports, port)
            with running(command, port) as process:
                runs[name].append(measure(directory, port, process.pid, seconds))
    return runs


def row_of(name: str, runs: list[Measurement]) -> str:
    rates = [run.per_cpu_second for run in runs]
    return (
        f"| {name} | {median(rates):,.0f} | {min(rates):,.0f} to {max(rates):,.0f} | "
        f"{median(run.requests / run.seconds for run in runs):,.0f} | "
        f"{median(run.p50_us for run in runs):,.0f} / "
        f"{median(run.p99_us for run in runs):,.0f} | "
        f"{sum(run.failures for run in runs)} | "
        f"{median(run.resident_mb for run in runs):.0f} |"
    )


def direct_row(directory: Path, port: int, seconds: float) -> str:
    answers = run_load(directory, port, seconds)
    rate = int(answers[0]) / float(answers[2])
    latency = f"{answers[3]} / {answers[4]}"
    return (
        f"| one engine, direct | - | - | {rate:,.0f} | {latency} | {answers[1]} | - |"
    )


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 5.0
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        compile_programs(directory)
        ports = [free_port() for _ in range(ENGINES)]
        engines = [
            subprocess.Popen([str(directory / "mock_engine"), str(port)])
            for port in ports
        ]
        try:
            for port in ports:
                wait_for(port)
            direct = direct_row(directory, ports[0], seconds)
            runs = run_rounds(directory, ports, seconds, rounds)
        finally:
            for engine in engines:
                engine.kill()
                engine.wait()
    keep([direct, *(row_of(name, measured) for name, measured in runs.items())], rounds)


def keep(rows: list[str], rounds: int) -> None:
    """Print the rows, and write them with date, machine and load to the results."""
    peers = installed_peers()
    peer = "" if peers else " No peer is installed here."
    lines = [
        f"Closed loop, {CONNECTIONS} connections, {ENGINES} mock engines in C, small "
        f"JSON answers, {rounds} rounds, medians. On in the gateway: key, allow list, "
        "three limits, choice of the replica, metrics, usage, replay, back-pressure. "
        f"The goal is {GOAL:,} requests per CPU-second.{peer}",
        "",
        "| proxy | requests per CPU-second | range | requests per second "
        "| p50 / p99 us | failed | MB |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        *rows,
    ]
    text = "\n".join(lines)
    print(text)
    now = datetime.now(UTC)
    load = ", ".join(f"{average:.1f}" for average in os.getloadavg())
    (RESULTS / f"gateway-relay-{now:%Y-%m-%d}.md").write_text(
        "# Relay of the gateway: requests per CPU-second\n\n"
        f"{now:%Y-%m-%d %H:%M} UTC, {platform.machine()} ({_processor()}), "
        f"{os.cpu_count()} cores, load {load}; Python {platform.python_version()}.\n\n"
        f"{text}\n"
    )


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    return names[0] if names else "?"


if __name__ == "__main__":
    main()
