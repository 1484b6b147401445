"""Runs the rows B1 to B9 of the scheduler, and those of its forecasts, one after the other:
`make bench-sched`; `make bench-sched ROWS="b9 forecast-live"` runs these alone.

Run: .venv/bin/python benchmarks/sched/run.py [ROW ...]

Each row is one command and writes its own results; a row that fails does not stop the others.
"""

import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """All rows that are here, or those that are named (b1, b2, ..., forecast-live)."""
    rows = {
        path.name.partition("_")[0]: path for path in sorted(HERE.glob("b[0-9]*_*.py"))
    }
    rows |= {
        path.stem.replace("_", "-"): path for path in sorted(HERE.glob("forecast_*.py"))
    }
    asked = sys.argv[1:] or list(rows)
    unknown = [name for name in asked if name not in rows]
    if unknown:
        print(
            f"no row {', '.join(unknown)}; there are {', '.join(rows)}", file=sys.stderr
        )
        return 2
    failed = [name for name in asked if _run(name, rows[name])]
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def _run(name: str, path: Path) -> int:
    print(f"== {name}: {path.name}", flush=True)
    return subprocess.run([sys.executable, str(path)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
