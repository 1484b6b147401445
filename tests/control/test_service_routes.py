"""Routes: which replicas are listed, who may call, and when the version rises."""

from pathlib import Path

import pytest

from corral.control.services import PublishedRoutes
from corral.control.services.limit_deals import LimitDeals
from corral.control.services.published_routes import OWN_GATEWAY
from corral.control.services.routes import callers_of, routes_of, user_of_caller
from corral.domain.errors import Trouble
from corral.domain.ids import AttemptNumber, NodeId, TokenId, UserName
from corral.domain.job_states import JobState
from corral.domain.replica_jobs import replica_key
from corral.domain.service import CanaryRule, ServiceState
from corral.domain.users import Role, Token, TokenKind, User
from corral.domain.world import World
from corral.gateway.routes_file import read_routes_file
from corral.wire.gateway_routes import (
    CallerEntry,
    CanaryEntry,
    RoutesFile,
    decode_routes,
)
from tests.control.services import row, service, spec, world_of

NOW = 1000.0
LOST = {"j1_2": JobState.RECOVERING, "j1_4": JobState.STOPPING}
USERS = [
    User(name=UserName("ann"), role=Role.USER, created_at=1.0),
    User(name=UserName("vera"), role=Role.VIEWER, created_at=1.0),
    User(name=UserName("gone"), role=Role.USER, created_at=1.0, disabled=True),
]


def token(
    number: int, user: str = "ann", role: Role = Role.USER, **more: object
) -> Token:
    return Token(
        id=TokenId(f"t{number}"),
        sha256=f"{number:064x}",
        user=UserName(user),
        role=role,
        created_at=1.0,
        **more,  # type: ignore[arg-type]
    )


def test_a_ready_replica_is_listed_with_its_address_and_the_key_of_its_attempt() -> (
    None
):
    own = service(row(1))
    world = world_of(own)
    (entry,) = routes_of(world, (), 7).services
    (replica,) = entry.replicas
    role = world.jobs[own.replicas[0].job].spec.replica
    assert role is not None
    key = replica_key(role, own.replicas[0].job, AttemptNumber(1))
    assert (replica.name, replica.host, replica.port) == ("j1_1", "127.0.0.1", 20_001)
    assert (replica.key, replica.revision, replica.draining) == (key, 1, False)
    assert entry.models == ("tiny", "chat")


def test_a_replica_that_is_not_ready_or_not_on_a_node_is_not_listed() -> None:
    own = service(row(1, ready_at=None, attempt=0), row(2), row(3), row(4, attempt=0))
    world = world_of(own, states=LOST)
    world.nodes.pop(NodeId("n1"))
    assert routes_of(world, (), 1).services[0].replicas == ()
    world = world_of(own, states=LOST)
    listed = routes_of(world, (), 1).services[0].replicas
    assert [replica.name for replica in listed] == ["j1_3"]


def test_a_replica_that_is_to_end_finishes_what_it_has_begun() -> None:
    own = service(row(1, draining_at=9.0), row(2, ready_at=None), row(3))
    world = world_of(own, states={"j1_2": JobState.STOPPING})
    listed = routes_of(world, (), 1).services[0].replicas
    assert [replica.draining for replica in listed] == [True, True, False]


def test_a_service_that_stops_gets_no_new_requests_and_lets_none_wait() -> None:
    own = service(row(1), state=ServiceState.STOPPING)
    (entry,) = routes_of(world_of(own), (), 1).services
    assert entry.queue_requests == 0
    assert all(replica.draining for replica in entry.replicas)


def test_a_trial_gets_its_share_until_it_has_passed() -> None:
    revisions = (spec(), spec(canary=CanaryRule(share=0.2, seconds=60.0)))
    trial = service(row(1), row(2, 2), revisions=revisions, trial=2)
    (entry,) = routes_of(world_of(trial), (), 1).services
    assert entry.canary == CanaryEntry(revision=2, share=0.2)
    passed = service(row(1), row(2, 2), revisions=revisions, trial=2, passed=True)
    (entry,) = routes_of(world_of(passed), (), 1).services
    assert entry.canary is None


def test_the_model_of_one_service_may_have_the_name_of_another_service(
    tmp_path: Path,
) -> None:
    first = service(spec=spec("chat", models=("tiny",)))
    second = service(id="j2", spec=spec("other", models=("chat",)))
    routes = routes_of(world_of(first, second), (), 1)
    assert [entry.models for entry in routes.services] == [
        ("tiny",),
        ("chat", "other"),
    ]


def test_what_the_head_writes_is_what_a_gateway_reads(tmp_path: Path) -> None:
    published = PublishedRoutes()
    callers = callers_of([token(1)], USERS, NOW)
    published.update(world_of(service(row(1), row(2))), callers)
    file = tmp_path / "routes.json"
    file.write_bytes(published.text)
    assert read_routes_file(file, host="127.0.0.1") == published.current


