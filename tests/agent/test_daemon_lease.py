"""When a silent head ends an attempt, and what a restarted agent still knows of
that."""

from pathlib import Path

import pytest

from corral.agent.head_silence import MARGIN_SECONDS, overdue
from corral.agent.last_desired import LastDesired
from corral.agent.node_boot import boot_id
from tests.agent.bench import key_of, launch_of

ONE = key_of(1)


@pytest.mark.parametrize(
    ("limit_seconds", "grace_seconds", "begins_at"),
    [(60.0, 10.0, 50.0), (20.0, 30.0, 10.0), (60.0, 0.0, 60.0)],
)
def test_the_stop_with_its_grace_is_over_when_the_head_may_replace(
    limit_seconds: float, grace_seconds: float, begins_at: float
) -> None:
    launch = launch_of(
        ONE, self_stop_seconds=limit_seconds, grace_seconds=grace_seconds
    )
    begins_at -= MARGIN_SECONDS
    assert overdue([launch], begins_at - 0.01) == []
    (stop,) = overdue([launch], begins_at)
    assert begins_at + stop.grace_seconds <= limit_seconds
    assert stop.save


def test_what_did_not_ask_for_it_is_never_stopped() -> None:
    assert overdue([launch_of(ONE)], 1e9) == []


def test_the_next_agent_counts_the_silence_from_where_the_last_one_was(
    tmp_path: Path,
) -> None:
    first = LastDesired(tmp_path, 1000.0)
    # not yet heard: counted from its start
    assert first.heard_at() == pytest.approx(1000.0)
    first.hear(1234.5)
    first.close()
    again = LastDesired(tmp_path, 5000.0)
    assert again.heard_at() == pytest.approx(1234.5)
    again.close()
    rebooted = LastDesired(tmp_path, 20.0)
    assert rebooted.heard_at() == pytest.approx(20.0)
    rebooted.close()


def test_a_record_that_does_not_read_is_not_taken_for_none(tmp_path: Path) -> None:
    (tmp_path / "wanted.json").write_text("{torn")
    with pytest.raises(ValueError, match="JSON"):
        LastDesired(tmp_path, 0.0)


def test_a_nodes_boot_id_changes_with_the_machines_and_when_it_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = tmp_path / "machine"
    machine.write_text("first-boot\n")
    monkeypatch.setattr("corral.agent.node_boot._MACHINE", machine)
    first = boot_id(tmp_path)
    assert boot_id(tmp_path) == first
    (tmp_path / "boot").unlink()
    second = boot_id(tmp_path)
    assert second != first
    machine.write_text("second-boot\n")
    assert boot_id(tmp_path) not in (first, second)
