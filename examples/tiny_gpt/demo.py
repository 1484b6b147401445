"""A distributed training job loses a whole node midway, comes back by itself, and ends exactly as
an undisturbed run does. `make demo` runs this; `make demo JSON=1` ends with one line of JSON.

Only what every user has is used: the command `corral`, `corral.Client`, and for the node's loss of
power the same as `python -m corral.agent --kill NODE_DIR`: SIGKILL for all of it, by process id.
"""

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Final

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TextColumn,
    TimeElapsedColumn,
)
from rich.table import Table

import corral
from corral.agent.supervisor.kill_node import kill_node

HERE: Final = Path(__file__).resolve().parent
CORRAL: Final = Path(sys.executable).with_name("corral")
KILL_AT: Final = 0.4  # of all steps, and not before a save is recorded
POLL_SECONDS: Final = 0.05
PATIENCE_SECONDS: Final = 240.0  # without a step: a busy machine is slow, not stuck
LINE_SECONDS: Final = 4.0  # between two lines of progress where no terminal shows a bar
END_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
NEXT_COMMANDS: Final = """
Next, with a cluster of your own on this machine:
  . .venv/bin/activate
  corral up --nodes 3 --gpus 2
  corral run -- echo hello
"""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """The cluster, and what the job takes of it: so many GPUs on so many nodes."""

    nodes: int
    gpus: int
    job_nodes: int
    job_gpus: int
    pretend: bool

    @classmethod
    def for_machine(cls, gpus: int) -> "Layout":
        """Nothing is pretended where there are GPUs; where it can be, one node is to spare."""
        if gpus >= 6:
            return cls(nodes=3, gpus=2, job_nodes=2, job_gpus=2, pretend=False)
        if gpus >= 3:
            return cls(nodes=3, gpus=1, job_nodes=2, job_gpus=1, pretend=False)
        if gpus >= 1:
            return cls(nodes=gpus, gpus=1, job_nodes=1, job_gpus=1, pretend=False)
        return cls(nodes=3, gpus=2, job_nodes=2, job_gpus=2, pretend=True)


@dataclass(kw_only=True)
class Run:
    """What was seen of one run of the job. Times are wall-clock seconds."""

    id: str
    submitted_at: float
    first_step_at: float = 0.0
    killed_at: float = 0.0
    killed_node: str = ""
    again_at: float = 0.0
    ended_at: float = 0.0
    steps: int = 0
    job: Any = None


@dataclass(frozen=True, kw_only=True)
class Report:
    submit_to_first_step_seconds: float
    seen_after_seconds: float
    training_again_seconds: float
    steps_lost: int | None
    goodput: float
    final_loss: float
    identical: bool
    steps: int
    attempts: int
    killed_node: str
    pretend: bool
    gpu_type: str
    total_seconds: float


class Lines:
    """Progress in lines, for output that is not a terminal: a bar is not seen there."""

    def __init__(self, console: Console, name: str) -> None:
        self.console = console
        self.name = name
        self.began = time.monotonic()
        self.shown_at = self.began

    def show(self, doing: str) -> None:
        now = time.monotonic()
        if self.console.is_terminal or now < self.shown_at + LINE_SECONDS:
            return
        self.shown_at = now
        text = f"  {self.name}: {doing}, {now - self.began:.0f} s"
        self.console.print(text, style="dim", markup=False)


@dataclass(kw_only=True)
class Signals:
    """Signals that end the demo. They are only recorded, so that no command is cut short."""

    number: int = 0

    def catch(self) -> None:
        for number in END_SIGNALS:
            signal.signal(number, self._record)

    def _record(self, number: int, frame: FrameType | None) -> None:
        self.number = number

    def check(self) -> None:
        """Raises: SystemExit after a signal."""
        if self.number:
            raise SystemExit(128 + self.number)


def doing_of(job: Any, steps: int) -> str:
    """What the job is doing now, in words."""
    if job.progress is not None:
        return f"step {job.progress.step} of {steps}"
    if job.state == "RUNNING":
        return "starting Python and PyTorch"
    if job.state == "STARTING":
        return f"starting on {', '.join(job.nodes)}"
    if job.state == "RECOVERING":
        return "stopping what is left of the attempt"
    return (
        f"waiting in the queue: {job.reason}" if job.reason else "waiting in the queue"
    )


