"""The commands of services: a service from options or a file, what is printed of it, and
a chat through a gateway."""

import json
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from corral.cli import chat, service_follow
from corral.cli.main import run
from corral.client.chat_stream import ChatFailed, ChatPiece, Message, stream_chat
from corral.wire.service_answers import ReplicaView
from tests.api.heads import TOKENS, Agent, Head, ended, eventually, serving
from tests.golden.transcript import transcript
from tests.services import apply_service, run_replica, service_of, service_spec

FILE = """kind: service
name: chat
model: tiny
run: python server.py --port $CORRAL_PORT
replicas: 1..4
resources: {gpu: 1}
"""
SERVE = "serve chat --model tiny --run 'python server.py' --gpus 1"


@pytest.fixture
def gateway() -> Iterator["Gateway"]:
    with gateway_server() as server:
        yield server


@pytest.fixture
def head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gateway: "Gateway"
) -> Iterator[Head]:
    monkeypatch.delenv("CORRAL_DIR", raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.setattr(service_follow, "FOLLOW_POLL_SECONDS", 0.02)
    with serving(tmp_path, more={"gateway_url": lambda: gateway.url}) as head:
        monkeypatch.setenv("CORRAL_URL", head.url)
        monkeypatch.setenv("CORRAL_TOKEN", TOKENS["admin"])
        yield head


class Gateway(ThreadingHTTPServer):
    """A gateway that answers each chat request with the same events."""

    events: Sequence[str] = ()
    status = 200
    whole = ""  # an answer of a server that does not stream
    asked: list[dict[str, Any]]
    tokens: list[str]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Gateway

    def do_POST(self) -> None:
        length = int(self.headers["Content-Length"])
        self.server.asked.append(json.loads(self.rfile.read(length)))
        self.server.tokens.append(self.headers["Authorization"])
        self.send_response(self.server.status)
        if self.server.whole:
            self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(self.server.whole.encode())
        for event in self.server.events:
            prefix = "data: " if self.server.status == 200 else ""
            self.wfile.write(f"{prefix}{event}\n\n".encode())

    def log_message(self, *_: Any) -> None:
        """Print nothing."""


@contextmanager
def gateway_server() -> Iterator[Gateway]:
    server = Gateway(("127.0.0.1", 0), Answer)
    server.asked, server.tokens = [], []
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def piece(text: str, **more: Any) -> str:
    return json.dumps({"choices": [{"delta": {"content": text}}], **more})


def beside(work: Callable[[], None]) -> threading.Thread:
    """Work that goes on while a command runs."""
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_file_of_services_is_shown_then_applied_and_listed(
    head: Head, agent: Agent, tmp_path: Path
) -> None:
    path = tmp_path / "chat.yaml"
    path.write_text(FILE)
    planned = transcript(f"apply -f {path} --dry-run")
    assert "chat: a new service\n" in planned
    assert "nothing was changed, because of --dry-run" in planned
    assert not head.control.world.services
    assert "chat: a new service\n" in transcript(f"apply -f {path}")
    assert "chat: unchanged\n" in transcript(f"apply -f {path}")
    path.write_text(FILE.replace("server.py", "other.py"))
    assert "chat: revision 2, which is tried and then" in transcript(
        f"apply -f {path} --dry-run"
    )
    run_replica(head, agent, f"{service_of(head).id}_1")
    listed = transcript("service ls").splitlines()
    head_line, row = listed[1].split(), listed[2].split()
    assert head_line[:4] == ["NAME", "MODEL", "STATE", "REVISION"]
    assert row[:8] == ["chat", "tiny", "READY", "1", "1", "of", "1", "1..4"]
    assert any(line.startswith("URL ") and line.endswith("/v1") for line in listed)


def test_a_file_holds_services_or_jobs_and_a_fault_is_told_with_its_line(
    head: Head, tmp_path: Path
) -> None:
    path = tmp_path / "both.yaml"
    path.write_text(f"{FILE}---\nname: train\nrun: x\n")
    mixed = transcript(f"apply -f {path}")
    assert "a file of services must not contain jobs or queues" in mixed
    path.write_text(FILE.replace("1..4", "8..1"))
    assert f"{path}:5" in transcript(f"apply -f {path}")
    assert not head.control.world.services


def test_serve_follows_until_a_replica_is_ready_and_says_how_to_call_it(
    head: Head, agent: Agent, gateway: Gateway
) -> None:
    def become_ready() -> None:
        eventually(lambda: bool(head.control.world.services))
        run_replica(head, agent, f"{service_of(head).id}_1")

    thread = beside(become_ready)
    told = transcript(SERVE)
    thread.join()
    assert "[exit 0]" in told
    assert "chat is ready: 1 replica" in told
    assert "/v1/chat/completions -H" in told
    assert "Bearer $CORRAL_TOKEN" in told
    assert TOKENS["admin"] not in told


def test_a_file_that_is_followed_is_one_json_document(
    head: Head, agent: Agent, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def become_ready() -> None:
        eventually(lambda: bool(head.control.world.services))
        run_replica(head, agent, f"{service_of(head).id}_1")

    path = tmp_path / "chat.yaml"
    path.write_text(FILE)
    thread = beside(become_ready)
    assert run(["apply", "-f", str(path), "--follow", "--json", "-y"]) == 0
    thread.join()
    (service,) = json.loads(capsys.readouterr().out)["services"]
    assert (service["name"], service["ready"]) == ("chat", 1)


def test_serve_ends_when_a_replica_ends_before_it_is_ready(
    head: Head, agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(service_follow, "note", notes.append)
    monkeypatch.setattr(service_follow, "REASON_SECONDS", 0.0)
    silent = "chat_1 is RUNNING: it is not ready: connection refused"

    def fail() -> None:
        eventually(lambda: bool(head.control.world.services))
        job = f"{service_of(head).id}_1"
        run_replica(head, agent, job, ready=False, probe_text="connection refused")
        eventually(lambda: silent in notes)
        agent.beat(ended((job, 1), code=3))

    thread = beside(fail)
    told = transcript(SERVE)
    thread.join()
    assert "[exit 1]" in told
    assert "exit code 3" in notes[-2]
    assert "corral why chat" in notes[-1]
    why = transcript("why chat")
    assert "  1 replica ended before being ready for 60 s" in why
    assert f"for the output of chat_1, run: corral logs {service_of(head).id}_1" in why
    assert "corral logs" in why


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["--model", "hf://a/b"], "corral serve x --engine vllm --model hf://a/b;"),
        (["--engine", "tiny"], "corral serve x --engine tiny --model hf://org/name;"),
    ],
)
def test_serve_without_a_command_says_which_options_are_missing(
    words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["serve", "x", *words]) == 2
    told = capsys.readouterr().err
    assert "both --engine and --model are needed" in told
    assert hint in told


