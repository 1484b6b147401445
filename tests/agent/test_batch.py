"""A batch script's nodes: who runs which task, what each is told, and who is let in."""

import socket
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from corral.agent.batch import environment
from corral.agent.batch.allocation import BatchAllocation
from corral.agent.batch.encryption import Encryption
from corral.agent.batch.frames import Frames, Message, Stranger, key_of
from corral.agent.batch.layout import CannotStep, SrunOptions, TaskLayout, lay_out
from corral.agent.batch.other_node import help_first
from corral.agent.batch.tasks import Tasks
from corral.wire.slurm.batch_plan import BatchPlan
from tests.patience import PATIENCE_SECONDS

HOSTS = [["10.0.0.1", "n1"], ["10.0.0.2", "n2"], ["10.0.0.3", "n3"]]


def plan(**more: Any) -> BatchPlan:
    return BatchPlan(**{"name": "x", "submit_dir": "/", "submit_host": "h", "chdir": "/",
                        "output": "o", **more})  # fmt: skip


ASKED_FOR_TASKS = plan(tasks=6, tasks_given=True, tasks_per_node=2)


@pytest.mark.parametrize(
    ("asked", "of", "nodes", "tasks"),
    [
        (SrunOptions(), plan(), (0, 1, 2), (1, 1, 1)),
        (SrunOptions(), ASKED_FOR_TASKS, (0, 1, 2), (2, 2, 2)),
        (SrunOptions(nodes=1, tasks=1), ASKED_FOR_TASKS, (0,), (1,)),
        (SrunOptions(tasks=4), plan(), (0, 1, 2), (2, 1, 1)),
        (SrunOptions(tasks=2), plan(), (0, 1), (1, 1)),
        (SrunOptions(nodes=2, tasks_per_node=3), plan(), (0, 1), (3, 3)),
        (SrunOptions(nodes=1, tasks=1, on=("n2",)), plan(), (1,), (1,)),
        (SrunOptions(on=("10.0.0.3", "n1")), plan(), (2, 0), (1, 1)),
        (SrunOptions(relative=1), plan(), (1, 2), (1, 1)),
        (SrunOptions(off=("n1",)), plan(), (1, 2), (1, 1)),
    ],
)
def test_tasks_lie_in_blocks_on_the_nodes_that_will_do(
    asked: SrunOptions, of: BatchPlan, nodes: tuple[int, ...], tasks: tuple[int, ...]
) -> None:
    assert lay_out(asked, of, HOSTS) == TaskLayout(nodes=nodes, tasks=tasks)


@pytest.mark.parametrize(
    "asked",
    [
        SrunOptions(nodes=4),
        SrunOptions(on=("n9",)),
        SrunOptions(nodes=1, tasks=3, tasks_per_node=2),
    ],
)
def test_a_step_that_asks_for_more_than_the_job_holds_is_refused(
    asked: SrunOptions,
) -> None:
    with pytest.raises(CannotStep):
        lay_out(asked, plan(), HOSTS)


def test_counts_of_tasks_are_written_as_slurm_writes_them() -> None:
    assert environment.tasks_text([2, 2, 2, 1]) == "2(x3),1"


def own(**more: str) -> dict[str, str]:
    return {
        "SLURM_NNODES": "2", "SLURM_JOB_NODELIST": "10.0.0.[1-2]", "SLURM_CPUS_ON_NODE": "4",
        "SLURMD_NODENAME": "n1", "SLURM_NTASKS": "2", "SLURM_JOB_ID": "17", "MASTER_ADDR": "a",
        "RANK": "0", "WORLD_SIZE": "2", "PATH": "/bin", "CORRAL_JOB_ID": "j17", **more,
    }  # fmt: skip


def test_a_script_is_told_what_slurm_would_tell_it_and_nothing_of_another_gang() -> (
    None
):
    asked = plan(cpus_per_task=3, cpus_given=True)
    told = environment.of_script(asked, own(), "/work/bin", began=1_700_000_000.7)
    assert not {"MASTER_ADDR", "RANK", "WORLD_SIZE", "SLURM_NTASKS"} & told.keys()
    assert told["SLURM_CPUS_PER_TASK"] == "3"
    assert told["PATH"] == "/work/bin:/bin"
    assert told["SLURM_JOB_CPUS_PER_NODE"] == "4(x2)"
    assert told["SLURM_JOB_START_TIME"] == "1700000000"
    assert "SLURM_JOB_END_TIME" not in told, "nothing limits it"
    asked = plan(tasks=4, tasks_given=True, tasks_per_node=2, time_seconds=3600)
    told = environment.of_script(asked, own(), "/b", began=1_700_000_000.7)
    assert (told["SLURM_NTASKS"], told["SLURM_NTASKS_PER_NODE"]) == ("4", "2")
    assert told["SLURM_JOB_END_TIME"] == "1700003600"