@pytest.mark.parametrize(
    ("one", "may_call"),
    [
        (token(1), True),
        (token(1, role=Role.CALLER), True),
        (token(1, role=Role.VIEWER), False),
        (token(1, "vera"), False),
        (token(1, "vera", Role.CALLER), True),
        (token(1, "gone"), False),
        (token(1, "nobody"), False),
        (token(1, revoked_at=2.0), False),
        (token(1, expires_at=NOW), False),
        (token(1, expires_at=NOW + 1), True),
        (token(1, kind=TokenKind.SESSION, idle_seconds=1e9), False),
        (token(1, kind=TokenKind.LINK), False),
        (token(1, "n1", Role.NODE, node=NodeId("n1")), False),
        (token(1, role=Role.JOIN, uses_left=3), False),
    ],
)
def test_only_valid_tokens_of_users_who_may_use_the_cluster_call_services(
    one: Token, may_call: bool
) -> None:
    expected = (CallerEntry(name=f"{one.user}/t1", key_sha256=one.sha256),)
    assert callers_of([one], USERS, NOW) == (expected if may_call else ())


def test_each_token_of_a_user_is_a_caller_of_its_own() -> None:
    callers = callers_of([token(2), token(1)], USERS, NOW)
    assert [caller.name for caller in callers] == ["ann/t1", "ann/t2"]
    assert {user_of_caller(caller.name) for caller in callers} == {"ann"}


def test_the_version_rises_with_the_content_alone_and_with_each_leader() -> None:
    published = PublishedRoutes()
    world = world_of(service(row(1)))
    assert published.update(world, ())
    first = published.current
    assert not published.update(world, ())
    assert published.current is first
    assert published.update(world, callers_of([token(1)], USERS, NOW))
    second = published.current
    assert first is not None
    assert second is not None
    assert second.version == first.version + 1
    world.term += 1
    later = PublishedRoutes()
    empty = decode_routes(later.text_for(World(cluster=world.cluster, term=4)))
    assert later.update(world, ())
    assert later.current is not None
    assert later.current.version > empty.version > second.version
    assert empty == RoutesFile(version=empty.version)


def test_a_new_leader_takes_no_services_from_the_gateways() -> None:
    published = PublishedRoutes()
    world = world_of(service(row(1)))
    with pytest.raises(Trouble, match="has not published its routes yet"):
        published.text_for(world)
    published.update(world, ())
    assert published.text_for(world) == published.text


def test_the_tokens_of_a_user_share_the_limits_of_the_user_or_of_the_cluster() -> None:
    limits = (("concurrent_requests", 4), ("jobs", 1), ("tokens_per_minute", 90))
    users = [
        User(name=UserName("ann"), role=Role.USER, created_at=1.0, limits=limits),
        User(name=UserName("bob"), role=Role.ADMIN, created_at=1.0),
    ]
    tokens = [token(1), token(2), token(3, "bob")]
    first, second, third = callers_of(tokens, users, NOW)
    assert (first.group, first.concurrency, first.tokens_per_minute) == ("ann", 4, 90)
    assert first.requests_per_minute is None
    assert (second.group, second.concurrency) == ("ann", 4)
    assert (third.group, third.concurrency) == (None, None)
    cluster = {"tokens_per_minute": 7, "requests_per_minute": 8}
    first, _, third = callers_of(tokens, users, NOW, cluster)
    assert (first.requests_per_minute, first.tokens_per_minute) == (8, 90)
    assert (third.group, third.tokens_per_minute) == ("bob", 7)


def test_each_gateway_gets_its_parts_and_parts_are_a_new_version(
    tmp_path: Path,
) -> None:
    published, deals = PublishedRoutes(), LimitDeals()
    world = world_of(service(row(1)))
    entry = CallerEntry(
        name="ann/t1", key_sha256="0" * 64, group="ann", requests_per_minute=100
    )
    published.update(world, [entry])
    assert decode_routes(published.text).callers == (entry,)
    first = published.current
    for gateway in (OWN_GATEWAY, "olga/b"):
        deals.meet(gateway, 0.0)
    assert published.update(world, [entry], deals.deal([entry], 0.0))
    assert first is not None
    assert published.current is not None
    assert published.current.version > first.version
    parts = [
        decode_routes(text).callers[0].requests_per_minute
        for text in (
            published.text,
            published.text_for(world, "olga/b"),
            published.text_for(world, "olga/new"),
        )
    ]
    assert parts == [50.0, 50.0, 1.0]
    file = tmp_path / "routes.json"
    file.write_bytes(published.text)
    assert read_routes_file(file, host="127.0.0.1").callers[0].group == "ann"
    assert not published.update(world, [entry], deals.deal([entry], 1.0))
