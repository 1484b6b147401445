"""A service whose replicas prefill and decode apart, behind the gateway of `corral up`."""

import json
import os
import signal
from pathlib import Path

from tests.scenarios.house import House, house, until
from tests.scenarios.test_service_gateway import Load, ask, gateway_url, record_of

SERVER = """\
import http.server, json, os, pathlib

ROLE = os.environ["CORRAL_ROLE"]
pathlib.Path(__file__).with_name(f"pid-{ROLE}-{os.getpid()}").touch()

class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, value):
        text = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def do_GET(self):
        self.answer({"status": "ok"})

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        content = {"role": "assistant", "content": ROLE}
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
resources: {{cpu: 0.1}}
transfer: shared
roles:
  prefill: {{replicas: 1}}
  decode: {{replicas: 2}}
"""


def condition(here: House) -> str:
    with here.client() as client:
        return client.service("chat").condition


def routed_roles(here: House) -> list[str]:
    """Return the roles of the replicas in the routes that get new requests, sorted."""
    routes = json.loads((here.root / "routes.json").read_bytes())
    [service] = routes["services"]
    assert service["transfer"] == "shared"
    replicas = [one for one in service["replicas"] if not one["draining"]]
    return sorted(one["role"] for one in replicas)


def test_a_service_serves_on_when_its_prefill_replica_is_killed(tmp_path: Path) -> None:
    server = tmp_path / "server.py"
    server.write_text(SERVER)
    file = tmp_path / "chat.yaml"
    file.write_text(SERVICE.format(server=server))
    with house("--nodes", "1", "--gpus", "1") as here:
        try:
            here.ok("apply", "-f", str(file), "-y")
            until(lambda: condition(here) == "READY", "all replicas are ready")
            until(lambda: gateway_url(here), "a gateway runs")
            until(lambda: ask(here).status_code == 200, "the service answers")
            assert routed_roles(here) == ["decode", "decode", "prefill"]
            answer = ask(here).json()
            assert answer["choices"][0]["message"]["content"] == "decode"
            listed = here.ok("service", "ls")
            assert "prefill 1 of 1, decode 2 of 2" in listed
            shown = here.ok("service", "show", "chat")
            assert "ROLE" in shown

            [pid_file] = tmp_path.glob("pid-prefill-*")
            token = here.place.token.read_text().strip()
            with Load(here, token, gateway_url(here)) as load:
                os.kill(int(pid_file.name.rpartition("-")[2]), signal.SIGKILL)
                until(
                    lambda: routed_roles(here) == ["decode", "decode"],
                    "the routes are without it",
                )
                load.wait_for(20)
                until(lambda: condition(here) == "READY", "another one is ready")
            assert load.failures == []
            until(
                lambda: routed_roles(here) == ["decode", "decode", "prefill"],
                "the routes have it",
            )
            here.ok("service", "scale", "chat", "--role", "decode", "3", "-y")
            until(lambda: routed_roles(here).count("decode") == 3, "it is scaled")
            assert "decode 3 of 3 ready" in here.ok("why", "chat")
            gateway = record_of(here).process
        finally:
            here.ok("down", "-y")
    assert not gateway.lives
