"""A batch of 10,000 lines on a whole cluster, while its processes are killed at random.

A cluster of two nodes on this machine: head, gateway, two replicas of a mock engine that
answers after 0.5 s, and the batch, a job of its own. At random moments one of them is ended
by kill -9: the batch's program, the gateway, the head (which is started again after 2 s) or
a replica; or the node of the batch is drained, so that it goes on on the other one. A person
asks 5 times a second meanwhile.

With --http the batch is submitted and read by OpenAI's client through the gateway
(`pip install openai`), and each answer is compared as that client gets it.

Run: .venv/bin/python benchmarks/gateway/batch.py [--lines 10000] [--kills 20] [--http]
    [--write FILE]
"""

import argparse
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

CORRAL: Final = [sys.executable, "-P", "-c", "from corral.cli.main import main; main()"]
ENGINE_SECONDS: Final = 0.5
HEAD_AWAY_SECONDS: Final = 2.0
PERSON_SECONDS: Final = 0.2
PERSON_ALONE_SECONDS: Final = 20.0
PATIENCE_SECONDS: Final = 600.0
TARGETS: Final = (
    *("program",) * 4,
    *("gateway",) * 2,
    *("head", "replica", "node"),
)
ENGINE: Final = """
import json, os, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Engine(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        self.answer({"status": "ok", "data": [{"id": "mock"}]})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text = body["messages"][-1]["content"]
        time.sleep(SECONDS)
        message = {"role": "assistant", "content": f"echo {text}"}
        self.answer({"choices": [{"index": 0, "message": message}],
                     "usage": {"prompt_tokens": 9, "completion_tokens": 3}})

    def answer(self, value):
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass

ThreadingHTTPServer.request_queue_size = 256
address = (os.environ["CORRAL_HOST"], int(os.environ["CORRAL_PORT"]))
ThreadingHTTPServer(address, Engine).serve_forever()
""".replace("SECONDS", str(ENGINE_SECONDS))


