"""Callers of one group share their limits, which keep their counts when they change."""

from hashlib import sha256

from corral.gateway.access.callers import CallerDirectory, GatewayCaller
from corral.gateway.counting.gateway_metrics import CallerUse
from corral.wire.gateway_routes import CallerEntry


def entry(name: str, group: str | None = "ann", **limits: float) -> CallerEntry:
    digest = sha256(name.encode()).hexdigest()
    return CallerEntry(name=name, key_sha256=digest, group=group, **limits)  # type: ignore[arg-type]


def directory(*entries: CallerEntry, share: float = 1.0) -> CallerDirectory:
    callers = CallerDirectory(share)
    callers.update(entries, 0.0, is_open=False)
    return callers


def caller(callers: CallerDirectory, name: str) -> GatewayCaller:
    one = callers.find(name.encode())
    assert one is not None
    return one


def test_the_tokens_of_a_user_share_one_limit_and_other_users_have_theirs() -> None:
    callers = directory(
        entry("t1", requests_per_minute=2.0),
        entry("t2", requests_per_minute=2.0),
        entry("t3", "bob", requests_per_minute=2.0),
        entry("t4", None, requests_per_minute=2.0),
        entry("t5", None, requests_per_minute=2.0),
    )
    assert caller(callers, "t1").admit(0.0, 1) is None
    assert caller(callers, "t2").admit(0.0, 1) is None
    for name in ("t1", "t2"):
        refusal = caller(callers, name).admit(0.0, 1)
        assert refusal is not None
        assert refusal.message == "the limit requests_per_minute of ann is reached"
    for name in ("t3", "t4", "t4", "t5"):
        assert caller(callers, name).admit(0.0, 1) is None
    refusal = caller(callers, "t4").admit(0.0, 1)
    assert refusal is not None
    assert refusal.message == "the limit requests_per_minute of this key is reached"


def test_new_routes_neither_refill_a_limit_nor_forget_requests_under_way() -> None:
    callers = directory(entry("t1", tokens_per_minute=600.0, concurrency=2))
    assert caller(callers, "t1").admit(0.0, 600) is None
    for tokens_per_minute in (300.0, 1200.0):
        changed = entry("t1", tokens_per_minute=tokens_per_minute, concurrency=1)
        callers.update((changed, entry("t2")), 0.0, is_open=False)
        assert caller(callers, "t1").admit(0.0, 1) is not None
    limits = caller(callers, "t1").limits
    assert limits is not None
    limits.finish(600, 600)
    assert caller(callers, "t1").admit(0.0, 1) is not None  # no tokens yet
    assert caller(callers, "t1").admit(1.0, 20) is None  # 20 a second
    assert caller(callers, "t2").limits is None


def test_a_caller_without_limits_now_is_not_limited() -> None:
    callers = directory(entry("t1", concurrency=1))
    assert caller(callers, "t1").admit(0.0, 1) is None
    callers.update((entry("t1"),), 0.0, is_open=False)
    assert caller(callers, "t1").admit(0.0, 1) is None
    assert callers.limits == {}


def test_a_gateway_whose_part_is_0_admits_nothing_and_reports_it() -> None:
    callers = directory(entry("t1", concurrency=0))
    assert caller(callers, "t1").admit(0.0, 1) is not None
    use = CallerUse.of(callers.limits["ann"])
    assert use == CallerUse(0, 0, 0, {"concurrency": 1})


def test_workers_divide_a_limit() -> None:
    callers = directory(entry("t1", requests_per_minute=4.0, concurrency=8), share=0.5)
    admitted = [caller(callers, "t1").admit(0.0, 1) is None for _ in range(3)]
    assert admitted == [True, True, False]
