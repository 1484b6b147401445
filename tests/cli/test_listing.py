"""A listing is whole, or says that it is not."""

import json

import pytest

from corral.cli.main import run
from corral.client import Client
from corral.domain.ids import JobId
from tests.api.heads import Agent, Head, ended, eventually


@pytest.fixture
def many(agent: Agent) -> int:
    """So many jobs, of which none is over."""
    with Client() as client:
        return len(client.submit({"name": "many", "run": "x", "array": "0-119"}))


def listed(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """How many jobs, and what is said on stderr."""
    capsys.readouterr()
    assert run(["ps", "--json", *words]) == 0
    out, err = capsys.readouterr()
    return len(json.loads(out)["jobs"]), err.strip()


def test_all_without_a_limit_is_all_that_is_kept(
    many: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert listed(capsys, "--all") == (many, "")


def test_what_is_cut_is_told_with_what_shows_the_rest(
    many: int, capsys: pytest.CaptureFixture[str]
) -> None:
    more = "only the newest {} are listed; for older jobs, run: corral ps {}"
    assert listed(capsys) == (100, more.format(100, "--before j1_20"))
    assert listed(capsys, "--all", "--limit", "7") == (
        7,
        more.format(7, "--all --before j1_113"),
    )
    assert listed(capsys, "--limit", str(many)) == (many, "")
    assert listed(capsys, "--before", "j1_20") == (20, "")


def test_a_listing_takes_as_many_pages_as_it_needs(
    many: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.cli.ps.MOST_ROWS", 50)
    assert listed(capsys, "--all") == (many, "")
    assert listed(capsys, "--limit", "110")[0] == 110


def test_the_gpus_of_an_elastic_job_are_those_that_it_has(
    agent: Agent, head: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client() as client:
        sizes = {"elastic": {"min_nodes": 1, "max_nodes": 3}, "resources": {"gpu": 2}}
        id = client.submit({"name": "e", "run": "x", **sizes, "nodes": 3})[0].id
        eventually(lambda: head.control.world.jobs[JobId(id)].state == "STARTING")
        client.submit(
            {"name": "held", "run": "x", **sizes, "nodes": 3, "after": [{"job": id}]}
        )
    capsys.readouterr()
    run(["ps"])
    rows = capsys.readouterr().out.splitlines()
    assert [row.split()[3] for row in rows if "STARTING" in row or "HELD" in row] == [
        "6",
        "2",
    ]


def test_a_listing_is_narrowed_by_queue_user_state_and_time(
    agent: Agent, head: Head, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client() as client:
        (kept,) = client.submit({"name": "kept", "run": "x", "nodes": 1})
        (gone,) = client.submit({"name": "gone", "run": "x", "resources": {"gpu": 4}})
        client.cancel(gone.id)
    agent.beat(ended((gone.id, 1)))
    eventually(lambda: JobId(gone.id) in head.control.world.ended)
    assert ids(capsys, "--queue", "default", "--user", "admin") == [kept.id]
    assert ids(capsys, "--queue", "speech") == ids(capsys, "--user", "bob") == []
    assert ids(capsys, "--state", "cancelled,queued", "--state", "starting") == [
        gone.id,
        kept.id,
    ]
    assert ids(capsys, "--since", "1h") == [gone.id, kept.id]
    assert ids(capsys, "--since", "2100-01-01") == [kept.id]  # it has not ended by then
    capsys.readouterr()
    assert run(["ps", "--queue", "speech"]) == 0
    assert "no job matches" in capsys.readouterr().err
    assert run(["ps", "--state", "running,quick"]) == 2
    assert "not a state of a job" in capsys.readouterr().err
    assert run(["ps", "--since", "soon"]) == 2
    assert "--since soon is neither a duration nor a date" in capsys.readouterr().err
    run(
        [
            "ps",
            "--all",
            "--since",
            "1h",
            "--state",
            "cancelled,queued,starting",
            "--limit",
            "1",
        ]
    )
    again = f"corral ps --all --state cancelled,queued,starting --since 1h --before {gone.id}"
    assert again in " ".join(capsys.readouterr().err.split())


def ids(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    capsys.readouterr()
    assert run(["ps", "--json", *words]) == 0
    return [job["id"] for job in json.loads(capsys.readouterr().out)["jobs"]]
