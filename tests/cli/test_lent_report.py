"""corral report lent: services whose replicas sleep, fall asleep, or have slept."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from corral.domain.ids import ServiceName
from corral.domain.lending import LentTotals, ParkBy, ReplicaSleep
from tests.api.heads import TOKENS, Head, eventually, serving
from tests.control.services import row
from tests.golden.transcript import transcript
from tests.services import apply_service, service_spec

TOTALS = LentTotals(asleep_gpu_seconds=7200.0, wakes=1)


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Head]:
    monkeypatch.delenv("CORRAL_DIR", raising=False)
    monkeypatch.setenv("COLUMNS", "160")
    with serving(tmp_path) as head:
        monkeypatch.setenv("CORRAL_URL", head.url)
        monkeypatch.setenv("CORRAL_TOKEN", TOKENS["admin"])
        yield head


def change(head: Head, **fields: Any) -> None:
    """Put fields of the service into the state of the head."""

    async def put() -> None:
        services = head.control.world.services
        name = ServiceName("chat")
        services[name] = replace(services[name], **fields)

    head.run(put())


def test_a_stopped_service_stays_in_the_report(head: Head) -> None:
    apply_service(head, service_spec(min_replicas=0), by="admin")
    change(head, lent=TOTALS)
    transcript("service stop chat -y")
    eventually(lambda: not head.control.world.services)
    told = transcript("report lent")
    assert "chat (stopped): 2.00 GPU-hours asleep, of which 0 % were lent" in told


def test_a_replica_that_is_falling_asleep_is_in_the_report(head: Head) -> None:
    asleep = service_spec(min_replicas=0, park=ParkBy.CACHE, sleeping=1)
    apply_service(head, asleep, by="admin")
    falling = row(1, sleep=ReplicaSleep(since=0.0))
    change(head, replicas=(falling,))
    assert "chat: 0 replicas asleep now, 1 falling asleep; 0.00" in transcript(
        "report lent"
    )


def test_without_a_service_that_may_sleep_the_report_says_how_to_have_one(
    head: Head,
) -> None:
    apply_service(head, service_spec(min_replicas=0), by="admin")
    assert "no service lets replicas sleep" in transcript("report lent")
