"""What people read: help, listings, refusals, plans. The golden files are the
review."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from corral.api import output_desk
from corral.domain.ids import NodeId
from corral.domain.node_signal import Signal, SignalKind
from corral.domain.observed_state import Progress
from tests.api.heads import TOKENS, Agent, Head, ended, eventually, serving, up
from tests.golden.transcript import check, transcript

Compare = Callable[..., None]


@pytest.fixture(autouse=True)
def calm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A terminal of 80 columns, and nothing of this machine's."""
    for name in ("CORRAL_DIR", "CORRAL_URL", "CORRAL_TOKEN", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    # agents of tests keep no files
    monkeypatch.setattr(output_desk, "LIST_SECONDS", 0.05)


@pytest.fixture
def compare(request: pytest.FixtureRequest) -> Compare:
    update = bool(request.config.getoption("--update", default=False))

    def compare(name: str, *commands: str) -> None:
        check(name, transcript(*commands), update=update)

    return compare


def test_help(compare: Compare) -> None:
    compare(
        "help",
        "--help",
        "run --help",
        "up --help",
        "node --help",
        "secret set --help",
        "user --help",
        "token create --help",
        "audit --help",
    )


def test_what_is_typed_wrong(compare: Compare) -> None:
    compare(
        "usage",
        "runn -- true",
        "run --nmae x -- true",
        "run python train.py --lr 3",
        "show",
        "ps --limit many",
        "node show",
        "ps --json --unknown",
        "ps --limit 0",
        "logs x --tail -1",
        "logs x --attempt 0 --json",
        "attach x --rank -1",
        "apply job.yaml",
        "apply",
        "run -f job.yaml",
    )


def test_without_a_head(compare: Compare, tmp_path: Path) -> None:
    bare = f"--no-workdir --dir {tmp_path}/cluster"
    compare(
        "no_head",
        f"ps --dir {tmp_path}/cluster",
        f"show x --json --dir {tmp_path}/cluster",
        f"run --dry-run -n plans --nodes 1 {bare} -- python train.py --lr 3",
        f"run --dry-run -n boxed --image ubuntu:24.04 {bare} -- true",
        f"run --gpus -1 --nodes 0 {bare} -- true",
        f"down --dir {tmp_path}/cluster",
    )
    assert not (tmp_path / "cluster").exists()


def test_a_file_that_cannot_be_is_refused_with_its_lines(
    compare: Compare, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    project.mkdir()
    (project / "job.yaml").write_text(
        "name: a/b\nnodes: two\nresources:\n  gpus: -1\nruns: python train.py\n"
    )
    compare(
        "spec_errors",
        f"apply -f {project}/job.yaml --dir {tmp_path}/cluster",
        f"apply -f {project}/absent.yaml --json --dir {tmp_path}/cluster",
    )
    assert not (tmp_path / "cluster").exists()


@pytest.fixture
def head(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Head]:
    with serving(tmp_path_factory.mktemp("head")) as head:
        monkeypatch.setenv("CORRAL_URL", head.url)
        monkeypatch.setenv("CORRAL_TOKEN", TOKENS["admin"])
        yield head


@pytest.fixture
def agents(head: Head) -> Iterator[dict[str, Agent]]:
    """Two nodes of two GPUs that have just been heard of."""
    made = {}
    for node in ("n1", "n2"):
        made[node] = Agent(head, node).hello()
        made[node].beat()
    eventually(lambda: len(head.control.world.nodes) == 2)
    yield made
    for agent in made.values():
        agent.close()


def submit(head: Head, name: str, gpus: int, nodes: int = 1) -> str:
    spec = {
        "name": name,
        "run": "python train.py",
        "nodes": nodes,
        "resources": {"gpu": gpus},
    }
    with head.http() as http:
        body = {"specs": [spec], "key": name}
        return str(
            http.post("/v1/jobs", json=body).raise_for_status().json()["jobs"][0]["id"]
        )


def begin(
    head: Head, agents: dict[str, Agent], id: str, progress: Progress | None = None
) -> None:
    """The job's agents say that its ranks are up."""
    for allocation in list(head.control.world.allocations.values()):
        if allocation.job == id:
            agents[allocation.seat.node].beat(up((id, 1), progress=progress))
    eventually(lambda: head.control.world.jobs[id].state == "RUNNING")  # type: ignore[index]


def test_listings(head: Head, agents: dict[str, Agent], compare: Compare) -> None:
    failed = submit(head, "fails", 1)
    begin(head, agents, failed)
    agents["n1"].beat(ended((failed, 1), code=3))
    eventually(lambda: failed not in head.control.world.jobs)
    agents["n1"].beat()
    runs = submit(head, "tiny-gpt", 2, nodes=2)
    begin(head, agents, runs, Progress(step=40, until=150, loss=2.5, at=1.0))
    submit(head, "waits-for-gpus-and-has-a-very-long-name", 2)
    eventually(lambda: len(head.control.reasons) == 1)
    compare(
        "listings",
        "ps",
        "ps -a",
        "queue --json --limit 1",
        "show fails",
        "show tiny-gpt",
        "why waits-for-gpus-and-has-a-very-long-name",
        "events fails",
        "checkpoints tiny-gpt",
        "node ls",
        "node show n2",
        "status",
    )


def test_people(head: Head, compare: Compare) -> None:
    compare(
        "people",
        "user add carol --role operator -y",
        "user add carol",
        "user set carol --role viewer --disable -y",
        "user set carol",
        "user set carol --enable --disable",
        "user set admin --role user -y",
        "user show nobody",
        "user rm carol -y",
        "token create --user carol",
        "token create --expires soon",
        "token create --expires 0s",
        "token revoke t0 -y",
        "token revoke",
        "audit --limit 0",
        "audit --since yesterday",
    )


def test_refusals(head: Head, agents: dict[str, Agent], compare: Compare) -> None:
    submit(head, "known", 1)
    compare(
        "refusals",
        "show knwon",
        "stop nobody --json",
        "run --no-workdir -n big --gpus 3 -- true",
        "run --no-workdir -n far --nodes 3 --gpus 1 --json -- true",
        "run --no-workdir -n typed --gpus b200:1 -- true",
        "run --no-workdir -n saves --nodes 2 --gpus 1 --checkpoint /tmp/x -- true",
        "node drain n9 -y",
        "secret rm NOTHING -y",
        "resume known -y",
        "stop",
    )


def test_changes_and_plans(
    head: Head, agents: dict[str, Agent], compare: Compare
) -> None:
    compare(
        "changes",
        "run --dry-run --no-workdir -n gang --nodes 2 --gpus 2 --per gpu -e A=b -- python t.py",
        "run --dry-run --no-workdir -n small --gpus h100:1 --json -- 'echo hello; echo you'",
        "run --dry-run --no-workdir -n either --gpus b200:8 --any-of 2xh100:2 -- true",
        "run --no-workdir -d -n first --gpus 2 --nodes 2 -- sleep 60",
        "run --dry-run --no-workdir -n second --gpus 1 -- true",
        "run --dry-run --no-workdir -n many --nodes 2-9 --gpus 1 -- true",
        "run --no-workdir -d -n later --array 0-2 --after first -- true",
        "suspend first -y",
        "node cordon n1 -y",
        "node drain n2 -y --json",
        "node uncordon n1 n2 -y",
        "secret ls",
    )


def test_health(head: Head, agents: dict[str, Agent], compare: Compare) -> None:
    """n1 is drained by itself, n2 by the breaker left to a person."""
    lost = "XID 79 on GPU 1: GPU has fallen off the bus"
    xid = Signal(number=1, at=1.0, kind=SignalKind.XID, code=79, gpu=1, text=lost)
    nodes = head.control.world.nodes
    for name, agent in agents.items():
        agent.beat(signals=(xid,))
        eventually(lambda name=name: bool(nodes[NodeId(name)].conditions))  # type: ignore[misc]
    eventually(lambda: nodes[NodeId("n2")].suspect)
    compare(
        "health",
        "node ls",
        "node show n1",
        "status",
        "node cordon --suspects n1",
        "node cordon --suspects -y",
        "node cordon --suspects -y",
        "node clear n1 n2 -y",
        "node show n1",
        "node clear -y",
    )
