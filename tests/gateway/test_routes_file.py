"""Routes files: what is refused, and what the refusal says."""

import asyncio
import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest

from corral.gateway import routes_watch
from corral.gateway.gateway_core import GatewayCore
from corral.gateway.routes_file import RoutesInvalid, read_routes_file
from corral.gateway.routes_watch import RoutesWatch
from tests.gateway.worlds import play


def state(**fields: object) -> dict[str, Any]:
    replica = {"name": "a", "host": "127.0.0.1", "port": 8001, "key": None}
    service = {"name": "chat", "models": ["chat"], "replicas": [replica]}
    return {"version": 1, "services": [service], "callers": [], **fields}


def write(path: Path, content: object) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def caller(**fields: object) -> dict[str, object]:
    return {"name": "alice", "key_sha256": "0" * 64, **fields}


def with_replica(**fields: object) -> dict[str, Any]:
    routes = state()
    routes["services"][0]["replicas"][0].update(fields)
    return routes


def with_service(**fields: object) -> dict[str, Any]:
    routes = state()
    routes["services"][0].update(fields)
    return routes


CASES = {
    "not JSON": ('{"version": 1,\n "services": [}', "line 2"),
    "empty": ("", "not valid JSON"),
    "a list": ([], "Expected `object`"),
    "no version": ({}, "version"),
    "port as text": (with_replica(port="8001"), "services[0].replicas[0].port"),
    "port 0": (with_replica(port=0), "services[0].replicas[0].port"),
    "port 70000": (with_replica(port=70000), "services[0].replicas[0].port"),
    "host with line end": (with_replica(host="a\r\nb"), "replicas[0].host"),
    "key with line end": (with_replica(key="a\r\nX: b"), "replicas[0].key"),
    "unknown field": (with_service(modles=[]), "modles"),
    "no models": (with_service(models=[]), "services[0].models"),
    "model twice": (with_service(models=["a", "a"]), "'a' is there twice"),
    "deadline 0": (with_service(deadline_seconds=0), "deadline_seconds"),
    "unknown caller": (with_service(allow=["eve"]), "'eve' is not the name of a caller"),
    "short hash": (state(callers=[caller(key_sha256="ab")]), "callers[0].key_sha256"),
    "caller twice": (state(callers=[caller(), caller()]), "is there twice"),
    "priority": (state(callers=[caller(priority="top")]), "callers[0].priority"),
    "revision 0": (with_replica(revision=0), "services[0].replicas[0].revision"),
    "draining as text": (with_replica(draining="yes"), "replicas[0].draining"),
    "continues": (with_service(continues="sglang"), "services[0].continues"),
    "share 2": (with_service(canary={"revision": 1, "share": 2}), "canary.share"),
    "no revision": (with_service(canary={"share": 1}), "canary"),
    "limit 0": (
        state(callers=[caller(tokens_per_minute=0)]),
        "callers[0].tokens_per_minute",
    ),
    "limit -1": (state(callers=[caller(concurrency=-1)]), "callers[0].concurrency"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_bad_file_is_refused_with_the_field(name: str, tmp_path: Path) -> None:
    content, expected = CASES[name]
    path = write(tmp_path / "routes.json", content)
    with pytest.raises(RoutesInvalid) as error:
        read_routes_file(path, host="127.0.0.1")
    assert expected in error.value.message
    assert str(path) in error.value.message


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RoutesInvalid, match="cannot be read"):
        read_routes_file(tmp_path / "none.json", host="127.0.0.1")


@pytest.mark.parametrize(
    ("host", "is_allowed"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False)],
)
def test_open_routes_need_a_loopback_address(
    host: str, is_allowed: bool, tmp_path: Path
) -> None:
    path = write(tmp_path / "routes.json", state(open=True))
    if is_allowed:
        assert read_routes_file(path, host=host).open
    else:
        with pytest.raises(RoutesInvalid, match="loopback"):
            read_routes_file(path, host=host)


def test_a_bad_change_keeps_the_last_good_state(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(routes_watch, "WATCH_SECONDS", 0.02)
    caplog.set_level(logging.INFO)
    path = write(tmp_path / "routes.json", state())

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        core = GatewayCore(loop)
        watch = RoutesWatch(core, path, "127.0.0.1")
        watch.start(loop)
        assert core.version == 1
        write(path, '{"version": 2')
        await asyncio.sleep(0.1)
        assert (core.version, list(core.services)) == (1, ["chat"])
        write(tmp_path / "next", state(version=3, services=[]))
        os.replace(tmp_path / "next", path)
        await asyncio.sleep(0.1)
        assert (core.version, list(core.services)) == (3, [])
        write(path, state(version=2))
        await asyncio.sleep(0.1)
        assert core.version == 3
        path.unlink()
        await asyncio.sleep(0.1)
        watch.stop()

    play(scenario())
    assert "line 1: not valid JSON" in caplog.text
    assert "version 2 is older than 3" in caplog.text
    assert "cannot be read" in caplog.text


def test_a_change_is_in_use_within_a_fifth_of_a_second(tmp_path: Path) -> None:
    path = write(tmp_path / "routes.json", state())

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        core = GatewayCore(loop)
        watch = RoutesWatch(core, path, "127.0.0.1")
        watch.start(loop)
        write(tmp_path / "next", state(version=2))
        os.replace(tmp_path / "next", path)
        await asyncio.sleep(0.2)
        watch.stop()
        assert core.version == 2

    play(scenario())
