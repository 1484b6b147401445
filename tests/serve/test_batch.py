"""Batches as processes, against a mock server: kills, overload, failures, deadlines."""

import json
import os
import random
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from corral.serve.batch_answers import answer_files, read_answers
from corral.serve.batch_client import BatchAnswer, BatchVerdict
from corral.serve.batch_file import BatchLine
from corral.serve.batch_pace import BatchConcurrency
from corral.serve.batch_progress import (
    BatchProgress,
    BatchState,
    ShimReporter,
    expected_end,
    shim_message,
)
from corral.serve.batch_schedule import MOST_CUTS, MOST_TRIES, BatchSchedule
from tests.serve.batch_worlds import (
    KEY,
    Batch,
    Reply,
    answer_echo,
    completion,
    kill,
    line,
    mock_server,
    refusal,
)


def custom_ids(records: list[dict[str, Any]]) -> list[str]:
    return [record["custom_id"] for record in records]


def slowly(seconds: float) -> Callable[[str, int], Reply]:
    def behave(prompt: str, count: int) -> Reply:
        time.sleep(seconds)
        return answer_echo(prompt, count)

    return behave


def until(met: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 20
    while not met():
        assert time.monotonic() < give_up_at
        time.sleep(0.005)


def test_each_line_has_its_answer_in_the_form_of_openai(tmp_path: Path) -> None:
    lines = [line(number) for number in range(50)]
    with mock_server() as server:
        batch = Batch(tmp_path, server.url, lines)
        code, text = batch.run()
    assert code == 0, text
    records = batch.records("output")
    assert custom_ids(records) == [f"id-{number}" for number in range(50)]
    assert batch.records("errors") == []
    first = records[0]
    assert first["id"].startswith("batch_req_")
    assert first["error"] is None
    assert first["response"] == {
        "status_code": 200,
        "request_id": "req-prompt 0",
        "body": completion("echo prompt 0"),
    }
    assert server.keys == {f"Bearer {KEY}"}
    assert set(server.models) == {"chat"}
    progress = batch.progress
    assert (progress["done"], progress["unanswered"], progress["state"]) == (
        50,
        0,
        "finished",
    )
    assert progress["completion_tokens"] == 150
    assert "50 answers in output.jsonl" in text
    assert answer_files(batch.state_folder) == []


def test_lines_with_one_beginning_are_sent_in_a_row(tmp_path: Path) -> None:
    documents = ["a" * 600, "b" * 600, "c" * 600]
    lines = [line(n, f"{documents[n % 3]} {n}") for n in range(30)]
    with mock_server() as server:
        Batch(tmp_path, server.url, lines, ("--concurrency", "1")).run()
    letters = [prompt[0] for prompt in server.prompts]
    changes = sum(a != b for a, b in zip(letters, letters[1:], strict=False))
    assert len(letters) == 30
    assert changes == 2


@pytest.mark.parametrize("seed", range(4))
def test_each_line_is_there_once_after_five_kills(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    lines = [line(number) for number in range(400)]
    with mock_server() as server:
        server.behave = slowly(0.02)
        batch = Batch(tmp_path, server.url, lines, ("--concurrency", "8"))
        for _ in range(5):
            asked = len(server.prompts) + chance.randrange(1, 60)
            process = batch.start()
            until(lambda: len(server.prompts) >= asked)  # noqa: B023
            time.sleep(chance.random() * 0.02)
            kill(process)
        code, text = batch.run()
    assert code == 0, text
    expected = [f"id-{number}" for number in range(400)]
    assert custom_ids(batch.records("output")) == expected
    for number, record in enumerate(batch.records("output")):
        message = record["response"]["body"]["choices"][0]["message"]
        assert message["content"] == f"echo prompt {number}"
    assert len(server.prompts) < 400 + 5 * 2 * 8, "finished lines were sent again"


def test_an_attempt_after_the_end_copies_the_results(tmp_path: Path) -> None:
    with mock_server() as server:
        batch = Batch(tmp_path, server.url, [line(1), line(2)])
        batch.run()
        sent = len(server.prompts)
        code, text = batch.run()
    assert code == 0
    assert "have answers already" in text
    assert custom_ids(batch.records("output")) == ["id-1", "id-2"]
    assert batch.progress["done"] == 2
    assert len(server.prompts) == sent


def test_sigterm_keeps_the_answers_under_way_and_what_is_there(tmp_path: Path) -> None:
    lines = [line(number) for number in range(200)]
    with mock_server() as server:
        server.behave = slowly(0.1)
        batch = Batch(tmp_path, server.url, lines, ("--concurrency", "4"))
        process = batch.start()
        until(lambda: len(server.prompts) >= 6)
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=20)
        assert process.returncode == 75
        assert batch.progress["state"] == "stopped"
        sent = len(server.prompts)
        assert len(batch.records("output")) == sent
        server.behave = answer_echo
        assert batch.run()[0] == 0
    assert len(batch.records("output")) == 200
    assert len(server.prompts) == 200


def test_lines_that_fail_for_good_are_in_the_error_file(tmp_path: Path) -> None:
    def behave(prompt: str, count: int) -> Reply:
        if prompt == "prompt 1":
            return refusal(400, "bad_request")
        return answer_echo(prompt, count)

    with mock_server() as server:
        server.behave = behave
        batch = Batch(tmp_path, server.url, [line(0), line(1), line(2)])
        code, _ = batch.run()
    assert code == 0
    assert custom_ids(batch.records("output")) == ["id-0", "id-2"]
    [error] = batch.records("errors")
    assert error["response"]["status_code"] == 400
    assert error["response"]["body"]["error"]["code"] == "bad_request"
    assert server.counts["prompt 1"] == 1
    assert batch.progress["failed"] == 1


def test_failures_that_pass_are_retried(tmp_path: Path) -> None:
    replies = [
        refusal(503, Retry_After="0"),
        Reply(0),
        refusal(401, "invalid_api_key"),
        refusal(404, "model_not_found"),
        refusal(500),
    ]

    def behave(prompt: str, count: int) -> Reply:
        return replies[count - 1] if count <= 5 else answer_echo(prompt, count)

    with mock_server() as server:
        server.behave = behave
        batch = Batch(tmp_path, server.url, [line(1)])
        code, text = batch.run()
    assert code == 0, text
    assert server.counts["prompt 1"] == 6
    assert custom_ids(batch.records("output")) == ["id-1"]


def test_nothing_is_sent_before_retry_after_is_over(tmp_path: Path) -> None:
    times: list[float] = []

    def behave(prompt: str, count: int) -> Reply:
        times.append(time.monotonic())
        if len(times) == 1:
            return refusal(429, Retry_After="1")
        return answer_echo(prompt, count)

    with mock_server() as server:
        server.behave = behave
        lines = [line(number) for number in range(5)]
        Batch(tmp_path, server.url, lines, ("--concurrency", "1")).run()
    assert len(times) == 6
    assert times[1] - times[0] >= 0.95


def test_a_gateway_that_comes_back_on_its_port_is_found(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    batch = Batch(tmp_path, f"http://127.0.0.1:{port}", [line(1)])
    process = batch.start()
    until(lambda: (batch.work_folder / "progress.json").exists())
    time.sleep(0.1)
    with mock_server(port):
        _, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert custom_ids(batch.records("output")) == ["id-1"]


def test_at_the_deadline_the_lines_left_are_written_as_expired(tmp_path: Path) -> None:
    hung = threading.Event()

    def behave(prompt: str, count: int) -> Reply:
        if prompt != server.prompts[0]:
            hung.wait(20)
        return answer_echo(prompt, count)

    with mock_server() as server:
        server.behave = behave
        arguments = ("--deadline", str(time.time() + 1.5))
        batch = Batch(tmp_path, server.url, [line(n) for n in range(9)], arguments)
        code, text = batch.run()
        hung.set()
    assert code == 0, text
    expected = {f"id-{number}" for number in range(9)}
    [answered] = custom_ids(batch.records("output"))
    assert server.prompts[0] == answered.replace("id-", "prompt ")
    errors = batch.records("errors")
    assert custom_ids(errors) == sorted(expected - {answered})
    assert {one["error"]["code"] for one in errors} == {"batch_expired"}
    assert {one["response"] for one in errors} == {None}
    assert batch.progress["expired"] == 8


def test_a_wrong_file_and_no_address_end_the_program_with_an_error(
    tmp_path: Path,
) -> None:
    wrong = Batch(tmp_path / "a", "http://127.0.0.1:1", ["{"])
    assert wrong.run() == (
        2,
        "error: line 1: not valid JSON: Expecting property name enclosed in double "
        "quotes, column 2\n",
    )
    no_address = Batch(tmp_path / "b", "", [line(1)])
    code, text = no_address.run()
    assert code == 2
    assert "is not the address of a gateway" in text


def test_a_checkpoint_path_is_chosen_before_the_shared_path(tmp_path: Path) -> None:
    with mock_server() as server:
        batch = Batch(tmp_path, server.url, [line(1)])
        batch.run(CORRAL_CHECKPOINT_PATH=str(tmp_path / "saves"))
    assert (tmp_path / "saves" / "batch-b1" / "results" / "output.jsonl").exists()
    assert not batch.state_folder.exists()


# -- the schedule of lines -----------------------------------------------------------------------


class World:
    """A schedule in virtual time, of which one thread takes all lines."""

    def __init__(self, count: int = 1) -> None:
        self.at = 0.0
        self.schedule = BatchSchedule(BatchConcurrency(64), now=lambda: self.at)
        self.schedule.add(
            BatchLine(number=n, custom_id=f"id-{n}", offset=0, size_bytes=0, prefix=b"")
            for n in range(count)
        )

    def send(self, answer: BatchAnswer) -> dict[str, Any] | None:
        """Send the next line as soon as the schedule allows it."""
        seconds = self.schedule._seconds_to_wait(self.at)
        self.at += (seconds or 0.0) + 1e-6
        taken = self.schedule.take()
        assert taken is not None
        return self.schedule.settle(taken, answer, self.at)


def test_a_line_fails_after_its_last_try_with_the_last_answer() -> None:
    world = World()
    failed = BatchAnswer(verdict=BatchVerdict.RETRY, status=500, body="oops")
    records = [world.send(failed) for _ in range(MOST_TRIES)]
    assert records[:-1] == [None] * (MOST_TRIES - 1)
    assert records[-1] is not None
    assert records[-1]["response"]["body"] == "oops"
    assert world.schedule.take() is None


def test_an_answer_that_is_never_json_is_an_error() -> None:
    world = World()
    answer = BatchAnswer(verdict=BatchVerdict.RETRY, status=200, body="<html>")
    record = [world.send(answer) for _ in range(MOST_TRIES)][-1]
    assert record is not None
    assert record["error"]["code"] == "bad_answer"


def test_a_line_whose_connection_is_always_lost_fails() -> None:
    world = World()
    cut = BatchAnswer(verdict=BatchVerdict.CUT, text="reset")
    record = [world.send(cut) for _ in range(MOST_CUTS)][-1]
    assert record is not None
    assert record["error"] == {"code": "connection_lost", "message": "reset"}


@pytest.mark.parametrize("verdict", [BatchVerdict.BUSY, BatchVerdict.AWAY])
def test_a_service_that_is_away_for_long_costs_no_line(verdict: BatchVerdict) -> None:
    world = World()
    assert {world.send(BatchAnswer(verdict=verdict)) and 1 for _ in range(200)} == {
        None
    }
    assert world.schedule.trouble
    record = world.send(BatchAnswer(verdict=BatchVerdict.FINISHED, status=200, body={}))
    assert record is not None
    assert world.schedule.trouble == ""


def test_pauses_without_retry_after_grow_and_answers_during_one_do_not_count() -> None:
    world = World(2)
    both = [world.schedule.take(), world.schedule.take()]
    away = BatchAnswer(verdict=BatchVerdict.AWAY)
    pauses = []
    for taken in both:
        assert taken is not None
        world.schedule.settle(taken, away, world.at)
        pauses.append(world.schedule._seconds_to_wait(world.at) or 0.0)
    assert 0.1 <= pauses[0] <= 0.2
    assert pauses[0] == pauses[1]
    for _ in range(20):
        world.send(away)
        pauses.append((world.schedule._seconds_to_wait(world.at)) or 0.0)
    assert 5.0 <= pauses[-1] <= 10.0


def test_answers_that_come_after_the_deadline_are_dropped() -> None:
    world = World(3)
    taken = world.schedule.take()
    assert taken is not None
    expired = world.schedule.expire()
    assert Counter(one.custom_id for one in expired) == Counter(
        ["id-0", "id-1", "id-2"]
    )
    finished = BatchAnswer(verdict=BatchVerdict.FINISHED, status=200, body={})
    assert world.schedule.settle(taken, finished, 0.0) is None
    assert world.schedule.take() is None


# -- progress ------------------------------------------------------------------------------------


def progress(**more: Any) -> BatchProgress:
    fields: dict[str, Any] = {
        "state": BatchState.RUNNING,
        "service": "chat",
        "lines": 10,
        "done": 5,
        "failed": 1,
        "expired": 0,
        "unanswered": 4,
        "lines_per_second": 2.0,
        "prompt_tokens": 1,
        "completion_tokens": 2,
        "cached_tokens": 0,
        "tokens_per_second": 3.0,
        "concurrency": 4,
        "is_behind": False,
        "deadline": None,
        "expected_end": None,
        "at": 0.0,
    }
    return BatchProgress(**(fields | more))


def test_the_shim_gets_a_line_as_a_step_and_is_found_again(tmp_path: Path) -> None:
    from corral.agent.shim.scalars import Scalars
    from corral.agent.shim.state import progress_record

    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    path = folder / "shim"
    reporter = ShimReporter(str(path))
    message = shim_message(progress(), first_step=2, seconds=4.0)
    reporter.send(message)  # there is no shim yet
    for _ in range(2):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
            path.unlink(missing_ok=True)
            folder_file = os.open(folder, os.O_RDONLY)
            listening.bind(f"/proc/self/fd/{folder_file}/shim")
            os.close(folder_file)
            listening.listen()
            reporter.send(message)
            connection, _ = listening.accept()
            with connection:
                connection.sendall(b'{"type": "stop"}\n')
                reporter.send(message)
                texts = connection.recv(65536).splitlines()
        reporter.send(message)  # the shim is gone: this one is lost
    hello, first, *_ = (json.loads(text) for text in texts)
    assert hello == {"type": "hello", "rank": 0}
    record = progress_record(first, 1.0)
    assert (record["step"], record["first_step"], record["until"]) == (6, 2, 10)
    assert record["samples_per_second"] == 2.0
    scalars = Scalars()
    scalars.take(first["scalars"], 1.0)
    assert {one[0] for one in scalars.records} == set(first["scalars"])
    reporter.close()


def test_the_expected_end_is_by_the_rate_and_never_after_the_deadline() -> None:
    assert expected_end(10, 2.0, 100.0, None) == 105.0
    assert expected_end(10, 2.0, 100.0, 103.0) == 103.0
    assert expected_end(10, 0.0, 100.0, None) is None
    assert expected_end(10, 0.0, 100.0, 103.0) == 103.0
    assert expected_end(0, 0.0, 100.0, 103.0) == 100.0


def test_a_kill_while_answers_are_committed_loses_none_that_was_counted(
    tmp_path: Path,
) -> None:
    lines = [line(number) for number in range(3000)]
    with mock_server() as server:
        batch = Batch(tmp_path, server.url, lines)
        process = batch.start()
        until(lambda: len(server.prompts) >= 700)
        kill(process)
        counted = batch.progress["done"]
    assert len(read_answers(batch.state_folder).places) >= counted
