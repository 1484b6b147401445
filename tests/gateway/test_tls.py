"""TLS of the gateway: its certificate, a renewed one, and the handover of its socket."""

import asyncio
import os
import shutil
import signal
import ssl
import time
from pathlib import Path

import pytest

from corral.boot.settings import ClusterDir
from corral.boot.tls import own_tls
from corral.cli.main import run
from corral.gateway.processes import certificate_watch
from corral.gateway.processes.certificate_watch import CertificateWatch
from tests.gateway.test_processes import process
from tests.gateway.worlds import (
    PATIENCE,
    Client,
    MockReplica,
    answer_stream,
    play,
)

NAMES = ("127.0.0.1", "localhost")
STREAM = {"model": "chat", "messages": [], "stream": True}


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Return two directories, each with a certificate, its key and its authority."""
    directories = []
    for number in range(2):
        root = tmp_path_factory.mktemp(f"authority{number}")
        tls = own_tls(ClusterDir(root), NAMES, time.time())
        for source, name in (
            (tls.certificate, "cert.pem"),
            (tls.key, "key.pem"),
        ):
            shutil.copy(source, root / name)
        directories.append(root)
    return directories


def use(pair: Path, directory: Path) -> None:
    """Put a pair in its place, the certificate first, as a renewal does."""
    for name in ("cert.pem", "key.pem"):
        staged = directory / f".{name}"
        shutil.copy(pair / name, staged)
        staged.replace(directory / name)


def trust(pair: Path) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(pair / "ca.pem"))


async def connect(port: int, pair: Path) -> Client:
    streams = await asyncio.open_connection(
        "127.0.0.1", port, ssl=trust(pair), server_hostname="localhost"
    )
    return Client(*streams)


def test_https_with_a_renewed_certificate_and_a_successor_loses_nothing(
    tmp_path: Path, pairs: list[Path]
) -> None:
    async def scenario() -> None:
        use(pairs[0], tmp_path)
        words = ["--tls-cert", str(tmp_path / "cert.pem")]
        words += ["--tls-key", str(tmp_path / "key.pem")]
        replica = MockReplica("a", answer_stream(150, 0.01))
        async with process(tmp_path, replica, words=words) as gateway:
            first = await connect(gateway.port, pairs[0])
            stream = asyncio.ensure_future(first.post(STREAM))
            await gateway.until_received(replica, 1)
            use(pairs[1], tmp_path)
            async with asyncio.timeout(PATIENCE):
                while True:
                    try:
                        second = await connect(gateway.port, pairs[1])
                        break
                    except ssl.SSLCertVerificationError:  # still the first one
                        await asyncio.sleep(0.05)
            replica.behave = MockReplica("b").behave
            assert (await second.post()).status == 200
            assert (await stream).events[-1] == "[DONE]"
            assert (await first.post()).status == 200
            replica.behave = answer_stream(100, 0.01)
            stream = asyncio.ensure_future(first.post(STREAM))
            await gateway.until_received(replica, 4)
            gateway.process.send_signal(signal.SIGUSR2)
            line = await gateway.until_logged("has taken over")
            replica.behave = MockReplica("b").behave
            third = await connect(gateway.port, pairs[1])
            assert (await third.post()).status == 200
            assert (await stream).events[-1] == "[DONE]"
            # a client that does not speak TLS, or leaves in the handshake, harms no other
            plain = await gateway.connect()
            plain.writer.write(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"200" not in await plain.reader.read()
            for client in (first, second, third, plain):
                await client.close()
            os.kill(int(line.split("process ")[1].split()[0]), signal.SIGTERM)

    play(scenario())


def test_a_pair_that_does_not_fit_is_not_taken(
    tmp_path: Path, pairs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificate_watch, "WATCH_SECONDS", 0.01)
    use(pairs[0], tmp_path)
    watch = CertificateWatch(tmp_path / "cert.pem", tmp_path / "key.pem")

    async def serves(pair: Path) -> bool:
        server = await asyncio.start_server(
            lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=watch.context
        )
        port = server.sockets[0].getsockname()[1]
        try:
            client = await connect(port, pair)
        except ssl.SSLError:
            return False
        finally:
            server.close()
        await client.close()
        return True

    async def scenario() -> None:
        watch.start(asyncio.get_running_loop())
        marks = [watch._mark]
        shutil.copy(pairs[1] / "cert.pem", tmp_path / "cert.pem")
        async with asyncio.timeout(PATIENCE):
            while watch._mark == marks[0]:
                await asyncio.sleep(0.01)
        assert await serves(pairs[0])
        (tmp_path / "key.pem").unlink()
        await asyncio.sleep(0.05)
        assert await serves(pairs[0])
        use(pairs[1], tmp_path)
        async with asyncio.timeout(PATIENCE):
            while not await serves(pairs[1]):
                await asyncio.sleep(0.01)
        watch.stop()

    play(scenario())


def test_a_certificate_that_cannot_be_used_is_refused(
    tmp_path: Path, pairs: list[Path], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "routes.json").write_text('{"version": 1}')
    arguments = ["gateway", "--routes", str(tmp_path / "routes.json"), "--port", "0"]
    certificate = str(pairs[0] / "cert.pem")
    for words, expected in [
        (["--tls-cert", certificate], "a certificate and its key"),
        (["--tls-key", certificate], "a certificate and its key"),
        (
            ["--tls-cert", certificate, "--tls-key", str(pairs[1] / "key.pem")],
            "cannot be used",
        ),
        (
            ["--tls-cert", certificate, "--tls-key", str(tmp_path / "no")],
            "No such file",
        ),
    ]:
        assert run([*arguments, *words]) == 3
        assert expected in capsys.readouterr().err
