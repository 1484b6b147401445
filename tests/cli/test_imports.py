"""What another system ran is imported once, learned from, and replayed."""

import json
from pathlib import Path

import pytest

from corral.cli.main import run
from corral.client import Client
from tests.api.heads import Agent, Head
from tests.simulate.logs.test_past import SACCT, listing, workload


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "sacct.txt"
    path.write_text(SACCT)
    return path


def said(
    capsys: pytest.CaptureFixture[str], *words: str, code: int = 0
) -> tuple[str, str]:
    capsys.readouterr()
    assert run(words) == code
    told = capsys.readouterr()
    return told.out, told.err


def test_a_dry_run_says_what_would_be_imported_and_nothing_is(
    agent: Agent, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, err = said(capsys, "import", "sacct", str(log), "--dry-run")
    assert "jobs      2: 2 new, 0 known already\n" in out
    assert "of        2 users, in 1 queue\n" in out
    assert "left out  3 that never ran or have not ended\n" in out
    assert f"{log}: line 9: Submit is 'soon', not a time" in err
    assert "dry run: nothing was imported" in err
    with Client() as client:
        assert client.imports() == []


def test_what_is_imported_twice_is_there_once_and_the_log_tells_by_whom(
    agent: Agent, head: Head, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "imported 2 jobs" in said(capsys, "import", "sacct", str(log), "-y")[0]
    counts = json.loads(said(capsys, "import", "sacct", str(log), "--json")[0])
    assert (counts["new"], counts["known"], counts["left_out"], len(counts["faults"])) == (
        0, 2, 3, 2,
    )  # fmt: skip
    with Client() as client:
        assert [one.id for one in client.imports()] == [
            "sacct:big/101",
            "sacct:big/102_3",
        ]
    (entry,) = head.run(head.store.audit(limit=1))
    assert (entry.by, entry.what, entry.on, entry.detail) == (
        "admin", "history.import", "sacct", "2 jobs",
    )  # fmt: skip


def test_a_strict_import_takes_all_or_nothing(
    agent: Agent, log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _, err = said(capsys, "import", "sacct", str(log), "--strict", "-y", code=3)
    assert "nothing was imported: line 9: Submit is 'soon', not a time; line 10" in err
    with Client() as client:
        assert client.imports() == []


def test_ones_own_history_is_replayed_with_what_was_imported(
    agent: Agent, log: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "workloads.json"
    path.write_text(json.dumps(listing(*(workload(f"train-{n}") for n in range(3)))))
    said(capsys, "import", "kueue", str(path), "-y")
    said(capsys, "import", "sacct", str(log), "-y")
    with Client() as client:
        client.submit({"name": "waits", "run": "x", "resources": {"gpu": 1}})
    out, _ = said(
        capsys, "simulate", "--own", "--cluster", "4x8", "--policy", "fifo", "--json"
    )
    answer = json.loads(out)
    assert (answer["trace"], answer["policies"]["fifo"]["jobs"]) == ("own history", 4)
    out, _ = said(capsys, "simulate", "--own", "--policy", "fifo", "--json", code=3)
    assert run(["simulate", "--own", str(log)]) == 2
    assert run(["simulate"]) == 2
