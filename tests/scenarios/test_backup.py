"""A cluster whose store is lost while its jobs run goes on from its backup."""

from collections.abc import Iterator

import pytest

from tests.scenarios.house import House, house, wait_in_shell

pytestmark = pytest.mark.xdist_group("backup")


@pytest.fixture
def here() -> Iterator[House]:
    with house("--nodes", "1", "--gpus", "2") as made:
        yield made


def test_what_runs_goes_on_when_the_store_is_lost_and_restored(here: House) -> None:
    """The disk with the store is lost with its head; agents, ranks and the backup are
    not."""
    go, file = here.root / "shared" / "go", here.root.parent / "cluster.backup"
    here.ok("secret", "set", "TOKEN", stdin="hush")
    here.ok("queue", "set", "team", "--gpus", "1", "-y")
    runs = here.submit(
        "runs", f"{wait_in_shell(go)}; echo went on", resources={"gpu": 1}
    )
    here.until_state(runs, "RUNNING")
    assert "1 job, 1 of them unfinished" in here.ok("backup", str(file))
    since = here.submit("since", "true")
    here.until_over(since)
    here.kill_head()
    for part in here.root.glob("corral.db*"):
        part.unlink()
    assert here.ok("restore", str(file)).startswith(
        f"restored in {here.root}: the cluster as of"
    )
    here.ok("up")
    assert here.job(runs).state == "RUNNING"
    go.touch()
    done = here.until_over(runs)
    assert (done.state, len(done.attempts)) == ("DONE", 1)
    assert "went on" in here.logs(runs)
    after = here.submit("after", "test $TOKEN = hush", secrets=["TOKEN"], queue="team")
    assert here.until_over(after).state == "DONE"
    assert int(after.removeprefix("j")) > 10_000 > int(since.removeprefix("j"))
    assert here.corral("show", since).returncode == 3


def test_restore_and_backup_refuse_in_words(here: House) -> None:
    file = here.root.parent / "cluster.backup"
    found = here.answer("backup", str(file))
    assert (found["file"], found["jobs"]) == (str(file), 0)
    again = here.corral("backup", str(file))
    assert again.returncode == 3
    assert "already exists" in again.stderr
    onto = here.corral("restore", str(file))
    assert onto.returncode == 3
    assert "a head already runs" in onto.stderr
