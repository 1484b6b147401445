"""A service behind the gateway of `corral up`: requests are answered, also while the head
is killed and replaced."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2

from corral.gateway.processes.process_record import GatewayRecord, read_record
from tests.scenarios.house import House, house, until

SERVER = """\
import http.server, json, os

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, value, status=200):
        text = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.answer({"status": "ok"})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != f"Bearer {os.environ['CORRAL_REPLICA_KEY']}":
            return self.answer({}, 401)
        content = {"role": "assistant", "content": "hello"}
        usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
        self.answer({"choices": [{"message": content}], "usage": usage})

    def log_message(self, *words):
        pass

port = int(os.environ["CORRAL_PORT"])
http.server.ThreadingHTTPServer(("", port), Handler).serve_forever()
"""
SERVICE = """\
kind: service
name: chat
model: tiny
run: python {server}
replicas: 1
"""


@contextmanager
def serving(tmp_path: Path) -> Iterator[House]:
    """A cluster with the service `chat`, whose gateway is ready."""
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    file = tmp_path / "chat.yaml"
    file.write_text(SERVICE.format(server=server))
    with house("--nodes", "1", "--gpus", "1") as here:
        try:
            assert not (here.root / "routes.json").exists()
            here.ok("apply", "-f", str(file), "-y")
            until(lambda: gateway_url(here), "a gateway runs")
            until(lambda: ask(here).status_code == 200, "the service answers")
            yield here
        finally:
            here.ok("down", "-y")


def gateway_url(here: House) -> str:
    with here.client() as client:
        gateway = client.status().gateway
    return "" if gateway is None else gateway.url


def ask(here: House, token: str = "", url: str = "") -> httpx2.Response:
    token = token or here.place.token.read_text().strip()
    return httpx2.post(
        f"{url or gateway_url(here)}/v1/chat/completions",
        headers={"Authorization": f"Bearer {token}"},
        json={"model": "chat", "messages": [{"role": "user", "content": "hi"}]},
        timeout=10.0,
        trust_env=False,
    )


def record_of(here: House) -> GatewayRecord:
    record = read_record(here.root / "gateway.json")
    assert record is not None
    return record


def test_requests_do_not_notice_that_the_head_is_killed_and_replaced(
    tmp_path: Path,
) -> None:
    with serving(tmp_path) as here:
        answer = ask(here).json()
        assert answer["choices"][0]["message"]["content"] == "hello"
        first, url = record_of(here), gateway_url(here)
        caller = here.answer("token", "create", "--role", "caller")["token"]
        until(lambda: ask(here, caller).status_code == 200, "the token is known")
        with Load(here, caller, url) as load:
            here.kill_head()
            load.wait_for(50)
            here.up()
            load.wait_for(50)
            until(lambda: gateway_url(here) == url, "the new head adopts the gateway")
        assert load.failures == []
        assert record_of(here) == first
        # a new token is known to the gateway, and a revoked one is not
        made = here.answer("token", "create")
        until(lambda: ask(here, made["token"]).status_code == 200, "it is known")
        here.ok("token", "revoke", made["id"])
        until(lambda: ask(here, made["token"]).status_code == 401, "it is revoked")
        gateway = first.process
    assert not gateway.lives


class Load:
    """Requests one after the other, in a thread."""

    def __init__(self, here: House, token: str, url: str) -> None:
        self._here = here
        self._token = token
        self._url = url
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.answers = 0
        self.failures: list[Any] = []

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                answer = ask(self._here, self._token, self._url)
                if answer.status_code != 200:
                    self.failures.append(answer.text)
            except httpx2.HTTPError as error:
                self.failures.append(repr(error))
            self.answers += 1
            time.sleep(0.005)

    def wait_for(self, answers: int) -> None:
        """Wait for more answers."""
        enough = self.answers + answers
        until(lambda: self.answers >= enough, f"{answers} answers")

    def __enter__(self) -> "Load":
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends.set()
        self._thread.join()
