"""The demo says what it does, and leaves nothing behind when it is interrupted."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import CORRAL

DEMO = Path(__file__).parents[2] / "examples" / "tiny_gpt" / "demo.py"


def processes_of(folder: Path) -> list[str]:
    """Command lines of the processes that name the folder."""
    said = []
    for pid in (name for name in os.listdir("/proc") if name.isdecimal()):
        try:
            words = (
                Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
            )
        except OSError:
            continue
        said += [words] if str(folder) in words else []
    return said


@pytest.mark.parametrize(
    ("number", "after"),
    [
        (signal.SIGHUP, "corral up"),
        (signal.SIGTERM, "tiny-gpt is"),
        (signal.SIGINT, "tiny-gpt is"),
    ],
)
def test_a_signal_stops_the_cluster_and_removes_its_folder(
    number: signal.Signals, after: str, tmp_path: Path
) -> None:
    env = {
        name: one for name, one in os.environ.items() if not name.startswith("CORRAL_")
    }
    demo = subprocess.Popen(
        [sys.executable, "-u", str(DEMO)],
        env={**env, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert demo.stdout is not None
    try:
        for line in demo.stdout:
            if after in line:
                demo.send_signal(number)
                break
        rest, _ = demo.communicate(timeout=PATIENCE_SECONDS)
        assert demo.returncode == 128 + number, rest
        assert f"{number.name}: the cluster is stopped and removed" in rest
        assert not list(tmp_path.glob("corral-demo-*"))
        assert not processes_of(tmp_path)
    finally:
        demo.kill()
        for left in tmp_path.glob("corral-demo-*"):
            subprocess.run([*CORRAL, "down", "-y", "--dir", str(left)], check=True)


def test_it_says_what_a_job_without_a_step_is_doing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(str(DEMO.parent))
    import demo  # type: ignore[import-not-found]

    def job(state: str, progress: object = None) -> SimpleNamespace:
        return SimpleNamespace(
            state=state, progress=progress, nodes=["n1", "n2"], reason=""
        )

    assert demo.doing_of(job("QUEUED"), 120) == "waiting in the queue"
    assert demo.doing_of(job("STARTING"), 120) == "starting on n1, n2"
    assert demo.doing_of(job("RUNNING"), 120) == "starting Python and PyTorch"
    assert (
        demo.doing_of(job("RUNNING", SimpleNamespace(step=7)), 120) == "step 7 of 120"
    )
