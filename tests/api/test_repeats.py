"""A submission that is sent again with its key has its first answer, whatever changed
meanwhile."""

import gzip
import hashlib
from pathlib import Path
from typing import Any

import pytest

from tests.api.heads import Agent, Head, eventually, serving


def submit(head: Head, spec: dict[str, Any], key: str, who: str = "admin") -> Any:
    with head.http(who) as http:
        return http.post("/v1/jobs", json={"specs": [spec], "key": key})


@pytest.mark.parametrize(
    "more",
    [
        {"resources": {"gpu": 2}},
        {"after": "before"},
        {"secrets": ["HF_TOKEN"]},
        {"workdir": "digest"},
    ],
    ids=["fits", "after", "secret", "workdir"],
)
def test_the_first_jobs_are_answered_though_it_would_be_refused_now(
    tmp_path: Path, more: dict[str, Any]
) -> None:
    with serving(tmp_path) as head:
        with head.http() as http:
            http.put("/v1/secrets/HF_TOKEN", json={"value": "x"}).raise_for_status()
            submit(head, {"name": "before", "run": "x"}, "first").raise_for_status()
            if more.get("workdir"):
                more = {"workdir": keep_snapshot(http)}
        spec = {"name": "again", "run": "x", **more}
        first = submit(head, spec, "k")
        assert first.status_code == 201, first.text
        agent = Agent(head, "n1", gpus=1).hello()
        agent.beat()
        eventually(lambda: "n1" in head.control.world.nodes)
        with head.http() as http:
            http.delete("/v1/secrets/HF_TOKEN").raise_for_status()
            if "workdir" in more:
                (tmp_path / "snapshots" / f"{more['workdir']}.tar.gz").unlink()
        again = submit(head, {**spec, "nodes": 99}, "k")
        assert again.status_code == 201, again.text
        assert [job["id"] for job in again.json()["jobs"]] == [
            job["id"] for job in first.json()["jobs"]
        ]
        assert submit(head, {**spec, "nodes": 99}, "other").status_code in range(
            400, 500
        )
        assert submit(
            head, {**spec, "nodes": 99}, "k", who="alice"
        ).status_code in range(400, 500)
        agent.close()


def keep_snapshot(http: Any) -> str:
    data = gzip.compress(bytes(10_240), mtime=0)
    digest = hashlib.sha256(data).hexdigest()
    http.put(f"/v1/snapshots/{digest}", content=data).raise_for_status()
    return digest
