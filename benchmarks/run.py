"""Runs every benchmark, one after the other, and keeps the results: `make bench`.

Run: .venv/bin/python benchmarks/run.py [NAME ...]
"""

import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
OWN = (
    "submit_latency",
    "throughput",
    "cli_start",
    "failure_detection",
)  # they know their file
OTHERS = (
    "store", "restart", "checkpoint_stall", "agent_idle", "launch", "forget", "planner",
    "health_storm", "agent_telemetry", "head_load", "log_tail",
)  # fmt: skip


def command_of(name: str) -> list[str]:
    script = [sys.executable, str(HERE / f"{name}.py")]
    if name in OWN:
        return [*script, "--write"]
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return [*script, "--write", str(HERE / "results" / f"{name}-{day}.md")]


def main() -> int:
    wanted = sys.argv[1:] or [*OWN, *OTHERS]
    failed = []
    for name in wanted:
        print(f"== {name}", flush=True)
        if subprocess.run(command_of(name)).returncode:
            failed.append(name)
    print(f"failed: {', '.join(failed)}" if failed else "all ran", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
