"""Of jobs of one name one's own is meant before those of others, and those are said to
be."""

import uuid
from typing import Any

import pytest

from tests.api.heads import Head


def submit(head: Head, who: str, name: str, **more: Any) -> str:
    """The id of the job, or of the array's first one."""
    spec = {"name": name, "run": "true", "begin": "9h", **more}
    with head.http(who) as http:
        answer = http.post("/v1/jobs", json={"specs": [spec], "key": uuid.uuid4().hex})
        answer.raise_for_status()
    return str(answer.json()["jobs"][0]["id"])


def get(head: Head, who: str, path: str) -> Any:
    with head.http(who) as http:
        return http.get(path).json()


def test_ones_own_newest_job_of_a_name_is_meant_before_a_newer_one_of_another(
    head: Head,
) -> None:
    mine, others = submit(head, "alice", "same"), submit(head, "bob", "same")
    for who, id in (("alice", mine), ("bob", others), ("olga", others)):
        assert get(head, who, "/v1/jobs/same")["id"] == id
        assert get(head, who, "/v1/jobs/same/why")["id"] == id
    with head.http("alice") as http:
        assert http.post("/v1/jobs/same/cancel").json()["id"] == mine


@pytest.mark.parametrize("path", ["/v1/jobs/bobs", "/v1/jobs/bobs/why"])
def test_that_another_s_is_meant_is_said(head: Head, path: str) -> None:
    id = submit(head, "bob", "bobs")
    said = f"bobs is job {id} of bob; alice has no job of that name"
    assert get(head, "alice", path)["whose"] == said
    assert get(head, "alice", path.replace("bobs", id))["whose"] == ""
    assert get(head, "bob", path)["whose"] == ""


def test_ones_own_array_is_meant_before_a_job_of_another_and_is_waited_for(
    head: Head,
) -> None:
    first = submit(head, "alice", "grid", array="0-1").rpartition("_")[0]
    submit(head, "bob", "grid", array="0-1")
    submit(head, "bob", "grid")
    assert get(head, "alice", "/v1/jobs/grid")["error"]["code"] == "not_found"
    parts = get(head, "alice", "/v1/jobs?array=grid&all=1")["jobs"]
    assert {part["array"] for part in parts} == {first}
    after = submit(head, "alice", "next", after=[{"job": "grid"}])
    with head.http("alice") as http:
        assert f"({first}_0)" in http.get(f"/v1/jobs/{after}").json()["reason"]
    mourns = submit(head, "alice", "mourns", after=[{"job": "grid", "on": "failed"}])
    reason = "the job waits for any of grid to fail, once all have ended"
    assert get(head, "alice", f"/v1/jobs/{mourns}")["reason"] == reason
