"""What is tried on a machine with an NVIDIA GPU: one function a stage, which returns its rows."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from smi import QUERY, Row, compare, read_table

import corral

HERE: Final = Path(__file__).resolve().parent
ROOT: Final = HERE.parents[1]
CORRAL: Final = (
    sys.executable,
    "-c",
    "import sys; from corral.cli.main import main; sys.exit(main())",
)
HEAD_WIDTH: Final = 64
# Layers, width, sequences of a step and their tokens of the models whose steps are measured.
SHAPES: Final = (
    (12, 1024, 8, 1024),
    (12, 768, 16, 1024),
    (24, 1024, 4, 2048),
    (24, 1536, 8, 1024),
    (16, 2048, 4, 2048),
)
BUSY_SECONDS, REST_SECONDS = 30.0, 30.0
SHARE_SLACK: Final = 0.15  # of the time; sensors are read each ten seconds
SIGNAL_SECONDS: Final = 20.0
SAMPLE_SECONDS: Final = 30.0


@dataclass(frozen=True, slots=True)
class Bench:
    """A cluster of one node that has this machine's GPUs."""

    root: Path
    gpus: int

    def corral(self, *words: str, seconds: float = 120.0) -> str:
        """Run a command of Corral's. Raises: CalledProcessError, TimeoutExpired."""
        done = subprocess.run(
            [*CORRAL, *words],
            env={**os.environ, "CORRAL_DIR": str(self.root)},
            capture_output=True, text=True, timeout=seconds, check=True,
        )  # fmt: skip
        return done.stdout

    def read(self, *words: str) -> Any:
        return json.loads(self.corral(*words, "--json"))

    def job(self, name: str, *words: str, seconds: float, **more: Any) -> Any:
        """Run a Python program as a job of one GPU to its end, and return the job."""
        spec = {
            "name": name, "resources": {"gpu": 1}, "per": "gpu", "workdir": str(HERE),
            "run": " ".join((sys.executable, *words)), **more,
        }  # fmt: skip
        with corral.Client(dir=self.root) as client:
            id = client.submit(spec)[0].id
            given_up = time.monotonic() + seconds
            while not (job := client.job(id)).is_over:
                if time.monotonic() > given_up:
                    client.cancel(id)
                    raise TimeoutError(f"{name} is {job.state} after {seconds:g} s")
                time.sleep(0.2)
            return job

    def printed(self, job: Any) -> str:
        with corral.Client(dir=self.root) as client:
            return "".join(piece.data for piece in client.logs(job.id, follow=True))


def smi(*words: str) -> str:
    """Run nvidia-smi. Raises: FileNotFoundError, CalledProcessError."""
    done = subprocess.run(
        ["nvidia-smi", *words], capture_output=True, text=True, timeout=30, check=True
    )
    return done.stdout


def driver(bench: Bench) -> list[Row]:
    """Each field that nvidia-smi and the agent both read, on every GPU."""
    given_up = time.monotonic() + SAMPLE_SECONDS
    while not (node := bench.read("node", "show", "n1"))["sample"]:
        if time.monotonic() > given_up:
            return [
                Row(
                    what="first sample", expected="10 s", seen="none", verdict="differs"
                )
            ]
        time.sleep(0.5)
    query = f"--query-gpu={','.join(QUERY)}"
    rows = read_table(smi(query, "--format=csv,noheader,nounits"))
    found = bench.read("doctor")["findings"]
    wrong = [one["text"] for one in found if one["state"] == "wrong"]
    first = Row(
        what="corral doctor", expected="nothing wrong", seen="; ".join(wrong) or "nothing wrong",
        verdict="differs" if wrong else "ok",
    )  # fmt: skip
    types = ", ".join(sorted({one["type"] for one in node["devices"]}))
    kind = Row(what="type", expected=smi("--query-gpu=name", "--format=csv,noheader").strip(),
               seen=types, verdict="ok")  # fmt: skip
    return [
        first,
        kind,
        *(line for row in rows for line in compare(row, node["sample"]["gpus"])),
    ]


