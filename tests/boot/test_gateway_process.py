"""The gateway's process: started, adopted by the next head, replaced, started again, and
ended."""

import http.client
import os
import random
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest

from corral.boot.gateway_process import GatewayProcess
from corral.boot.settings import ClusterDir, ClusterSettings
from corral.boot.start_head import until
from corral.boot.tls import own_tls
from corral.domain.errors import SpecInvalid
from corral.engines.local.processes import LocalProcess
from corral.gateway.processes.process_record import GatewayRecord
from corral.wire.gateway_routes import RoutesFile, encode_routes
from tests.patience import PATIENCE_SECONDS

LOOPBACK = "127.0.0.1"


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[GatewayProcess]:
    process = of_a_new_head(tmp_path)
    process.routes_file.write_bytes(encode_routes(RoutesFile(version=1)))
    # other clusters of this machine take the usual ports at any moment
    with mock.patch("corral.boot.gateway_process.FIRST_PORT", free_port()):
        yield process
    of_a_new_head(tmp_path).kill()
    process.kill()


def free_port() -> int:
    """Return a port that is free, and below those of outgoing connections."""
    while True:
        port = random.randrange(10_000, 20_000)
        with socket.socket() as probe:
            if binds(probe, port):
                return port


def of_a_new_head(root: Path, **settings: Any) -> GatewayProcess:
    return GatewayProcess(place=ClusterDir(root), settings=ClusterSettings(**settings))


def serves(gateway: GatewayProcess) -> bool:
    """Look after it until it listens, as a head does."""

    def looks() -> bool:
        gateway.look_after()
        record = gateway.record
        return record is not None and answers(record.port)

    return until(looks, PATIENCE_SECONDS)


def answers(port: int) -> bool:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=5.0)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def record_of(gateway: GatewayProcess) -> GatewayRecord:
    record = gateway.record
    assert record is not None
    return record


def test_a_gateway_is_started_once_and_adopted_by_the_next_head(
    gateway: GatewayProcess,
) -> None:
    assert gateway.url == ""
    assert gateway.look_after()
    assert not gateway.look_after()
    assert serves(gateway)
    first = record_of(gateway)
    assert gateway.url == f"http://{LOOPBACK}:{first.port}"
    assert os.stat(gateway.key_file).st_mode & 0o777 == 0o600
    next_head = of_a_new_head(gateway.place.root)
    for _ in range(3):
        assert not next_head.look_after()
    assert record_of(next_head) == first


def kill_all(record: GatewayRecord) -> None:
    """Kill the recorded process and its workers."""
    os.killpg(record.pid, signal.SIGKILL)


def test_a_gateway_whose_recorded_process_is_killed_serves_on(
    gateway: GatewayProcess,
) -> None:
    assert serves(gateway)
    first = record_of(gateway)
    first.process.signal(signal.SIGKILL)

    def has_followed() -> bool:
        assert answers(first.port)
        assert not gateway.look_after()
        record = gateway.record
        return record is not None and record.pid != first.pid

    assert until(has_followed, PATIENCE_SECONDS)
    assert record_of(gateway).port == first.port


def test_a_gateway_serves_by_the_certificate_of_its_head(
    gateway: GatewayProcess, tmp_path: Path
) -> None:
    assert serves(gateway)
    plain = record_of(gateway)
    tls = own_tls(gateway.place, (LOOPBACK,), time.time())
    files = {"tls_certificate": str(tls.certificate), "tls_key": str(tls.key)}
    next_head = of_a_new_head(gateway.place.root, **files)
    assert next_head.look_after()
    trusted = ssl.create_default_context(cafile=str(tls.trusted))

    def answers_by_tls() -> bool:
        next_head.look_after()
        connection = http.client.HTTPSConnection(
            LOOPBACK, plain.port, timeout=5.0, context=trusted
        )
        try:
            connection.request("GET", "/healthz")
            return connection.getresponse().status == 200
        except OSError:
            return False
        finally:
            connection.close()

    assert until(answers_by_tls, PATIENCE_SECONDS)
    # the predecessor may answer still, while its successor has not recorded itself
    url = f"https://{LOOPBACK}:{plain.port}"
    assert until(lambda: next_head.url == url, PATIENCE_SECONDS)
    assert not next_head.look_after()
    next_head.kill()


