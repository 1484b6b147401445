"""Schedules of chaos runs are the same for the same seed and can be submitted; ranks
write down what happens to them."""

import os
import signal
import subprocess
import sys
from itertools import islice
from pathlib import Path

import pytest

from corral.client.spec_input import read_wire_specs
from tests.chaos.clients import spec_of
from tests.chaos.faults import WEIGHTS as FAULTS
from tests.chaos.faults import injections
from tests.chaos.gather import read_evidence
from tests.chaos.history import RankEvidence
from tests.chaos.run import PROGRAM
from tests.chaos.workload import WEIGHTS, Place, submissions
from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import until

PLACE = Place(python="python3", program="rank.py", evidence="/e", saves="/s")


def test_a_seed_has_its_jobs_and_each_can_be_submitted() -> None:
    some = list(islice(submissions(1, PLACE), 200))
    assert some == list(islice(submissions(1, PLACE), 200))
    assert some != list(islice(submissions(2, PLACE), 200))
    assert {one.plans[0].kind for one in some} == {
        kind.__name__.strip("_") for kind in WEIGHTS
    }
    for one in some:
        read_wire_specs(spec_of(one, Path("/tmp")))


def test_a_seed_has_its_faults_and_every_kind_comes_early() -> None:
    some = list(islice(injections(1), 100))
    assert some == list(islice(injections(1), 100))
    assert some != list(islice(injections(2), 100))
    assert {one.kind for one in some[: len(FAULTS)]} == set(FAULTS)
    assert [one.after_seconds for one in some] == sorted(
        one.after_seconds for one in some
    )


def start(folder: Path, *words: str) -> "subprocess.Popen[bytes]":
    env = {
        "CORRAL_JOB_ID": "j7",
        "CORRAL_ATTEMPT": "2",
        "CORRAL_NODE": "n1",
        "RANK": "0",
    }
    env |= {"CUDA_VISIBLE_DEVICES": "1", "CORRAL_SOCKET": str(folder / "none.sock")}
    env |= {"CORRAL_CHECKPOINT_PATH": str(folder / "saves"), **os.environ}
    command = [sys.executable, "-S", "-E", str(PROGRAM), str(folder), *words]
    return subprocess.Popen(command, env=env)


def evidence(folder: Path) -> RankEvidence:
    found, wrong = read_evidence(folder)
    assert (len(found), wrong) == (1, ())
    return found[0]


@pytest.mark.parametrize(
    ("words", "code"),
    [(["--code", "9"], 9), (["--code", "9", "--fails-before", "3"], 1)],
)
def test_a_rank_announces_the_code_that_it_exits_with(
    words: list[str], code: int, tmp_path: Path
) -> None:
    assert start(tmp_path, "--seconds", "0", *words).wait(PATIENCE_SECONDS) == code
    told = evidence(tmp_path)
    assert (told.job, told.attempt, told.node, told.gpus) == ("j7", 2, "n1", (1,))
    assert told.end == code


def test_a_rank_that_is_ended_announces_no_code(tmp_path: Path) -> None:
    process = start(tmp_path, "--seconds", "600")
    until(
        lambda: list(tmp_path.glob("*.jsonl")) and read_evidence(tmp_path)[0],
        "it has begun",
    )
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE_SECONDS) == 128 + signal.SIGTERM
    told = evidence(tmp_path)
    assert (told.end, told.was_asked_to_stop) == (None, True)