def mig(bench: Bench) -> list[Row]:
    """Instances of GPUs that are cut, as they are offered."""
    mode = smi("--query-gpu=mig.mode.current", "--format=csv,noheader").split()
    if "Enabled" not in mode:
        return [
            Row(what="MIG", expected="off", seen=", ".join(mode), verdict="not run")
        ]
    listed = smi("-L").count("MIG ")
    offered = bench.read("node", "show", "n1")["gpus"]["total"]
    verdict = "ok" if listed == offered else "differs"
    return [
        Row(what="instances", expected=str(listed), seen=str(offered), verdict=verdict)
    ]


def checks(bench: Bench) -> list[Row]:
    """Active checks, with what they measured beside their thresholds."""
    found = bench.read("doctor", "gpu")["nodes"][0]["results"]
    return [
        Row(
            what=f"{one['kind']} {one['gpu'] if one['gpu'] is not None else one['device']}",
            expected=f"{one['expected']:.4g} {one['unit']}" if one["expected"] else "",
            seen=one["text"],
            verdict="differs" if one["result"] == "failed" else "ok",
        )
        for one in found
    ]


def resume(bench: Bench) -> list[Row]:
    """A rank is killed with SIGKILL, and goes on from its save, under NCCL."""
    saves: dict[str, Any] = {
        "path": str(bench.root / "shared" / "resume"),
        "interval": "1s",
        "keep": 2,
    }
    job = bench.job(
        "resume",
        "step_time.py",
        "--die",
        saves["path"],
        seconds=150.0,
        checkpoint=saves,
        retry={"user": 1},
    )
    text = bench.printed(job)
    began = [line for line in text.splitlines() if line.startswith("BEGINS")]
    seen = f"{job.state}, attempt {job.attempt}: {'; '.join(began)}"
    good = job.state == "DONE" and job.attempt == 2 and "at 0" not in began[-1]
    nccl = Row(what="backend", expected="nccl", seen="nccl" if "nccl" in text else "another",
               verdict="ok" if "nccl" in text else "differs")  # fmt: skip
    again = Row(what="kill -9 of a rank", expected="DONE, attempt 2, not from step 0", seen=seen,
                verdict="ok" if good else "differs")  # fmt: skip
    return [nccl, again]


def step_time(bench: Bench) -> list[Row]:
    """Measured steps and memory beside the plan's, with the errors that the plan quotes."""
    kind = bench.read("node", "show", "n1")["devices"][0]["type"]
    return [row for shape in SHAPES for row in _step_of(bench, kind, *shape)]


def _step_of(
    bench: Bench, kind: str, layers: int, width: int, batch: int, context: int
) -> list[Row]:
    model = (
        f"layers={layers},hidden={width},heads={width // HEAD_WIDTH},"
        f"ffn={4 * width},vocab=50304"
    )
    words = ("plan", "train", model, "--gpus", "1", "--gpu", kind, "--context", str(context),
             "--batch", str(batch), "--library", "pytorch")  # fmt: skip
    plan = bench.read(*words)
    planned = {one["name"]: one for one in plan["answers"]}
    job = bench.job(
        "step-time", "step_time.py", f"--layers {layers} --width {width}",
        f"--batch {batch} --micro {plan['data']['chosen']['micro_batch']} --context {context}",
        seconds=90.0,
    )  # fmt: skip
    line = next(one for one in bench.printed(job).splitlines() if "RESULT" in one)
    measured = json.loads(line.partition("RESULT")[2])
    what = f"{layers} layers of {width}, {batch} x {context:,} tokens"
    return [
        _beside(f"step, {what}", planned["step"], measured["step_seconds"], "s"),
        _beside(
            f"memory, {what}", planned["memory"], measured["used_bytes"] / 1e9, "GB"
        ),
    ]


def _beside(what: str, planned: Any, measured: float, unit: str) -> Row:
    """A measured value beside the plan's. Nine in ten should be within about 2.3 times the mean
    error that the plan quotes."""
    off = measured / planned["value"] - 1.0
    return Row(
        what=what,
        expected=f"{planned['value']:.4g} {unit} +- {planned['band'] * 100:.0f} %",
        seen=f"{measured:.4g} {unit} ({off * 100:+.1f} %)",
        verdict="ok" if abs(off) <= 2.3 * planned["band"] else "differs",
    )


