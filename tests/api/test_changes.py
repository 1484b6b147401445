"""A waiting job is changed over HTTP: by its owner, and its priority by operators."""

from typing import Any

import pytest

from tests.api.heads import Head


def waiting(http: Any) -> str:
    """No node is here: it waits."""
    specs = [{"name": "train", "run": "true"}]
    return str(
        http.post("/v1/jobs", json={"specs": specs, "key": "k"}).json()["jobs"][0]["id"]
    )


def test_its_owner_changes_a_job_and_an_operator_its_priority(head: Head) -> None:
    with head.http("alice") as http:
        id = waiting(http)
        changed = http.patch(
            f"/v1/jobs/{id}", json={"name": "new", "max_duration_seconds": 60}
        )
        assert (changed.status_code, changed.json()["name"]) == (202, "new")
        refused = http.patch(f"/v1/jobs/{id}", json={"priority": 5})
        assert (refused.status_code, refused.json()["error"]["code"]) == (
            403,
            "forbidden",
        )
        kinds = [
            one["kind"] for one in http.get(f"/v1/jobs/{id}/events").json()["events"]
        ]
        assert kinds[-1] == "changed"
    with head.http("admin") as http:
        assert (
            http.patch(f"/v1/jobs/{id}", json={"priority": 5}).json()["priority"] == 5
        )
        entry = http.get("/v1/audit").json()["entries"][0]
        assert (entry["what"], entry["detail"]) == ("job.set", "priority: 5")


@pytest.mark.parametrize(
    "body",
    [
        {"name": "no name"},
        {"priority": 10**6},
        {"max_duration_seconds": 0},
        {"nodes": 2},
        {},
    ],
)
def test_what_no_job_can_be_is_refused(head: Head, body: dict[str, object]) -> None:
    with head.http("admin") as http:
        assert http.patch(f"/v1/jobs/{waiting(http)}", json=body).status_code in (
            400,
            422,
        )
