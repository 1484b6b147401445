"""Wakes of a real sleeping llama.cpp replica, and take-backs of its GPU from a training job.

A cluster of one node on this machine with two pretend GPUs: head, gateway, and a service of
one to two replicas of llama.cpp (a small Llama with random weights) that sleep in the
engine. First, the second replica sleeps and wakes with no other job on its GPU. Then a
training job with checkpoints (PyTorch on the CPU) borrows the GPU while the replica sleeps;
each rise of the load takes it back. A rise is 10 requests under way for as long as it takes
until both replicas are ready.

Run: .venv/bin/python benchmarks/gateway/wake.py [--wakes 20] [--rises 20] [--minutes 120]
    [--write FILE]
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

CORRAL: Final = [sys.executable, "-P", "-c", "from corral.cli.main import main; main()"]
MAKE_MODEL: Final = Path(__file__).parents[2] / "examples/serve_llama_cpp/make_gguf.py"
BACK_WITHIN_SECONDS: Final = 15
PATIENCE_SECONDS: Final = 120.0
CLIENTS: Final = 10
TRAINED_SECONDS: Final = 20.0  # of the job on the lent GPU, before each rise
SERVICE: Final = """
kind: service
name: llama
model: {model}
engine: llama.cpp
park: engine
run: >-
  exec {python} -m corral.serve.llama_cpp --model {model} --host "$CORRAL_HOST"
  --port "$CORRAL_PORT" --alias llama --sleep-idle-seconds 1
replicas: 1..2
sleeping: 1
resources: {{gpu: 1, cpu: 0.5}}
scale: {{queue: 5, back_within: {within}s, down_after: 2s}}
drain: 2s
grace: 2s
"""
TRAINING: Final = """
name: train
run: exec {python} train.py
workdir: .
resources: {{gpu: 1, cpu: 0.5}}
checkpoint: {{path: {root}/ckpt, interval: 2s, keep: 2}}
grace: 5s
"""
PROGRAM: Final = """
import time

import torch

import corral.train as train

