"""From the start of a part to its rank's first act, by its shim's spec, and what it is of.

Run: .venv/bin/python benchmarks/engines/part_start.py [--times 40] [--write]

What Corral's start of an attempt on Slurm takes beside Slurm's own, but for the head's share. The
quickest of many is shown too: what it takes where nothing else wants the cores.
"""

import argparse
import getpass
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from embedded import keep, quantile, report

from corral.agent.supervisor.kill_node import kill_node
from corral.domain.attempt import Seat
from corral.domain.desired_state import Launch
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job import Per
from corral.wire.node import NodeSettings, encode_settings
from corral.wire.shim_launch import early_of
from corral.wire.shim_spec import EARLY_FILE

GIVE_UP_SECONDS = 60.0
READ = "import corral.agent.pilot.start"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=40)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    ways: dict[str, Callable[[], float]] = {
        "an interpreter that does nothing": lambda: _python("pass"),
        "one that reads what a part begins with": lambda: _python(READ),
        "a part, to its rank's first act": _part,
        "one that reads the agent's program": lambda: _python(
            "import corral.agent.pilot.pilot"
        ),
    }
    took: dict[str, list[float]] = {what: [] for what in ways}
    for _ in range(asked.times):
        for what, measure in ways.items():
            took[what].append(measure() * 1e3)
    rows = [
        (what, f"{quantile(of, 0.5):.0f} ms ({min(of):.0f} to {max(of):.0f})", "")
        for what, of in took.items()
    ]
    title = f"From the start of a part to its rank, {asked.times} times: the middle one and all"
    keep("engine-part-start", report(title, rows), asked.write)


def _python(text: str) -> float:
    began = time.monotonic()
    subprocess.run([sys.executable, "-P", "-c", text], check=True)
    return time.monotonic() - began


def _part() -> float:
    with tempfile.TemporaryDirectory(prefix="corral-bench-") as folder:
        place = Path(folder)
        (place / "tmp").mkdir()
        note = place / "note"
        source = _source(place, f"echo $EPOCHREALTIME > {note}")
        began = time.time()
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "corral.agent", "--part", str(source)],
            env={**os.environ, "TMPDIR": str(place / "tmp")},
            stderr=subprocess.DEVNULL,
        )
        try:
            give_up_at = time.monotonic() + GIVE_UP_SECONDS
            while not (note.exists() and note.read_text().endswith("\n")):
                if time.monotonic() > give_up_at:
                    raise TimeoutError("the rank did not begin")
                time.sleep(0.005)
            return float(note.read_text()) - began
        finally:
            process.kill()
            process.wait()
            for node_dir in (place / "tmp").glob("corral-part-*"):
                kill_node(node_dir)


def _source(place: Path, run: str) -> Path:
    source = place / "part"
    source.mkdir(mode=0o700)
    launch = Launch(
        key=(JobId("j1"), AttemptNumber(1)), job_name="j1", seat=Seat(node=NodeId("n1")),
        node_rank=0, nodes=("127.0.0.1",), first_rank=0, ranks=1, world_size=1,
        master_address="127.0.0.1", master_port=20_000, run=f"exec bash -c '{run}'", setup=None,
        per=Per.NODE, env=(), secrets=(), workdir=None, owner=getpass.getuser(), array_index=None,
        checkpoint=None, resume=(), grace_seconds=1.0, node_mtbf_seconds=1e6,
    )  # fmt: skip
    settings = NodeSettings(
        node=NodeId("n1~j1.1"), head_file=str(place / "head.json"), pretend_gpus=0,
        isolation="hide", hidden=(str(source),), containment="engine",
    )  # fmt: skip
    early = early_of(launch, settings)
    assert early is not None
    files = {
        "node.json": encode_settings(settings),
        "token": b"t",
        EARLY_FILE: early.encode(),
    }
    for name, content in files.items():
        (source / name).touch(mode=0o600)
        (source / name).write_bytes(content)
    return source


if __name__ == "__main__":
    main()
