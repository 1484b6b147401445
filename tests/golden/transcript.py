"""What the command line prints, kept as text: commands, both streams, exit codes."""

import contextlib
import io
import re
import shlex
import time
from collections.abc import Sequence
from pathlib import Path

from corral.cli.main import run

HERE = Path(__file__).parent
ZONES = "|".join(sorted({"UTC", *map(re.escape, time.tzname)}))
CHANGING = (
    (r"http://127\.0\.0\.1:\d+", "http://127.0.0.1:PORT"),
    (rf"\d{{4}}-\d\d-\d\d \d\d:\d\d:\d\d(?: (?:{ZONES}))?", "DATE AND TIME"),
    (r'("(?:at|since|submitted_at|started_at|ended_at|placed_at|running_at|seen_at)": )[\d.]+',
     r"\1SECONDS"),
    (r'("sha256"|"id"): "[0-9a-f]{32,64}"', r'\1: "DIGEST"'),
    (r"^(ran +)\d+s$", r"\g<1>0s"),
    (r"\b\ds\b", "0s"),
    (r"after waiting [\d.]+ s", "after waiting SECONDS s"),
    (r"[\d.]+ GPU-seconds", "SOME GPU-seconds"),
    (r"lost [\d.]+ s of work", "lost SECONDS s of work"),
    (r"^(ran +)\d+s$", r"\g<1>0s"),
    (r"(?<=  )[ \d]\ds(?=  |$)", " 0s"),
    (r"/tmp/[\w/.-]*?/(project|cluster)", r"/tmp/\1"),
)  # fmt: skip


def transcript(*commands: str) -> str:
    """Each command with what it printed; what changes from run to run is named
    instead."""
    return "\n".join(_one(shlex.split(command)) for command in commands)


def _one(words: Sequence[str]) -> str:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    said = "".join(f"! {line}\n" for line in err.getvalue().splitlines())
    text = f"$ corral {shlex.join(words)}\n{out.getvalue()}{said}[exit {code}]\n"
    for pattern, name in CHANGING:
        text = re.sub(pattern, name, text, flags=re.MULTILINE)
    return text


def check(name: str, text: str, *, update: bool) -> None:
    """Compare with the golden file, or write it."""
    golden = HERE / f"{name}.txt"
    if update:
        golden.write_text(text)
    assert golden.exists(), (
        f"there is no {golden.name} yet: pytest tests/golden --update"
    )
    assert text == golden.read_text(), (
        f"{golden.name} differs: --update, then read the diff"
    )
