"""Messages leave as their receivers read them; what fails is told, and tried again."""

import asyncio
import hashlib
import hmac
import json
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from corral.boot.alerts.file import AlertFiles, DiskMemory
from corral.boot.alerts.senders import MessageNotSent, Webhook, receiver_of
from corral.control.alert_delivery import Remembered
from corral.insight.alerts import Alert, AlertKind
from corral.insight.notifications import DeliveredAlerts, Notification, SentAlert, Taste
from corral.wire import alerts as wire

DOWN = Alert(
    key="n",
    kind=AlertKind.NODE_DOWN,
    text="node <n1> is dead",
    next="corral node ls",
    since=1,
)
NOTICE = Notification(alerts=(DOWN,))


@contextmanager
def web(status: int = 200) -> Iterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """An address that keeps what it is sent."""
    got: list[tuple[dict[str, str], bytes]] = []

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802 - the library's name
            size = int(self.headers["Content-Length"])
            got.append((dict(self.headers), self.rfile.read(size)))
            self.send_response(status)
            if status == 302:
                self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()

        def log_message(self, *words: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Keep) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/hook", got
        finally:
            server.shutdown()
            thread.join()


class Post(socketserver.StreamRequestHandler):
    """As much of SMTP as a client needs to hand over one message."""

    def handle(self) -> None:
        self.wfile.write(b"220 here\r\n")
        while line := self.rfile.readline().decode():
            word = line[:4].upper().strip()
            if word == "DATA":
                self.wfile.write(b"354 go on\r\n")
                kept = []
                while (row := self.rfile.readline()) != b".\r\n":
                    kept.append(row.decode())
                self.server.kept = "".join(kept)  # type: ignore[attr-defined]
            self.wfile.write(b"221 bye\r\n" if word == "QUIT" else b"250 fine\r\n")
            if word == "QUIT":
                return


def test_a_webhook_gets_json_that_is_signed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    with web() as (address, got):
        one = wire.ReceiverBody(name="hook", webhook=address, secret_file="secret")
        asyncio.run(receiver_of(one, tmp_path).send(NOTICE, "c1"))
    ((headers, body),) = got
    signature = hmac.new(b"s3cret", body, hashlib.sha256).hexdigest()
    assert headers["X-Corral-Signature"] == f"sha256={signature}"
    said = json.loads(body)
    assert (said["cluster"], said["severity"]) == ("c1", "critical")
    assert said["alerts"][0]["next"] == "corral node ls"


def test_slack_gets_its_own_form_and_its_signs_are_no_links() -> None:
    with web() as (address, got):
        one = wire.ReceiverBody(name="team", slack=address)
        asyncio.run(receiver_of(one, Path()).send(NOTICE, "c1"))
    said = json.loads(got[0][1])
    assert set(said) == {"text"}
    assert "node &lt;n1&gt; is dead" in said["text"]


@pytest.mark.parametrize("status", [302, 404, 500])
def test_an_address_that_does_not_take_it_is_told_and_redirects_are_not_followed(
    status: int,
) -> None:
    with web(status) as (address, _):
        hook = Webhook(name="hook", taste=Taste(), address=address)
        with pytest.raises(MessageNotSent, match=f"answers with HTTP status {status}"):
            asyncio.run(hook.send(NOTICE, "c1"))


def test_an_address_where_nobody_is_is_told() -> None:
    hook = Webhook(name="hook", taste=Taste(), address="http://127.0.0.1:9/")
    with pytest.raises(MessageNotSent, match="hook: "):
        asyncio.run(hook.send(NOTICE, "c1"))


@pytest.mark.parametrize(
    "address", ["http://a:b/", "http://[::1/x", "http://\u2603.x/"]
)
def test_an_address_that_is_none_is_told_like_one_where_nobody_is(address: str) -> None:
    one = wire.ReceiverBody(name="hook", webhook=address)
    with pytest.raises(MessageNotSent, match="hook: InvalidURL"):
        asyncio.run(receiver_of(one, Path()).send(NOTICE, "c1"))


def test_a_mail_has_a_subject_of_one_line() -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Post) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        mail = {
            "to": ["ops@example.org"],
            "from": "corral@example.org",
            "host": "127.0.0.1",
            "port": server.server_address[1],
            "security": "none",
        }
        one = wire.ReceiverBody.model_validate({"name": "mail", "email": mail})
        notice = Notification(alerts=(DOWN, DOWN))
        asyncio.run(receiver_of(one, Path()).send(notice, "c1"))
        server.shutdown()
        thread.join()
        kept: str = server.kept  # type: ignore[attr-defined]
    assert "Subject: Corral c1: node <n1> is dead and 1 more" in kept.replace(
        "\r\n", "\n"
    )
    assert "To: ops@example.org" in kept


def test_a_file_is_read_anew_when_it_changes_and_a_broken_one_leaves_the_last(
    tmp_path: Path,
) -> None:
    path = tmp_path / "alerts.yaml"
    files = AlertFiles(path)
    assert files.read().receivers == ()
    path.write_text("to: [{name: a, slack: 'https://x'}]\nrules: {node_down: 5m}")
    assert [one.name for one in files.read().receivers] == ["a"]
    path.write_text("to: [{name: a, slack: 'nowhere'}, {name: b}]")
    asked = files.read()
    assert [one.name for one in asked.receivers] == ["a"]
    assert asked.rules.node_down_seconds == 300
    assert "alerts.yaml is not valid; its changes are not used" in asked.trouble
    path.unlink()
    assert files.read().receivers == ()


def test_what_was_told_is_remembered_and_a_broken_memory_is_none(
    tmp_path: Path,
) -> None:
    memory = DiskMemory(tmp_path / "alerts.json")
    assert memory.load() == Remembered()
    kept = Remembered(
        event=7,
        told={"a": DeliveredAlerts(sent={"n": SentAlert(alert=DOWN, at=3.0)})},
        moments=(DOWN,),
    )
    memory.save(kept)
    assert memory.load() == kept
    (tmp_path / "alerts.json").write_text("{")
    assert memory.load() == Remembered()
