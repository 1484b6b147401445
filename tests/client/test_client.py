"""Both clients against a real head over HTTP."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from corral import AsyncClient, Client
from corral.client import api_calls, user_calls
from corral.domain.errors import (
    CannotFit,
    Forbidden,
    NotFound,
    SpecInvalid,
    Unauthorised,
    Unreachable,
)
from corral.domain.ids import AttemptNumber, JobId
from corral.wire.agent_messages import LogChunk, encode
from tests.api.heads import TOKENS, Agent, Head, ended, eventually, serving, up
from tests.patience import PATIENCE_SECONDS, own_loopback


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A cluster's directory, as `corral up` leaves it."""
    root = tmp_path / "cluster"
    root.mkdir()
    (root / "token").write_text(TOKENS["admin"] + "\n")
    return root


@pytest.fixture
def head(place: Path) -> Iterator[Head]:
    with serving(place) as head:
        (place / "head.json").write_text(json.dumps({"pid": 4711, "url": head.url}))
        yield head


@pytest.fixture
def agent(head: Head) -> Iterator[Agent]:
    agent = Agent(head, "n1").hello()
    agent.beat()
    eventually(lambda: "n1" in head.control.world.nodes)
    yield agent
    agent.close()


@pytest.fixture
def client(place: Path) -> Iterator[Client]:
    with Client(dir=place) as client:
        yield client


SPEC = {"name": "one", "run": "true", "resources": {"gpu": 1}}


def run_to_the_end(head: Head, agent: Agent, job: str, log: bytes = b"") -> None:
    agent.until(lambda: any(one.run for one in agent.wanted))
    agent.beat(up((job, 1)))
    eventually(lambda: head.control.world.jobs[JobId(job)].state == "RUNNING")
    if log:
        with head.dial("n1", "/v1/agents/logs") as channel:
            chunk = LogChunk(
                job=JobId(job), attempt=AttemptNumber(1), rank=0, offset=0, data=log
            )
            channel.send(encode(chunk))
            channel.recv(PATIENCE_SECONDS)
    agent.beat(ended((job, 1)))
    eventually(lambda: head.control.world.state_of(JobId(job)) == "DONE")
    agent.beat()


def test_a_job_from_submit_to_its_end(head: Head, agent: Agent, client: Client) -> None:
    (job,) = client.submit(SPEC)
    assert (job.name, job.owner) == ("one", "admin")
    waiter = threading.Thread(target=lambda: waited.append(client.wait("one")))
    waited: list[Any] = []
    waiter.start()
    run_to_the_end(head, agent, job.id, b"hello\n")
    waiter.join(PATIENCE_SECONDS)
    assert (waited[0].state, waited[0].exit_code, waited[0].is_over) == (
        "DONE",
        0,
        True,
    )
    assert [one.name for one in client.jobs(everything=True)] == ["one"]
    assert client.jobs() == []
    assert client.job(job.id).name == "one"
    assert client.why("one").state == "DONE"
    pieces = list(client.logs("one"))
    assert pieces[0].data == "hello\n"
    assert pieces[-1].end == "DONE"
    assert next(iter(client.events("one"))).kind == "submitted"
    assert list(client.events("one", follow=True))[-1].kind == "finished"
    assert client.checkpoints("one") == []


