"""One bearer token, strictly read; everything else is refused, in words."""

import asyncio
import json
import socket
from dataclasses import replace

import pytest

from corral.api.auth import Caller, OwnJob, bearer, check_host, hosts_of
from corral.api.errors import TooMany, WrongHost
from corral.api.failures import FAILURES, FailureLimits
from corral.domain.errors import Unauthorised
from corral.domain.ids import AttemptNumber, JobId, NodeId, TokenId, UserName
from corral.domain.job import TokenScope
from corral.domain.users import Role
from tests.api.heads import TOKENS, Head
from tests.patience import PATIENCE_SECONDS

GOOD = f"Authorization: Bearer {TOKENS['admin']}"
WRONG = {
    "no header": "",
    "empty": "Authorization:",
    "only the scheme": "Authorization: Bearer",
    "only the scheme and a space": "Authorization: Bearer ",
    "another scheme": f"Authorization: Basic {TOKENS['admin']}",
    "no scheme": f"Authorization: {TOKENS['admin']}",
    "two headers": f"{GOOD}\r\n{GOOD}",
    "two tokens": f"{GOOD} {TOKENS['admin']}",
    "a comma": f"{GOOD},",
    "unknown": "Authorization: Bearer " + "x" * 32,
    "short": "Authorization: Bearer x",
    "cut": GOOD[:-1],
    "NUL": f"{GOOD}\0",
    "a look-alike": GOOD.replace("token", "tоken"),  # noqa: RUF001 (a Cyrillic o)
    "two spaces": GOOD.replace("Bearer ", "Bearer  "),
    "revoked": f"Authorization: Bearer {TOKENS['gone']}",
    "long": "Authorization: Bearer " + "x" * 60_000,
    "very long": "Authorization: Bearer " + "x" * 10_000_000,
}


def raw(
    head: Head, headers: str, *, target: str = "/v1/status", host: str = "127.0.0.1"
) -> int:
    """The status of a request that is sent as it is written; 0 when the connection is
    dropped."""
    with socket.create_connection(
        ("127.0.0.1", head.port), timeout=PATIENCE_SECONDS
    ) as connection:
        text = f"GET {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n\r\n"
        try:
            connection.sendall(text.replace("\r\n\r\n\r\n", "\r\n\r\n").encode())
            line = connection.makefile("rb").readline()
        except OSError:
            return 0
    return int(line.split()[1]) if line else 0


@pytest.mark.parametrize("what", WRONG)
def test_a_header_that_is_not_just_bearer_and_a_known_token_is_refused(
    head: Head, what: str
) -> None:
    assert raw(head, WRONG[what]) in (401, 429, 400, 431, 0)
    assert raw(head, GOOD) == 200  # a right token of the same address is always let in


def test_a_token_in_the_query_counts_for_nothing(head: Head) -> None:
    assert raw(head, "", target=f"/v1/status?token={TOKENS['admin']}") in (401, 429)
    assert raw(head, "", target=f"/v1/status?access_token={TOKENS['admin']}") in (
        401,
        429,
    )


def test_healthz_alone_asks_for_no_token_and_says_nothing(head: Head) -> None:
    with head.http(None) as http:
        assert http.get("/healthz").json() == {"status": "ok"}
        for path in (
            "/",
            "/docs",
            "/openapi.json",
            "/redoc",
            "/v1",
            "/v1/nothing",
            "/healthz/x",
        ):
            assert http.get(path).status_code in (401, 429), path


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "10.0.0.1:80"]
)
def test_another_host_name_is_refused_whatever_the_token(head: Head, host: str) -> None:
    assert raw(head, GOOD, host=host) in (400, 421)
    assert raw(head, "", target="/healthz", host=host) in (400, 421)


