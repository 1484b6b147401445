"""Callers, adapters, fallbacks and budgets in the routes."""

from dataclasses import replace
from typing import Any

import pytest

from corral.control.services.routes import RouteInputs, callers_of, routes_of
from corral.domain.ids import QueueName, ServiceName, TokenId, UserName
from corral.domain.queue import Queue
from corral.domain.queue_tree import QueueTree
from corral.domain.service import ServiceState
from corral.domain.service_access import Adapter, CallAccess, FallbackRule, may_call
from corral.domain.users import Role, Token, User
from corral.wire.gateway_routes import (
    AdapterEntry,
    FallbackEntry,
    RoutesFile,
    ServiceEntry,
)
from tests.control.services import service, spec, world_of
from tests.worlds import ALICE

TREE = QueueTree(
    queues=(
        Queue(name=QueueName("default")),
        Queue(name=QueueName("research"), allow=("ann", "@operator")),
        Queue(name=QueueName("lab"), parent=QueueName("research"), tokens_per_month=5),
    )
)
ROLES = {"ann": Role.USER, "bob": Role.USER, "olga": Role.OPERATOR, ALICE: Role.USER}
USERS = [
    User(name=UserName(name), role=role, created_at=1.0) for name, role in ROLES.items()
]
TOKENS = [
    Token(
        id=TokenId(f"t{number}"),
        sha256=f"{number:064x}",
        user=user.name,
        role=user.role,
        created_at=1.0,
    )
    for number, user in enumerate(USERS)
]
RULE = FallbackRule(url="https://api.example.com/v1", model="large", secret="KEY")


def routes(**settings: Any) -> RoutesFile:
    inputs = settings.pop("inputs", None)
    state = settings.pop("state", ServiceState.ACTIVE)
    world = world_of(service(spec=spec(**settings), state=state))
    world.queues = TREE
    roles = {user.name: user.role for user in USERS}
    callers = callers_of(TOKENS, USERS, 10.0)
    return routes_of(world, callers, 1, inputs or RouteInputs(roles=roles))


def entry(**settings: Any) -> ServiceEntry:
    (one,) = routes(**settings).services
    return one


@pytest.mark.parametrize(
    ("access", "users"),
    [
        (None, None),
        (CallAccess(), {"olga", ALICE}),
        (CallAccess(users=("ann",)), {"ann", "olga", ALICE}),
        (CallAccess(users=("@user",)), {*ROLES}),
        (CallAccess(queues=(QueueName("lab"),)), {"ann", "olga", ALICE}),
        (CallAccess(queues=(QueueName("default"),)), {*ROLES}),
        (CallAccess(queues=(QueueName("gone"),)), {"olga", ALICE}),
    ],
)
def test_the_owner_operators_and_those_that_are_named_may_call(
    access: CallAccess | None, users: set[str] | None
) -> None:
    allow = entry(allow=access).allow
    names = None if allow is None else {one.partition("/")[0] for one in allow}
    assert names == users
    for name, role in ROLES.items():
        is_allowed = may_call(access, ALICE, UserName(name), role, TREE)
        assert is_allowed == (users is None or name in users)


def test_adapters_are_named_with_the_place_that_the_engine_reads() -> None:
    adapters = (
        Adapter(name="legal", source="/data/legal"),
        Adapter(name="tone", source="hf://org/tone"),
    )
    one = entry(adapters=adapters, max_adapters=3, engine="vllm")
    assert one.adapters == (
        AdapterEntry(name="legal", path="/data/legal"),
        AdapterEntry(name="tone", path="org/tone"),
    )
    assert (one.adapter_calls, one.max_adapters) == ("vllm", 3)
    assert entry(engine="vllm").adapter_calls == "none"


def test_a_fallback_is_listed_with_its_key_and_not_without_it() -> None:
    keys = {ServiceName("chat"): "sk-1"}
    inputs = RouteInputs(fallback_keys=keys, fallback_private_ok=True)
    assert entry(fallback=RULE, inputs=inputs).fallback == FallbackEntry(
        url=RULE.url, model="large", key="sk-1", private_ok=True
    )
    assert entry(fallback=RULE).fallback is None
    assert entry(inputs=inputs).fallback is None
    stopping = entry(fallback=RULE, inputs=inputs, state=ServiceState.STOPPING)
    assert stopping.fallback is None
    assert "sk-1" not in repr(inputs)


def test_requests_count_in_the_budgets_of_their_user_and_queues() -> None:
    limited = [
        User(
            name=UserName("ann"),
            role=Role.USER,
            created_at=1.0,
            limits=(("tokens_per_month", 9),),
        ),
        *USERS[1:],
    ]
    first, second, *_ = callers_of(TOKENS, limited, 10.0)
    budgets = {one.name.partition("/")[0]: one.budget for one in (first, second)}
    assert budgets == {"alice": None, "ann": "user ann"}
    assert entry().budgets == ()
    replica = replace(spec().replica, queue=QueueName("lab"))
    own = service(spec=replace(spec(), replica=replica))
    world = world_of(own)
    world.queues = TREE
    (one,) = routes_of(world, (), 1).services
    assert one.budgets == ("queue lab",)
