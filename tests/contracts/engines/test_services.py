"""A service on each engine: its replicas are probed at their ports."""

from corral.wire import service_answers as shapes
from tests.contracts.engines.landlord import Tenant
from tests.scenarios.house import until

NAME = "contract-service"
# Answers 503 until the file is there, and 401 to those without the key.
ENGINE = """
import os
from http.server import BaseHTTPRequestHandler, HTTPServer
class Engine(BaseHTTPRequestHandler):
    def do_GET(self):
        known = self.headers["Authorization"] == "Bearer " + os.environ["CORRAL_REPLICA_KEY"]
        code = 401 if not known else 200 if os.path.exists("{loaded}") else 503
        self.send_response(code)
        self.end_headers()
HTTPServer((os.environ["CORRAL_HOST"], int(os.environ["CORRAL_PORT"])), Engine).serve_forever()
"""


def test_a_replica_takes_requests_once_it_answers_its_probe(tenant: Tenant) -> None:
    loaded = tenant.shared / "model-loaded"
    run = f"python3 - <<'END'\n{ENGINE.format(loaded=loaded)}\nEND"
    service = {
        "kind": "service",
        "name": NAME,
        "model": "contract",
        "run": run,
        "replicas": 1,
        "resources": {"cpu": 0.5, "memory": "64MB"},
    }

    with tenant.house.client() as client:
        client.apply_services(service)
    try:
        until(
            lambda: any(
                "GET /health: 503" in one.probe_text for one in _replicas(tenant)
            ),
            "its probe is answered with 503",
        )
        assert [one.is_ready for one in _replicas(tenant)] == [False]
        loaded.touch()
        until(lambda: [one.is_ready for one in _replicas(tenant)] == [True], "ready")
    finally:
        with tenant.house.client() as client:
            client.stop_service(NAME)
            until(lambda: client.service(NAME).is_stopped, "its replica has ended")


def _replicas(tenant: Tenant) -> list[shapes.ReplicaView]:
    with tenant.house.client() as client:
        return client.service(NAME).replica_list
