"""Faults, overload and added latency of the gateway, in an open loop, beside its peers.

Run: python -m benchmarks.gateway.faults [--only CASE,...] [--scale SHARE] [--no-keep].
Cases: kill, added, streams, overload, outliers. The engines and the load generators are C
programs that gcc compiles here; the peers are those of peers.py that are on PATH.
Generators, engines and proxies run under `chrt -f 10` where that is permitted.
"""

import argparse
import os
import resource
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from threading import Event, Thread
from time import monotonic, sleep
from typing import Final
from urllib.request import Request, urlopen

from benchmarks.gateway import fault_report as report
from benchmarks.gateway.fault_report import Answer, OverloadRun, StreamRun
from benchmarks.gateway.peers import Command, installed_peers
from benchmarks.gateway.relay_cpu import (
    HERE,
    KEY,
    RESULTS,
    compile_programs,
    cpu_seconds,
    free_port,
    gateway_command,
    resident_mb,
    running,
    wait_for,
)

GATEWAY: Final = "corral gateway"
SECOND_KEY: Final = "sk-benchmark-second-0123456789abcdef0123456789"
PROGRAMS: Final = ("timed_engine", "open_load", "stream_load")
GRACE_SECONDS: Final = 5.0
MANY_SLOTS: Final = 1024
FILES: Final = 20_000
# of a run before the measured one, which opens connections
WARM_UP_SECONDS: Final = 1.0

KILL_RATE: Final = 600
KILL_REQUESTS: Final = 10_000
KILL_MILLISECONDS: Final = 20
KILLED_AT: Final = 0.3  # of the run

ADDED_RATE: Final = 1000
ADDED_SECONDS: Final = 4
ADDED_ROUNDS: Final = 2

STREAMS: Final = 200
STREAM_TOKENS_PER_SECOND: Final = 50
STREAM_SECONDS: Final = 20

OVERLOAD_SECONDS: Final = 60
OVERLOAD_MILLISECONDS: Final = 40
OVERLOAD_SLOTS: Final = 8
OVERLOAD_FACTOR: Final = 3

OUTLIER_RATE: Final = 400
OUTLIER_SECONDS: Final = 8
OUTLIER_MILLISECONDS: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineKind:
    """Speed and faults of one mock engine."""

    milliseconds: float
    slots: int = MANY_SLOTS
    error_percent: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """Directory of the programs, and what is common to all cases."""

    directory: Path
    scale: float
    prefix: tuple[str, ...]

    def seconds(self, whole: float) -> float:
        return max(1.0, whole * self.scale)

    def command(self, name: str, *arguments: object) -> list[str]:
        program = str(self.directory / name)
        return [*self.prefix, program, *(str(argument) for argument in arguments)]


def realtime_prefix() -> tuple[str, ...]:
    """Return the prefix of a command that must not wait for other work."""
    prefix = ("chrt", "-f", "10")
    if shutil.which("chrt") is None:
        return ()
    done = subprocess.run([*prefix, "true"], check=False, capture_output=True)
    return prefix if done.returncode == 0 else ()


class Engines:
    """Engines of one run.

    Attributes:
        ports: Ports of the engines, in the order of their start.
    """

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._processes: list[subprocess.Popen[bytes]] = []
        self.ports: list[int] = []

    def start(self, kind: EngineKind) -> None:
        port = free_port()
        command = self._bench.command(
            "timed_engine", port, kind.milliseconds, kind.slots, kind.error_percent
        )
        self._processes.append(subprocess.Popen(command))
        self.ports.append(port)

    def kill(self, index: int) -> None:
        self._processes[index].kill()
        self._processes[index].wait()

    def end(self) -> None:
        for process in self._processes:
            process.kill()
            process.wait()


@contextmanager
def engines_of(bench: Bench, kinds: Sequence[EngineKind]) -> Iterator[Engines]:
    """Run an engine of each kind, and end them."""
    engines = Engines(bench)
    try:
        for kind in kinds:
            engines.start(kind)
        for port in engines.ports:
            wait_for(port)
        yield engines
    finally:
        engines.end()


def proxies() -> dict[str, Command]:
    peers = {
        name: command
        for name, command in installed_peers().items()
        if name.startswith(("nginx", "HAProxy", "vllm-router"))
    }
    return {GATEWAY: fault_gateway_command, **peers}


def fault_gateway_command(directory: Path, ports: list[int], port: int) -> list[str]:
    """Return the command of relay_cpu, with a second caller of equal rights."""
    command = gateway_command(directory, ports, port)
    routes = directory / "routes.json"
    state = report.decoded(routes)
    second = dict(state["callers"][0])
    second["name"] = "second"
    second["key_sha256"] = sha256(SECOND_KEY.encode()).hexdigest()
    state["callers"].append(second)
    state["services"][0]["allow"].append("second")
    report.write_encoded(routes, state)
    return command