torch.set_num_threads(1)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
run = train.start()
run.resume(model=model, optimizer=optimizer)
for step in run.steps(until=10**9):
    loss = model(torch.ones(8, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    run.log(loss=loss.item())
    time.sleep(0.05)
"""


@dataclass
class Cluster:
    """A cluster in a folder of its own, driven by the command line."""

    root: Path

    def corral(self, *words: str) -> str:
        environment = {**os.environ, "CORRAL_DIR": str(self.root / "c")}
        environment.pop("CORRAL_URL", None)
        done = subprocess.run(
            [*CORRAL, *words],
            cwd=self.root,
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            raise RuntimeError(f"corral {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.corral(*words, "--json"))

    def apply(self, name: str, text: str) -> None:
        (self.root / name).write_text(text)
        self.corral("apply", "-f", name, "-y")

    def replicas(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.json("service", "show", "llama")[
            "replica_list"
        ]
        return found

    def url(self) -> str:
        return str(self.json("service", "show", "llama")["url"])

    @property
    def token(self) -> str:
        return (self.root / "c" / "token").read_text().strip()


@dataclass
class Load:
    """Requests under way all the time, from several clients."""

    url: str
    token: str
    answers: int = 0
    failures: list[str] = field(default_factory=list)
    is_over: bool = False

    def live(self) -> None:
        body = {
            "model": "llama",
            "max_tokens": 64,
            "messages": [{"role": "user", "content": "hello"}],
        }
        headers = {
            "Content-Type": "application/json",
            "Authorization": f"Bearer {self.token}",
        }
        while not self.is_over:
            request = urllib.request.Request(
                f"{self.url}/v1/chat/completions", json.dumps(body).encode(), headers
            )
            try:
                with urllib.request.urlopen(request, timeout=60) as answer:
                    answer.read()
                self.answers += 1
            except OSError as error:
                self.failures.append(repr(error))

    @contextmanager
    def rising(self) -> Iterator[None]:
        self.is_over = False
        threads = [threading.Thread(target=self.live) for _ in range(CLIENTS)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.is_over = True
            for thread in threads:
                thread.join()


def wait_for(
    what: str, done: Callable[[], bool], seconds: float = PATIENCE_SECONDS
) -> None:
    give_up_at = time.monotonic() + seconds
    while not done():
        if time.monotonic() > give_up_at:
            raise RuntimeError(f"{what}: not within {seconds:.0f} s")
        time.sleep(0.2)


def has_sleeper(cluster: Cluster) -> bool:
    return any(one["sleep"] == "asleep" for one in cluster.replicas())


def all_ready(cluster: Cluster) -> bool:
    replicas = cluster.replicas()
    return len(replicas) == 2 and all(
        one["ready_at"] is not None and not one["sleep"] for one in replicas
    )


def rise(cluster: Cluster, load: Load) -> None:
    """Raise the load until both replicas are ready; then wait until one sleeps again."""
    with load.rising():
        wait_for("both replicas are ready", lambda: all_ready(cluster))
    wait_for("a replica sleeps again", lambda: has_sleeper(cluster))


def lent(cluster: Cluster) -> dict[str, Any]:
    services = cluster.json("report", "lent")["services"]
    return dict(services[0]) if services else {}


def wakes_of(cluster: Cluster, count: int) -> list[float]:
    """Return the seconds of the newest wakes, as the events say."""
    texts = cluster.corral("events").splitlines()
    ends = [text for text in texts if " after " in text and "llama_" in text]
    seconds = [
        float(text.rpartition(" after ")[2].split()[0])
        for text in ends
        if "is awake after" in text or "is ready after" in text
    ]
    return seconds[-count:]


def quantiles(seconds: list[float]) -> str:
    ordered = sorted(seconds)
    p99 = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"{statistics.median(ordered):.1f} / {p99:.1f} / {ordered[-1]:.1f} s"


def measure(root: Path, wakes: int, rises: int, minutes: float) -> str:
    """Return the report. After these minutes, no further rise begins."""
    give_up_at = time.monotonic() + 60 * minutes
    cluster = Cluster(root)
    subprocess.run([sys.executable, str(MAKE_MODEL)], cwd=root, check=True)
    (model,) = root.glob("*.gguf")
    (root / "train.py").write_text(PROGRAM)
    cluster.corral("up", "--nodes", "1", "--gpus", "2")
    try:
        text = SERVICE.format(
            model=model, python=sys.executable, within=BACK_WITHIN_SECONDS
        )
        cluster.apply("service.yaml", text)
        wait_for("the gateway runs", lambda: bool(cluster.url()))
        wait_for("a replica sleeps", lambda: has_sleeper(cluster))
        load = Load(cluster.url(), cluster.token)
        for number in range(wakes):
            rise(cluster, load)
            print(f"wake {number + 1}: {wakes_of(cluster, 1)}", flush=True)
        alone = wakes_of(cluster, wakes)
        cluster.apply("train.yaml", TRAINING.format(python=sys.executable, root=root))
        for number in range(rises):
            if time.monotonic() > give_up_at:
                break
            wait_for(
                "the training job runs",
                lambda: any(one["lent_to"] for one in cluster.replicas()),
            )
            time.sleep(TRAINED_SECONDS)
            rise(cluster, load)
            print(
                f"rise {number + 1}: {lent(cluster)['take_back_seconds'][-1:]}",
                flush=True,
            )
        return report_text(cluster, load, alone)
    finally:
        cluster.corral("down", "-y")


def report_text(cluster: Cluster, load: Load, alone: list[float]) -> str:
    found = lent(cluster)
    useful = 1.0 - found["lost_gpu_hours"] / (found["lent_gpu_hours"] or 1.0)
    loads = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    in_time = found["take_backs_in_time"]
    return f"""# Wakes and take-backs

{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {platform.processor() or "CPU"}, {os.cpu_count()} \
cores, no GPU, load {loads}; Python {platform.python_version()}.

`benchmarks/gateway/wake.py`: one node with two pretend GPUs, the head, its gateway, and a
service of one to two replicas of llama.cpp (a small Llama with random weights) that sleep in
the engine, with `back_within: {BACK_WITHIN_SECONDS}s`. A rise is {CLIENTS} requests under
way until both replicas are ready. "With a job": while the replica sleeps, a training job
with a checkpoint each 2 s runs on its GPU for {TRAINED_SECONDS:.0f} s; it saves and stops
for the replica, and goes on when the replica sleeps again. Times are from the decision to
wake the replica until it takes requests. Head, gateway, engines, training and the clients
share the two cores.

| wake | number | p50 / p99 / longest | asked |
|---|---|---|---|
| nothing on its GPU | {len(alone)} | {quantiles(alone)} | 2 s |
| with a job on its GPU | {found["take_backs"]} | {quantiles(found["take_back_seconds"])} \
| {BACK_WITHIN_SECONDS} s in 99 % |

| | |
|---|---|
| take-backs within {BACK_WITHIN_SECONDS} s | {in_time} of {found["take_backs"]} |
| longest of the newest wakes, without the stop of the job | {found["wake_seconds"]:.1f} s |
| GPU-hours asleep | {found["asleep_gpu_hours"]:.3f} |
| of these lent | {found["lent_gpu_hours"]:.3f} |
| of the lent hours not lost (asked: 95 %) | {100 * useful:.1f} % |
| requests answered / failed | {load.answers:,} / {len(load.failures)} |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--wakes", type=int, default=20)
    parser.add_argument("--rises", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=120.0)
    parser.add_argument("--write", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corral-wake-") as root:
        text = measure(Path(root), options.wakes, options.rises, options.minutes)
    print(text)
    if options.write:
        options.write.write_text(text)


if __name__ == "__main__":
    main()
