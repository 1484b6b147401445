"""Reports over the API and on the command line: the ledger by whom somebody asks
for."""

from typing import Any

import pytest

from corral.domain.telemetry import GpuSample, NodeSample
from tests.api.heads import Agent, Head, ended, eventually, up

KINDS = ("usage", "waste", "cost", "goodput")


def ask(head: Head, kind: str, **query: Any) -> Any:
    with head.http() as http:
        answer = http.get(f"/v1/reports/{kind}", params=query)
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_answers_for_whole_days_with_a_value_for_each_column(
    kind: str, head: Head
) -> None:
    told = ask(head, kind, by="user", since=0.0, until=86400.0)
    assert (told["first"], told["last"], told["by"]) == (
        "1970-01-01",
        "1970-01-02",
        "user",
    )
    assert (told["rows"], told["days"]) == ([], [])
    assert len(told["total"]) == len(told["columns"])


def test_a_period_that_ends_before_it_begins_and_unknown_kinds_are_refused(
    head: Head,
) -> None:
    with head.http() as http:
        backwards = http.get("/v1/reports/usage", params={"since": 9e8, "until": 1e8})
        unknown = http.get("/v1/reports/gossip")
        by = http.get("/v1/reports/usage", params={"by": "moon"})
    assert [one.status_code for one in (backwards, unknown, by)] == [400, 422, 422]
    assert "ends before it begins" in backwards.text


def test_a_job_is_in_the_report_while_it_runs_and_the_same_when_it_is_over(
    head: Head,
) -> None:
    agent = Agent(head, "n1").hello()
    agent.beat()
    with head.http("alice") as http:
        spec = {"name": "held", "run": "true", "resources": {"gpu": 2}}
        body = {"specs": [spec], "key": "held"}
        id = http.post("/v1/jobs", json=body).json()["jobs"][0]["id"]
        eventually(lambda: http.get(f"/v1/jobs/{id}").json()["state"] == "STARTING")
        agent.beat(up((id, 1)))
        eventually(lambda: http.get(f"/v1/jobs/{id}").json()["state"] == "RUNNING")
        gpus = tuple(
            GpuSample(
                index=at, uuid=str(at), type="h100", utilisation=0.5, power_watts=100.0
            )
            for at in range(2)
        )
        agent.beat(up((id, 1)), sample=NodeSample(at=0.0, gpus=gpus))
        eventually(lambda: ask(head, "usage", by="job", job="held")["total"][1] > 0)
        live = ask(head, "usage", by="job", job="held")
        assert [(row["name"], row["more"]) for row in live["rows"]] == [(id, "held")]
        agent.beat(ended((id, 1)))
        eventually(lambda: http.get(f"/v1/jobs/{id}").json()["state"] == "DONE")
    over = ask(head, "usage", by="job", job=id)
    names = [column["name"] for column in over["columns"]]
    values = dict(zip(names, over["total"], strict=True))
    assert 0.0 < live["total"][0] <= values["allocated"]
    assert values["used"] == pytest.approx(live["total"][1])
    assert values["utilisation"] == pytest.approx(0.5)
    for by in ("user", "queue", "gpu-type"):
        assert ask(head, "usage", by=by)["total"] == pytest.approx(over["total"])
    assert ask(head, "usage", by="user")["rows"][0]["name"] == "alice"
    agent.close()


def test_a_report_of_a_job_that_is_not_there_is_refused(head: Head) -> None:
    with head.http() as http:
        assert (
            http.get("/v1/reports/usage", params={"job": "nothing"}).status_code == 404
        )