def test_a_task_has_its_own_nodes_gpus_and_commands() -> None:
    step = {
        "CUDA_VISIBLE_DEVICES": "0",
        "PATH": "/one:/bin",
        environment.BIN: "/one",
        "A": "b",
    }
    here = own(CUDA_VISIBLE_DEVICES="4,5,6,7", **{environment.BIN: "/two"})
    told = environment.of_task(
        step, here, place=1, first_task=2, local=1, tasks=2, task_gpus=2
    )
    assert told["CUDA_VISIBLE_DEVICES"] == "6,7"
    assert told["PATH"] == "/two:/bin"
    assert (told["SLURM_PROCID"], told["SLURM_LOCALID"], told["SLURM_NODEID"]) == (
        "3",
        "1",
        "1",
    )
    assert (told["SLURM_GTIDS"], told["A"]) == ("2,3", "b")


def greeted(first: bytes, helper: bytes) -> list[str]:
    """What came of it, at the first node and at the helper."""
    one, other = socket.socketpair()
    found: dict[str, str] = {}

    def greet(end: socket.socket, key: bytes, own: bytes, other: bytes) -> None:
        try:
            Frames(end).greet(key, own=own, other=other, seal=Encryption)
            found[own.decode()] = "in"
        except (Stranger, EOFError, OSError) as error:
            found[own.decode()] = type(error).__name__
            end.close()

    threads = [
        threading.Thread(target=greet, args=(one, first, b"first", b"helper")),
        threading.Thread(target=greet, args=(other, helper, b"helper", b"first")),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE_SECONDS)
    one.close()
    other.close()
    return [found["first"], found["helper"]]


def test_only_the_nodes_of_one_attempt_know_each_other() -> None:
    assert greeted(key_of("cj.j1.1.a"), key_of("cj.j1.1.a")) == ["in", "in"]
    assert "in" not in greeted(key_of("cj.j1.1.a"), key_of("cj.j1.2.b"))


def test_a_node_that_joins_after_the_end_of_the_script_ends_with_0(
    tmp_path: Path,
) -> None:
    with socket.create_server(("", 0)) as free:
        port = str(free.getsockname()[1])
    here = own(
        CORRAL_NODE="n1", CORRAL_TOKEN="t" * 32, MASTER_ADDR="127.0.0.1", MASTER_PORT=port,
        SLURM_NODEID="0",
    )  # fmt: skip
    first = BatchAllocation(plan(), here)
    first.serve(str(tmp_path / "steps"))
    first.over()
    codes: list[int] = []
    late = here | {"CORRAL_NODE": "n2", "SLURM_NODEID": "1"}
    helper = threading.Thread(
        target=lambda: codes.append(help_first(late)), daemon=True
    )
    helper.start()
    first.wait_for_departures(PATIENCE_SECONDS)
    helper.join(PATIENCE_SECONDS)
    assert codes == [0]


def test_a_node_cannot_be_let_in_by_its_own_words_sent_back() -> None:
    one, other = socket.socketpair()

    def repeat() -> None:
        for _ in range(2):
            other.sendall(other.recv(32))

    echo = threading.Thread(target=repeat)
    echo.start()
    with pytest.raises(Stranger):
        Frames(one).greet(
            key_of("cj.j1.1.a"), own=b"first", other=b"helper", seal=Encryption
        )
    echo.join(PATIENCE_SECONDS)
    one.close()
    other.close()


def test_tasks_are_fed_heard_and_ended_with_their_true_codes(tmp_path: Path) -> None:
    said: list[tuple[Message, bytes]] = []
    over = threading.Event()

    def say(message: Message, data: bytes) -> None:
        said.append((message, data))
        if sum(one["type"] == "end" for one, _ in said) == 2:
            over.set()

    code = "import os, sys; print(sys.stdin.read()); sys.exit(int(os.environ['SLURM_PROCID']))"
    step: Message = {
        "step": 0, "words": [sys.executable, "-c", code], "env": {}, "folder": str(tmp_path),
        "input": "all", "place": 0, "first_task": 3, "tasks": 2, "task_gpus": 0,
    }  # fmt: skip
    tasks = Tasks(step, {}, say)
    tasks.start()
    tasks.feed(b"fed")
    tasks.feed(b"")
    assert over.wait(PATIENCE_SECONDS)
    assert {one["task"]: one["code"] for one, _ in said if one["type"] == "end"} == {
        3: 3,
        4: 4,
    }
    assert b"".join(data for _, data in said) == b"fed\nfed\n"


def test_a_program_that_is_not_there_ends_its_task(tmp_path: Path) -> None:
    said: list[Message] = []
    step: Message = {
        "step": 0, "words": ["no-such-program"], "env": {}, "folder": str(tmp_path),
        "input": "none", "place": 0, "first_task": 0, "tasks": 1, "task_gpus": 0,
    }  # fmt: skip
    Tasks(step, {}, lambda message, data: said.append(message)).start()
    assert [(one["type"], one.get("code")) for one in said] == [
        ("output", None),
        ("end", 2),
    ]
