"""An array is looked at and changed by its own name or id."""

import json
import re
from collections.abc import Callable

import pytest

from corral.cli.arrays import spans_of
from corral.cli.job_changes import changed_lines
from corral.cli.main import run
from corral.client import Client
from corral.domain.attempt import Save
from corral.domain.ids import AttemptNumber, JobId
from corral.wire.agent_messages import LogChunk, SignalNow, encode
from corral.wire.api import ChangedJob, JobView
from tests.api.heads import Agent, Head, ended, eventually, up

Say = Callable[..., tuple[int, str]]


@pytest.fixture
def corral(capsys: pytest.CaptureFixture[str]) -> Say:
    """A command line; its exit code and what it printed on both streams."""

    def corral(*words: str) -> tuple[int, str]:
        capsys.readouterr()
        code = run(words)
        out, err = capsys.readouterr()
        return code, out + err

    return corral


@pytest.fixture
def sweep(head: Head, agent: Agent) -> str:
    """The id of an array: index 0 is done, 1 has failed, 2 runs, 3 is being
    suspended."""
    spec = {"name": "sweep", "run": "x", "resources": {"gpu": 2}, "array": "0-3"}
    with Client() as client:
        jobs = client.submit(spec)
    ids = [job.id for job in jobs]
    world = head.control.world
    eventually(lambda: sum(one.state == "STARTING" for one in world.jobs.values()) == 2)
    agent.beat(*[up((id, 1)) for id in ids[:2]])
    eventually(lambda: sum(one.state == "RUNNING" for one in world.jobs.values()) == 2)
    with head.dial("n1", "/v1/agents/logs") as channel:
        for place, id in enumerate(ids[:2]):
            data = f"line {place}\nrest".encode()
            chunk = LogChunk(
                job=JobId(id), attempt=AttemptNumber(1), rank=0, offset=0, data=data
            )
            channel.send(encode(chunk))
            channel.recv(10)
    save = Save(
        job=JobId(ids[0]),
        attempt=AttemptNumber(1),
        step=7,
        path="/shared/s/7",
        manifest_sha256="ab" * 32,
        size_bytes=10,
        seconds=1.0,
        stall_seconds=0.1,
        at=1.0,
    )
    agent.beat(ended((ids[0], 1), saves=(save,)), ended((ids[1], 1), code=3))
    eventually(lambda: {ids[0], ids[1]} <= set(world.ended))
    agent.beat(up((ids[2], 1)))
    eventually(lambda: world.jobs[JobId(ids[2])].state == "RUNNING")
    with Client() as client:
        client.suspend(ids[3])
    return str(jobs[0].array)


def ageless(code: int, text: str) -> tuple[int, str]:
    """Without what grows from one call to the next."""
    return code, re.sub(r" +\d+s ", " AGE ", text)


def test_an_array_is_shown_whole_by_name_and_by_id(sweep: str, corral: Say) -> None:
    code, text = corral("show", "sweep")
    assert code == 0
    assert f"sweep ({sweep})" in text
    states = [
        line.split()[:3] for line in text.splitlines() if line.split()[1:2] != []
    ][-4:]
    assert [words[0] for words in states] == ["0", "1", "2", "3"]
    assert [words[2] for words in states][:2] == ["DONE", "FAILED"]
    assert ageless(*corral("show", sweep)) == ageless(code, text)
    code, text = corral("show", sweep, "--json")
    assert [job["array_index"] for job in json.loads(text)["jobs"]] == [0, 1, 2, 3]
    assert corral("show", "sweep_1")[1].startswith("job        sweep_1")
    assert corral("show", "swee")[0] == 3


def test_why_gives_one_reason_a_group(sweep: str, corral: Say) -> None:
    code, text = corral("why", "sweep")
    assert code == 0
    said = [line for line in text.splitlines() if line.startswith("sweep ")]
    assert said[0].startswith("sweep 0 is DONE")
    assert said[1].startswith("sweep 1 is FAILED: rank 0 on n1: exit code 3")
    code, text = corral("why", sweep, "--json")
    groups = json.loads(text)["groups"]
    assert sorted(job for group in groups for job in group["jobs"]) == [
        f"{sweep}_{index}" for index in range(4)
    ]


def test_logs_events_and_saves_of_an_array_say_whose_they_are(
    sweep: str, corral: Say
) -> None:
    code, text = corral("logs", "sweep")
    assert (code, text) == (0, "[0] line 0\n[0] rest\n[1] line 1\n[1] rest\n")
    lines = [
        json.loads(line) for line in corral("logs", sweep, "--json")[1].splitlines()
    ]
    assert {line["job"] for line in lines} == {f"{sweep}_{index}" for index in range(4)}
    code, text = corral("events", "sweep", "--json")
    events = json.loads(text)["events"]
    assert [one["number"] for one in events] == sorted(one["number"] for one in events)
    assert {one["job"] for one in events} == {f"{sweep}_{index}" for index in range(4)}
    assert f" {sweep}_1 " in corral("events", sweep)[1]
    code, text = corral("checkpoints", "sweep")
    assert text.splitlines()[1].split()[:3] == [f"{sweep}_0", "7", "1"]
    saves = json.loads(corral("checkpoints", sweep, "--json")[1])["checkpoints"]
    assert [(save["job"], save["step"]) for save in saves] == [(f"{sweep}_0", 7)]


