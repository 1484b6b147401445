"""Nodes on other machines, as network namespaces: how they join, leave, are lost and
come back."""

import shlex
import shutil
import sys
from collections.abc import Iterator

import pytest

from tests.scenarios.house import House, until
from tests.scenarios.machines import Machines, machines

pytestmark = pytest.mark.xdist_group("machines")
GLOO = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.tensor([dist.get_rank() + 1.0])
dist.all_reduce(one)
print(f"sum {one.item()}\\n", end="", flush=True)  # a line in one piece, beside the other rank's
"""


@pytest.fixture(scope="module")
def two() -> Iterator[Machines]:
    """Two machines that have joined; tests leave them so."""
    with machines("w1", "w2") as found:
        for name in ("w1", "w2"):
            found[name].join(found.line(), "--gpus", "1", "--pretend")
        yield found


def test_a_machine_joins_by_one_line_which_then_lets_in_nobody_else(
    two: Machines,
) -> None:
    addresses = {
        node.id: node.address for node in two.call(lambda client: client.nodes())
    }
    assert addresses == {name: two[name].host.address for name in ("w1", "w2")}
    line = two.line()
    assert "--fingerprint sha256:" in line
    code, hint = two["w1"].refused(*line.split()[1:], "--name", "other")
    assert code == "conflict"
    assert "corral leave" in hint
    # again is harmless, and spends nothing
    assert "w1" in two["w1"].ok(*line.split()[1:])
    wrong = [
        word[:-1] + ("0" if word[-1] != "0" else "1") for word in line.split()[-1:]
    ]
    other = two["w1"].root.with_name("other")
    words = [*line.split()[1:-1], *wrong, "--dir", str(other), "--name", "w3"]
    code, _ = two["w1"].refused(*words)
    assert code == "wrong_head"
    code, _ = two["w1"].refused(*line.split()[1:], "--dir", str(other), "--name", "w2")
    assert code == "conflict"
    assert not (other / "joined.json").exists()


def test_what_lies_in_a_nodes_folder_is_for_its_owner_alone(two: Machines) -> None:
    root = two["w1"].root
    for name in (
        "joined.json",
        "head.json",
        "ca.pem",
        "nodes/w1/token",
        "nodes/w1/node.json",
    ):
        assert (root / name).stat().st_mode & 0o77 == 0, name
    for name in ("tls/ca.key", "tls/head.key", "tls/head.pem"):
        assert (two.head.root / name).stat().st_mode & 0o77 == 0, name


def test_the_ranks_of_a_gang_meet_over_two_machines(two: Machines) -> None:
    script = (
        "import os, socket\n"
        "rank, address = os.environ['RANK'], os.environ['MASTER_ADDR']\n"
        "where = (address, int(os.environ['MASTER_PORT']))\n"
        "if rank == '0':\n"
        "    with socket.create_server(where) as server:\n"
        "        server.accept()[0].sendall(b'hello from ' + address.encode())\n"
        "else:\n"
        "    import time\n"
        "    for _ in range(600):\n"
        "        try:\n"
        "            print(socket.create_connection(where, 5).recv(99).decode(), flush=True)\n"
        "            break\n"
        "        except ConnectionRefusedError:\n"
        "            time.sleep(0.1)\n"
    )
    job = two.submit("meet", shlex.join([sys.executable, "-c", script]), nodes=2)
    logs = two.logs(job)
    assert f"hello from {two['w1'].host.address}" in logs, logs


@pytest.mark.train
def test_a_gloo_group_spans_two_machines(two: Machines) -> None:
    pytest.importorskip("torch")
    job = two.submit("gloo", shlex.join([sys.executable, "-c", GLOO]), nodes=2)
    logs = two.logs(job)
    assert logs.count("sum 3.0") == 2, logs


def test_an_agent_that_was_ended_comes_back_to_what_runs(two: Machines) -> None:
    job = two.submit("long", "sleep 3600", constraints={"node": "w1"})
    two.until_state(job, "RUNNING")
    code, hint = two["w1"].refused("down")
    assert (code, "drain w1" in hint) == ("conflict", True)
    two["w1"].ok("down", "--leave")
    two.until_node("w1", "silent")
    two["w1"].ok("join")
    assert (two.job(job).state, two.job(job).attempt) == ("RUNNING", 1)
    code, hint = two["w1"].refused("leave", "-y")
    assert (code, "--force" in hint) == ("conflict", True)
    code, hint = two.head.refused("node", "rm", "w1", "-y")
    assert (code, "--force" in hint) == ("conflict", True)
    two.stop(job)


def test_a_copy_of_a_nodes_folder_is_no_second_node(two: Machines) -> None:
    job = two.submit("stays", "sleep 3600", constraints={"node": "w1"})
    two.until_state(job, "RUNNING")
    copy = two["w2"].root.with_name("copy")
    kept = shutil.ignore_patterns("boot", "*.sock", "*.pid", "attempts", "disk")
    shutil.copytree(two["w1"].root, copy, ignore=kept)
    for file in (copy / "nodes/w1").glob("node.json"):
        file.write_text(file.read_text().replace(str(two["w1"].root), str(copy)))
    agent = two["w2"].host.start(
        [sys.executable, "-P", "-m", "corral.agent", str(copy / "nodes/w1")]
    )
    try:
        log = two.head.root / "head.log"
        until(lambda: "its token was copied" in log.read_text(), "the copy is refused")
        assert two.node("w1").address == two["w1"].host.address
        assert (two.job(job).state, two.job(job).attempt) == ("RUNNING", 1)
    finally:
        agent.terminate()
        agent.wait()
    two.stop(job)


def test_a_machine_that_lost_its_power_is_said_to_be_dead_and_its_job_goes_on() -> None:
    with machines("w1", "w2") as found:
        found["w1"].join(found.line(), "--gpus", "1", "--pretend")
        job = found.submit("long", "sleep 3600")
        found.until_state(job, "RUNNING")
        command = [sys.executable, "-P", "-m", "corral.agent", "--kill"]
        found["w1"].host.run(
            [*command, str(found["w1"].root / "nodes" / "w1")], check=True
        )
        found.until_node("w1", "silent")
        found["w2"].join(found.line(), "--gpus", "1", "--pretend")
        # silence is no proof, and it does not save
        assert found.job(job).state == "RUNNING"
        found.head.ok("node", "dead", "w1", "-y")
        until(lambda: found.job(job).nodes == ["w2"], "it runs on w2")
        found.head.ok("node", "rm", "w1", "-y")
        assert [one.id for one in found.call(lambda client: client.nodes())] == ["w2"]
        found.stop(job)
        found["w2"].ok("leave", "-y")
        assert not (found["w2"].root / "joined.json").exists()
        assert found.call(lambda client: client.nodes()) == []


def test_a_head_that_was_killed_is_found_again_by_its_machines(two: Machines) -> None:
    job = two.submit("stays", "sleep 3600", constraints={"node": "w1"})
    two.until_state(job, "RUNNING")
    before = House(two.head.root)
    shown = (two.head.root / "tls" / "head.pem").read_bytes()
    before.kill_head()
    two.head.ok("up")
    two.until_node("w1", "alive")
    two.until_node("w2", "alive")
    assert (two.job(job).state, two.job(job).attempt) == ("RUNNING", 1)
    assert (two.head.root / "tls" / "head.pem").read_bytes() == shown
    two.stop(job)