class Demo:
    def __init__(
        self, root: Path, layout: Layout, steps: int, console: Console, signals: Signals
    ) -> None:
        self.root = root
        self.layout = layout
        self.steps = steps
        self.console = console
        self.signals = signals
        self.client = corral.Client(dir=root)

    def spec(self, name: str) -> dict[str, Any]:
        """examples/tiny_gpt/spec.yaml with this machine's Python, GPUs and directory of saves."""
        return {
            "name": name,
            "nodes": self.layout.job_nodes,
            "resources": {"gpu": self.layout.job_gpus},
            "per": "gpu",
            "workdir": str(HERE),
            "run": f"{sys.executable} train.py --steps {self.steps}",
            "checkpoint": {
                "path": str(self.root / "shared" / name),
                "interval": "3s",
                "keep": 3,
            },
        }

    def train(self, name: str, *, lose_a_node: bool) -> Run:
        """Submit the job and watch it to its end; lose one of its nodes midway if asked to."""
        job = self.client.submit(self.spec(name))[0]
        run = Run(id=job.id, submitted_at=job.submitted_at)
        telling = threading.Thread(target=self._tell, args=(job.id,), daemon=True)
        telling.start()
        last_step, stepped_at = -1, time.monotonic()
        with self._bar(name) as advance:
            while not self._look(run, lose_a_node=lose_a_node):
                self.signals.check()
                advance(run)
                if run.steps != last_step:
                    last_step, stepped_at = run.steps, time.monotonic()
                if time.monotonic() > stepped_at + PATIENCE_SECONDS:
                    raise SystemExit(
                        f"{name} makes no step: {run.job.reason or run.job.state}"
                    )
                time.sleep(POLL_SECONDS)
            advance(run)
        telling.join(2.0)
        if run.job.state != "DONE":
            for piece in self.client.logs(run.id, tail=20):
                self.console.print(piece.data, markup=False)
            raise SystemExit(f"{name} is {run.job.state}: {run.job.reason}")
        return run

    def _look(self, run: Run, *, lose_a_node: bool) -> bool:
        """Take in where the job is now; whether it is over."""
        job = run.job = self.client.job(run.id)
        beat = job.progress
        if beat is not None:
            run.steps = beat.step
            run.first_step_at = run.first_step_at or beat.at
            if run.killed_at and job.attempt > 1:
                run.again_at = run.again_at or beat.at
        midway = run.steps >= KILL_AT * self.steps and bool(job.checkpoints)
        if lose_a_node and midway and not run.killed_at and job.state == "RUNNING":
            self._lose_node(run, job.nodes[-1])
        if job.is_over:
            run.steps = self.steps if job.state == "DONE" else run.steps
            run.ended_at = job.ended_at
        return bool(job.is_over)

    def _lose_node(self, run: Run, node: str) -> None:
        run.killed_node = node
        self.console.print(
            f"power loss: everything of node {node} is killed", style="bold red"
        )
        run.killed_at = time.time()
        kill_node(self.root / "nodes" / node)

    def _tell(self, id: str) -> None:
        for event in self.client_events(id):
            self.console.print(
                f"  {event.text}", style="dim", markup=False, soft_wrap=True
            )

    def client_events(self, id: str) -> Iterator[Any]:
        with corral.Client(dir=self.root) as client:
            yield from client.events(id, follow=True)

    @contextmanager
    def _bar(self, name: str) -> Iterator[Any]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("steps"),
            TimeElapsedColumn(),
        )
        with Progress(*columns, console=self.console, transient=False) as progress:
            task = progress.add_task(name, total=self.steps)
            lines = Lines(self.console, name)

            def advance(run: Run) -> None:
                doing = doing_of(run.job, self.steps)
                shown = (
                    name if run.job.progress is not None or run.job.is_over else doing
                )
                progress.update(task, description=shown, completed=run.steps)
                lines.show(doing)

            yield advance

    def result(self, run: Run) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(
            (self.root / "shared" / f"result-{run.id}.json").read_text()
        )
        return found


