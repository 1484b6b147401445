"""What jobs write into their work folders is kept, listed and fetched."""

import asyncio
import http.client
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

import corral
from corral.api.output_desk import MOST_OF_USER
from corral.domain.errors import CorralError, Refusal
from tests.patience import PATIENCE_SECONDS
from tests.scenarios.house import House, house, until, wait_in_shell
from tests.scenarios.test_accounts import token_of

ANY_ACCOUNT = ("--policy", "min_uid=1", "--policy", "deny=root")


@pytest.fixture(scope="module")
def here() -> Iterator[House]:
    with house("--nodes", "2", "--gpus", "1", "--pretend", *ANY_ACCOUNT) as made:
        made.root.parent.chmod(0o755)  # whoever it is passes
        yield made


def kept(here: House, id: str) -> bool:
    """Whether its node has done with the attempt, and keeps what it wrote."""
    records = here.root.glob(f"nodes/*/attempts/{id}.1/work.json")
    return all(b'"is_kept":true' in file.read_bytes() for file in records)


@pytest.fixture
def project(here: House, tmp_path: Path) -> Path:
    made = tmp_path / "project"
    made.mkdir()
    (made / "train.py").write_text("train")
    return made


def test_a_job_says_what_it_wrote_and_how_to_get_it(
    here: House, tmp_path: Path
) -> None:
    writes = "mkdir out; echo weights > out/model.pt"
    run = here.corral("run", "-y", "-n", "writes", "--no-workdir", "--", writes)
    last = run.stderr.splitlines()[-1]
    with here.client() as client:
        id = client.job("writes").id
    assert last.startswith("1 file (8 B) written in the work folder; kept until 20")
    assert last.endswith(f"; get them: corral cp {id}:out/model.pt .")
    assert last in here.ok("show", "writes")
    assert here.corral("logs", "writes").stderr.splitlines()[-1] == last
    here.ok("cp", f"{id}:out/model.pt", str(tmp_path))
    assert (tmp_path / "model.pt").read_text() == "weights\n"
    quiet = here.corral("run", "-y", "--no-workdir", "--", "true")
    assert "work folder" not in quiet.stderr


def test_what_was_submitted_does_not_count_and_each_node_has_its_own(
    here: House, project: Path, tmp_path: Path
) -> None:
    """Also while the job runs, and by rank."""
    gate = here.shared / "gate"
    run = f"echo of-$CORRAL_NODE > result; {wait_in_shell(gate)}"
    id = here.submit("gang", run, nodes=2, workdir=str(project), resources={"gpu": 1})
    here.until_state(id, "RUNNING")

    def listed() -> dict[str, list[str]]:
        found = here.answer("outputs", id)
        return {
            one["node"]: [file["path"] for file in one["files"]]
            for one in found["nodes"]
        }

    until(lambda: listed() == {"n1": ["result"], "n2": ["result"]}, "both have written")
    assert here.answer("outputs", id)["kept_until"] is None
    with here.client() as client:
        seats = {
            rank: one.node for one in client.outputs(id).nodes for rank in one.ranks
        }
        client.fetch(id, "result", tmp_path / "running", rank=1)
    gate.touch()
    here.until_over(id)
    assert (tmp_path / "running").read_text() == f"of-{seats[1]}\n"
    with here.client() as client:
        for node in ("n1", "n2"):
            client.fetch(id, "result", tmp_path / node, node=node)
            assert (tmp_path / node).read_text() == f"of-{node}\n"
        for path, word in (("../x", "leads out"), ("none", "there is no none")):
            with pytest.raises(Refusal, match=word):
                client.fetch(id, path, tmp_path / "none")
        with pytest.raises(Refusal, match="no node"):
            client.fetch(id, "result", tmp_path / "none", node="n9")
    assert not (tmp_path / "none").exists()


def test_an_agent_that_was_killed_finds_kept_files_again(
    here: House, tmp_path: Path
) -> None:
    id = here.submit("stays", "echo kept > file", constraints={"node": "n1"})
    here.until_over(id)
    agent = here.agent("n1")
    agent.signal(9)

    def fetched() -> bool:
        try:
            with here.client() as client:
                client.fetch(id, "file", tmp_path / "file")
        except CorralError:
            return False
        return True

    until(fetched, "the next agent sends it")
    assert (tmp_path / "file").read_text() == "kept\n"


