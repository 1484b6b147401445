"""Nodes of a real cluster are put to the proof: by hand, when suspected, before a big
gang."""

import json

from tests.scenarios.house import House, house, until


def inject(here: House, node: str, faults: dict[str, object]) -> None:
    (here.root / "nodes" / node / "pretend.json").write_text(
        json.dumps({"checks": faults})
    )


def events(here: House, kind: str) -> list[str]:
    with here.client() as client:
        return [one.text for one in client.events() if one.kind == kind]


def test_doctor_finds_the_gpu_that_multiplies_wrongly_and_closes_its_node() -> None:
    with house("--nodes", "2", "--gpus", "2") as here:
        inject(here, "n2", {"matmul/1": "wrong"})
        done = here.corral("doctor", "gpu", "--seconds", "0.2", "--json")
        assert done.returncode == 1, done.stderr
        failed = [
            (node["node"], one["kind"], one["gpu"])
            for node in json.loads(done.stdout)["nodes"]
            for one in node["results"]
            if one["result"] == "failed"
        ]
        assert failed == [("n2", "matmul", 1)]
        until(lambda: here.node("n2").cordoned, "the node is closed")
        assert not here.node("n1").cordoned
        inject(here, "n2", {})
        here.ok("doctor", "gpu", "--seconds", "0.2", "--node", "n2")
        until(
            lambda: not here.node("n2").cordoned,
            "it has passed what somebody asked for",
        )


def test_a_job_does_not_wait_for_a_check_that_would_take_minutes() -> None:
    with house("--nodes", "1", "--gpus", "1") as here:
        inject(here, "n1", {"seconds": 600})
        with here.client() as client:
            client.check_nodes(["matmul"], max_wait_seconds=600)
        until(
            lambda: any(one.begun_at for one in here.node("n1").checkups),
            "it is being checked",
        )
        job = here.submit("quick", "true", resources={"gpu": 1})
        here.until_state(job, "DONE")
        until(lambda: events(here, "checked"), "the check has ended without a result")


def test_a_gangs_bad_node_is_replaced_before_any_of_its_ranks_has_begun() -> None:
    with house("--nodes", "3", "--gpus", "2", "--check-gangs", "4") as here:
        inject(here, "n1", {"matmul/0": "wrong"})
        run = "echo began on $CORRAL_NODE attempt $CORRAL_ATTEMPT"
        job = here.submit("big", run, nodes=2, resources={"gpu": 2})
        here.until_state(job, "DONE")
        first, *_, last = here.job(job).attempts
        assert (first.cause, first.culprit) == ("infra", "GPU 0 of node n1")
        assert first.running_at is None
        assert sorted(last.nodes) == ["n2", "n3"]
        assert here.node("n1").cordoned
