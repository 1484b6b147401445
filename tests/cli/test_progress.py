"""Work that prints nothing by itself shows what it does on stderr."""

import io
import time

import pytest

from corral.cli import progress as progress_module
from corral.cli.main import run
from corral.cli.progress import CLEAR, progress
from tests.patience import PATIENCE_SECONDS


class Screen(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("FIRST_SECONDS", "TERMINAL_SECONDS", "LINE_SECONDS"):
        monkeypatch.setattr(progress_module, name, 0.01)


def until_said(screen: io.StringIO, text: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while text not in screen.getvalue():
        assert time.monotonic() < deadline, screen.getvalue()
        time.sleep(0.005)


@pytest.mark.parametrize("screen", [io.StringIO(), Screen()], ids=["file", "terminal"])
def test_it_says_what_is_done_and_a_terminal_is_left_clear(
    screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stderr", screen)
    with progress("reading", shown=True) as now:
        until_said(screen, "reading, 0 s")
        now.doing = "replaying 5 jobs"
        until_said(screen, "replaying 5 jobs, ")
    assert (CLEAR in screen.getvalue()) == screen.isatty()
    assert screen.getvalue().endswith(CLEAR if screen.isatty() else " s\n")
    with progress("nothing", shown=False):
        time.sleep(0.02)
    assert "nothing" not in screen.getvalue()


def test_plan_capacity_shows_its_replays_unless_the_answer_is_json(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    log = tmp_path_factory.mktemp("log") / "log.csv"
    rows = [f"{day * 86_400},7200,4" for day in range(70)]
    log.write_text("\n".join(["submit_s,duration_s,gpus", *rows]) + "\n")

    def slow_replay(*given: object) -> object:
        time.sleep(0.1)
        return real(*given)  # type: ignore[arg-type]

    from corral.replay import replay as real

    monkeypatch.setattr("corral.replay.replay", slow_replay)
    words = ["plan", "capacity", "--history", str(log), "--wait", "1h"]
    assert run(words) == 0
    assert "replaying 70 jobs on 1 node, 0 s" in capsys.readouterr().err
    assert run([*words, "--json"]) == 0
    assert "replaying" not in capsys.readouterr().err