def ledger(bench: Bench) -> list[Row]:
    """A job that computes half of its time, in the ledger."""
    job = bench.job("half", "load.py", "busy", f"{BUSY_SECONDS:g}", f"{REST_SECONDS:g}",
                    seconds=150.0)  # fmt: skip
    report = bench.read("report", "usage", "--by", "job")
    place = [column["name"] for column in report["columns"]].index("utilisation")
    share = next(
        (row["values"][place] for row in report["rows"] if row["name"] == job.id), None
    )
    expected = BUSY_SECONDS / (BUSY_SECONDS + REST_SECONDS)
    good = share is not None and abs(share - expected) <= SHARE_SLACK
    seen = "no row" if share is None else f"{share:.2f}"
    return [Row(what="share of the time with a kernel", expected=f"about {expected:.2f}", seen=seen,
                verdict="ok" if good else "differs")]  # fmt: skip


def fault(bench: Bench) -> list[Row]:
    """A program reads a bad address: its XID reaches the head, and costs the program alone."""
    job = bench.job("bad-address", "load.py", "bad-address", seconds=60.0)
    given_up = time.monotonic() + SIGNAL_SECONDS
    xids: list[str] = []
    while not xids and time.monotonic() < given_up:
        events = bench.corral("events", "--json")
        xids = [line for line in events.splitlines() if "XID" in line.upper()]
        time.sleep(0.5)
    node = bench.read("node", "show", "n1")
    is_closed = bool(node["cordoned"])
    seen = f"{job.state}, {'cordoned' if is_closed else 'open'}"
    return [
        Row(
            what="XID of a bad address",
            expected=f"within {SIGNAL_SECONDS:.0f} s",
            seen=xids[-1] if xids else "none",
            verdict="ok" if xids else "differs",
        ),
        Row(
            what="the job and its node",
            expected="FAILED, open",
            seen=seen,
            verdict="ok" if job.state == "FAILED" and not is_closed else "differs",
        ),
    ]


def demo(bench: Bench) -> list[Row]:
    """`make demo` on these GPUs."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / "tiny_gpt" / "demo.py"), "--json"],
        capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    if done.returncode not in (0, 1) or not done.stdout.strip().endswith("}"):
        text = (done.stderr or done.stdout).strip().splitlines()
        return [Row(what="demo", expected="a report", seen=text[-1] if text else "nothing",
                    verdict="differs")]  # fmt: skip
    report = json.loads(done.stdout.strip().splitlines()[-1])
    seen = ", ".join(f"{name} {value}" for name, value in report.items())
    verdict = "ok" if report["identical"] and not report["pretend"] else "differs"
    return [
        Row(what="a node lost midway", expected="identical", seen=seen, verdict=verdict)
    ]


def checkpoint(bench: Bench) -> list[Row]:
    """What a save of a model on the GPU costs, beside torch.save."""
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "checkpoint_stall.py"), "--device", "cuda"],
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    lines = [line for line in (done.stdout or done.stderr).splitlines() if line.strip()]
    verdict = "ok" if done.returncode == 0 else "differs"
    return [Row(what="checkpoint_stall.py", expected="", seen=line.replace("|", "/"),
                verdict=verdict) for line in lines[-12:]]  # fmt: skip


# In the order of their worth: what the time does not suffice for is at the end.
STAGES: Final[Sequence[tuple[str, Callable[[Bench], list[Row]]]]] = (
    ("Driver and telemetry", driver),
    ("MIG", mig),
    ("Step time beside the plan", step_time),
    ("Kill and resume with NCCL", resume),
    ("Idle ledger beside the true load", ledger),
    ("Active checks", checks),
    ("A fault of the GPU", fault),
    ("Demo on CUDA", demo),
    ("Checkpoint stall", checkpoint),
)
