"""Phases of work without steps, which a script declares."""

from contextlib import suppress
from pathlib import Path

import pytest

from corral.train.shim_channel import Channel
from corral.train.work_phase import PHASE_LETTERS, WorkPhases
from tests.patience import PATIENCE_SECONDS
from tests.train.support import shim_at, wait_for


def test_the_innermost_phase_is_reported_and_its_end(tmp_path: Path) -> None:
    with shim_at(tmp_path / "s") as shim:
        channel = Channel(str(shim.path), 3, lambda *committed: None)
        phases = WorkPhases(channel)

        def newest() -> str:
            assert channel.flush(PATIENCE_SECONDS)
            wait_for(lambda: shim.of("phase"), "a phase")
            return str(shim.of("phase")[-1]["phase"])

        with suppress(OSError), phases.enter("evaluate"):
            wait_for(lambda: newest() == "evaluate", "the phase")
            with phases.enter("save"):
                wait_for(lambda: newest() == "save", "the inner phase")
            wait_for(lambda: newest() == "evaluate", "the outer phase again")
            raise OSError("no room")
        wait_for(lambda: newest() == "", "the end")
        assert {message["rank"] for message in shim.of("phase")} == {3}
        channel.close(0.2)


def test_only_the_newest_phase_waits_for_a_shim_that_is_away(tmp_path: Path) -> None:
    path = tmp_path / "s"
    channel = Channel(str(path), 3, lambda *committed: None)
    for name in ("evaluate", "save", ""):
        channel.phase(name)
    assert not channel.flush(0.01)
    with shim_at(path) as shim:
        assert channel.flush(PATIENCE_SECONDS)
        wait_for(lambda: shim.of("phase"), "the phase")
    assert [message["phase"] for message in shim.of("phase")] == [""]
    channel.close(0.2)


@pytest.mark.parametrize("name", ["", "x" * (PHASE_LETTERS + 1), "two\nlines"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with (
        pytest.raises(ValueError, match="1 to 64 letters"),
        WorkPhases(None).enter(name),
    ):
        pass


def test_outside_corral_a_phase_changes_nothing() -> None:
    with WorkPhases(None).enter("evaluate"):
        pass
