"""The routes of models on nodes, for people and for agents."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from corral.domain.content import (
    ContentFetch,
    ContentItem,
    ContentReport,
    ContentResult,
)
from corral.domain.ids import AttemptNumber, JobId
from corral.domain.quota import ClusterLimits
from corral.wire.content_messages import ContentNow, ContentPeers
from tests.api.heads import Agent, Head, eventually, serving

KEY = "a" * 64
PRIVATE_KEY = "b" * 64
SOURCE = "hf://org/name@main"
ITEM = ContentItem(
    key=KEY, name="hf://org/name@c0ffee", size_bytes=8_000_000_000, sources=(SOURCE,)
)
PRIVATE = ContentItem(
    key=PRIVATE_KEY, name="hf://org/secret@1", size_bytes=1, is_public=False
)


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    limits = ClusterLimits(model_cache_bytes=5_000)
    with serving(tmp_path, more={"limits": limits}) as it:
        yield it


@pytest.fixture
def agents(head: Head) -> Iterator[list[Agent]]:
    made = [Agent(head, name).hello() for name in ("n1", "n2")]
    for agent in made:
        agent.beat()
    eventually(lambda: len(head.control.world.nodes) == 2)
    yield made
    for agent in made:
        agent.close()


def report(*items: ContentItem, **more: Any) -> ContentReport:
    fields = {"port": 4100, "access_key": "k3y", "most_bytes": 10, **more}
    return ContentReport(items=items, **fields)


def ask(head: Head, path: str, who: str = "admin", **body: Any) -> Any:
    with head.http(who) as http:
        if body:
            return http.post(f"/v1/models{path}", json=body)
        return http.get(f"/v1/models{path}")


def asked(agent: Agent) -> ContentNow:
    """The next request about content that the agent gets."""
    while True:
        message = agent.receive()
        if isinstance(message, ContentNow):
            return message


def peers(head: Head, node: str, key: str) -> ContentPeers:
    with head.http(node) as http:
        answer = http.get(f"/v1/agents/content/{key}")
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=ContentPeers)


def test_a_node_learns_from_which_others_it_can_fetch(
    head: Head, agents: list[Agent]
) -> None:
    empty = ContentPeers(most_bytes=5_000, is_announced=False)
    assert peers(head, "n2", KEY) == empty
    agents[0].beat(content=report(ITEM))
    agents[0].beat()  # an unchanged report is not sent again
    (peer,) = peers(head, "n2", KEY).peers
    assert (peer.node, peer.port, peer.access_key) == ("n1", 4100, "k3y")
    assert (peer.is_complete, peer.is_from_outside) == (True, False)
    assert peers(head, "n1", KEY).peers == ()  # itself
    assert peers(head, "n2", PRIVATE_KEY).peers == ()
    fetch = ContentFetch(key=KEY, source=SOURCE, from_outside=True, done_bytes=7)
    agents[0].beat(content=report(fetches=(fetch,)))
    (peer,) = peers(head, "n2", KEY).peers
    assert (peer.is_complete, peer.is_from_outside) == (False, True)
    assert peer.done_bytes == 7
    assert not peers(head, "n2", KEY).is_announced
    assert peers(head, "n1", KEY).is_announced


def test_the_access_keys_of_nodes_are_for_nodes_alone(
    head: Head, agents: list[Agent]
) -> None:
    agents[0].beat(content=report(ITEM))
    with head.http("admin") as http:
        assert http.get(f"/v1/agents/content/{KEY}").status_code == 403
    assert "k3y" not in ask(head, "").text


def test_models_are_listed_and_private_ones_to_operators_alone(
    head: Head, agents: list[Agent]
) -> None:
    agents[0].beat(content=report(ITEM, PRIVATE))
    agents[1].beat(content=report(ITEM))
    (model,) = ask(head, "", who="alice").json()["models"]
    assert model["name"] == ITEM.name
    assert model["sources"] == [SOURCE]
    assert [node["node"] for node in model["nodes"]] == ["n1", "n2"]
    names = [model["name"] for model in ask(head, "").json()["models"]]
    assert names == [ITEM.name, PRIVATE.name]


def test_a_pull_reaches_the_nodes_and_its_result_comes_back(
    head: Head, agents: list[Agent]
) -> None:
    agents[1].beat(content=report(most_bytes=100))
    answer = ask(head, "/pull", source=SOURCE, pinned=True, env={"HF_ENDPOINT": "x"})
    assert answer.json()["nodes"] == ["n2"]  # it has the most room
    request = asked(agents[1])
    assert (request.action, request.source) == ("pull", SOURCE)
    assert (request.is_pinned, request.user, request.env) == (
        True,
        "admin",
        {"HF_ENDPOINT": "x"},
    )
    result = ContentResult(request=request.request, source=SOURCE, trouble="no room")
    agents[1].beat(content=report(results=(result,)))
    (shown,) = ask(head, "").json()["results"]
    assert shown == {
        "node": "n2",
        "request": answer.json()["request"],
        "source": SOURCE,
        "trouble": "no room",
    }
    assert ask(head, "/pull", source=SOURCE, all_nodes=True).json()["nodes"] == [
        "n1",
        "n2",
    ]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"source": "/data/model"}, 400),
        ({"source": "https://host/m.gguf"}, 400),
        ({"source": SOURCE, "nodes": ["n9"]}, 404),
        ({"source": SOURCE, "secrets": ["HF_TOKEN"]}, 403),
    ],
)
def test_a_pull_that_cannot_be_is_refused_with_what_to_do(
    head: Head, agents: list[Agent], body: dict[str, Any], status: int
) -> None:
    answer = ask(head, "/pull", **body)
    assert answer.status_code == status, answer.text
    assert answer.json()["error"]["hint"]


def test_users_do_not_pull_and_remove(head: Head, agents: list[Agent]) -> None:
    assert ask(head, "/pull", who="alice", source=SOURCE).status_code == 403
    assert ask(head, "/remove", who="alice", name=SOURCE).status_code == 403


def test_a_model_in_use_is_not_removed(head: Head, agents: list[Agent]) -> None:
    used = ContentItem(
        key=KEY, name=ITEM.name, size_bytes=1, sources=(SOURCE,), is_used=True
    )
    agents[0].beat(content=report(used))
    agents[1].beat(content=report(ITEM))
    assert ask(head, "/remove", name="hf://org/none").status_code == 404
    refused = ask(head, "/remove", name=SOURCE)
    assert refused.status_code == 409
    assert "in use on n1" in refused.json()["error"]["message"]
    assert ask(head, "/remove", name=SOURCE, nodes=["n2"]).status_code == 202
    assert asked(agents[1]).action == "remove"


@pytest.mark.parametrize(
    ("name", "is_removed"),
    [
        ("hf://org/name", "hf://org/name@c0ffee"),  # as listed, without a revision
        ("hf://org/name@c0f", "hf://org/name@c0ffee"),
        ("hf://org/nam", None),  # two models begin like this
        ("hf://org/named@1", "hf://org/named@1"),
        (SOURCE, SOURCE),
        ("m.gguf", f"m.gguf#sha256={'0' * 64}"),
        ("https://host/m.gguf", f"m.gguf#sha256={'0' * 64}"),
    ],
)
def test_a_model_is_removed_by_each_name_that_means_only_it(
    head: Head, agents: list[Agent], name: str, is_removed: str | None
) -> None:
    named = ContentItem(key="c" * 64, name="hf://org/named@1", size_bytes=1)
    file = ContentItem(
        key="d" * 64,
        name=f"m.gguf#sha256={'0' * 64}",
        size_bytes=1,
        sources=(f"https://host/m.gguf#sha256={'0' * 64}",),
    )
    agents[0].beat(content=report(ITEM, named, file))
    eventually(lambda: len(ask(head, "").json()["models"]) == 3)
    answer = ask(head, "/remove", name=name)
    if is_removed is None:
        assert answer.status_code == 409
        told = answer.json()["error"]["message"]
        assert "hf://org/name@c0ffee, hf://org/named@1" in told
    else:
        assert answer.status_code == 202, answer.text
        assert asked(agents[0]).source == is_removed


def test_a_model_that_is_being_fetched_is_not_removed(
    head: Head, agents: list[Agent]
) -> None:
    agents[0].beat(content=report(fetches=(ContentFetch(key="", source=SOURCE),)))
    eventually(lambda: len(ask(head, "").json()["models"]) == 1)
    refused = ask(head, "/remove", name=SOURCE)
    assert refused.status_code == 409
    assert "still being fetched on n1" in refused.json()["error"]["message"]


def test_why_says_how_far_the_model_of_a_job_is(
    head: Head, agents: list[Agent]
) -> None:
    with head.http("alice") as http:
        spec = {"name": "a", "run": "true", "model": SOURCE, "resources": {"gpu": 1}}
        job = http.post("/v1/jobs", json={"specs": [spec], "key": "k"}).json()["jobs"][
            0
        ]["id"]
    eventually(lambda: head.control.world.jobs[JobId(job)].state == "STARTING")
    (node,) = head.control.world.attempts[JobId(job)].nodes
    (agent,) = [agent for agent in agents if agent.node == node]
    fetch = ContentFetch(
        key=KEY,
        source=SOURCE,
        done_bytes=3_100_000_000,
        total_bytes=8_000_000_000,
        attempts=((JobId(job), AttemptNumber(1)),),
    )
    agent.beat(content=report(fetches=(fetch,)))
    with head.http("alice") as http:
        why = http.get(f"/v1/jobs/{job}/why").json()
    assert why["reason"] == f"{node} fetches model {SOURCE}: 3.1 of 8.0 GB"
    assert why["code"] == "FetchingModel"