@pytest.mark.parametrize(
    ("headers", "why"),
    [
        ([(b"host", b"evil.example")], "the Host header 'evil.example' is not a name"),
        ([(b"host", b"x" * 5000)], "the Host header 'x{97}[.]{3}' is not a name"),
        ([], "the request has 0 Host headers instead of one"),
        ([(b"host", b"head.org")] * 2, "the request has 2 Host headers instead of one"),
    ],
)
def test_a_host_that_is_refused_is_shown_with_the_names_of_the_head(
    headers: list[tuple[bytes, bytes]], why: str
) -> None:
    with pytest.raises(WrongHost, match=f"^{why}") as refused:
        check_host(headers, hosts_of("https://head.org:8700", ["proxy.org"]))
    names = "accepted names: head.org, proxy.org, 127.0.0.1, ::1, localhost"
    assert refused.value.message.endswith(names)


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost:8470", "[::1]:1", "LOCALHOST"]
)
def test_the_loopback_names_are_known(head: Head, host: str) -> None:
    assert raw(head, GOOD, host=host) == 200


def test_a_refusal_has_code_message_and_hint(head: Head) -> None:
    with head.http(None) as http:
        answer = http.get("/v1/status")
    assert answer.status_code in (401, 429)
    error = json.loads(answer.content)["error"]
    assert error["code"] in ("unauthorised", "too_many")
    assert error["message"]
    assert error["hint"]


async def no_digests() -> list[str]:
    return []


def test_failures_of_one_address_are_counted_and_forgotten_with_time() -> None:
    now = [0.0]
    failures = FailureLimits(clock=lambda: now[0], digests=no_digests)
    error = Unauthorised("no")
    answers = [failures.note("192.0.2.1", error) for _ in range(FAILURES + 5)]
    assert answers[:FAILURES] == [error] * FAILURES
    assert isinstance(answers[-1], TooMany)
    assert failures.note("192.0.2.2", error) is error
    now[0] = 60.0
    assert failures.note("192.0.2.1", error) is error


def test_a_flood_of_wrong_tokens_reads_the_store_once_a_second_and_lets_right_ones_in() -> (
    None
):
    now, reads = [0.0], [0]

    async def digests() -> list[str]:
        reads[0] += 1
        return ["right"]

    failures = FailureLimits(clock=lambda: now[0], digests=digests)
    for _ in range(FAILURES):
        failures.note("192.0.2.1", Unauthorised("no"))

    async def flood() -> int:
        refused = 0
        for at in range(1000):
            with pytest.raises(TooMany) as error:
                await failures.check("192.0.2.1", f"wrong-{at}")
            refused += error.value.retry_seconds <= 1.0
        await failures.check("192.0.2.1", "right")
        # who has failed nothing is looked up
        await failures.check("192.0.2.2", "wrong-0")
        return refused

    assert asyncio.run(flood()) == 1000
    assert reads[0] == 1
    now[0] = 0.9
    with pytest.raises(TooMany):
        asyncio.run(failures.check("192.0.2.1", "wrong"))
    assert reads[0] == 1


def test_failures_of_a_network_of_ipv6_count_together() -> None:
    failures = FailureLimits(clock=lambda: 0.0, digests=no_digests)
    error = Unauthorised("no")
    answers = [failures.note(f"2001:db8::{at:x}", error) for at in range(FAILURES + 1)]
    assert answers[:FAILURES] == [error] * FAILURES
    assert isinstance(answers[-1], TooMany)
    assert failures.note("2001:db8:0:1::1", error) is error


def test_the_scheme_may_be_written_small_and_the_header_name_as_one_likes() -> None:
    assert (
        bearer([(b"Authorization", b"bearer 0123456789abcdef")]) == "0123456789abcdef"
    )
    with pytest.raises(Unauthorised):
        bearer([(b"authorization", b"Bearer 0123456789abcdef\n")])


def test_all_tokens_of_a_user_and_of_the_users_jobs_prove_connections_together() -> (
    None
):
    """Else 200 tokens of one user prove more connections than the head may open
    files."""
    own = Caller(
        name=UserName("ann"), role=Role.USER, token=TokenId("t1"), sha256="one"
    )
    other = replace(own, token=TokenId("t2"), sha256="two")
    of_job = replace(
        own, job=OwnJob(attempt=(JobId("j1"), AttemptNumber(1)), scope=TokenScope.OWN)
    )
    node = replace(own, role=Role.NODE, node=NodeId("ann"))
    assert own.holder == other.holder == of_job.holder
    assert node.holder != own.holder
