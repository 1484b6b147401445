"""The commands of batches: what is submitted, refused, listed, shown and cancelled."""

import contextlib
import io
import json
import shlex
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from corral.cli.batch_text import progress_of
from corral.cli.main import run
from corral.client.output_files import Fetched
from corral.domain.errors import NotFound
from corral.domain.ids import JobId, is_name
from corral.domain.job import Disconnect, Job, TokenScope
from corral.serve.batch_options import parsed_options
from corral.serve.batch_progress import BatchProgress, BatchState
from corral.serve.batch_spec import BatchJob, batch_of, name_of_batch
from tests.api.heads import TOKENS, Agent, Head, eventually, serving, up
from tests.golden.transcript import transcript
from tests.serve.batch_worlds import line, write_lines
from tests.services import apply_service, service_spec

URL = "http://127.0.0.1:8480"
URLS = [URL]  # of the gateway, the last one for ever


def gateway_url() -> str:
    return URLS.pop(0) if len(URLS) > 1 else URLS[0]


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    monkeypatch.delenv("CORRAL_DIR", raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    with serving(tmp_path / "head", more={"gateway_url": gateway_url}) as head:
        monkeypatch.setenv("CORRAL_URL", head.url)
        monkeypatch.setenv("CORRAL_TOKEN", TOKENS["admin"])
        apply_service(head, service_spec())
        yield head


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return write_lines(tmp_path / "my questions.jsonl", [line(1), line(2), line(3)])


def answer_of(command: str) -> Any:
    """Return the JSON answer of a command."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert run([*shlex.split(command), "--json"]) == 0
    return json.loads(printed.getvalue())


def submitted(file: Path, options: str = "") -> str:
    """Submit a batch, and return the id of its job."""
    return str(answer_of(f"batch submit '{file}' --service chat {options}")["id"])


def batches(head: Head) -> list[Job]:
    """Return the jobs, without the replicas of the service."""
    return [job for job in head.control.world.jobs.values() if job.array is None]


def progress(**more: Any) -> BatchProgress:
    fields: dict[str, Any] = {
        "state": BatchState.RUNNING,
        "service": "chat",
        "lines": 3,
        "done": 1,
        "failed": 1,
        "expired": 0,
        "unanswered": 1,
        "lines_per_second": 0.5,
        "prompt_tokens": 1200,
        "completion_tokens": 34,
        "cached_tokens": 600,
        "tokens_per_second": 17.0,
        "concurrency": 8,
        "is_behind": True,
        "deadline": None,
        "expected_end": None,
        "at": 1e9,
        "trouble": "no gateway: refused",
    }
    return BatchProgress(**(fields | more))


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """The progress files of jobs, which no agent of these tests keeps."""
    files: dict[str, bytes] = {}

    def fetch(self: object, job: str, path: str, to: Path, **_: Any) -> Fetched:
        assert path == "progress.json"
        if job not in files:
            raise NotFound("file", path)
        target = Path(to) / path
        target.write_bytes(files[job])
        return Fetched(path=target, files=1, bytes=1)

    monkeypatch.setattr("corral.client.Client.fetch", fetch)
    return files


def run_job(head: Head, agent: Agent, job: str) -> None:
    agent.until(
        lambda: any(one.key[0] == job for wanted in agent.wanted for one in wanted.run)
    )
    agent.beat(up((job, 1)))
    eventually(lambda: head.control.world.jobs[JobId(job)].state == "RUNNING")


def test_a_batch_is_a_preemptible_job_of_low_priority_with_a_token(
    head: Head, file: Path
) -> None:
    text = transcript(f"batch submit '{file}' --service chat --within 2h")
    assert "[exit 0]" in text
    [job] = batches(head)
    spec = job.spec
    assert spec.name.startswith("batch-my-questions-")
    assert spec.name in text
    assert f"corral batch show {job.id}" in text
    assert spec.priority < 0
    assert spec.preemptible
    assert spec.token is TokenScope.OWN
    assert "CORRAL_TOKEN" in spec.secrets
    assert spec.when_silent is Disconnect.REPLACE
    assert dict(spec.env)["OPENAI_BASE_URL"] == f"{URL}/v1"
    assert spec.workdir is None
    found = batch_of(spec.run)
    assert found is not None
    assert (found.service, found.model, found.lines) == ("chat", "chat-model", 3)
    assert found.deadline == pytest.approx(job.submitted_at + 7200, abs=60)


def test_the_input_is_sent_also_if_a_prompt_has_the_form_of_a_key(
    head: Head, tmp_path: Path
) -> None:
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{'A' * 64}"
    file = write_lines(tmp_path / "q.jsonl", [line(1, key)])
    submitted(file)
    [stored] = (head.root / "files").iterdir()
    assert stored.read_bytes() == file.read_bytes()


def test_the_program_understands_the_command_of_the_job(
    head: Head, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    submitted(file, "--concurrency 7 --checkpoint /shared/answers")
    [job] = batches(head)
    words = job.spec.run.split(" corral.serve.batch ")[1].split()
    assert job.spec.checkpoint is not None
    monkeypatch.setenv("CORRAL_CHECKPOINT_PATH", job.spec.checkpoint.path)
    monkeypatch.setenv("OPENAI_BASE_URL", dict(job.spec.env)["OPENAI_BASE_URL"])
    options = parsed_options(words)
    assert options.gateway_url == URL
    assert options.concurrency == 7
    assert options.model == "chat-model"
    assert options.file == Path("input.jsonl")
    assert options.state_folder.parent == Path("/shared/answers")


def test_wrong_lines_are_refused_with_their_numbers(head: Head, tmp_path: Path) -> None:
    lines = [line(1), "{", line(1), line(4, body={"model": "gpt"})]
    text = transcript(
        f"batch submit {write_lines(tmp_path / 'q.jsonl', lines)} --service chat"
    )
    assert "line 2: not valid JSON" in text
    assert 'line 3: the custom_id "id-1" is also on line 1' in text
    assert 'line 4: the model "gpt" is not one of the service: chat, chat-model' in text
    assert "docs/guides/batches.md" in text
    assert not batches(head)


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("batch submit FILE --service other", "there is no service 'other'"),
        ("batch submit missing.jsonl --service chat", "cannot be read"),
        (
            "batch submit FILE --service chat --within 10s",
            "is not a time from 1m to 7d",
        ),
        ("batch submit FILE --service chat --within 8d", "is not a time from 1m to 7d"),
        ("batch submit FILE --service chat --within soon", "is not a time from 1m"),
        ("batch submit FILE --service chat --concurrency 9999", "is too much"),
        ("batch show j99", "there is no batch 'j99'"),
        ("batch cancel", "run: corral batch cancel NAME"),
    ],
)
def test_what_cannot_be_done_is_refused_with_what_to_do(
    head: Head, file: Path, command: str, text: str
) -> None:
    printed = transcript(command.replace("FILE", f"'{file}'"))
    assert text in printed
    assert "run: " in printed or "write" in printed or "name a file" in printed
    assert "[exit 0]" not in printed
    assert not batches(head)


@pytest.mark.parametrize(
    ("urls", "text"),
    [(["", "", URL], "[exit 0]"), ([""], "the service chat has no gateway yet")],
)
def test_a_gateway_that_starts_is_waited_for(
    head: Head, file: Path, monkeypatch: pytest.MonkeyPatch, urls: list[str], text: str
) -> None:
    monkeypatch.setattr("corral.cli.batch.GATEWAY_SECONDS", 0.5)
    monkeypatch.setattr("corral.cli.batch.POLL_SECONDS", 0.02)
    monkeypatch.setattr(f"{__name__}.URLS", urls)
    printed = transcript(f"batch submit '{file}' --service chat")
    assert text in printed
    assert len(batches(head)) == (text == "[exit 0]")


def test_batches_are_listed_with_their_progress_and_other_jobs_are_not(
    head: Head, agent: Agent, file: Path, reported: dict[str, bytes]
) -> None:
    assert "no batches; to submit one, run: corral batch submit" in transcript(
        "batch ls"
    )
    first, second = submitted(file), submitted(file)
    assert transcript("run -d -n batch-of-mine --no-workdir -- true").count("[exit 0]")
    run_job(head, agent, first)
    reported[first] = json.dumps(asdict(progress())).encode()
    rows = {
        row.split()[1]: row.split() for row in transcript("batch ls").splitlines()[2:-1]
    }
    assert rows.keys() == {first, second}
    assert rows[first][2:10] == ["RUNNING", "chat", "3", "1", "1", "1", "0.5", "1,234"]
    assert rows[second][3:6] == ["chat", "3", "3"]
    by_id = {one["id"]: one for one in answer_of("batch ls")["batches"]}
    assert by_id[first]["progress"]["completion_tokens"] == 34
    assert by_id[second]["progress"] is None


def test_a_batch_shows_what_it_has_done_and_why_it_waits(
    head: Head, agent: Agent, file: Path, reported: dict[str, bytes]
) -> None:
    id = submitted(file)
    run_job(head, agent, id)
    reported[id] = json.dumps(asdict(progress()) | {"newer": 1}).encode()
    text = transcript(f"batch show {id}")
    assert "1 done, 1 failed, 1 left" in text
    assert "1,200 in (600 cached), 34 out" in text
    assert "too slow for its deadline" in text
    assert "no gateway: refused" in text


@pytest.mark.parametrize("wrong", [b"", b"[]", b"{}", b'{"done": "x"}', b"\xff"])
def test_a_progress_file_that_is_not_valid_is_passed_over(
    head: Head, agent: Agent, file: Path, reported: dict[str, bytes], wrong: bytes
) -> None:
    id = submitted(file)
    run_job(head, agent, id)
    reported[id] = wrong
    assert "[exit 0]" in transcript(f"batch show {id}")


def test_cancel_ends_batches_and_no_other_jobs(head: Head, file: Path) -> None:
    id = submitted(file)
    transcript("run -d -n train --no-workdir -- true")
    text = transcript("batch cancel train")
    assert "there is no batch 'train'" in text
    assert "run: corral batch ls" in text
    assert len(batches(head)) == 2
    assert "[exit 0]" in transcript(f"batch cancel {id} -y")
    eventually(lambda: id not in head.control.world.jobs)


def test_a_command_that_runs_no_batch_is_none() -> None:
    job = BatchJob(service="a", model="b c", lines=3, folder="f", deadline=7.0)
    assert batch_of(job.command) == job
    for command in (None, "", "python train.py", "'", "-m corral.serve.batch"):
        assert batch_of(command) is None
    assert batch_of(job.command.replace("--lines 3", "--lines x")) is None


@pytest.mark.parametrize("stem", ["a b", "é", "x" * 300, "..", "-"])
def test_the_name_of_a_batch_is_a_name_of_a_job(stem: str) -> None:
    assert is_name(name_of_batch(f"{stem}.jsonl"))


def test_numbers_of_the_progress_must_be_numbers() -> None:
    document = asdict(progress())
    assert progress_of(document) == progress()
    with pytest.raises(TypeError):
        progress_of(document | {"done": None})
    del document["unanswered"]
    with pytest.raises(TypeError):
        progress_of(document)