def test_series_of_a_service_are_those_of_a_replica(
    head: Head, agent: Agent, capsys: pytest.CaptureFixture[str]
) -> None:
    service = apply_service(head, service_spec(), by="admin")
    run_replica(head, agent, f"{service.id}_1")
    assert run(["metrics", "chat"]) == 3
    assert f"run: corral metrics {service.id}_1;" in capsys.readouterr().err
    with head.http() as http:
        detail = http.get(f"/v1/jobs/{service.id}_1").json()
    assert detail["service"] == "chat"


def test_a_dry_run_of_serve_prints_the_document_that_apply_takes(
    head: Head, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["serve", "chat", "--model", "tiny", "--run", "python server.py", "-n"]
    assert run([*words, "--gpus", "h100:2", "--replicas", "1..4"]) == 0
    path = tmp_path / "chat.yaml"
    path.write_text(capsys.readouterr().out)
    assert "gpu: h100:2" in path.read_text()
    assert not head.control.world.services
    assert "chat: a new service" in transcript(f"apply -f {path}")


def test_why_show_and_logs_take_the_name_of_a_service(head: Head, agent: Agent) -> None:
    service = apply_service(head, service_spec(min_replicas=2), by="admin")
    run_replica(head, agent, f"{service.id}_1")
    run_replica(
        head,
        agent,
        f"{service.id}_2",
        f"{service.id}_1",
        ready=False,
        probe_text="status 503",
    )
    why = transcript("why chat")
    assert "chat is PARTIAL: 1 of 2 replicas are ready\n  its spec asks for at" in why
    assert f"chat_2 ({service.id}_2) is RUNNING: it is not ready" in why
    assert "chat_1" not in why
    shown = transcript("show chat")
    assert shown.replace("show chat", "") == transcript("service show chat").replace(
        "service show chat", ""
    )
    assert "service_applied" in shown
    assert "READY" in shown
    assert "[exit 0]" in transcript("logs chat")
    listed = transcript("ps")
    assert "chat_1" in listed
    assert "chat_2" in listed


def test_a_pull_of_a_path_is_refused_with_the_field_that_takes_it(head: Head) -> None:
    refused = transcript("model pull /data/small")
    assert "/data/small is a path, which nodes read where it is" in refused
    assert "use it without a pull: model: /data/small" in refused


def test_stop_of_a_service_is_refused_with_the_command_that_stops_it(
    head: Head, agent: Agent
) -> None:
    service = apply_service(head, service_spec(), by="admin")
    run_replica(head, agent, f"{service.id}_1")
    for name in ("chat", service.id):
        refused = transcript(f"stop {name} -y")
        assert "chat is a service" in refused
        assert "run: corral service stop chat" in refused
        assert "[exit 3]" in refused
    assert "chat: replicas 2..3;" in transcript("service scale chat 2..3")
    scaled = transcript("service scale chat 0")
    assert "chat: replicas 0; it needs no replica now" in scaled
    assert "chat is IDLE: it needs no replica now" in transcript("why chat")
    chat = transcript("service chat chat --prompt Hi")
    assert "the service chat may have no replicas" in chat
    assert "run: corral service scale chat 1" in chat
    transcript("service scale chat 2..3")
    assert "no earlier revision of chat has served" in transcript(
        "service rollback chat"
    )
    assert "chat is being stopped" in transcript("service stop chat -y")
    assert service_of(head).state == "STOPPING"
    for command in ("stop caht -y", "stop Chat -y", "scale CHAT 2", "rollback Chat"):
        assert "did you mean chat?" in transcript(f"service {command}"), command


def test_stop_asks_and_a_no_stops_nothing(
    head: Head, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply_service(head, service_spec(min_replicas=0), by="admin")
    read, write = os.pipe()
    with os.fdopen(read) as stdin, os.fdopen(write, "w") as end:
        monkeypatch.setattr("sys.stdin", stdin)
        end.write("n\n")
        end.flush()
        refused = transcript("service stop chat")
    assert "chat has 0 ready replicas, 0 requests a second and 0 under way" in refused
    assert "nothing was stopped" in refused
    assert service_of(head).state == "ACTIVE"


def test_a_chat_prints_the_answer_and_its_speed_and_sends_what_was_said(
    head: Head, gateway: Gateway
) -> None:
    apply_service(head, service_spec(min_replicas=0), by="admin")
    usage = {"completion_tokens": 7}
    gateway.events = (
        piece("Hel"),
        piece("lo"),
        json.dumps({"choices": [], "usage": usage}),
        "[DONE]",
    )
    told = transcript("service chat chat --prompt Hi")
    assert "Hello\n" in told
    assert "! 7 tokens in" in told
    (asked,) = gateway.asked
    assert (asked["model"], asked["stream"]) == ("chat-model", True)
    assert asked["messages"] == [{"role": "user", "content": "Hi"}]
    assert gateway.tokens == [f"Bearer {TOKENS['admin']}"]


def test_a_server_that_does_not_stream_is_understood(gateway: Gateway) -> None:
    message = {"role": "assistant", "content": "all at once"}
    gateway.whole = json.dumps({"choices": [{"message": message}]})
    pieces = list(stream_chat(gateway.url, "key", "m", [{"role": "user"}]))
    assert [piece.text for piece in pieces] == ["all at once"]


def test_a_chat_keeps_the_conversation_and_ctrl_c_ends_only_the_answer(
    capsys: pytest.CaptureFixture[str],
) -> None:
    questions = iter(["one", "", "two", None])
    asked: list[list[Message]] = []

    def ask(messages: Sequence[Message]) -> Iterator[ChatPiece]:
        asked.append(list(messages))
        yield ChatPiece(text=f"answer {len(asked)}")
        if len(asked) == 1:
            raise KeyboardInterrupt
        yield ChatPiece(text=", whole")

    chat.hold_chat(ask, lambda: next(questions))
    assert [message["content"] for message in asked[1]] == ["one", "answer 1", "two"]
    assert "answer 2, whole" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("events", "status", "text"),
    [
        ([piece("a"), '{"error": {"message": "replica lost"}}'], 200, "replica lost"),
        (["not json"], 200, "not valid JSON"),
        (['{"error": {"message": "no such model"}}'], 404, "status 404: no such model"),
        (["<html>"], 502, "status 502: <html>"),
    ],
)
def test_an_answer_that_breaks_off_is_an_error_with_its_reason(
    gateway: Gateway, events: list[str], status: int, text: str
) -> None:
    gateway.events, gateway.status = events, status
    with pytest.raises(ChatFailed, match=text) as failed:
        list(
            stream_chat(gateway.url, "key", "tiny", [{"role": "user", "content": "x"}])
        )
    assert status == 200 or failed.value.hint


def test_a_speed_leaves_out_the_wait_for_the_first_token() -> None:
    assert chat.speed_text(11, 2.0, is_exact=True) == "11 tokens in 2.0 s, 5 tokens/s"
    assert chat.speed_text(1, 0.0, is_exact=False) == "about 1 token in 0.0 s"
    assert chat.speed_text(7, None, is_exact=True) == "7 tokens"


def test_following_prints_a_reason_that_changes_all_the_time_once_in_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    notes: list[str] = []
    monkeypatch.setattr(service_follow, "note", notes.append)
    teller = service_follow._ReplicaTeller()
    for state, reason in (("QUEUED", "a"), ("RUNNING", "1 s"), ("RUNNING", "2 s")):
        teller.tell(
            ReplicaView.model_construct(
                job="j1_1",
                name="chat_1",
                state=state,
                reason=reason,
                ready_at=None,
                draining_at=None,
            )
        )
    assert notes == ["chat_1 is QUEUED: a", "chat_1 is RUNNING: 1 s"]