def test_the_client_for_asyncio_fetches_the_same(here: House, tmp_path: Path) -> None:
    id = here.submit("both", "mkdir out; echo kept > out/file; truncate -s 4G big")
    here.until_over(id)

    async def fetched() -> None:
        async with corral.AsyncClient(dir=here.root) as client:
            done = await client.fetch(id, "out", tmp_path / "copy")
            assert (done.files, done.bytes) == (1, 5)
            with pytest.raises(Refusal, match="there is no none"):
                await client.fetch(id, "none", tmp_path)
            endless = asyncio.ensure_future(client.fetch(id, "big", tmp_path))
            while not (tmp_path / ".big.part").exists():
                await asyncio.sleep(0.01)
            endless.cancel()
            with pytest.raises(asyncio.CancelledError):
                await endless

    asyncio.run(fetched())
    assert (tmp_path / "copy" / "file").read_text() == "kept\n"
    assert [path.name for path in tmp_path.iterdir()] == ["copy"], (
        "no part of a file is left"
    )


def test_what_a_silent_node_keeps_is_said_not_to_be_known(here: House) -> None:
    """All else of the job is shown, and a node that is known to be silent is not
    asked."""
    id = here.submit("quiet", "echo kept > file", constraints={"node": "n1"})
    here.until_over(id)
    until(lambda: kept(here, id), "it is settled")
    agent = here.agent("n1")
    agent.signal(signal.SIGSTOP)
    try:
        shown = here.ok("show", id).splitlines()
        assert shown[0].split() == ["job", "quiet", f"({id})"]
        assert shown[-1].startswith(
            "outputs  the files kept on n1 are not known (node n1 does not"
        )
        assert shown[-1].endswith(f"; to try again later, run: corral outputs {id}")
        with here.client() as client:
            until(lambda: client.node("n1").liveness == "silent", "it is silent")
            assert (
                client.outputs(id).nodes[0].trouble
                == "node n1 is silent and does not answer"
            )
    finally:
        agent.signal(signal.SIGCONT)
    until(lambda: "1 file" in here.ok("show", id), "it answers again")


def test_transfers_are_bounded_and_end_with_their_reader(here: House) -> None:
    id = here.submit("large", "truncate -s 4G big", constraints={"node": "n1"})
    here.until_over(id)
    with here.client() as client:
        host = client.status().head.url.removeprefix("http://")
    token = here.place.token.read_text().strip()

    def begun() -> http.client.HTTPResponse:
        connection = http.client.HTTPConnection(host, timeout=PATIENCE_SECONDS)
        headers = {"Authorization": f"Bearer {token}", "Connection": "close"}
        connection.request("GET", f"/v1/jobs/{id}/files?path=big", headers=headers)
        return connection.getresponse()

    def helpers() -> int:
        return len(here.processes(f"nodes/n1/attempts/{id}.1/work"))

    running = [begun() for _ in range(MOST_OF_USER)]
    assert [answer.status for answer in running] == [200] * MOST_OF_USER
    assert helpers() == MOST_OF_USER
    assert begun().status == 429
    for answer in running:
        answer.close()
    until(lambda: helpers() == 0, "nothing is read for nobody")
    until(lambda: begun().status == 200, "there is a place again")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another")
def test_only_the_owner_and_operators_get_what_a_job_wrote(
    here: House, tmp_path: Path
) -> None:
    nobody, games = token_of(here, "nobody"), token_of(here, "games")
    with here.client() as admin:
        url = admin.status().head.url
    with corral.Client(url=url, token=games) as client:
        id = client.submit(
            {"name": "private", "run": "id -un > who; ln -s /etc/shadow x"}
        )[0].id
    here.until_over(id)
    with corral.Client(url=url, token=nobody) as other:
        for read in (
            lambda: other.outputs(id),
            lambda: other.fetch(id, "who", tmp_path / "no"),
        ):
            with pytest.raises(CorralError) as refused:
                read()
            assert refused.value.code == "forbidden"
    with corral.Client(url=url, token=games) as owner, here.client() as admin:
        until(lambda: kept(here, id), "it is settled")
        (work,) = here.root.glob(f"nodes/*/attempts/{id}.1/work")
        assert (work.stat().st_mode & 0o777, work.owner()) == (0o700, "games")
        owner.fetch(id, "who", tmp_path / "who")
        assert (tmp_path / "who").read_text() == "games\n"
        assert admin.fetch(id, "", tmp_path / "all").files == 1
        with pytest.raises(Refusal, match="leads out"):
            admin.fetch(id, "x", tmp_path / "no")
    assert any(
        entry["what"] == "output.read" for entry in here.answer("audit")["entries"]
    )
