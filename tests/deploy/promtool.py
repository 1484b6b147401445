"""Rules and expressions run by promtool against series of a test."""

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import yaml

SECONDS_APART: Final = 60  # of the samples of a series


def run_tests(
    folder: Path, *, rules: Sequence[Path] = (), tests: Sequence[Mapping[str, Any]]
) -> str:
    """Return what promtool prints when a test fails; "" when all pass."""
    written = folder / "tests.yml"
    content = {
        "rule_files": [str(path) for path in rules],
        "evaluation_interval": f"{SECONDS_APART}s",
        "tests": [{"interval": f"{SECONDS_APART}s", **test} for test in tests],
    }
    written.write_text(yaml.safe_dump(content, sort_keys=False))
    command = ["promtool", "test", "rules", str(written)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    return "" if ran.returncode == 0 else ran.stdout + ran.stderr


def series(name: str, values: str) -> dict[str, str]:
    return {"series": name, "values": values}