def corral_command(console: Console, *words: str) -> None:
    """Run it to its end, also where a signal comes meanwhile. Raises: SystemExit if it fails."""
    lines = Lines(console, f"corral {words[0]}")
    with subprocess.Popen(
        [str(CORRAL), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,  # Ctrl-C is for the demo alone
    ) as process:
        while True:
            try:
                said, _ = process.communicate(timeout=LINE_SECONDS)
                break
            except subprocess.TimeoutExpired:
                with suppress(OSError):  # the terminal may be gone
                    lines.show("still at it")
    if process.returncode:
        raise SystemExit(f"corral {' '.join(words)}\n{said}")


@contextmanager
def cluster(
    root: Path, layout: Layout, console: Console, signals: Signals
) -> Iterator[None]:
    """An embedded cluster in the directory, and nothing of it afterwards."""
    pretend = ["--pretend"] if layout.pretend else []
    try:
        corral_command(
            console,
            "up", "--dir", str(root), "--nodes", str(layout.nodes), "--gpus", str(layout.gpus),
            "--own-disks",
            "--reboot", "5", *pretend,
        )  # fmt: skip
        signals.check()
        yield
    finally:
        if signals.number:
            with suppress(OSError):
                name = signal.Signals(signals.number).name
                console.print(
                    f"{name}: the cluster is stopped and removed", style="bold red"
                )
        try:
            corral_command(console, "down", "--dir", str(root), "--jobs", "stop", "-y")
        finally:
            shutil.rmtree(root, ignore_errors=True)


def report_of(demo: Demo, disturbed: Run, calm: Run, began: float) -> Report:
    """Goodput: what all steps take undisturbed, over the time from submit to end."""
    ours, theirs = demo.result(disturbed), demo.result(calm)
    receipt = disturbed.job.receipts[0]
    calm_seconds = calm.ended_at - calm.first_step_at
    types = {kind for node in demo.client.nodes() for kind in node.gpus.types}
    return Report(
        submit_to_first_step_seconds=round(
            disturbed.first_step_at - disturbed.submitted_at, 3
        ),
        seen_after_seconds=round(receipt.seen_at - disturbed.killed_at, 3),
        training_again_seconds=round(disturbed.again_at - receipt.seen_at, 3),
        steps_lost=receipt.steps_lost,
        goodput=round(calm_seconds / (disturbed.ended_at - disturbed.submitted_at), 3),
        final_loss=ours["loss"],
        identical=ours == theirs,
        steps=demo.steps,
        attempts=disturbed.job.attempt,
        killed_node=disturbed.killed_node,
        pretend=demo.layout.pretend,
        gpu_type="/".join(sorted(types)),
        total_seconds=round(time.monotonic() - began, 1),
    )


def show(report: Report, console: Console) -> None:
    lost = "unknown" if report.steps_lost is None else str(report.steps_lost)
    table = Table(title="one node lost midway", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in (
        ("submit to first step", f"{report.submit_to_first_step_seconds:.2f} s"),
        ("failure seen after", f"{report.seen_after_seconds:.2f} s"),
        ("training again after that", f"{report.training_again_seconds:.2f} s"),
        ("steps lost", f"{lost} of {report.steps}"),
        ("goodput", f"{report.goodput:.0%}"),
        ("final loss", f"{report.final_loss:.4f}"),
        ("identical to an undisturbed run", "yes" if report.identical else "NO"),
    ):
        table.add_row(name, value)
    console.print(table)


def real_gpus() -> int:
    from corral.boot.bring_up import real_gpu_count

    return real_gpu_count()


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument(
        "--json", action="store_true", help="end with one line of JSON"
    )
    arguments.add_argument("--steps", type=int, default=120)
    asked = arguments.parse_args()
    began = time.monotonic()
    console = Console(highlight=False)
    layout = Layout.for_machine(real_gpus())
    kind = "pretend GPUs" if layout.pretend else "GPUs"
    taken = f"{layout.job_gpus} on {layout.job_nodes} of them"
    console.print(
        f"{layout.nodes} nodes with {layout.gpus} {kind} each; the job takes {taken}"
    )
    signals = Signals()
    signals.catch()
    root = Path(tempfile.mkdtemp(prefix="corral-demo-"))
    console.print("corral up: the head and its nodes start", style="dim")
    with cluster(root, layout, console, signals):
        demo = Demo(root, layout, asked.steps, console, signals)
        disturbed = demo.train("tiny-gpt", lose_a_node=True)
        if not disturbed.killed_at:
            raise SystemExit(
                "the job was over before a node could be lost: give it more --steps"
            )
        calm = demo.train("undisturbed", lose_a_node=False)
        report = report_of(demo, disturbed, calm, began)
    show(report, console)
    console.print(NEXT_COMMANDS, markup=False)
    if asked.json:
        print(json.dumps(asdict(report)))
    return 0 if report.identical else 1


if __name__ == "__main__":
    sys.exit(main())