def test_a_change_of_an_array_leaves_what_is_over_alone(
    sweep: str, corral: Say, head: Head
) -> None:
    code, text = corral("stop", "sweep", "-y")
    assert code == 0
    assert [line.split()[0] for line in text.splitlines()] == ["sweep_2", "sweep_3"]
    with Client() as client:
        client.submit(
            {"name": "sweep", "run": "x", "nodes": 1, "resources": {"gpu": 4}}
        )
    assert corral("stop", "sweep", "-y")[1].startswith("sweep (j")
    code, text = corral("stop", "sweep_1", "-y")
    assert code == 3


def test_a_signal_goes_to_those_of_an_array_that_run_and_of_the_others_it_is_said_why_not(
    sweep: str, corral: Say, agent: Agent
) -> None:
    code, text = corral("stop", "--signal", "USR1", "sweep", "-y")
    assert code == 0
    assert f"USR1 was sent to sweep_2 ({sweep}_2); the job is not cancelled" in text
    assert re.search("sweep_3 is [A-Z]+; only a running job can receive USR1", text)
    while not isinstance(message := agent.receive(), SignalNow):
        pass
    assert (message.job, message.number, message.to) == (f"{sweep}_2", 10, "ranks")
    code, text = corral("stop", "--signal", "USR1", "sweep_3", "-y")
    assert (code, "only a running job can receive USR1" in text) == (3, True)
    code, text = corral("stop", "--signal", "USR1", "-y")
    assert (code, "corral stop --signal USR1 JOB" in text) == (2, True)


def test_one_job_that_is_refused_keeps_no_other_from_its_change(
    sweep: str, corral: Say, agent: Agent
) -> None:
    code, text = corral(
        "stop", "--signal", "USR1", f"{sweep}_3", f"{sweep}_2", "nobody", "-y"
    )
    assert code == 3
    assert f"USR1 was sent to sweep_2 ({sweep}_2)" in text
    assert re.search(
        "corral: sweep_3 is [A-Z]+; only a running job can receive USR1", text
    )
    assert "corral: there is no job 'nobody'" in text
    assert corral("stop", "--signal", "USR1", f"{sweep}_2", "-y")[0] == 0
    code, text = corral("stop", f"{sweep}_1", f"{sweep}_2", "nobody", "--json")
    assert code == 3
    told, _, errors = text.partition('{"error"')
    assert json.loads(told)["id"] == f"{sweep}_2"
    assert errors.count('"hint"') == 2
    code, text = corral("stop", f"{sweep}_0", f"{sweep}_3", f"{sweep}_1", "-y")
    assert code == 3
    assert f"sweep_3 ({sweep}_3) is " in text  # though the one before it was refused
    assert f"job {sweep}_0 is already DONE" in text
    assert f"job {sweep}_1 is already FAILED" in text


def test_one_node_that_is_not_there_keeps_no_other_from_its_change(
    agent: Agent, corral: Say
) -> None:
    code, text = corral("node", "cordon", "nx", "n1", "-y")
    assert code == 3
    assert "there is no node 'nx'" in text
    assert "n1: cordoned" in text


@pytest.mark.parametrize(
    ("indices", "text"),
    [
        ([3], "3"),
        ([2, 0, 1], "0-2"),
        ([0, 1, 5, 7, 8, 9], "0-1, 5, 7-9"),
        (list(range(0, 20, 2)), "0, 2, 4, 6, 8, 10, 12, 14 and 2 more index ranges"),
    ],
)
def test_indices_are_told_as_spans(indices: list[int], text: str) -> None:
    assert (
        spans_of([JobView.model_construct(array_index=index) for index in indices])
        == text
    )


def test_a_submitted_array_is_told_by_its_own_name_and_id(
    agent: Agent, corral: Say
) -> None:
    told = corral(
        "run",
        "-d",
        "--no-workdir",
        "--begin",
        "9h",
        "-n",
        "late",
        "--array=0-11",
        "--",
        "x",
    )
    assert told[1].splitlines()[:2] == [
        "late",
        "submitted as j1 (12 jobs); follow them: corral logs -f j1",
    ]


def test_what_is_advised_to_an_array_is_about_all_of_it(
    agent: Agent, corral: Say
) -> None:
    corral(
        "run",
        "-d",
        "--no-workdir",
        "--begin",
        "9h",
        "-n",
        "late",
        "--array=0-11",
        "--",
        "x",
    )
    assert (
        "corral stop j1, and submit the job without begin" in corral("why", "late")[1]
    )
    (group,) = json.loads(corral("why", "late", "--json")[1])["groups"]
    assert group["suggestions"] == [
        "to begin sooner: corral stop j1, and submit the job without begin"
    ]
    assert (
        "corral stop j1_3, and submit the job without begin"
        in corral("why", "late_3")[1]
    )
    corral("stop", "late", "-y")
    assert "corral stop" not in corral("why", "late")[1]


def test_many_jobs_of_an_array_are_one_line_and_a_few_a_line_each() -> None:
    few = [changed("a", 1, index, "STOPPING") for index in range(2)]
    many = [changed("a", 1, index, "CANCELLED") for index in (*range(2, 1500), 1501)]
    alone = ChangedJob(
        id="j9", name="train", state="STOPPING", array=None, array_index=None
    )
    assert list(changed_lines([*few, *many, alone])) == [
        "a_0 (j1_0) is STOPPING",
        "a_1 (j1_1) is STOPPING",
        "1,499 jobs of a (j1) are CANCELLED: 2-1499, 1501",
        "train (j9) is STOPPING",
    ]


def changed(name: str, number: int, index: int, state: str) -> ChangedJob:
    return ChangedJob(
        id=f"j{number}_{index}",
        name=f"{name}_{index}",
        state=state,
        array=f"j{number}",
        array_index=index,
    )
