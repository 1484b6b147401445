"""How long Slurm's commands take as shims: wall time and the CPU time of one call, with 200 jobs.

Run: .venv/bin/python benchmarks/slurm_shims.py [--rounds 20] [--write]

To reach (issue 4): a shim starts in less than 0.3 s. The wall time holds what else runs on the
machine; the CPU time (user and system, of the shim alone) does not.
"""

import argparse
import os
import resource
import subprocess
import tempfile
import time

from embedded import CORRAL, cluster, keep, report, spread

JOBS = 200
CALLS = {
    "sbatch": ["sbatch", "-H", "-J", "one", "--wrap", "true"],
    "squeue": ["squeue", "-r"],
    "sacct": ["sacct", "-nP", "-o", "JobID,State"],
    "sinfo": ["sinfo"],
    "scontrol": ["scontrol", "show", "hostnames", "n[1-8]"],
}


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=20)
    arguments.add_argument("--write", action="store_true")
    asked = arguments.parse_args()
    rows: list[tuple[str, str, str]] = []
    with (
        cluster("--nodes", "1", "--gpus", "0") as (root, _),
        tempfile.TemporaryDirectory() as folder,
    ):
        subprocess.run(
            [CORRAL, "slurm-shims", "--into", folder], check=True, capture_output=True
        )
        path = f"{folder}:{os.environ['PATH']}"
        env = {**os.environ, "CORRAL_DIR": str(root), "PATH": path}
        filling = ["sbatch", "-H", "-a", f"0-{JOBS - 1}", "--wrap", "true"]
        subprocess.run(filling, env=env, cwd=folder, check=True, capture_output=True)
        for name, words in CALLS.items():
            wall, cpu = [], []
            for _ in range(asked.rounds):
                began, used = time.perf_counter(), cpu_seconds()
                subprocess.run(
                    words, env=env, cwd=folder, check=True, capture_output=True
                )
                wall.append(time.perf_counter() - began)
                cpu.append(cpu_seconds() - used)
            rows.append((f"{name}, CPU time", spread(cpu), "0.3 s"))
            rows.append((f"{name}, wall time", spread(wall), ""))
    keep(
        "slurm_shims",
        report(f"Slurm's commands, {JOBS} jobs in line", rows),
        asked.write,
    )


if __name__ == "__main__":
    main()
