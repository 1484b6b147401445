"""What one job is told to have asked for."""

import pytest

from corral.cli.main import run
from corral.client import Client
from tests.api.heads import Agent


@pytest.mark.parametrize(
    ("asked", "told"), [({"max_duration": "90m"}, True), ({}, False)]
)
def test_the_limit_of_a_job_is_shown_where_it_has_one(
    asked: dict[str, str], told: bool, agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client() as client:
        client.submit({"name": "limited", "run": "x", **asked})
    capsys.readouterr()
    assert run(["show", "limited"]) == 0
    assert ("time limit  1 h 30 min\n" in capsys.readouterr().out) == told


def test_the_signal_before_the_limit_is_shown_where_one_was_asked_for(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    with Client() as client:
        client.submit(
            {"name": "warned", "run": "x", "max_duration": "1h", "warn": "USR1@2m"}
        )
        client.submit(
            {
                "name": "early",
                "run": "x",
                "max_duration": "1h",
                "warn": {"before": "5m"},
            }
        )
    for name, told in (
        ("warned", "USR1, 2 min"),
        ("early", "none, only a request to save, 5 min"),
    ):
        capsys.readouterr()
        assert run(["show", name]) == 0
        assert f"signal      {told} before the time limit\n" in capsys.readouterr().out


def test_a_dry_run_tells_all_that_was_asked(
    agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    typed = (
        "run --dry-run --no-workdir --time 1h --signal USR1@2m --preemptible -C node=n1"
    )
    assert run([*typed.split(), "--priority", "low", "--", "true"]) == 0
    told = capsys.readouterr().out
    for row in (
        "queue       default, priority -100\n",
        "place       node=n1, preemptible\n",
        "time limit  1 h\n",
        "signal      USR1, 2 min before the time limit\n",
    ):
        assert row in told
