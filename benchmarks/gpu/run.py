"""`make gpu`: what Corral does on real NVIDIA GPUs, in at most 10 minutes and without a network.

Run: python benchmarks/gpu/run.py [--seconds 600] [--only WORD]

It needs a Python with Corral's libraries and a CUDA build of PyTorch; the stage of serving is left
out where that Python has no vLLM. It starts a cluster of one
node with this machine's GPUs in a temporary directory, goes through the stages, and writes one
result page: benchmarks/results/gpu-TYPE-DATE.md. A stage that fails is a row of the page. With
--only it goes through the stages whose name has that word, and writes no page.
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

sys.path.insert(0, str(Path(__file__).resolve().parent))

from serving import serving
from smi import Row, page
from stages import ROOT, STAGES, Bench, smi

RESULTS: Final = ROOT / "benchmarks" / "results"
NO_GPU: Final = 2
# after the stages that are short or matter more
ALL_STAGES: Final = (*STAGES[:4], ("Serving beside the plan", serving), *STAGES[4:])


def gpu_names() -> list[str]:
    """Return the names of this machine's NVIDIA GPUs; none where no driver answers."""
    try:
        names = smi("--query-gpu=name", "--format=csv,noheader").splitlines()
    except (OSError, subprocess.SubprocessError):
        return []
    return [name.strip() for name in names if name.strip()]


def run_stages(bench: Bench, until: float, only: str) -> dict[str, Sequence[Row]]:
    """Run the stages one after another; what the time does not suffice for is said."""
    found: dict[str, Sequence[Row]] = {}
    for name, stage in [one for one in ALL_STAGES if only.lower() in one[0].lower()]:
        began = time.monotonic()
        print(f"{name} ...", flush=True)
        if began > until:
            row = Row(what="time", expected="", seen="none was left", verdict="not run")
            found[name] = [row]
            continue
        try:
            found[name] = stage(bench)
        except Exception as error:  # a stage that breaks is a result
            text = f"{type(error).__name__}: {error}".replace("\n", " ").replace(
                "|", "/"
            )
            found[name] = [
                Row(what=name, expected="", seen=text[:300], verdict="differs")
            ]
        for row in found[name]:
            print(
                f"  {row.verdict:8} {row.what}: {row.seen} ({row.expected})", flush=True
            )
        print(f"  {time.monotonic() - began:.0f} s", flush=True)
    return found


def worst(stages: dict[str, Sequence[Row]]) -> int:
    """Return the exit code: 1 where something differs."""
    return int(
        any(row.verdict == "differs" for rows in stages.values() for row in rows)
    )


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=600.0)
    arguments.add_argument("--only", default="")
    asked = arguments.parse_args()
    began = time.monotonic()
    names = gpu_names()
    if not names:
        print(
            "no NVIDIA GPU: nvidia-smi does not answer on this machine", file=sys.stderr
        )
        return NO_GPU
    root = Path(tempfile.mkdtemp(prefix="corral-gpu-"))
    bench = Bench(root=root, gpus=len(names))
    try:
        bench.corral("up", "--nodes", "1", "-y")
        stages = run_stages(bench, began + 0.8 * asked.seconds, asked.only)
    finally:
        bench.corral("down", "--jobs", "stop", "-y")
        shutil.rmtree(root, ignore_errors=True)
    now = datetime.now(UTC)
    kind = names[0].lower().replace(" ", "-")
    version = smi("--query-gpu=driver_version", "--format=csv,noheader").split()[0]
    facts = (
        f"{now:%Y-%m-%d %H:%M} UTC, {len(names)} x {names[0]}, driver {version},",
        f"Python {sys.version.split()[0]}; {time.monotonic() - began:.0f} s in all.",
    )
    if asked.only:
        return worst(stages)
    path = RESULTS / f"gpu-{kind}-{now:%Y-%m-%d}.md"
    path.write_text(page(f"Corral on {names[0]}", facts, stages))
    print(path)
    return worst(stages)


if __name__ == "__main__":
    sys.exit(main())