@dataclass
class Person:
    """Somebody who asks the service at a steady pace."""

    url: str
    token: str
    seconds: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)
    is_over: bool = False

    def ask(self) -> None:
        body = {"model": "mock", "messages": [{"role": "user", "content": "hello"}]}
        request = urllib.request.Request(
            f"{self.url}/v1/chat/completions",
            json.dumps(body).encode(),
            {
                "Content-Type": "application/json",
                "Authorization": f"Bearer {self.token}",
            },
        )
        began = time.monotonic()
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
            self.seconds.append(time.monotonic() - began)
        except urllib.error.HTTPError as error:
            self.failures[str(error.code)] += 1
        except OSError as error:
            reason = getattr(error, "reason", error)
            self.failures[type(reason).__name__] += 1

    def live(self) -> None:
        while not self.is_over:
            threading.Thread(target=self.ask, daemon=True).start()
            time.sleep(PERSON_SECONDS)

    @contextmanager
    def asking(self) -> Iterator[None]:
        thread = threading.Thread(target=self.live, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self.is_over = True
            thread.join()

    @property
    def text(self) -> str:
        times = sorted(self.seconds)
        if not times:
            return "-"
        p50, p99 = (times[int(q * (len(times) - 1))] * 1000 for q in (0.5, 0.99))
        failed = ", ".join(f"{count} x {why}" for why, count in self.failures.items())
        return f"{len(times)} | {p50:.0f} / {p99:.0f} ms | {failed or '0'}"


@dataclass
class Cluster:
    """A cluster in a folder of its own, driven by the command line."""

    root: Path

    def corral(self, *words: str, check: bool = True) -> str:
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
        if check and done.returncode:
            raise RuntimeError(f"corral {' '.join(words)}: {done.stdout}{done.stderr}")
        return done.stdout

    def json(self, *words: str) -> Any:
        return json.loads(self.corral(*words, "--json"))

    def up(self) -> None:
        self.corral("up", "--nodes", "2", "--gpus", "2")

    def serve(self) -> str:
        """Start the service, and return the URL of the gateway."""
        (self.root / "engine").mkdir()
        (self.root / "engine" / "engine.py").write_text(ENGINE)
        options = ("--model", "mock", "--replicas", "2", "--workdir", "engine")
        run = f"exec {sys.executable} engine.py"
        self.corral("serve", "mock", *options, "--run", run, "--probe", "/health")
        give_up_at = time.monotonic() + 60
        while time.monotonic() < give_up_at:
            url = self.json("service", "show", "mock")["url"]
            if url:
                return str(url)
            time.sleep(0.2)
        raise RuntimeError("no gateway has started")

    def pid_of(self, record: str) -> int | None:
        try:
            return int(json.loads((self.root / "c" / record).read_text())["pid"])
        except (OSError, ValueError):
            return None

    def processes(self, text: str) -> list[int]:
        """Return the processes of this cluster whose command line has the text."""
        found = []
        for entry in Path("/proc").iterdir():
            try:
                command = (entry / "cmdline").read_bytes().decode(errors="replace")
                folder = os.readlink(entry / "cwd")
            except OSError:
                continue
            is_shell = command.startswith(("/bin/sh", "sh\0", "/bin/bash", "bash\0"))
            if text in command and folder.startswith(str(self.root)) and not is_shell:
                found.append(int(entry.name))
        return found


@dataclass
class Havoc:
    """Kills, at random moments and of random processes."""

    cluster: Cluster
    job: str
    chance: random.Random
    done: Counter[str] = field(default_factory=Counter)

    def strike(self, target: str) -> bool:
        """Hit the target. Return whether it was there."""
        cluster = self.cluster
        if target == "node":
            nodes = cluster.json("show", self.job)["nodes"]
            if cluster.json("show", self.job)["state"] != "RUNNING" or not nodes:
                return False
            cluster.corral("node", "drain", nodes[0], "-y")
            time.sleep(3)
            cluster.corral("node", "uncordon", nodes[0])
        else:
            pids = self._pids(target)
            if not pids:
                return False
            os.kill(self.chance.choice(pids), signal.SIGKILL)
            if target == "head":
                time.sleep(HEAD_AWAY_SECONDS)
                cluster.up()
        self.done[target] += 1
        return True

    def _pids(self, target: str) -> list[int]:
        if target == "program":
            return self.cluster.processes("corral.serve.batch")
        if target == "replica":
            return self.cluster.processes("engine.py")
        record = {"gateway": "gateway.json", "head": "head.json"}[target]
        pid = self.cluster.pid_of(record)
        return [pid] if pid is not None and Path(f"/proc/{pid}").exists() else []


def state_of(cluster: Cluster, job: str) -> tuple[str, int]:
    """Return the state of the batch's job, and the number of its attempt."""
    try:
        shown = cluster.json("show", job)
    except RuntimeError:  # the head is away
        return "UNKNOWN", 0
    return shown["state"], shown["attempt"]


class CommandBatches:
    """Batches by `corral batch`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    def submit(self, file: Path) -> str:
        """Submit a batch, and return the id of its job."""
        options = (str(file), "--service", "mock")
        return str(self.cluster.json("batch", "submit", *options)["id"])

    def results(self, job: str) -> tuple[str, str]:
        """Return the answers and the errors of a batch."""
        folder = self.cluster.root / f"answers-{job}"
        folder.mkdir()
        for name in ("output.jsonl", "errors.jsonl"):
            self.cluster.corral("cp", f"{job}:{name}", str(folder))
        texts = (folder / name for name in ("output.jsonl", "errors.jsonl"))
        output, errors = (path.read_text() for path in texts)
        return output, errors


class HttpBatches:
    """Batches by OpenAI's client."""

    def __init__(self, url: str, token: str) -> None:
        from openai import OpenAI

        self.client = OpenAI(base_url=f"{url}/v1", api_key=token, max_retries=10)
        self.ids: dict[str, str] = {}

    def submit(self, file: Path) -> str:
        """Submit a batch, and return the id of its job."""
        with file.open("rb") as requests:
            uploaded = self.client.files.create(file=requests, purpose="batch")
        batch = self.client.batches.create(
            input_file_id=uploaded.id,
            endpoint="/v1/chat/completions",
            completion_window="24h",
        )
        while batch.status == "validating":
            time.sleep(0.2)
            batch = self.client.batches.retrieve(batch.id)
        job = str(batch.model_extra["corral"]["job"])  # type: ignore[index]
        self.ids[job] = batch.id
        return job

    def results(self, job: str) -> tuple[str, str]:
        """Return the answers and the errors of a batch."""
        batch = self.client.batches.retrieve(self.ids[job])
        while batch.status not in ("completed", "failed"):
            time.sleep(0.2)
            batch = self.client.batches.retrieve(batch.id)
        assert batch.output_file_id is not None, batch
        output = self.client.files.content(batch.output_file_id).text
        return output, batch.error_file_id or ""


Batches = CommandBatches | HttpBatches


def run(
    cluster: Cluster, lines: int, kills: int, seed: int, *, is_http: bool
) -> list[str]:
    chance = random.Random(seed)
    cluster.up()
    url = cluster.serve()
    token = (cluster.root / "c" / "token").read_text().strip()
    batches: Batches = HttpBatches(url, token) if is_http else CommandBatches(cluster)
    file = cluster.root / "input.jsonl"
    file.write_text("".join(f"{json.dumps(request(n))}\n" for n in range(lines)))
    alone, meanwhile, killed = (Person(url, token) for _ in range(3))
    with alone.asking():
        time.sleep(PERSON_ALONE_SECONDS)
    undisturbed = batches.submit(file)
    with meanwhile.asking():
        quiet_seconds = wait(cluster, undisturbed, None, 0)
    check(cluster, batches, undisturbed, lines)
    job = batches.submit(file)
    havoc = Havoc(cluster, job, chance)
    with killed.asking():
        seconds = wait(cluster, job, havoc, kills)
    _, attempts = state_of(cluster, job)
    check(cluster, batches, job, lines)
    hits = ", ".join(f"{count} x {target}" for target, count in havoc.done.items())
    return [
        "| batch | lines | killed | attempts | time | lines/s | lines there once |",
        "|" + "---|" * 7,
        f"| undisturbed | {lines:,} | 0 | 1 | {quiet_seconds:.0f} s "
        f"| {lines / quiet_seconds:.0f} | {lines:,} |",
        f"| with kills | {lines:,} | {sum(havoc.done.values())}: {hits} | {attempts} "
        f"| {seconds:.0f} s | {lines / seconds:.0f} | {lines:,} |",
        "",
        "| a person who asks 5 times a second | answers | p50 / p99 | failed |",
        "|" + "---|" * 4,
        f"| without a batch | {alone.text} |",
        f"| during the undisturbed batch | {meanwhile.text} |",
        f"| during the batch with kills | {killed.text} |",
    ]


def request(number: int) -> dict[str, Any]:
    prompt = f"document {number % 100} " * 40 + f"question {number}"
    messages = [{"role": "user", "content": prompt}]
    return {
        "custom_id": f"line-{number}",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": "mock", "messages": messages},
    }


def wait(cluster: Cluster, job: str, havoc: Havoc | None, kills: int) -> float:
    """Wait for the end of a batch, with kills meanwhile. Return the seconds."""
    began = time.monotonic()
    while time.monotonic() - began < PATIENCE_SECONDS:
        state, _ = state_of(cluster, job)
        if state in ("DONE", "FAILED", "CANCELLED"):
            return time.monotonic() - began
        if havoc is not None and sum(havoc.done.values()) < kills:
            time.sleep(havoc.chance.uniform(0.0, 3.0))
            target = havoc.chance.choice(TARGETS)
            if havoc.strike(target):
                print(f"  {time.monotonic() - began:5.0f} s: {target}", flush=True)
        else:
            time.sleep(1.0)
    raise RuntimeError(f"{job} is not over after {PATIENCE_SECONDS:.0f} s")


def check(cluster: Cluster, batches: Batches, job: str, lines: int) -> None:
    """Check that each line has its own answer exactly once."""
    state, _ = state_of(cluster, job)
    assert state == "DONE", f"{job} is {state}"
    output, errors = batches.results(job)
    assert errors == "", "there are errors"
    texts = output.splitlines()
    records = [json.loads(text) for text in texts]
    counts = Counter(record["custom_id"] for record in records)
    assert len(records) == len(counts) == lines, f"{len(records)}, {len(counts)}"
    for record in records:
        number = int(record["custom_id"].removeprefix("line-"))
        choice = record["response"]["body"]["choices"][0]
        expected = request(number)["body"]["messages"][0]["content"]
        assert choice["message"]["content"] == f"echo {expected}", number


ABOUT = """`benchmarks/gateway/batch.py`: two nodes on this machine, the head, its own gateway, two
replicas of a mock engine that answers after 0.5 s, and the batch as a job. Each kill is kill -9
of a process chosen at random, at a random moment; the head is started again after {away:.0f} s.
"node": the node of the batch is drained, and the batch goes on on the other one. After the end,
each line's answer is compared with what the engine says to its prompt.

All of this, the engines, and whatever else the machine runs share its two cores: the person's
times say as much about the processor as about priorities.

"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lines", type=int, default=10_000)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--http", action="store_true", help="by OpenAI's client")
    parser.add_argument("--write", type=Path, help="file to write the tables to")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="corral-batch-") as root:
        cluster = Cluster(Path(root))
        try:
            rows = run(
                cluster,
                arguments.lines,
                arguments.kills,
                arguments.seed,
                is_http=arguments.http,
            )
        finally:
            cluster.corral("down", "-y", check=False)
    print("\n".join(rows))
    if arguments.write:
        now, load = datetime.now(UTC), os.getloadavg()
        averages = ", ".join(f"{average:.1f}" for average in load)
        title = f"# Batch with kills\n\n{now:%Y-%m-%d %H:%M} UTC, {processor()}, "
        machine = f"{os.cpu_count()} cores, no GPU, load {averages}; "
        python = f"Python {platform.python_version()}.\n\n"
        about = ABOUT.format(away=HEAD_AWAY_SECONDS)
        if arguments.http:
            about += "The batch is submitted and read by OpenAI's client.\n\n"
        arguments.write.write_text(
            title + machine + python + about + "\n".join(rows) + "\n"
        )
    return 0


def processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.split(": ")[1] for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


if __name__ == "__main__":
    sys.exit(main())
