"""Large forms: passed on as they come once their model was found."""

import asyncio
import random

import msgspec
import pytest

from corral.gateway.exchanges import large_form
from corral.gateway.framing.form_scanner import FormScanner
from corral.gateway.framing.request_form import read_form
from corral.gateway.openai_errors import HeadRefused
from corral.wire.gateway_routes import RoutesFile
from tests.gateway.test_access import open_routes, revised
from tests.gateway.worlds import (
    Client,
    MockReplica,
    ReplicaSide,
    World,
    answer_raw,
    chunk,
    gateway,
    play,
)

KIND = "multipart/form-data; boundary=x"
PATH = "/v1/audio/transcriptions"
OK = b'HTTP/1.1 200 OK\r\ncontent-length: 15\r\n\r\n{"text": "yes"}'


def part(name: str, value: bytes) -> bytes:
    head = f'--x\r\nContent-Disposition: form-data; name="{name}"\r\n\r\n'
    return head.encode() + value + b"\r\n"


AUDIO = b"RIFF\r\n--y\r\n" * 1000
FIRST = part("model", b"chat@4") + part("file", AUDIO) + b"--x--\r\n"
LARGE = part("model", b"chat") + part("file", AUDIO) + b"--x--\r\n"
LAST = part("file", AUDIO) + part("model", b"chat@4") + b"--x--\r\n"


def head(length: int, path: str = PATH, extra: str = "") -> bytes:
    lines = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: {KIND}\r\n{extra}"
    framing = (
        f"Content-Length: {length}" if length >= 0 else "Transfer-Encoding: chunked"
    )
    return f"{lines}{framing}\r\n\r\n".encode()


async def send(client: Client, data: bytes, size: int) -> None:
    for at in range(0, len(data), size):
        client.writer.write(data[at : at + size])
        await asyncio.sleep(0)


