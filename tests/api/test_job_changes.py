"""One change of many jobs: one call, one stored request, one pass."""

from typing import Any

from tests.api.heads import Head


def submitted(http: Any, **spec: Any) -> list[str]:
    """Submit a spec; no node is here, so its jobs wait. Return the ids."""
    specs = [{"name": "train", "run": "true", **spec}]
    key = f"k{len(http.get('/v1/jobs?all=1&limit=10000').json()['jobs'])}"
    jobs = http.post("/v1/jobs", json={"specs": specs, "key": key}).json()["jobs"]
    return [job["id"] for job in jobs]


def change(http: Any, to: str, *names: str) -> Any:
    answer = http.post("/v1/jobs/changes", json={"jobs": names, "to": to})
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_two_arrays_and_a_job_are_cancelled_by_one_request(head: Head) -> None:
    with head.http("alice") as http:
        first = submitted(http, name="first", array="0-2999")
        second = submitted(http, name="second", array="0-2999")
        alone = submitted(http)
        before = head.control.world.granted
        found = change(http, "cancel", "first", second[0].partition("_")[0], alone[0])
        assert head.control.world.granted == before + 1
        assert {job["id"] for job in found["jobs"]} == {*first, *second, *alone}
        assert {job["state"] for job in found["jobs"]} == {"CANCELLED"}
        assert found["refused"] == []
        row = found["jobs"][0]
        assert (row["name"], row["array"], row["array_index"]) == (
            "first_0",
            first[0][:-2],
            0,
        )
    with head.http("admin") as http:
        entry = http.get("/v1/audit").json()["entries"][0]
    spans = f"{first[0]}-2999, {second[0]}-2999, {alone[0]}"
    assert (entry["what"], entry["on"], entry["detail"]) == (
        "job.cancel",
        spans,
        "6,001 jobs",
    )


def test_a_refused_job_keeps_no_other_from_its_change(head: Head) -> None:
    with head.http("bob") as http:
        others = submitted(http, name="bobs")
    with head.http("alice") as http:
        (mine,) = submitted(http, name="mine")
        found = change(http, "suspend", *others, "nobody", mine)
        assert [(job["id"], job["state"]) for job in found["jobs"]] == [
            (mine, "SUSPENDED")
        ]
        refused = {one["asked"]: one for one in found["refused"]}
        assert (refused[others[0]]["code"], refused[others[0]]["partly"]) == (
            "forbidden",
            False,
        )
        assert refused["nobody"]["code"] == "not_found"
        assert refused["nobody"]["jobs"] == []
        assert change(http, "resume", mine)["jobs"][0]["state"] == "QUEUED"
        again = change(http, "resume", mine)
        assert (again["jobs"], again["refused"][0]["code"]) == ([], "conflict")
    with head.http("admin") as http:
        entries = http.get("/v1/audit").json()["entries"]
    denied = next(one for one in entries if one["code"] == "forbidden")
    assert (denied["what"], denied["on"], denied["by"]) == (
        "job.change",
        others[0],
        "alice",
    )


def test_of_an_array_the_rest_is_changed_and_all_over_is_a_conflict(head: Head) -> None:
    with head.http("alice") as http:
        ids = submitted(http, name="part", array="0-2")
        assert len(change(http, "cancel", ids[1])["jobs"]) == 1
        assert change(http, "suspend", ids[0])["jobs"][0]["state"] == "SUSPENDED"
        found = change(http, "resume", "part")
        assert [job["id"] for job in found["jobs"]] == [ids[0]]
        assert [(one["jobs"], one["partly"]) for one in found["refused"]] == [
            ([ids[2]], True)
        ]
        assert [job["id"] for job in change(http, "cancel", "part")["jobs"]] == [
            ids[0],
            ids[2],
        ]
        over = change(http, "cancel", "part")["refused"]
        assert [one["message"] for one in over] == [
            "all jobs of the array part have already ended"
        ]


def test_nothing_and_too_much_are_no_request(head: Head) -> None:
    with head.http("alice") as http:
        for body in ({"jobs": [], "to": "cancel"}, {"jobs": ["j1"], "to": "kill"}):
            assert http.post("/v1/jobs/changes", json=body).status_code == 422
        many = {"jobs": ["j1"] * 10_001, "to": "cancel"}
        assert http.post("/v1/jobs/changes", json=many).status_code == 422
