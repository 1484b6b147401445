"""Following several jobs: their lines come as they are printed, each with its job's
name."""

import io
import threading
import time
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import cast

import pytest

from corral.cli import follow
from corral.cli.follow import SAID_ELSEWHERE
from corral.cli.follow_many import indices_of, names_of
from corral.cli.head_options import Common
from corral.cli.log_lines import LogLinePrinter
from corral.cli.main import run
from corral.client import Client
from corral.domain.ids import AttemptNumber, JobId
from corral.wire.agent_messages import LogChunk, encode
from corral.wire.api import EventView, JobDetail, JobView, LogLines
from corral.wire.job_parts import ShapeView
from tests.api.heads import Agent, Head, ended, eventually, up
from tests.patience import PATIENCE_SECONDS


class Followed:
    """A command that follows jobs in a thread of its own; what it has said so far."""

    def __init__(self, *words: str) -> None:
        self.out, self.err = io.StringIO(), io.StringIO()
        self.codes: list[int] = []
        self._words = list(words)
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Followed":
        self._streams = (redirect_stdout(self.out), redirect_stderr(self.err))
        for stream in self._streams:
            stream.__enter__()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(PATIENCE_SECONDS)
        for stream in self._streams:
            stream.__exit__(None, None, None)

    def _run(self) -> None:
        self.codes.append(run(self._words))


def test_logs_of_a_job_that_waits_say_so_at_once_and_its_end_is_told_once(
    head: Head,
) -> None:
    spec = {"name": "slow", "run": "true", "resources": {"gpu": 1}}
    with head.http() as http:
        (job,) = http.post("/v1/jobs", json={"specs": [spec], "key": "k"}).json()[
            "jobs"
        ]
        with Followed("logs", "-f", "slow") as followed:
            eventually(
                lambda: (
                    "has not run yet; its output is printed" in followed.err.getvalue()
                )
            )
            http.post(f"/v1/jobs/{job['id']}/cancel", json={}).raise_for_status()
    assert followed.codes == [0]
    assert "slow is CANCELLED" in followed.err.getvalue()
    assert {"stopped_time", "too_late", "give_up", "ranks_failed"} <= SAID_ELSEWHERE
    assert not SAID_ELSEWHERE & {"finished", "asked_cancel", "retry"}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "jobs.yaml"
    path.write_text(
        "name: one\nrun: x\nresources: {gpu: 1}\n---\nname: two\nrun: x\nresources: {gpu: 1}\n"
    )
    return path


def test_jobs_are_told_between_one_another_until_all_are_over(
    head: Head, agent: Agent, file: Path
) -> None:
    world = head.control.world

    def says(id: JobId, offset: int, data: bytes) -> int:
        with head.dial("n1", "/v1/agents/logs") as channel:
            chunk = LogChunk(
                job=id, attempt=AttemptNumber(1), rank=0, offset=offset, data=data
            )
            channel.send(encode(chunk))
            channel.recv(PATIENCE_SECONDS)
        return offset + len(data)

    with Followed("apply", "-f", str(file), "--follow", "-y") as followed:
        eventually(
            lambda: sum(job.state == "STARTING" for job in world.jobs.values()) == 2
        )
        one, two = sorted(world.jobs)
        agent.beat(up((one, 1)), up((two, 1)))
        eventually(
            lambda: sum(job.state == "RUNNING" for job in world.jobs.values()) == 2
        )
        place = {one: 0, two: 0}
        for id, data, line in (
            (one, b"a\n", "[one] a\n"),
            (two, b"b\n", "[two] b\n"),
            (one, b"c\nd", "[one] c\n"),
        ):
            place[id] = says(id, place[id], data)
            eventually(lambda line=line: followed.out.getvalue().endswith(line))  # type: ignore[misc]
        agent.beat(ended((one, 1)), up((two, 1)))
        eventually(lambda: followed.out.getvalue().endswith("[one] d\n"))
        assert not followed.codes
        agent.beat(ended((two, 1), code=3))
    assert followed.out.getvalue() == "[one] a\n[two] b\n[one] c\n[one] d\n"
    assert followed.codes == [1]
    told = followed.err.getvalue()
    assert "[two] two" in told
    assert "two is FAILED with exit code 3" in told
    assert told.endswith("1 done, 1 failed or cancelled\n")


def test_why_a_job_without_retries_failed_is_told_at_its_end_alone(
    head: Head, agent: Agent, tmp_path: Path
) -> None:
    one = tmp_path / "one.yaml"
    one.write_text("name: alone\nrun: x\nresources: {gpu: 1}\n")
    world = head.control.world

    def runs() -> JobId | None:
        return next(
            (id for id, job in world.jobs.items() if job.spec.name == "alone"), None
        )

    with Followed("apply", "-f", str(one), "--follow", "-y") as followed:
        eventually(lambda: runs() in world.attempts)
        id = runs()
        assert id is not None
        agent.beat(up((id, 1)))
        eventually(lambda: "alone is RUNNING" in followed.err.getvalue())
        agent.beat(ended((id, 1), code=3))
    told = followed.err.getvalue()
    assert "RECOVERING" not in told
    assert told.count("alone is FAILED") == 1
    assert f"see: corral why {id}" in told


def test_a_line_is_written_whole_with_its_job_and_its_rank() -> None:
    out = io.StringIO()
    lines = LogLinePrinter(out, label=True, job="a")
    for rank, data in ((0, "x"), (1, "y\nz"), (0, "w\n")):
        lines.write(LogLines(rank=rank, attempt=1, data=data))
    lines.finish()
    assert out.getvalue() == "[a 1] y\n[a 0] xw\n[a 1] z\n"