def test_a_dead_gateway_is_started_again_at_its_address(
    gateway: GatewayProcess,
) -> None:
    assert serves(gateway)
    first = record_of(gateway)
    kill_all(first)
    assert until(lambda: gateway.record is None, PATIENCE_SECONDS)
    with mock.patch("corral.boot.gateway_process.FIRST_PORT", first.port + 1):
        assert serves(gateway)
    second = record_of(gateway)
    assert (second.port, second.pid != first.pid) == (first.port, True)


def test_the_address_of_a_dead_gateway_may_take_a_moment_to_be_free(
    gateway: GatewayProcess,
) -> None:
    assert serves(gateway)
    first = record_of(gateway)
    kill_all(first)
    assert until(lambda: gateway.record is None, PATIENCE_SECONDS)
    with socket.socket() as closing:
        closing.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        assert until(lambda: binds(closing, first.port), PATIENCE_SECONDS)
        closing.listen()
        assert not gateway.look_after()
    assert serves(gateway)
    assert record_of(gateway).port == first.port


def binds(probe: socket.socket, port: int) -> bool:
    try:
        probe.bind((LOOPBACK, port))
    except OSError:
        return False
    return True


def test_a_gateway_of_another_version_hands_its_socket_over(
    gateway: GatewayProcess,
) -> None:
    assert serves(gateway)
    first = record_of(gateway)
    older = msgspec.structs.replace(first, version="0.0.1")
    gateway.record_file.write_bytes(msgspec.json.encode(older))
    next_head = of_a_new_head(gateway.place.root)
    refused = 0
    while record_of(gateway).pid == first.pid:
        assert not next_head.look_after()
        refused += not answers(first.port)
    assert refused == 0
    assert serves(next_head)
    assert record_of(gateway).port == first.port


def test_a_gateway_with_other_settings_is_replaced(gateway: GatewayProcess) -> None:
    assert serves(gateway)
    first = record_of(gateway)
    next_head = of_a_new_head(gateway.place.root, gateway_workers=2)
    assert next_head.look_after()
    assert serves(next_head)
    second = record_of(next_head)
    assert (second.workers, second.port) == (2, first.port)
    assert until(lambda: not first.process.lives, PATIENCE_SECONDS)


def test_the_port_of_another_program_is_left_to_it(gateway: GatewayProcess) -> None:
    with socket.socket() as taken:
        taken.bind((LOOPBACK, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with mock.patch("corral.boot.gateway_process.FIRST_PORT", port):
            assert serves(gateway)
    assert record_of(gateway).port > port


def test_a_gateway_that_does_not_start_is_tried_again_later(
    gateway: GatewayProcess,
) -> None:
    gateway.routes_file.unlink()
    starts = []
    with mock.patch("corral.boot.gateway_process.monotonic") as clock:
        clock.return_value = 0.0
        assert gateway.look_after()
        starting = gateway._starting
        assert starting is not None
        until(lambda: LocalProcess.find(starting.pid) is None, PATIENCE_SECONDS)
        for second in range(1, 30):
            clock.return_value = float(second)
            if gateway.look_after():
                starts.append(second)
                again = gateway._starting
                assert again is not None
                again.signal(signal.SIGKILL)
                until(lambda: not again.lives, PATIENCE_SECONDS)  # noqa: B023
    assert starts == [3, 8, 17]


def test_an_ended_gateway_is_gone(gateway: GatewayProcess) -> None:
    assert serves(gateway)
    process = record_of(gateway).process
    gateway.end()
    assert until(lambda: not process.lives, PATIENCE_SECONDS)
    assert gateway.url == ""


@pytest.mark.parametrize(
    "wrong",
    [{"gateway_port": 65_536}, {"gateway_workers": 0}, {"gateway_workers": 257}],
)
def test_settings_of_the_gateway_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(SpecInvalid, match="--gateway-"):
        replace(ClusterSettings(), **wrong)
