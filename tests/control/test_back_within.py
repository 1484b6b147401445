"""A bound within which no replica has woken so far is refused."""

from dataclasses import replace

import pytest

from corral.control.service_checks import check_service
from corral.domain.errors import Conflict
from corral.domain.ids import ClusterId, JobId, UserName
from corral.domain.lending import ParkBy
from corral.domain.requests import ApplyService
from corral.domain.service import ScaleRule, Service, ServiceRevision
from corral.domain.world import World
from tests.services import SEED, service_spec

WAKES = (4.0, 12.4, 5.0)


def world_with(wakes: tuple[float, ...]) -> World:
    spec = service_spec(park=ParkBy.CACHE)
    revision = ServiceRevision(number=1, spec=spec, by=UserName("alice"), at=0.0)
    service = Service(
        id=JobId("j1"),
        name=spec.name,
        owner=UserName("alice"),
        created_at=0.0,
        revisions=(revision,),
        current=1,
        key_seed=SEED,
        wakes=wakes,
    )
    world = World(cluster=ClusterId("c"), term=1)
    world.services = {service.name: service}
    return world


def apply(world: World, within: float | None) -> None:
    spec = service_spec(park=ParkBy.CACHE)
    scale = ScaleRule(back_within_seconds=within)
    check_service(world, ApplyService(spec=replace(spec, scale=scale), key_seed=SEED))


def test_a_bound_below_the_longest_wake_is_refused_with_the_times() -> None:
    with pytest.raises(Conflict) as refused:
        apply(world_with(WAKES), 10.0)
    assert "within 10 s: its last 3 wakes took up to 12.4 s" in str(refused.value)
    assert "in the median 5.0 s" in str(refused.value)
    assert refused.value.hint == "write: scale: {back_within: 25s}"


def test_a_bound_that_can_be_kept_is_accepted() -> None:
    apply(world_with(WAKES), 12.5)
    apply(world_with(WAKES), None)
    apply(world_with(()), 0.1)  # not measured yet
