"""A job that failed, and one that goes on from its save: at the command line, with real
ranks."""

import json
import shlex
import sys
from collections.abc import Iterator
from typing import Final

import pytest

from corral.domain.errors import Refusal
from tests.scenarios.house import House, house, until, wait_in_shell

# A rank that speaks to its shim as corral.train does: it saves three times, and fails.
SAVER: Final = """
import json, os, socket, sys, time
link = socket.socket(socket.AF_UNIX)
link.connect(os.environ["CORRAL_SOCKET"])
job, steps = os.environ["CORRAL_JOB_ID"], [7, 14, 21]
def say(**fields):
    link.sendall(json.dumps(fields).encode() + b"\\n")
say(type="hello", rank=0)
for step in steps:
    path = f"{os.environ['CORRAL_CHECKPOINT_PATH']}/attempt-1/step-{step}"
    say(type="save", step=step, attempt=1, path=path, manifest_sha256=f"{step:064x}",
        size_bytes=10, seconds=0.1, stall_seconds=0.0)
seen = b""
while b"21" not in seen:
    seen += link.recv(4096)
sys.exit(1)
"""


def failed_job(here: House) -> str:
    run = shlex.join([sys.executable, "-c", SAVER])
    rule = {"path": str(here.shared / "saves"), "keep": 2}
    id = here.submit("cnn", run, checkpoint=rule, resources={"gpu": 1})
    assert here.until_over(id).state == "FAILED"
    return id


def test_a_failed_job_names_the_command_with_which_a_new_one_starts_from_its_save() -> (
    None
):
    with house("--nodes", "2", "--gpus", "1") as here:
        id = failed_job(here)
        why = here.ok("why", id)
        assert "start a new job from its save of step 21" in why
        assert f"corral run --from {id} --gpus 1 -- " in why
        refused = here.corral("resume", id, "-y")
        assert refused.returncode != 0
        assert f"corral run --from {id}" in refused.stderr
        saves = here.ok("checkpoints", id)
        assert "step-21" in saves
        assert "step-7" not in saves, "it is pruned: keep is 2"
        pruned = {
            one["step"]: one["pruned"]
            for one in here.answer("checkpoints", id)["checkpoints"]
        }
        assert pruned == {7: True, 14: False, 21: False}

        command = [
            "run",
            "--from",
            id,
            "--no-workdir",
            "-y",
            "--",
            "printenv CORRAL_RESUME",
        ]
        (saved,) = json.loads(here.ok(*command).splitlines()[-1])
        assert (saved["job"], saved["step"]) == (id, 21)
        assert saved["manifest_sha256"] == f"{21:064x}"
        earlier = here.ok("run", "--from", f"{id}@14", *command[3:])
        assert json.loads(earlier.splitlines()[-1])[0]["step"] == 14
        newest = here.jobs()[0]
        assert here.job(newest.id).origin == f"{id}@14"
        assert f"{id}@14" in here.ok("show", newest.id)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("cnn@7", "no save of step 7, only of step 21, 14"),
        ("plain", "has no save to start from"),
        ("runs", "has no save to start from"),
        ("sweep", "is an array of 2 jobs"),
        ("cnn@last", "is not of the form JOB or JOB@STEP"),
        ("nowhere", "there is no job"),
    ],
)
def test_a_save_that_cannot_be_started_from_is_refused_at_submission(
    refusing: House, source: str, says: str
) -> None:
    with pytest.raises(Refusal, match=says):
        refusing.submit("next", "true", checkpoint={"from": source})


@pytest.fixture(scope="module")
def refusing() -> Iterator[House]:
    with house("--nodes", "1", "--gpus", "2") as here:
        failed_job(here)
        here.until_over(here.submit("plain", "true"))
        here.until_over(here.submit("sweep", "true", array="0-1"))
        here.submit("runs", wait_in_shell(here.shared / "never"))
        until(lambda: here.job("runs").state == "RUNNING", "it runs")
        yield here
