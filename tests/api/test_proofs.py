"""A head on loopback proves itself before it is sent a token; another process gets
none."""

import asyncio
import http.client
from collections.abc import Callable
from pathlib import Path
from typing import cast
from urllib.parse import urlsplit

import httpx2
import pytest

from corral.agent.connection import Dialler
from corral.agent.head_addresses import HeadAddresses
from corral.api import Forwarder
from corral.api.errors import RequestInvalid
from corral.api.head_proof import Proofs
from corral.api.job_tokens import job_token
from corral.api.settings import Seals
from corral.boot.join_client import JoinCall, ask
from corral.client import AsyncClient, Client
from corral.domain.errors import CorralError, Unauthorised, Unreachable, WrongHead
from corral.domain.ids import AttemptNumber, JobId
from corral.ports.store import Store
from corral.wire.head_proof import INSECURE, Challenge, digest_of, fresh_nonce, proof_of
from corral.wire.proven_http import connection_to
from tests import impostor as of
from tests.api.heads import TOKENS, Head, PlainSeals, serving
from tests.impostor import Answer, Impostor, impostor
from tests.patience import own_loopback

JOB_TOKEN = job_token(PlainSeals(), (JobId("j1"), AttemptNumber(2)))
ANSWERS = [
    of.closes,
    of.knows_nothing,
    of.accepts,
    of.denies_the_token,
    of.upgrades,
    of.floods,
]
SECRETS = [TOKENS["admin"], TOKENS["n1"], JOB_TOKEN]


def by_client(url: str, token: str) -> None:
    with Client(url, token) as client:
        client.status()


def by_async_client(url: str, token: str) -> None:
    async def call() -> None:
        async with AsyncClient(url, token) as client:
            await client.status()

    asyncio.run(call())


def by_upload(url: str, token: str) -> None:
    with Client(url, token) as client:
        client.upload_workdir(Path(__file__).parent / "__init__.py")


def by_terminal(url: str, token: str) -> None:
    with Client(url, token) as client, client.attach("j1"):
        pass


def by_async_terminal(url: str, token: str) -> None:
    async def call() -> None:
        async with AsyncClient(url, token) as client, client.attach("j1"):
            pass

    asyncio.run(call())


def by_agent(url: str, token: str) -> None:
    class At(HeadAddresses):
        def url(self) -> str:
            return url

    async def call() -> None:
        connection = await Dialler(heads=At(Path("none")), token=token).dial(
            "/v1/agents/heartbeats"
        )
        await connection.close()

    asyncio.run(call())


def by_shim_or_fetch(url: str, token: str) -> None:
    connection = connection_to(url, token, timeout=5.0, trusted=None)
    try:
        connection.request(
            "GET", "/v1/status", headers={"Authorization": f"Bearer {token}"}
        )
    finally:
        connection.close()


def by_machine(url: str, token: str) -> None:
    ask(url, JoinCall(method="GET", path="/v1/agents/node", token=token))


WAYS = [
    by_client,
    by_async_client,
    by_terminal,
    by_async_terminal,
    by_agent,
    by_shim_or_fetch,
    by_machine,
]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("corral.client.request_rules.NAPS", (0.01,))


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: answer.__name__)
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_what_has_taken_the_port_gets_no_token(
    way: Callable[[str, str], None], answer: Answer
) -> None:
    with impostor(own_loopback(), 0, answer) as taker:
        for secret in SECRETS:
            with pytest.raises((CorralError, OSError, http.client.HTTPException)):
                way(taker.url, secret)
        assert b"/v1/proof" in taker.taken
        assert not leaked(taker)


def leaked(taker: Impostor) -> list[str]:
    return [secret for secret in SECRETS if secret.encode() in taker.taken]


@pytest.mark.parametrize("way", [by_client, by_agent, by_shim_or_fetch])
def test_a_proof_of_a_head_at_another_port_proves_nothing(
    way: Callable[[str, str], None], head: Head
) -> None:
    host = urlsplit(head.url).hostname or ""
    with impostor(host, 0, of.relay_to(host, head.port)) as taker:
        with pytest.raises((WrongHead, ConnectionError)):
            way(taker.url, TOKENS["n1"])
        assert b"token=t" in taker.taken
        assert not leaked(taker)


def test_the_true_head_is_believed_again_when_it_is_back(tmp_path: Path) -> None:
    host = own_loopback()
    with serving(tmp_path, host=host) as head:
        url, port, store = head.url, head.port, head.store
        with Client(url, TOKENS["admin"]) as client:
            assert client.status().head.pid == 4711
    with (
        impostor(host, port, of.accepts) as taker,
        Client(url, TOKENS["admin"]) as client,
    ):
        with pytest.raises(
            WrongHead, match="is not the head of this cluster"
        ) as refused:
            client.status()
        assert "corral up" in refused.value.hint
        assert not leaked(taker)
    with (
        serving(tmp_path, host=host, port=port, store=store),
        Client(url, TOKENS["admin"]) as client,
    ):
        assert client.status().head.pid == 4711
        by_agent(url, TOKENS["n1"])


