"""Who is told to stop, and when: a command's shell after what it has started."""

import signal
import subprocess
import time
from collections.abc import Callable

import pytest

from corral.agent.processes import children
from corral.agent.shim.termination import SHELL, Grace
from tests.patience import PATIENCE_SECONDS


class Group:
    """Nothing is killed here."""

    def kill(self) -> None:
        raise AssertionError("the grace is not over")


class Hands:
    """A loop in which nothing comes later."""

    def now(self) -> float:
        return time.monotonic()

    def later(self, seconds: float, call: Callable[[], None]) -> None:
        pass


class Clock(Hands):
    """Hands with a clock that a test sets."""

    seconds = 0.0

    def now(self) -> float:
        return self.seconds


def test_a_shell_that_misses_its_hang_up_is_hung_up_on_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sent: list[tuple[int, int]] = []
    monkeypatch.setattr(
        "corral.agent.shim.termination.send",
        lambda pid, number: sent.append((pid, number)),
    )
    clock = Clock()
    grace = Grace(clock, Group(), lambda: None)  # type: ignore[arg-type]
    grace.begin(600.0)
    mine, shell = 2**22 + 1, 2**22 + 2
    for clock.seconds in (0.0, 0.5, 1.1, 1.6, 2.2):
        grace.act([mine, shell], [], [shell])
    assert sent.count((mine, signal.SIGTERM)) == 1
    assert sent.count((shell, signal.SIGHUP)) == 3


@pytest.mark.parametrize("shell", sorted({SHELL, "/bin/sh"}))
def test_a_commands_shell_ends_with_what_it_waits_for_on_a_node_and_in_an_image(
    shell: str,
) -> None:
    command = subprocess.Popen([shell, "-c", "sleep 600; exit 7"])
    try:
        began = time.monotonic()
        while not children(command.pid):
            assert time.monotonic() - began < PATIENCE_SECONDS
            time.sleep(0.01)
        grace = Grace(Hands(), Group(), lambda: None)  # type: ignore[arg-type]
        grace.begin(600.0)
        grace.act([command.pid, *children(command.pid)], [command.pid], [])
        assert command.wait(PATIENCE_SECONDS) == 7
    finally:
        command.kill()
        command.wait()
