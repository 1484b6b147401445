"""Routes of a job's kept logs: by range, by text, and as a file, for those who may read
them."""

import json
import time

from tests.api.heads import Agent, Head
from tests.api.test_streams import running, ship

__all__ = ["running"]
TEXT = (
    b"".join(b"line %d\n" % number for number in range(10_000))
    + b"Error: out of luck\n"
)


def test_a_log_is_read_backwards_by_ranges(running: tuple[Head, Agent, str]) -> None:
    head, _, job = running
    ship(head, job, 0, TEXT)
    with head.http() as http:
        newest = http.get(f"/v1/jobs/{job}/logs/range?size=1000").json()
        assert newest["data"].endswith("line 9999\nError: out of luck\n")
        assert newest["data"].startswith("line ")
        assert (newest["end"], newest["oldest"]) == (len(TEXT), 0)
        query = f"size=1000&before={newest['begin']}"
        earlier = http.get(f"/v1/jobs/{job}/logs/range?{query}").json()
        assert (earlier["data"] + newest["data"]).encode() == TEXT[earlier["begin"] :]
        middle = TEXT.index(b"line 7777\n")
        found = http.get(f"/v1/jobs/{job}/logs/range?size=30&after={middle}").json()
        assert found["data"].startswith("line 7777\n")
        none = http.get(f"/v1/jobs/{job}/logs/range?rank=5").json()
        assert (none["data"], none["newest"]) == ("", 0)
        assert (
            http.get(f"/v1/jobs/{job}/logs/range?before=1&after=1").status_code == 422
        )
        assert http.get(f"/v1/jobs/{job}/logs/range?attempt=2").status_code == 404


def test_lines_come_with_their_times_where_they_are_asked_for(
    running: tuple[Head, Agent, str],
) -> None:
    head, _, job = running
    before = time.time()
    ship(head, job, 0, b"a\nb\n")
    with head.http() as http:
        assert http.get(f"/v1/jobs/{job}/logs/range").json()["times"] == []
        ranged = http.get(f"/v1/jobs/{job}/logs/range?times=true").json()["times"]
        text = http.get(f"/v1/jobs/{job}/logs?times=true").text
    assert len(ranged) == 3
    assert all(before <= at <= time.time() for at in ranged)
    (piece,) = (line for line in text.splitlines() if '"a\\nb\\n"' in line)
    assert json.loads(piece.removeprefix("data: "))["times"] == ranged


def test_a_line_is_found_and_a_search_goes_on_behind_its_bound(
    running: tuple[Head, Agent, str],
) -> None:
    head, _, job = running
    ship(head, job, 0, TEXT)
    with head.http() as http:
        found = http.get(f"/v1/jobs/{job}/logs/search?text=line 7777").json()
        assert [one["line"] for one in found["matches"]] == ["line 7777"]
        assert TEXT[found["matches"][0]["place"] :].startswith(b"line 7777\n")
        assert (found["next"], found["searched_bytes"]) == ("", len(TEXT))
        first = http.get(f"/v1/jobs/{job}/logs/search?text=line 99&limit=100").json()
        query = f"text=line 99&limit=100&after={first['next']}"
        second = http.get(f"/v1/jobs/{job}/logs/search?{query}").json()
        lines = [one["line"] for one in first["matches"] + second["matches"]]
        assert len(lines) == len(set(lines)) == 111
        assert second["next"] == ""
        assert http.get(f"/v1/jobs/{job}/logs/search?text=x&after=3").status_code == 422


def test_a_log_is_downloaded_whole(running: tuple[Head, Agent, str]) -> None:
    head, _, job = running
    ship(head, job, 0, TEXT)
    with head.http() as http:
        answer = http.get(f"/v1/jobs/{job}/logs/file?rank=0")
        assert answer.content == TEXT
        assert f'filename="{job}.1.rank-0.log"' in answer.headers["content-disposition"]
        assert http.get(f"/v1/jobs/{job}/logs/file").content == TEXT


def test_only_those_who_may_read_the_log_search_it(
    running: tuple[Head, Agent, str],
) -> None:
    head, _, job = running
    ship(head, job, 0, TEXT)
    with head.http("bob") as bob:
        for part in ("range", "search?text=line", "file"):
            assert bob.get(f"/v1/jobs/{job}/logs/{part}").status_code == 403


def test_a_spec_asks_for_the_same_job_again(running: tuple[Head, Agent, str]) -> None:
    head, _, job = running
    with head.http() as http, head.http("bob") as bob:
        answer = http.get(f"/v1/jobs/{job}/spec").json()
        assert answer["spec"]["run"] == http.get(f"/v1/jobs/{job}").json()["run"]
        assert answer["has_workdir"] is False
        again = http.post("/v1/jobs", json={"specs": [answer["spec"]], "key": "again"})
        assert again.status_code == 201
        same = http.get(f"/v1/jobs/{again.json()['jobs'][0]['id']}/spec").json()
        assert same == answer
        assert bob.get(f"/v1/jobs/{job}/spec").status_code == 403
