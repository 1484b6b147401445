"""Growth of the head and its store by one large array: 1.0 MB of env, 300 jobs.

Run: .venv/bin/python benchmarks/quotas.py [--jobs 300] [--write]

The jobs begin in a day, so that the submission alone is measured. To reach (issue 16): less than
50 MB of memory and 5 MB of the store. Before, it was 1.3 GB and 607 MB.
"""

import argparse
import json
import time
from pathlib import Path

from embedded import cluster, keep, report

ENV_BYTES = 1_000_000
MEGABYTE = 1000**2


def memory_bytes(root: Path) -> int:
    """Resident bytes of the head."""
    pid = json.loads((root / "head.json").read_text())["pid"]
    status = Path(f"/proc/{pid}/status").read_text()
    line = next(one for one in status.splitlines() if one.startswith("VmRSS:"))
    return int(line.split()[1]) * 1024


def store_bytes(root: Path) -> int:
    """Bytes of the store and its log."""
    return sum(path.stat().st_size for path in root.glob("corral.db*"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=300)
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    with cluster("--nodes", "1", "--gpus", "0", "--pretend") as (root, client):
        client.submit({"name": "warm", "run": "true", "begin": "1d"})
        time.sleep(2)
        memory, store = memory_bytes(root), store_bytes(root)
        spec = {
            "name": "sweep",
            "run": "true",
            "begin": "1d",
            "env": {
                f"V{place}": "x" * 100_000 for place in range(ENV_BYTES // 100_000)
            },
            "array": f"0-{asked.jobs - 1}",
        }
        began = time.time()
        client.submit(spec)
        seconds = time.time() - began
        time.sleep(3)
        more_memory, more_store = memory_bytes(root) - memory, store_bytes(root) - store
    rows = [
        ("memory of the head", f"+{more_memory / MEGABYTE:.1f} MB", "+50 MB"),
        ("store and its log", f"+{more_store / MEGABYTE:.1f} MB", "+5 MB"),
        ("answered after", f"{seconds:.2f} s", ""),
    ]
    text = report(f"One array of {asked.jobs} jobs with 1.0 MB of env", rows)
    keep("quotas", text, asked.write)


if __name__ == "__main__":
    main()