def test_a_refused_workdir_is_told_in_the_words_of_the_head(
    head: Head, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text("1")
    said = (
        "the role user is required to upload workdirs; "
        "this token of vera has the role viewer"
    )

    async def from_asyncio() -> None:
        async with AsyncClient(url=head.url, token=TOKENS["vera"]) as client:
            await client.upload_workdir(tmp_path)

    with (
        Client(url=head.url, token=TOKENS["vera"]) as client,
        pytest.raises(Forbidden, match=said),
    ):
        client.upload_workdir(tmp_path)
    with pytest.raises(Forbidden, match=said):
        asyncio.run(from_asyncio())


def test_asyncio_can_do_the_same(head: Head, agent: Agent, place: Path) -> None:
    async def all_of_it() -> None:
        async with AsyncClient(dir=place) as client:
            (job,) = await client.submit(SPEC)
            waiting = asyncio.create_task(client.wait(job.id))
            pieces = asyncio.create_task(_collect(client, job.id))
            await asyncio.to_thread(run_to_the_end, head, agent, job.id, b"hello\n")
            assert (await waiting).state == "DONE"
            assert "".join(one.data for one in await pieces) == "hello\n"
            assert [one.id for one in await client.jobs(everything=True)] == [job.id]
            assert [event.kind async for event in client.events(job.id)][
                0
            ] == "submitted"
            assert (await client.status()).head.pid == 4711
            assert (await client.cordon("n1")).cordoned
            assert not (await client.uncordon("n1")).cordoned
            await client.set_secret("A", "b")
            assert [one.name for one in await client.secrets()] == ["A"]
            await client.drop_secret("A")
            with pytest.raises(NotFound):
                await client.job("nothing")

    async def _collect(client: AsyncClient, job: str) -> list[Any]:
        return [piece async for piece in client.logs(job, follow=True)]

    asyncio.run(all_of_it())


def test_cluster_calls(head: Head, agent: Agent, client: Client) -> None:
    status = client.status()
    assert (status.head.url, status.gpus.total) == (head.url, 2)
    assert [node.id for node in client.nodes()] == ["n1"]
    assert client.cordon("n1").cordoned
    assert client.drain("n1").draining
    assert not client.uncordon("n1").draining
    assert client.node("n1").devices[0].type == "h100"
    client.set_secret("HF_TOKEN", "canary")
    assert [one.name for one in client.secrets()] == ["HF_TOKEN"]
    client.drop_secret("HF_TOKEN")
    client.down(jobs="leave")
    assert head.stopped.wait(PATIENCE_SECONDS)


def test_jobs_are_found_by_state_and_name_and_gpus_are_told(
    head: Head, agent: Agent, client: Client, place: Path
) -> None:
    client.submit([{**SPEC, "name": "train-a"}, {**SPEC, "name": "eval"}])
    eventually(lambda: len(head.control.world.allocations) == 2)
    assert [job.name for job in client.jobs(text="TRAIN")] == ["train-a"]
    assert client.jobs(states=["QUEUED", "HELD"]) == []
    assert len(client.jobs(states=["STARTING", "QUEUED"])) == 2
    assert sum(bool(one) for one in client.gpus().nodes[0].holders) == 2
    (last,) = client.newest_events()
    assert last.number == max(event.number for event in client.events())

    async def awaited() -> None:
        async with AsyncClient(dir=place) as other:
            assert [job.name for job in await other.jobs(text="eval")] == ["eval"]
            assert (await other.gpus()) == client.gpus()
            assert (await other.newest_events(2))[-1] == last

    asyncio.run(awaited())


def test_requests_about_a_job(head: Head, client: Client) -> None:
    (job,) = client.submit({"name": "held", "run": "x"})
    assert client.suspend("held").state == "SUSPENDED"
    assert client.resume(job.id).state == "QUEUED"
    assert client.cancel("held").state == "CANCELLED"


def test_a_file_is_submitted_with_its_workdir_beside_it(
    head: Head, client: Client, tmp_path: Path
) -> None:
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "train.py").write_text("print(1)")
    spec = folder / "job.yaml"
    spec.write_text("name: one\nrun: python train.py\nworkdir: .\n")
    (job,) = client.submit(spec)
    workdir = client.job(job.id).workdir
    assert workdir is not None
    assert (head.root / "snapshots" / f"{workdir}.tar.gz").is_file()
    assert workdir == client.upload_workdir(folder)  # already there: nothing is sent
    (again,) = client.submit({"name": "two", "run": "x", "workdir": workdir})
    assert client.job(again.id).workdir == workdir


def test_a_dry_run_uploads_nothing(head: Head, client: Client, tmp_path: Path) -> None:
    (plan,) = client.plan({"name": "one", "run": "x", "workdir": str(tmp_path)})
    assert not plan.starts_now
    assert not (head.root / "snapshots").exists()
    assert client.jobs(everything=True) == []


def test_a_mistake_is_told_before_anything_is_sent(
    client: Client, tmp_path: Path
) -> None:
    spec = tmp_path / "job.yaml"
    spec.write_text("name: one\nrun: x\nnodes: -1\n")  # no head is there at all
    with pytest.raises(SpecInvalid, match=r"job\.yaml:3: nodes: -1"):
        client.submit(spec)
    with pytest.raises(SpecInvalid, match=r"^nodes: -1"):
        client.submit({**SPEC, "nodes": -1})
    with pytest.raises(SpecInvalid, match="is not a directory"):
        client.submit({**SPEC, "workdir": "/nowhere"})
    with pytest.raises(SpecInvalid, match="the list of specs is empty"):
        client.submit([])


def test_a_refusal_of_the_head_is_the_same_exception_here(
    head: Head, agent: Agent, client: Client
) -> None:
    with pytest.raises(CannotFit) as refused:
        client.submit({**SPEC, "resources": {"gpu": "b200:8"}})
    assert refused.value.code == "cannot_fit"
    assert refused.value.hint
    with pytest.raises(NotFound, match="nothing"):
        client.job("nothing")
    with Client(url=head.url, token="x" * 32) as stranger, pytest.raises(Unauthorised):
        stranger.status()
    with Client(url=head.url, token=TOKENS["alice"]) as alice, pytest.raises(Forbidden):
        alice.cordon("n1")
    with pytest.raises(NotFound):
        list(client.logs("nothing"))
    with pytest.raises(NotFound), client.attach("nothing"):
        raise AssertionError("it was opened")