class Collect(ReplicaSide):
    """Replica that keeps all bytes, and answers when the form has ended."""

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if b"--x--\r\n" in self.buffer and (
            b"chunked" not in self.buffer or self.buffer.endswith(b"0\r\n\r\n")
        ):
            self.write(OK)


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let forms above 1 kB count as large."""
    monkeypatch.setattr(large_form, "WHOLE_FORM_BYTES", 1000)
    monkeypatch.setattr("corral.gateway.gateway_core.WHOLE_FORM_BYTES", 1000)


@pytest.mark.parametrize("path", [PATH, "/v1/audio/translations"])
@pytest.mark.parametrize("form", [FIRST, LAST])
@pytest.mark.parametrize("is_chunked", [False, True])
def test_a_large_form_reaches_its_revision_whole(
    path: str, form: bytes, is_chunked: bool
) -> None:
    async def scenario() -> None:
        replicas = [MockReplica(name, side=Collect) for name in "ab"]
        async with gateway(*replicas, routes=revised("34")) as world:
            client = await world.connect()
            client.writer.write(head(-1 if is_chunked else len(form), path))
            body = form
            if is_chunked:
                middle = len(form) // 2
                body = chunk(form[:middle]) + chunk(form[middle:]) + b"0\r\n\r\n"
            await send(client, body, 500)
            assert (await client.answer()).json == {"text": "yes"}
            assert not replicas[0].sides
            side = next(iter(replicas[1].sides))
            text, _, sent = side.buffer.partition(b"\r\n\r\n")
            expected = form.replace(b"chat@4", b"chat")
            assert f"POST {path} HTTP/1.1\r\n".encode() in side.buffer
            if b"chunked" not in text:
                assert b"Content-Length: %d\r\n" % len(expected) in text + b"\r\n"
                assert sent == expected
            else:
                assert payload_of(sent) == expected
            assert world.core._bodies_bytes == 0
            # the connection goes on with the next request
            assert (await client.get("/v1/models")).status == 200
            await client.close()

    play(scenario())


def payload_of(data: bytes) -> bytes:
    payload = b""
    while data:
        size, _, data = data.partition(b"\r\n")
        payload += data[: int(size, 16)]
        data = data[int(size, 16) + 2 :]
    return payload


def test_a_form_is_not_held_once_its_model_is_there() -> None:
    async def scenario() -> None:
        replica = MockReplica("a", side=Collect)
        async with gateway(replica, body_bytes=10_000_000) as world:
            client = await world.connect()
            beginning = part("model", b"chat") + b"--x\r\n" + b"n" * 2000
            client.writer.write(head(9_000_000) + beginning)
            await world.until(
                lambda: any(b"nnn" in one.buffer for one in replica.sides)
            )
            assert world.core._bodies_bytes == 0
            await client.close()
            await world.until(lambda: not replica.sides)

    play(scenario())


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (head(20_000_000), 413),
        (head(-1) + chunk(part("model", b"chat") + b"--x\r\n" + b"n" * 60_000), 413),
        (head(5000) + part("model", b"none") + part("file", b"f" * 3000), 404),
        (head(5000) + part("model", b"") + part("file", b"f" * 3000), 404),
        (head(5000) + part("model", b"\xff") + part("file", b"f" * 3000), 400),
        (head(5000) + part("model", b"m" * 2000) + part("file", b"f"), 400),
        (head(5000) + b"--y\r\n" + b"f" * 3000, 400),
        (head(5000) + b"--x\r\n" + b"f" * 4990, 400),
        (head(5000).replace(b"; boundary=x", b""), 400),
        (head(2000) + part("file", b"f" * 2000)[:1993] + b"--x--\r\n", 400),
        (head(-1) + b"10000\r\n" + b"f" * 9, 413),
        (head(-1) + b"+1\r\nf", 400),
    ],
)
def test_bad_forms_are_refused(data: bytes, status: int) -> None:
    async def scenario() -> None:
        async with gateway(MockReplica("a", side=Collect), body_bytes=50_000) as world:
            answer = await refusal_of(world, data)
            assert answer == status
            assert world.core._bodies_bytes == 0
            assert not world.core.reading - world.core.connections

    play(scenario())


def test_each_service_has_its_own_limit() -> None:
    async def scenario() -> None:
        def make(replicas: list[MockReplica]) -> RoutesFile:
            state = open_routes([replicas[0].entry], body_bytes=20_000)
            larger = msgspec.structs.replace(
                state.services[0], name="large", models=("large",), body_bytes=90_000
            )
            return msgspec.structs.replace(state, services=(*state.services, larger))

        async with gateway(MockReplica("a", side=Collect), routes=make) as world:
            for model, status in (("chat", 413), ("large", 200)):
                client = await world.connect()
                client.writer.write(head(-1))
                await world.until(lambda: bool(world.core.reading))
                client.writer.write(chunk(part("model", model.encode())))
                for _ in range(30):
                    client.writer.write(chunk(part("file", b"f" * 1000)))
                    await asyncio.sleep(0.001)
                client.writer.write(chunk(b"--x--\r\n") + b"0\r\n\r\n")
                assert (await client.answer()).status == status
                await client.close()
                await world.until(lambda: not world.core.connections)

    play(scenario())


async def refusal_of(world: World, data: bytes) -> int:
    client = await world.connect()
    client.writer.write(data)
    try:
        return (await client.answer()).status
    finally:
        await client.close()
        await world.until(lambda: not world.core.connections)


def test_a_form_that_stops_is_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(large_form, "BODY_SILENCE_SECONDS", 0.2)

    async def scenario() -> None:
        async with gateway(MockReplica("a", side=Collect)) as world:
            assert await refusal_of(world, head(5000) + part("file", b"f")) == 408
            client = await world.connect()
            client.writer.write(head(5000) + part("file", b"f"))
            await world.until(lambda: bool(world.core._bodies_bytes))
            await client.close()
            await world.until(lambda: not world.core.connections)
            assert world.core._bodies_bytes == 0

    play(scenario())


def test_a_replica_that_refuses_the_key_is_not_believed() -> None:
    async def scenario() -> None:
        class Strange(Collect):
            def data_received(self, data: bytes) -> None:
                self.write(b"HTTP/1.1 401 No\r\ncontent-length: 0\r\n\r\n")

        async with gateway(MockReplica("a", side=Strange)) as world:
            client = await world.connect()
            client.writer.write(head(len(LARGE)))
            await world.until(lambda: bool(world.core.reading))
            await send(client, LARGE, 500)
            assert (await client.answer()).code == "bad_answer"
            await client.close()

    play(scenario())


def test_the_scanner_finds_what_the_whole_form_has() -> None:
    chance = random.Random(5)
    for _ in range(300):
        parts = [
            part("file", b"\r\n--x"[: chance.randrange(5)] * 9),
            part("model", b"m"),
        ]
        parts += [part("n", b"")] * chance.randrange(3)
        parts += [part("n", b"")[:-2]] * chance.randrange(2)
        chance.shuffle(parts)
        form = b"".join(parts) + b"--x--\r\n"
        scanner = FormScanner(KIND.encode())
        at = 0
        while at < len(form) and scanner.model is None:
            size = chance.randint(1, 9)
            scanner.feed(form[at : at + size])
            at += size
        assert scanner.model_name == read_form(KIND.encode(), form).model == "m"
        whole = scanner.with_model("other") + form[at:]
        assert read_form(KIND.encode(), whole).model == "other"
    for bad in (b"--y\r\n\r\n", b"--x\r\n" + b"y" * 9000, b"--x\r\n\r\nv\r\n--xz\r\n"):
        with pytest.raises(HeadRefused):
            FormScanner(KIND.encode()).feed(bad)


def test_a_small_form_is_sent_again_when_its_replica_dies() -> None:
    async def scenario() -> None:
        replicas = [MockReplica(name, answer_raw(OK)) for name in "ab"]
        async with gateway(*replicas) as world:
            replicas[0].kill()
            form = part("model", b"chat") + b"--x--\r\n"
            for _ in range(4):
                assert await refusal_of(world, head(len(form)) + form) == 200

    play(scenario())