def test_a_line_that_an_attempt_left_unfinished_is_not_taken_on_by_the_next() -> None:
    out = io.StringIO()
    lines = LogLinePrinter(out, label=True)
    said = ((1, 0, "x"), (1, 1, "y"), (2, 0, "a"), (2, 0, "b\n"), (2, 1, "\n"))
    for attempt, rank, data in said:
        lines.write(LogLines(rank=rank, attempt=attempt, data=data))
    lines.finish()
    assert out.getvalue() == "[0] x\n[0] ab\n[1] y\n[1] \n"


def test_labels_tell_jobs_apart() -> None:
    def row(
        id: str, name: str, array: str | None = None, index: int | None = None
    ) -> JobView:
        return JobView.model_construct(id=id, name=name, array=array, array_index=index)

    plain = [row("j1_0", "a"), row("j1_1", "b"), row("j1_2", "b")]
    assert names_of(plain) == {"j1_0": "a", "j1_1": "b j1_1", "j1_2": "b j1_2"}
    array = [row("j2_0", "s_0", "j2", 0), row("j2_1", "s_1", "j2", 1)]
    assert indices_of(array) == {"j2_0": "0", "j2_1": "1"}
    assert names_of(array)["j2_1"] == "s_1"
    assert indices_of([*array, row("j3_0", "t_0", "j3", 0)])["j2_1"] == "s_1"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


WIPE = (
    "\x1b[2J\x1b[H\x1b]52;c;ZXZpbA==\x07\x1b]0;title\x1b\\\x1bP$q\x1b\\\x1bc\x9b5n\a"
    "\x1b[5A\x1b[6n"
)
FINE = "\x1b[1;31mred\x1b[0m\t10 %\r\x1b[K20 % \x1b[38:5:9mé ☃\x1b[m\n"


@pytest.mark.parametrize("raw", [False, True])
@pytest.mark.parametrize("label", [False, True])
def test_a_job_commands_no_terminal_and_keeps_its_colours_and_progress(
    label: bool, raw: bool
) -> None:
    out = Terminal()
    lines = LogLinePrinter(out, label=label, raw=raw)
    for data in ("a", *WIPE, WIPE, FINE):  # also cut at each character
        lines.write(LogLines(rank=0, attempt=1, data=data))
    lines.finish()
    whole = f"a{WIPE}{WIPE}{FINE}"
    # of an 8-bit sequence the text stays, and is text
    shown = whole if raw else f"a5n5n{FINE}"
    assert out.getvalue() == ("[0] " if label else "") + shown


def test_a_pipe_gets_every_byte_and_an_endless_sequence_hides_nothing() -> None:
    out, pipe = Terminal(), io.StringIO()
    for data in ("\x1b]0;no end", " of it\nnext\n", "\x1b]" + "x" * 5_000):
        LogLinePrinter(pipe, label=False).write(LogLines(rank=0, attempt=1, data=data))
    assert pipe.getvalue() == "\x1b]0;no end of it\nnext\n\x1b]" + "x" * 5_000
    lines = LogLinePrinter(out, label=False)
    for data in ("\x1b]0;no end", " of it\nnext\n", "\x1b]" + "x" * 5_000, "\nlast\n"):
        lines.write(LogLines(rank=0, attempt=1, data=data))
    assert out.getvalue().startswith("\nnext\n")
    assert out.getvalue().endswith("\nlast\n")
    assert "\x1b" not in out.getvalue()


class OneJob:
    """A client of a job that prints two lines and is done. Each event and each line
    comes as late as an order in which nothing waits would allow."""

    def __init__(self, out: io.StringIO) -> None:
        self.out = out

    def __enter__(self) -> "OneJob":
        return self

    def __exit__(self, *_: object) -> None:
        """Keep nothing open."""

    def job(self, _: str) -> JobDetail:
        shape = ShapeView.model_construct(nodes=1)
        return JobDetail.model_construct(
            id="j1", name="one", state="DONE", per="node", shape=shape, since=1.0,
            ended_at=1.0, started_at=1.0, ran_seconds=0.0, running_since=None,
        )  # fmt: skip

    wait = job

    def logs(self, _: str, **__: object) -> Iterator[LogLines]:
        yield LogLines(rank=0, attempt=1, data="hello\n")
        self._until("DONE")
        yield LogLines(rank=0, attempt=1, data="bye\n")

    def events(self, _: str, **__: object) -> Iterator[EventView]:
        for kind, text in (("ranks_up", "RUNNING"), ("finished", "DONE")):
            self._until("hello")
            yield EventView.model_construct(kind=kind, text=f"one is {text}")

    def _until(self, text: str) -> None:
        """Wait shortly for a text that a correct order does not print yet."""
        give_up_at = time.monotonic() + 0.1
        while text not in self.out.getvalue() and time.monotonic() < give_up_at:
            time.sleep(0.005)


def test_output_comes_between_the_start_and_the_end_of_its_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = io.StringIO()
    client = OneJob(out)
    monkeypatch.setattr(Common, "client", lambda _: client)
    monkeypatch.setattr(follow, "note_outputs", lambda *_: None)
    with redirect_stdout(out), redirect_stderr(out):
        assert follow.follow_one(cast(Client, client), client.job(""), Common()) == 0
    assert out.getvalue().splitlines()[:4] == [
        "one is RUNNING",
        "hello",
        "bye",
        "one is DONE",
    ]