def test_what_cannot_be_a_token_is_refused_unsent_and_not_repeated(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    for token in ("short", "tok\nen-of-many-words", "tökén-of-the-cluster", "x" * 600):
        monkeypatch.setenv("CORRAL_TOKEN", token)
        with Client(url=head.url) as client, pytest.raises(Unauthorised) as refused:
            client.status()
        assert refused.value.message == "the value of CORRAL_TOKEN is not a valid token"
        assert "corral token create" in refused.value.hint


def test_the_token_of_a_directory_is_sent_to_its_own_head_alone(
    head: Head, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setenv("CORRAL_DIR", str(place))
    monkeypatch.setenv("CORRAL_URL", head.url + "/")
    with Client() as client:
        assert client.status().head.pid == 4711
    (place / "head.json").write_text(json.dumps({"url": "http://127.0.0.1:9"}))
    with Client() as client, pytest.raises(Unauthorised, match="there is no token for"):
        client.status()
    (place / "head.json").unlink()
    with Client() as client, pytest.raises(Unauthorised, match="there is no token for"):
        client.status()


def test_no_head_is_trouble_with_the_command_that_helps(
    place: Path, tmp_path: Path
) -> None:
    with Client(dir=tmp_path / "none") as client, pytest.raises(Unreachable) as refused:
        client.status()
    assert "corral up" in refused.value.hint
    (place / "head.json").write_text(json.dumps({"url": "http://127.0.0.1:9"}))
    with Client(dir=place) as client, pytest.raises(Unreachable) as refused:
        client.status()
    assert refused.value.message == "no head answers at http://127.0.0.1:9"
    assert refused.value.hint == f"run: corral up --dir {place}"
    (place / "head.json").write_text("{")
    with Client(dir=place) as client, pytest.raises(Unreachable):
        client.status()


def test_the_environment_names_the_head_unless_a_directory_is_given(
    head: Head, monkeypatch: pytest.MonkeyPatch, place: Path
) -> None:
    monkeypatch.setenv("CORRAL_URL", head.url)
    monkeypatch.setenv("CORRAL_TOKEN", TOKENS["admin"])
    monkeypatch.setenv("CORRAL_DIR", "/nowhere")
    with Client() as client:
        assert client.status().head.pid == 4711
    monkeypatch.setenv("CORRAL_URL", "http://127.0.0.1:9")
    with Client(dir=place) as client:
        assert client.status().head.pid == 4711
    monkeypatch.setenv("CORRAL_URL", "nonsense")
    with Client() as client, pytest.raises(SpecInvalid, match="not a valid address"):
        client.status()


def test_a_stream_goes_on_behind_its_last_piece_when_the_head_comes_back(
    place: Path, client: Client
) -> None:
    with serving(place, host=own_loopback()) as head:
        (place / "head.json").write_text(json.dumps({"url": head.url}))
        (job,) = client.submit({"name": "long", "run": "x"})
        events = client.events(job.id, follow=True)
        assert next(events).kind == "submitted"
        store, port = head.store, head.port
    with serving(place, store=store, host=own_loopback(), port=port):
        client.cancel(job.id)
        assert [event.kind for event in events] == ["asked_cancel"]


def test_a_terminal_joins_a_person_and_the_agent(
    head: Head, agent: Agent, client: Client
) -> None:
    (job,) = client.submit(SPEC)
    agent.until(lambda: any(one.run for one in agent.wanted))
    agent.beat(up((job.id, 1)))

    def answer() -> None:
        while (request := agent.receive()).__class__.__name__ != "AttachNow":
            pass
        assert (request.job, request.rank, request.shell, request.columns) == (
            job.id,
            0,
            True,
            100,
        )
        with head.dial("n1", f"/v1/agents/attach/{request.session}") as terminal:
            for piece in terminal:
                assert isinstance(piece, bytes)
                terminal.send(piece.upper())

    answering = threading.Thread(target=answer)
    answering.start()
    with client.attach(job.id, columns=100) as terminal:
        terminal.send(b"hello")
        assert terminal.recv(PATIENCE_SECONDS) == b"HELLO"
    answering.join(PATIENCE_SECONDS)
    assert not answering.is_alive()
    with pytest.raises(NotFound), client.attach(job.id, rank=7):
        raise AssertionError("it was opened")


@pytest.mark.parametrize("name", ["a/b", "/", "", ".", ".."])
def test_a_name_that_would_part_a_path_is_of_nothing(name: str) -> None:
    for call in (
        api_calls.job,
        api_calls.why,
        api_calls.node,
        api_calls.queue,
        user_calls.user,
    ):
        with pytest.raises(NotFound) as refused:
            call(name)
        assert repr(name) in refused.value.message
    with pytest.raises(NotFound, match="no job"):
        api_calls.attach_path(name, rank=0, shell=True, rows=24, columns=80)
