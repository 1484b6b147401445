"""How long `corral --help` takes, what a command costs, and how large the base install is.

Run: .venv/bin/python benchmarks/cli_start.py [--rounds 20] [--no-install] [--write]

The install goes into a fresh virtual environment with pip, without extras; what counts is what lies
in its site-packages beside pip and setuptools. To reach (issue 2): 0.3 s, 120 MB.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

from embedded import CORRAL, cluster, keep, report, spread

ROOT = Path(__file__).resolve().parents[1]


def timed(*words: str, rounds: int) -> list[float]:
    taken = []
    for _ in range(rounds):
        began = time.perf_counter()
        subprocess.run([CORRAL, *words], check=True, stdout=subprocess.DEVNULL)
        taken.append(time.perf_counter() - began)
    return taken


def install_megabytes() -> tuple[float, float]:
    """(what pip puts there, the compiled Python files that it adds) in MB."""
    with tempfile.TemporaryDirectory(prefix="corral-install-") as folder:
        venv.create(folder, with_pip=True)
        subprocess.run(
            [
                f"{folder}/bin/pip",
                "install",
                "--quiet",
                "--disable-pip-version-check",
                str(ROOT),
            ],
            check=True,
        )
        total = compiled = 0
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        for path in Path(folder, "lib", version, "site-packages").rglob("*"):
            if path.is_file() and path.relative_to(folder).parts[3].split("-")[
                0
            ] not in (
                "pip",
                "setuptools",
                "_distutils_hack",
                "pkg_resources",
            ):
                size = os.stat(path).st_size
                total += size
                compiled += size if path.suffix == ".pyc" else 0
        return total / 1e6, compiled / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--write", action="store_true")
    asked = parser.parse_args()
    rows = [("corral --help", spread(timed("--help", rounds=asked.rounds)), "0.3 s")]
    with cluster("--nodes", "1", "--gpus", "0") as (root, _):
        for command in ("ps", "status"):
            taken = timed(command, "--dir", str(root), rounds=asked.rounds)
            rows.append((f"corral {command}", spread(taken), ""))
        words = ("run", "--no-workdir", "--dir", str(root), "--", "true")
        rows.append(
            ("corral run -- true", spread(timed(*words, rounds=asked.rounds)), "")
        )
    ups = []
    for _ in range(3):
        began = time.perf_counter()
        with cluster("--nodes", "3", "--gpus", "2", "--pretend"):
            ups.append(time.perf_counter() - began)
    rows.append(("corral up, 3 nodes alive", spread(ups), ""))
    if not asked.no_install:
        total, compiled = install_megabytes()
        rows.append(
            (
                "base install",
                f"{total:.0f} MB, of which .pyc {compiled:.0f} MB",
                "120 MB",
            )
        )
    keep("cli_start", report("The command line", rows), asked.write)


if __name__ == "__main__":
    main()
