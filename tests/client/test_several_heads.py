"""A caller who names several heads finds one that answers, whichever it is."""

import asyncio
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral import AsyncClient, Client
from corral.cli.slurm.http_client import HeadClient as SlurmHead
from corral.client.head_target import Where
from corral.domain.errors import SpecInvalid, Unauthorised, Unreachable
from tests.api.heads import TOKENS, Head, serving
from tests.patience import PATIENCE_SECONDS, own_loopback

DEAD, DEAD_TOO = "http://127.0.0.1:9", "http://127.0.0.1:13"


@pytest.fixture
def head(tmp_path: Path) -> Iterator[Head]:
    root = tmp_path / "cluster"
    root.mkdir()
    with serving(root) as head:
        yield head


@pytest.mark.parametrize("between", [",", " ", " , "])
def test_one_that_answers_is_found_behind_those_that_do_not(
    head: Head, between: str
) -> None:
    url = between.join((DEAD, DEAD_TOO, head.url + "/"))
    with Client(url=url, token=TOKENS["admin"]) as client:
        assert client.status().head.pid == 4711

    async def ask() -> int:
        async with AsyncClient(url=url, token=TOKENS["admin"]) as client:
            return (await client.status()).head.pid

    assert asyncio.run(ask()) == 4711


def test_a_workdir_and_a_stream_find_it_too(head: Head, tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / "train.py").write_text("print()")
    url = f"{DEAD},{head.url}"
    with Client(url=url, token=TOKENS["admin"]) as client:
        (job,) = client.submit(
            {"name": "a", "run": "x", "workdir": str(tmp_path / "work")}
        )
    with Client(url=url, token=TOKENS["admin"]) as client:
        assert next(client.events(job.id, follow=True)).kind == "submitted"

    async def upload() -> str:
        async with AsyncClient(url=url, token=TOKENS["admin"]) as client:
            return await client.upload_workdir(tmp_path / "work")

    assert len(asyncio.run(upload())) == 64


def test_the_next_is_asked_when_the_one_that_answered_dies(tmp_path: Path) -> None:
    with serving(tmp_path, host=own_loopback()) as second:
        with serving(tmp_path, host=own_loopback()) as first:
            client = Client(url=f"{first.url},{second.url}", token=TOKENS["admin"])
            assert client.status().head.url == first.url
        assert client.status().head.url == second.url
        client.close()


def kinds_of(url: str, job: str, speaks: str) -> Iterator[str]:
    """Kinds of the job's events as they come, by the client or by what Slurm's commands
    have."""
    if speaks == "corral":
        with Client(url=url, token=TOKENS["admin"]) as client:
            yield from (event.kind for event in client.events(job, follow=True))
        return
    found = SlurmHead(where=Where(url=url, token=TOKENS["admin"]))
    yield from (
        said["kind"] for said in found.follow(f"/v1/jobs/{job}/events", {"follow": 1})
    )


@pytest.mark.parametrize("speaks", ["corral", "slurm"])
def test_a_stream_goes_on_at_the_next_when_the_one_that_answered_dies(
    tmp_path: Path, speaks: str
) -> None:
    with socket.create_server((own_loopback(), 0)) as kept:
        port = int(kept.getsockname()[1])
    with serving(tmp_path, host=own_loopback()) as first:
        url = f"{first.url},http://{own_loopback()}:{port}"
        with Client(url=first.url, token=TOKENS["admin"]) as client:
            (job,) = client.submit({"name": "long", "run": "x"})
        kinds = kinds_of(url, job.id, speaks)
        assert next(kinds) == "submitted"
    with serving(tmp_path, store=first.store, host=own_loopback(), port=port) as second:
        with Client(url=second.url, token=TOKENS["admin"]) as client:
            client.cancel(job.id)
        assert list(kinds) == ["asked_cancel"]


def test_waiting_for_a_job_stays_with_the_head_that_answers(head: Head) -> None:
    with Client(url=f"{head.url},{DEAD}", token=TOKENS["admin"]) as client:
        (job,) = client.submit({"name": "long", "run": "x"})
        waits = threading.Thread(target=lambda: found.append(client.wait(job.id).state))
        found: list[str] = []
        waits.start()
        with Client(url=head.url, token=TOKENS["admin"]) as other:
            other.cancel(job.id)
        waits.join(PATIENCE_SECONDS)
        assert found == ["CANCELLED"]
        assert client._where.target().url == head.url


def test_when_none_answers_all_are_named() -> None:
    with Client(url=f"{DEAD},{DEAD_TOO}", token=TOKENS["admin"]) as client:
        with pytest.raises(Unreachable) as refused:
            client.status()
        with pytest.raises(Unreachable), client.attach("j1"):
            raise AssertionError("it was opened")
    assert f"{DEAD}, {DEAD_TOO}" in refused.value.hint


def test_the_token_of_a_directory_is_sent_to_no_other_head(
    head: Head, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(TOKENS["admin"])
    (tmp_path / "head.json").write_text(json.dumps({"url": DEAD}))
    monkeypatch.setenv("CORRAL_DIR", str(tmp_path))
    with (
        Client(url=f"{DEAD},{head.url}") as client,
        pytest.raises(Unauthorised, match=head.url),
    ):
        client.status()


def test_an_odd_address_among_them_is_refused(head: Head) -> None:
    url = f"{head.url},nonsense"
    with (
        Client(url=url, token=TOKENS["admin"]) as client,
        pytest.raises(SpecInvalid, match="'nonsense' is not a valid address"),
    ):
        client.status()