def test_each_connection_is_proven_and_no_connection_twice(head: Head) -> None:
    with Client(head.url, TOKENS["admin"]) as client:
        proven: list[bool] = []
        plain = Challenge.feed

        def counted(self: Challenge, piece: bytes) -> bool:
            done = plain(self, piece)
            proven.extend([done] * done)
            return done

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Challenge, "feed", counted)
            client.status()
            client.nodes()
            assert len(proven) == 1
            with Client(head.url, TOKENS["admin"]) as another:
                another.status()
            assert len(proven) == 2


def test_a_head_says_which_token_it_does_not_have_and_is_not_sent_it(
    head: Head,
) -> None:
    for way in (by_client, by_async_client, by_machine):
        with pytest.raises(Unauthorised, match="does not know the token"):
            way(head.url, "nobody-has-made-this-token")


def test_job_tokens_join_tokens_and_revoked_ones_are_proven_too(head: Head) -> None:
    with pytest.raises(Unauthorised, match="has ended"):
        by_client(head.url, JOB_TOKEN)
    with pytest.raises(Unauthorised, match="was revoked"):
        by_client(head.url, TOKENS["gone"])
    assert ask(head.url, JoinCall(method="GET", path="/v1/join", token=TOKENS["join"]))


@pytest.mark.parametrize(
    "query",
    [
        "",
        "nonce=1",
        "nonce=" + "0" * 32,
        "token=t0&nonce=" + "0" * 32,
        "%ff=%00&nonce=é",
    ],
)
def test_a_malformed_challenge_is_refused(head: Head, query: str) -> None:
    with head.http(None) as client:
        assert client.get(f"/v1/proof?{query}").status_code == 422


@pytest.mark.parametrize(
    ("nonce", "server", "why"),
    [
        ("1", ("127.0.0.1", 1), "nonce is not 32 hexadecimal digits"),
        ("0" * 32, None, "did not arrive at a TCP address"),
        ("0" * 32, ("/run/head.sock", None), "did not arrive at a TCP address"),
    ],
)
def test_a_challenge_that_cannot_be_answered_says_what_is_wrong(
    nonce: str, server: object, why: str
) -> None:
    scope = {"query_string": f"nonce={nonce}".encode(), "server": server}
    proofs = Proofs(cast(Store, None), cast(Seals, None))
    with pytest.raises(RequestInvalid, match=why):
        asyncio.run(proofs.answer(scope))


def test_a_proof_is_of_the_nonce_and_of_the_address(head: Head) -> None:
    digest, nonce = digest_of(TOKENS["admin"]), fresh_nonce()
    with head.http(None) as client:
        asked = {"token": f"t{digest[:12]}", "nonce": nonce}
        answer = client.get("/v1/proof", params=asked)
    assert answer.json() == {"proof": proof_of(digest, nonce, ("127.0.0.1", head.port))}
    assert answer.headers["Cache-Control"] == "no-store"


def test_who_trusts_a_port_may_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(INSECURE, "1")
    with impostor(own_loopback(), 0, of.accepts) as taker:
        with pytest.raises(Exception, match="."):
            by_client(taker.url, TOKENS["admin"])
        assert leaked(taker) == [TOKENS["admin"]]


def test_a_head_that_stands_by_sends_no_callers_token_to_another_process() -> None:
    with impostor(own_loopback(), 0, of.accepts) as taker:
        asyncio.run(_forward_to(taker.url))
        assert b"token=cluster" in taker.taken
        assert not leaked(taker)


async def _forward_to(url: str) -> None:
    async def receive() -> dict[str, object]:
        return {"type": "http.disconnect"}

    async def send(message: object) -> None:
        raise AssertionError(message)

    forwarder = Forwarder(url, None, PlainSeals())
    scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/status",
        "raw_path": b"/v1/status",
        "query_string": b"",
        "headers": [(b"authorization", f"Bearer {TOKENS['admin']}".encode())],
    }
    with pytest.raises(CorralError, match="does not answer"):
        await forwarder.http(scope, receive, send)
    with pytest.raises(CorralError, match="does not answer"):
        await forwarder.websocket(scope | {"type": "websocket"}, receive, send)
    await forwarder.close()


def test_a_token_is_sent_to_another_machine_over_tls_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for url in (
        "http://192.0.2.1:8470",
        "http://head.example:8470",
        "http://[2001:db8::1]:80",
    ):
        for way in (by_client, by_async_client, by_terminal, by_shim_or_fetch):
            with pytest.raises(CorralError, match="without TLS") as refused:
                way(url, TOKENS["admin"])
            assert refused.value.code == "insecure_head"
            assert "https://" in refused.value.hint
        with pytest.raises(ConnectionError, match="without TLS"):
            by_agent(url, TOKENS["n1"])
    monkeypatch.setenv(INSECURE, "1")
    monkeypatch.setattr(
        httpx2.Client,
        "request",
        lambda *_, **__: (_ for _ in ()).throw(httpx2.ConnectError("no")),
    )
    with pytest.raises(Unreachable):
        by_client("http://head.example:8470", TOKENS["admin"])
