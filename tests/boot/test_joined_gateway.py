"""A gateway of another machine: it gets its routes from the head, sends what it counts,
and serves on while the head is away."""

import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import httpx2

from corral.boot.gateway_process import MAIN
from corral.boot.joined_gateway import JoinedGateway, JoinedHead
from corral.domain.world import World
from corral.gateway.processes.process_record import read_record
from corral.wire.gateway_routes import CallerEntry
from tests.api.heads import TOKENS, Head, eventually
from tests.api.heads import serving as head_at
from tests.control.services import row, service, spec, world_of

KEY = "key-of-a-caller-0123456789"


@contextmanager
def joined(root: Path, *words: str, port: int = 0) -> Iterator["subprocess.Popen[str]"]:
    plain = {name: one for name, one in os.environ.items() if "CORRAL" not in name}
    with subprocess.Popen(
        [sys.executable, "-P", "-c", MAIN, "gateway", "--port", str(port), *words],
        env={**plain, "CORRAL_DIR": str(root)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:
            # its workers would start another parent
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


def publish(head: Head, *models: str) -> None:
    """The service `chat` with these models."""
    caller = CallerEntry(
        name="ann/t1", key_sha256=hashlib.sha256(KEY.encode()).hexdigest()
    )
    world: World = world_of(service(row(1), spec=spec(models=models)))

    async def update() -> None:
        head.control.routes.update(world, [caller])

    head.run(update())


def models_of(root: Path) -> list[str]:
    record = read_record(root / "gateway-0" / "gateway.json")
    if record is None:
        return []
    answer = httpx2.get(
        f"http://127.0.0.1:{record.port}/v1/models",
        headers={"Authorization": f"Bearer {KEY}"},
        trust_env=False,
    )
    return sorted(model["id"] for model in answer.json()["data"])


def test_a_gateway_elsewhere_serves_by_the_routes_of_the_head(tmp_path: Path) -> None:
    root = tmp_path / "g"
    with ExitStack() as stack:
        with head_at(tmp_path / "h") as head:
            publish(head, "tiny")
            words = ["--join", head.url, "--token", TOKENS["olga"]]
            stack.enter_context(joined(root, *words))
            eventually(lambda: models_of(root) == ["chat", "tiny"])
            publish(head, "small")
            eventually(lambda: models_of(root) == ["chat", "small"])
            traffic = head.control.traffic
            eventually(lambda: bool(traffic.gateways))
            kept = root / "gateway-0" / "gateway-counters"
            eventually(lambda: len([*kept.glob("*.json")]) == 1)
            assert traffic.gateways[0].endswith(":gateway-0")
        assert models_of(root) == ["chat", "small"]
    # it begins by the last routes when the head is away
    (root / "gateway-0" / "gateway.json").unlink()
    with joined(root, *words):
        eventually(lambda: models_of(root) == ["chat", "small"])
    assert (root / "gateway-0").stat().st_mode & 0o777 == 0o700
    assert (root / "gateway-0" / "routes.json").stat().st_mode & 0o777 == 0o600


def test_a_token_that_may_not_read_the_routes_is_refused(tmp_path: Path) -> None:
    with (
        head_at(tmp_path / "h") as head,
        joined(
            tmp_path / "g", "--join", head.url, "--token", TOKENS["alice"]
        ) as process,
    ):
        errors = process.communicate()[1]
        assert process.returncode == 3
    assert "the role operator is required to read the routes of gateways" in errors


def test_a_gateway_needs_one_source_of_routes(tmp_path: Path) -> None:
    for words in ([], ["--routes", "r.json", "--join", "http://127.0.0.1:1"]):
        with joined(tmp_path, *words) as process:
            errors = process.communicate()[1]
        assert process.returncode == 2
        assert "give either --routes or --join" in errors
    with joined(tmp_path, "--join", "http://127.0.0.1:1") as process:
        errors = process.communicate()[1]
    assert "--token is missing" in errors
    assert "corral token create --role operator" in errors


def test_routes_of_a_head_that_no_longer_leads_are_not_taken(tmp_path: Path) -> None:
    versions = iter([2_000_000_001, 1_000_000_900, 3_000_000_000])

    class Leaders(JoinedHead):
        def ask(self, method: str, path: str, body: object = None) -> object:
            return {"version": next(versions)}

    gateway = JoinedGateway(Leaders(url="", token=""), tmp_path)
    taken = []
    for _ in range(3):
        gateway._fetch()
        taken.append(json.loads(gateway.routes_file.read_bytes())["version"])
    assert taken == [2_000_000_001, 2_000_000_001, 3_000_000_000]
