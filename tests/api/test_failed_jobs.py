"""Jobs that failed lately are listed with the classes of their causes."""

from tests.api.heads import Agent, Head, ended, eventually, up


def test_failed_jobs_are_counted_by_class_and_old_ones_are_left_out(head: Head) -> None:
    agent = Agent(head, "n1", gpus=4).hello()
    agent.beat()
    eventually(lambda: "n1" in head.control.world.nodes)
    with head.http("alice") as http:
        specs = [{"name": f"bad-{place}", "run": "x"} for place in range(3)]
        jobs = http.post("/v1/jobs", json={"specs": specs, "key": "k"}).json()["jobs"]
        ids = [job["id"] for job in jobs]
        world = head.control.world
        eventually(lambda: all(world.state_of(id) == "STARTING" for id in ids))
        agent.beat(*[up((id, 1)) for id in ids])
        eventually(lambda: all(world.state_of(id) == "RUNNING" for id in ids))
        agent.beat(
            ended((ids[0], 1), code=1), ended((ids[1], 1), code=127), ended((ids[2], 1))
        )
        eventually(lambda: set(ids) <= set(world.ended))
        found = http.get("/v1/failures").json()
        assert {job["id"] for job in found["jobs"]} == set(ids[:2])
        assert {job["owner"] for job in found["jobs"]} == {"alice"}
        assert {one["failure"]: one["jobs"] for one in found["classes"]} == {
            "unknown": 1,
            "command-not-found": 1,
        }
        assert found["more"] is False
        assert len(http.get("/v1/failures?limit=1").json()["jobs"]) == 1
        later = http.get(
            f"/v1/failures?since={found['jobs'][0]['ended_at'] + 60}"
        ).json()
        assert (later["jobs"], later["classes"]) == ([], [])
    agent.close()
