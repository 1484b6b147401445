"""Install Corral from this tree into a virtual environment: `make setup` and `make demo` run it.

`python deploy/setup.py VENV demo` installs what the demo needs, `python deploy/setup.py VENV dev`
what the tests need as well. Libraries are installed by hash. The build of PyTorch is the machine's
choice: the one for CPUs where no NVIDIA driver answers. Only the standard library is used here.
"""

import os
import re
import shutil
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
BASE: Final = ROOT / "src" / "corral" / "boot" / "requirements.txt"
BUILD: Final = ROOT / "deploy" / "requirements-build.txt"
DEV: Final = ROOT / "deploy" / "requirements-dev.txt"
CPU_INDEX: Final = "https://download.pytorch.org/whl/cpu"
INDEX_ANSWER_SECONDS: Final = 4.0
LEAST_PYTHON: Final = (3, 11)
# A terminal shows one line that changes; a file gets a line this often, never more rarely.
TERMINAL_SECONDS: Final = 0.5
FILE_SECONDS: Final = 4.0
SHOWN_AT_FAILURE: Final = 25
LINE_WIDTH: Final = 78


class SetupFailed(Exception):
    """A step of the installation failed; the text says what to do."""


@dataclass
class Step:
    """One call of pip: its title and what pip does at the moment."""

    title: str
    packages: int = 0
    collected: int = 0
    doing: str = "pip starts"
    lines: list[str] = field(default_factory=list)

    def take(self, line: str) -> None:
        """Take one line of pip's output."""
        self.lines.append(line)
        word, _, rest = line.strip().partition(" ")
        if word == "Collecting":
            self.collected += 1
            self.doing = re.split(r"[=<>;\[ ]", rest)[0]
        elif word == "Downloading":
            self.doing = f"downloading {rest.rpartition('/')[2]}"
        elif word == "Installing":
            self.doing = "writing files"

    def status(self, seconds: float) -> str:
        """Return the progress on one line, no longer than a terminal is wide."""
        done = min(self.collected, self.packages)
        count = f"{done} of {self.packages}, " if self.packages else ""
        start = f"  {self.title}: {seconds:.0f} s, {count}"
        return f"{start}{self.doing}"[:LINE_WIDTH]


def run_pip(python: Path, step: Step, arguments: Sequence[str]) -> None:
    """Run pip and show its progress. Raises: SetupFailed with pip's last lines."""
    began = time.monotonic()
    ended = threading.Event()
    ticker = threading.Thread(
        target=_show_progress, args=(step, ended, began), daemon=True
    )
    ticker.start()
    command = [str(python), "-m", "pip", "install", "--progress-bar", "off", *arguments]
    with subprocess.Popen(
        [*command, "--disable-pip-version-check"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        for line in process.stdout or ():
            step.take(line.rstrip("\n"))
    ended.set()
    ticker.join()
    if process.returncode:
        shown = "\n".join(step.lines[-SHOWN_AT_FAILURE:])
        raise SetupFailed(
            f"{shown}\n\n{step.title}: pip ended with {process.returncode}"
        )
    _print_line(f"  {step.title}: done in {time.monotonic() - began:.0f} s", last=True)


def _show_progress(step: Step, ended: threading.Event, began: float) -> None:
    every = TERMINAL_SECONDS if sys.stdout.isatty() else FILE_SECONDS
    _print_line(step.status(0.0))
    while not ended.wait(every):
        _print_line(step.status(time.monotonic() - began))


def _print_line(text: str, *, last: bool = False) -> None:
    if sys.stdout.isatty():
        print(f"\r\x1b[2K{text}", end="\n" if last else "", flush=True)
    else:
        print(text, flush=True)


def has_nvidia_driver() -> bool:
    """Return whether this machine has an NVIDIA driver that is loaded."""
    return (
        Path("/proc/driver/nvidia/version").exists()
        or shutil.which("nvidia-smi") is not None
    )


def pytorch_arguments(torch: str) -> tuple[str, list[str]]:
    """Return a title and pip's arguments for the build of PyTorch that suits this machine."""
    if has_nvidia_driver():
        return "PyTorch (build for NVIDIA GPUs)", [torch]
    if sys.platform != "linux":
        return "PyTorch", [torch]
    if not _answers(f"{CPU_INDEX}/torch/"):
        return "PyTorch (pip's own choice: the index of CPU builds does not answer)", [
            torch
        ]
    return "PyTorch (build for CPUs)", [torch, "--extra-index-url", CPU_INDEX]


def _answers(url: str) -> bool:
    request = urllib.request.Request(url, method="HEAD")
    try:
        with urllib.request.urlopen(request, timeout=INDEX_ANSWER_SECONDS) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def make_environment(venv: Path) -> Path:
    """Create the virtual environment unless it is there. Return its Python."""
    python = venv / "bin" / "python"
    if not python.exists():
        _print_line(f"  virtual environment in {venv}", last=True)
        done = subprocess.run(
            [sys.executable, "-m", "venv", str(venv)], capture_output=True, text=True
        )
        if done.returncode:
            shutil.rmtree(venv, ignore_errors=True)
            raise SetupFailed(
                f"{done.stdout}{done.stderr}\n"
                "no virtual environment can be made; on Debian and Ubuntu install its package:\n"
                f"  sudo apt install python3.{sys.version_info.minor}-venv"
            )
    return python


def hashed(title: str, *files: Path) -> tuple[Step, list[str]]:
    """Return the step that installs lists of requirements by hash."""
    names = {
        line.partition("==")[0]
        for file in files
        for line in file.read_text().splitlines()
        if line[:1].isalnum()
    }
    lists = [word for file in files for word in ("-r", str(file))]
    return Step(title, packages=len(names)), ["--require-hashes", *lists]


def install(venv: Path, kind: str) -> None:
    """Install what `kind` needs, "demo" or "dev", and this tree itself."""
    python = make_environment(venv)
    libraries = (
        hashed("libraries", BASE, BUILD) if kind == "demo" else hashed("libraries", DEV)
    )
    run_pip(python, *libraries)
    title, arguments = pytorch_arguments(os.environ.get("TORCH", "torch"))
    run_pip(python, Step(title), arguments)
    tree = ["--no-deps", "--no-build-isolation", "-e", str(ROOT)]
    run_pip(python, Step("Corral and its pages"), tree)


def main() -> int:
    if len(sys.argv) != 3 or sys.argv[2] not in ("demo", "dev"):
        print("usage: python deploy/setup.py VENV demo|dev", file=sys.stderr)
        return 2
    if sys.version_info < LEAST_PYTHON:
        version = ".".join(map(str, sys.version_info[:2]))
        print(
            f"Corral needs Python 3.11 or newer; {sys.executable} is Python {version}.\n"
            "Name another one: make demo PYTHON=python3.12",
            file=sys.stderr,
        )
        return 1
    venv, kind = Path(sys.argv[1]).absolute(), sys.argv[2]
    print(
        f"Installing what make {'demo' if kind == 'demo' else 'test'} needs:",
        flush=True,
    )
    try:
        install(venv, kind)
    except SetupFailed as failure:
        print(f"\n{failure}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
