"""What is told of a job that is not kept any more."""

from pathlib import Path

import pytest

from corral.domain.ids import JobId
from corral.domain.retention import Retention
from tests.api.heads import eventually, serving
from tests.api.test_jobs import error, submit


def test_a_forgotten_job_is_told_from_one_that_never_was(tmp_path: Path) -> None:
    with serving(tmp_path) as head:
        head.control.keeping.retention = Retention(jobs=2)
        world = head.control.world
        ids = [
            submit(head, {"name": name, "run": "x"}).json()["jobs"][0]["id"]
            for name in "ab"
        ]
        array = submit(head, {"name": "s", "run": "x", "array": "0-1"}).json()["jobs"][
            0
        ]["array"]
        with head.http() as http:
            for id in [*ids, f"{array}_0"]:
                http.post(f"/v1/jobs/{id}/cancel")
            eventually(lambda: ids[0] not in world.ended)
            for path in ("", "/why", "/events", "/logs", "/checkpoints"):
                answer = http.get(f"/v1/jobs/{ids[0]}{path}")
                assert error(answer) == (410, "forgotten"), path
            said = answer.json()["error"]["message"]
            assert said.startswith(
                f"there is no job {ids[0]}: it was deleted (a job is "
            )
            assert said.endswith(
                "or the number belongs to a request that was not a submission"
            )
            assert (
                "30 d after its end, or when 2 other jobs have ended after it" in said
            )
            assert error(http.post(f"/v1/jobs/{ids[0]}/cancel")) == (410, "forgotten")
            assert error(http.get("/v1/jobs/j999")) == (404, "not_found")
            # cancels
            for number in range(int(array.removeprefix("j")) + 1, world.granted + 1):
                assert error(http.get(f"/v1/jobs/j{number}")) == (404, "not_found"), (
                    number
                )
            assert error(http.get("/v1/jobs/a")) == (404, "not_found")
            assert error(http.get(f"/v1/jobs/{array}")) == (404, "not_found")
            assert len(http.get(f"/v1/jobs?all=1&array={array}").json()["jobs"]) == 2
            assert http.get(f"/v1/jobs/{ids[1]}").json()["state"] == "CANCELLED"
        with head.http("n1") as node:
            asked = f"/v1/agents/forgotten?jobs={ids[0]},{ids[1]},j999,{array}_1,../x"
            assert node.get(asked).json()["forgotten"] == [ids[0]]
            assert node.get("/v1/agents/forgotten").json()["forgotten"] == []


def test_a_job_that_is_no_array_has_no_index(tmp_path: Path) -> None:
    with serving(tmp_path) as head, head.http() as http:
        id = submit(head, {"name": "a", "run": "x"}).json()["jobs"][0]["id"]
        for cancelled in (False, True):
            if cancelled:
                http.post(f"/v1/jobs/{id}/cancel")
                eventually(lambda: JobId(id) in head.control.world.ended)
            answer = http.get(f"/v1/jobs/{id}_9")
            assert error(answer) == (404, "no_such_index")
            said = answer.json()["error"]
            assert said["message"] == f"there is no job {id}_9: {id} is not an array"
            assert said["hint"] == f"run: corral show {id}"


@pytest.mark.parametrize("path", ["", "/why", "/events", "/logs"])
def test_an_index_that_never_was_is_answered_with_those_there_are(
    tmp_path: Path, path: str
) -> None:
    """Until some may have been forgotten: then nobody can tell."""
    with serving(tmp_path) as head, head.http() as http:
        asked = {"name": "s", "run": "x", "array": "0-2,7"}
        array = submit(head, asked).json()["jobs"][0]["array"]
        for name in (f"{array}_99", "s_99"):
            answer = http.get(f"/v1/jobs/{name}{path}")
            assert error(answer) == (404, "no_such_index")
            said = answer.json()["error"]["message"]
            assert (
                said == f"there is no job {name}: array {array} has the indices 0-2,7"
            )
        assert error(http.get(f"/v1/jobs/t_1{path}")) == (404, "not_found")
        head.control.keeping.retention = Retention(jobs=1)
        http.post(f"/v1/jobs/{array}_7/cancel")
        eventually(lambda: len(head.control.world.ended) == 1)
        assert error(http.get(f"/v1/jobs/{array}_99{path}")) == (410, "forgotten")