@contextmanager
def proxy(bench: Bench, name: str, ports: list[int]) -> Iterator[tuple[int, int]]:
    """Run a proxy before the engines; give its port and its process."""
    port = free_port()
    command = proxies()[name](bench.directory, ports, port)
    with running([*bench.prefix, *command], port) as process:
        yield port, process.pid


def send(
    bench: Bench,
    port: int,
    rate: float,
    count: int,
    keys: Sequence[tuple[str, int]] = ((KEY, 1),),
) -> list[Answer]:
    """Send requests in an open loop; return their answers in the order of sending."""
    shares = [f"{key}:{weight}" for key, weight in keys]
    command = bench.command("open_load", port, rate, count, GRACE_SECONDS, *shares)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return [Answer.parse(line) for line in done.stdout.splitlines()]


def warm_up(bench: Bench, port: int, rate: float) -> None:
    send(bench, port, rate, int(rate * WARM_UP_SECONDS))


def run_kill(bench: Bench) -> list[str]:
    """Kill one of three engines under load."""
    kinds = [EngineKind(milliseconds=KILL_MILLISECONDS)] * 3
    count = max(KILL_RATE, int(KILL_REQUESTS * bench.scale))
    rows = {}
    for name in proxies():
        with (
            engines_of(bench, kinds) as engines,
            proxy(bench, name, engines.ports) as (port, _),
        ):
            warm_up(bench, port, KILL_RATE)
            undisturbed = send(bench, port, KILL_RATE, count // 3)
            killer = Thread(target=_kill_later, args=(engines, count))
            killer.start()
            disturbed = send(bench, port, KILL_RATE, count)
            killer.join()
        rows[name] = (undisturbed, disturbed)
    return report.kill_lines(rows, GATEWAY, KILLED_AT * count / KILL_RATE)


def _kill_later(engines: Engines, count: int) -> None:
    sleep(KILLED_AT * count / KILL_RATE)
    engines.kill(0)


def run_added(bench: Bench) -> list[str]:
    """Compare the latency through each proxy with that of an engine."""
    names = ["direct", *proxies()]
    runs: dict[str, list[list[Answer]]] = {name: [] for name in names}
    count = int(ADDED_RATE * bench.seconds(ADDED_SECONDS))
    with engines_of(bench, [EngineKind(milliseconds=0)] * 3) as engines:
        for number in range(ADDED_ROUNDS):
            turn = 2 * number % len(names)
            for name in names[turn:] + names[:turn]:
                if name == "direct":
                    warm_up(bench, engines.ports[0], ADDED_RATE)
                    answers = send(bench, engines.ports[0], ADDED_RATE, count)
                else:
                    with proxy(bench, name, engines.ports) as (port, _):
                        warm_up(bench, port, ADDED_RATE)
                        answers = send(bench, port, ADDED_RATE, count)
                runs[name].append(answers)
    return report.added_lines(runs, GATEWAY)


def run_streams(bench: Bench) -> list[str]:
    """Measure the age of chunks of many streams, and the cores for them."""
    runs: dict[str, StreamRun] = {}
    kinds = [EngineKind(milliseconds=1)] * 3
    with engines_of(bench, kinds) as engines:
        runs["direct"] = _stream(bench, engines.ports[0], None)
        for name in proxies():
            if name.startswith("HAProxy"):
                continue  # the settings of peers.py let it delay small parts of answers
            with proxy(bench, name, engines.ports) as (port, pid):
                warm_up(bench, port, 100)
                runs[name] = _stream(bench, port, pid)
    return report.stream_lines(runs, GATEWAY)


def _stream(bench: Bench, port: int, pid: int | None) -> StreamRun:
    tokens = int(bench.seconds(STREAM_SECONDS) * STREAM_TOKENS_PER_SECOND)
    command = bench.command("stream_load", port, STREAMS, tokens, KEY)
    before = 0.0 if pid is None else cpu_seconds(pid)
    begin = monotonic()
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    cores = None
    if pid is not None:
        cores = (cpu_seconds(pid) - before) / (monotonic() - begin)
    chunks, expected, p50, p99 = done.stdout.split()
    return StreamRun(
        lost=int(expected) - int(chunks),
        p50_us=float(p50),
        p99_us=float(p99),
        cores=cores,
    )


def run_overload(bench: Bench) -> list[str]:
    """Send three times of what the engines can do, for two callers of equal rights."""
    kind = EngineKind(milliseconds=OVERLOAD_MILLISECONDS, slots=OVERLOAD_SLOTS)
    with engines_of(bench, [kind] * 3) as engines:
        peak = 3 * _peak(bench, engines.ports[0])
    rate = OVERLOAD_FACTOR * peak
    count = int(rate * bench.seconds(OVERLOAD_SECONDS))
    with (
        engines_of(bench, [kind] * 3) as engines,
        proxy(bench, GATEWAY, engines.ports) as (port, pid),
    ):
        warm_up(bench, port, peak / 2)
        memory: list[float] = []
        sent: list[float] = []
        stopped = Event()
        watch = Thread(target=_watch, args=(port, pid, memory, sent, stopped))
        watch.start()
        answers = send(bench, port, rate, count, ((KEY, 2), (SECOND_KEY, 1)))
        stopped.set()
        watch.join()
    run = OverloadRun(
        answers=answers, peak=peak, rate=rate, memory_mb=memory, sent=sent
    )
    return report.overload_lines(run)


def _peak(bench: Bench, port: int) -> float:
    """Return requests per second of one engine whose slots are always in use."""
    command = bench.command("load", port, OVERLOAD_SLOTS, 2, KEY)
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    requests, _, seconds = done.stdout.split()[:3]
    return int(requests) / float(seconds)


def _watch(
    port: int, pid: int, memory: list[float], sent: list[float], stopped: Event
) -> None:
    """Note each second the memory and the requests that are at the engines."""
    while not stopped.wait(1.0):
        memory.append(resident_mb(pid))
        values = metrics_of(port)
        sent.append(values["requests_in_flight"] - values["requests_queued"])


def metrics_of(port: int) -> dict[str, float]:
    """Return the values of the service `chat` from the gateway's metrics, by name."""
    headers = {"Authorization": f"Bearer {KEY}"}
    request = Request(f"http://127.0.0.1:{port}/metrics", headers=headers)
    with urlopen(request) as answer:
        lines = answer.read().decode().splitlines()
    values = {}
    for line in lines:
        name, _, rest = line.partition("{")
        if 'service="chat"' in rest:
            values[name.removeprefix("corral_gateway_")] = float(rest.split()[-1])
    return values


def run_outliers(bench: Bench) -> list[str]:
    """Let one of four engines be slow, and another one fail at times."""
    good = EngineKind(milliseconds=OUTLIER_MILLISECONDS)
    slow = EngineKind(milliseconds=10 * OUTLIER_MILLISECONDS)
    faulty = EngineKind(milliseconds=OUTLIER_MILLISECONDS, error_percent=5.0)
    count = int(OUTLIER_RATE * bench.seconds(OUTLIER_SECONDS))
    rows = {}
    state: dict[str, float] = {}
    for name in proxies():
        runs = []
        for kinds in ([good, good], [good, good, slow, faulty]):
            with (
                engines_of(bench, kinds) as engines,
                proxy(bench, name, engines.ports) as (port, _),
            ):
                runs.append(send(bench, port, OUTLIER_RATE, count))
                if name == GATEWAY:
                    state = metrics_of(port)
        rows[name] = (runs[0], runs[1])
    return report.outlier_lines(rows, GATEWAY, state)


CASES: Final[dict[str, Callable[[Bench], list[str]]]] = {
    "kill": run_kill,
    "added": run_added,
    "streams": run_streams,
    "overload": run_overload,
    "outliers": run_outliers,
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(CASES), help="cases, by commas")
    parser.add_argument("--scale", type=float, default=1.0, help="share of each run")
    parser.add_argument("--no-keep", action="store_true", help="write no result")
    return parser.parse_args()


def compile_all(directory: Path) -> None:
    compile_programs(directory)
    for name in PROGRAMS:
        source = str(HERE / f"{name}.c")
        command = ["gcc", "-O2", "-Wall", "-o", str(directory / name), source, "-lm"]
        subprocess.run(command, check=True)


def main() -> None:
    arguments = parse_arguments()
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    files = FILES if most == resource.RLIM_INFINITY else min(FILES, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, most))
    prefix = realtime_prefix()
    sections = []
    begin = datetime.now(UTC)
    with tempfile.TemporaryDirectory() as name:
        compile_all(Path(name))
        bench = Bench(directory=Path(name), scale=arguments.scale, prefix=prefix)
        for case in arguments.only.split(","):
            before = os.getloadavg()[0]
            lines = CASES[case](bench)
            after = os.getloadavg()[0]
            load = f"Load average {before:.1f} before, {after:.1f} after."
            sections.append("\n".join([*lines, "", load]))
            print(sections[-1], end="\n\n", flush=True)
    if not arguments.no_keep:
        path = RESULTS / f"gateway-faults-{begin:%Y-%m-%d}.md"
        path.write_text(report.document(sections, begin, " ".join(prefix)))


if __name__ == "__main__":
    main()
