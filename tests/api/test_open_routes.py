"""What is answered without a token has a pace by address; a health probe is never in
its line."""

import asyncio
from collections import Counter

import pytest
from starlette.types import Receive, Scope, Send

from corral.api import anonymous_rates
from corral.api.anonymous_rates import OpenRoutes
from corral.api.route_rights import HEALTH
from corral.ingress.addresses import TrustedProxies
from corral.ingress.forwarded import Forwarded
from corral.ingress.line import LinePace, RequestLines
from corral.wire.head_proof import PROOF

SMALL = LinePace(a_second=10.0, at_once=3, in_line=5)


class Moving:
    """A clock that the sleeps of the test move."""

    def __init__(self) -> None:
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


class Asked:
    """The middleware over an app that answers 200; counts statuses."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, proxies: str = "") -> None:
        self.clock = Moving()
        self.statuses: Counter[int] = Counter()
        self.retry_after = ""
        monkeypatch.setattr(anonymous_rates, "PAGES", SMALL)
        monkeypatch.setattr(asyncio, "sleep", self.clock.sleep)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            await send({"type": "http.response.start", "status": 200, "headers": []})

        paced = OpenRoutes(
            app, is_page=lambda path: not path.startswith("/v1/"), clock=self.clock
        )
        self.app = Forwarded(paced, TrustedProxies([proxies])) if proxies else paced

    def __call__(self, path: str, client: str = "10.0.0.9", **headers: str) -> int:
        """The status of one request."""
        found: list[int] = []

        async def send(message: dict[str, object]) -> None:
            if message["type"] == "http.response.start":
                found.append(int(str(message["status"])))
                kept = dict(message["headers"])  # type: ignore[call-overload]
                self.retry_after = kept.get(b"retry-after", b"").decode()

        async def receive() -> dict[str, object]:
            return {"type": "http.request", "body": b""}

        shown = [
            (name.replace("_", "-").encode(), value.encode())
            for name, value in headers.items()
        ]
        scope = {
            "type": "http", "method": "GET", "path": path, "client": (client, 1), "headers": shown,
            "scheme": "http",
        }  # fmt: skip
        asyncio.run(self.app(scope, receive, send))  # type: ignore[arg-type]
        return found[0]


def test_pages_are_answered_at_once_then_in_their_turn_and_then_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = Asked(monkeypatch)
    statuses = [ask("/jobs") for _ in range(12)]
    assert statuses == [200] * 8 + [429] * 4
    assert ask.clock.slept == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.5])
    assert ask.retry_after == "1"
    assert ask("/jobs", client="10.0.0.10") == 200
    assert ask("/v1/jobs") == 200  # it asks for a token, and has a rate of its user
    ask.clock.now += 0.8
    assert ask("/jobs") == 200


def test_a_health_probe_passes_whatever_else_its_address_asks_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = Asked(monkeypatch)
    for _ in range(100):
        ask("/")
    before = len(ask.clock.slept)
    assert [ask(HEALTH) for _ in range(100)] == [200] * 100
    assert len(ask.clock.slept) == before
    assert ask(PROOF) == 200  # open routes have a line of their own


def test_clients_behind_a_trusted_proxy_have_a_line_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ask = Asked(monkeypatch, proxies="10.9.9.9")
    for number in range(50):
        client = f"192.0.2.{number}"
        assert ask("/", client="10.9.9.9", x_forwarded_for=client) == 200
    assert not ask.clock.slept
    # Of another peer the header is not believed.
    found = {
        ask("/", client="10.8.8.8", x_forwarded_for=f"192.0.2.{n}") for n in range(50)
    }
    assert found == {200, 429}


def test_a_hundred_users_behind_one_address_can_all_load_the_pages() -> None:
    """A page and some ten files for each, all at the same moment."""
    lines = RequestLines(anonymous_rates.PAGES, lambda: 0.0)
    waits = [lines.take("10.0.0.9") for _ in range(100 * 12)]
    assert max(waits) <= 6.0
