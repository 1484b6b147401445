"""Services whose replicas prefill and decode apart: two groups of one revision, with
numbers of their own, that are replaced in pairs and lie together."""

from dataclasses import replace
from typing import Any

import pytest

from corral.domain.job_states import JobState
from corral.domain.node import Node
from corral.domain.placement_constraints import Level, Mode, PlaceRule, Topology
from corral.domain.role_rule import RoleRule
from corral.domain.service import ServiceSpec
from corral.domain.service_condition import ServiceCondition, condition_of
from corral.domain.serving_roles import CacheTransfer, ServingRole
from corral.reconcile.services.rollout import CRASH_LOOP
from tests.reconcile.serving import (
    AT_ONCE,
    Serving,
    replica_job,
    revisions,
    service_spec,
)
from tests.worlds import node

PREFILL, DECODE = ServingRole.PREFILL, ServingRole.DECODE
Range = tuple[int, int]


def roles_spec(
    run: str = "v1",
    prefill: Range = (1, 1),
    decode: Range = (2, 2),
    *,
    place: PlaceRule | None = None,
    **more: Any,
) -> ServiceSpec:
    replica = replace(replica_job(f"serve {run}"), place=place or PlaceRule())
    rules = tuple(
        RoleRule(
            role=role,
            min_replicas=low,
            max_replicas=high,
            replica=replace(replica, run=f"{role.value} {run}"),
        )
        for role, (low, high) in ((PREFILL, prefill), (DECODE, decode))
    )
    return service_spec(
        replica=replica,
        min_replicas=decode[0],
        max_replicas=decode[1],
        roles=rules,
        transfer=CacheTransfer.SHARED,
        **more,
    )


def roles_of(serving: Serving) -> dict[int, str]:
    """Return the roles of the replicas that are not being drained, by number."""
    rows = (row for row in serving.rows if row.draining_at is None)
    return {row.number: row.role.value for row in rows}


def serving_of(spec: ServiceSpec | None = None, *, nodes: int = 4) -> Serving:
    serving = Serving(spec or roles_spec(), nodes=nodes)
    serving.ready()
    return serving


def counts(serving: Serving) -> tuple[int, int]:
    roles = list(roles_of(serving).values())
    return roles.count("prefill"), roles.count("decode")


# -- two groups ------------------------------------------------------------------------


def test_each_role_has_replicas_with_a_command_and_a_transfer_port_of_their_own() -> (
    None
):
    serving = serving_of()
    assert roles_of(serving) == {1: "prefill", 2: "decode", 3: "decode"}
    for row in serving.rows:
        job, attempt = serving.job(row.number), serving.cluster.world.attempts[row.job]
        assert job.spec.run == f"{row.role.value} v1"
        assert job.spec.replica is not None
        assert job.spec.replica.role is row.role
        assert attempt.transfer_port not in (None, attempt.listening_port)
    assert serving.service.ready_text == "3 of 3 replicas ready"
    assert condition_of(serving.service) is ServiceCondition.READY


def test_replicas_without_a_role_have_no_transfer_port() -> None:
    serving = serving_of(service_spec())
    attempt = serving.cluster.world.attempts[serving.row(1).job]
    assert attempt.transfer_port is None


def test_without_its_prefill_replicas_a_service_goes_on_and_gets_another_one() -> None:
    serving = serving_of()
    serving.end(1)
    assert serving.ready_numbers == [2, 3]
    assert condition_of(serving.service) is ServiceCondition.PARTIAL
    serving.tick(2.0)
    assert roles_of(serving) == {2: "decode", 3: "decode", 4: "prefill"}
    serving.ready(4)
    assert condition_of(serving.service) is ServiceCondition.READY


def test_prefill_replicas_that_end_early_do_not_delay_those_that_decode() -> None:
    serving = serving_of()
    for number in (1, 4, 5):
        serving.crash(number)
        serving.tick(10.0)
        serving.up(max(roles_of(serving)))
    group = serving.service.prefill
    assert group.fruitless == 3
    assert "never ready" in group.last_end
    assert (serving.service.fruitless, serving.service.retry_at) == (0, None)
    serving.end(2)
    serving.tick(2.0)
    assert counts(serving)[1] == 2


def test_each_group_follows_its_own_demand() -> None:
    serving = serving_of(roles_spec(prefill=(1, 3), decode=(1, 3)), nodes=6)
    assert counts(serving) == (1, 1)
    serving.measure(wanted=1, prefill_wanted=3, prefill_reason="prompts wait.")
    serving.tick()
    serving.ready()
    serving.tick()
    assert counts(serving) == (3, 1)
    assert serving.service.prefill.reason == "prompts wait"
    assert "3 prefill replicas now, 1 before" in serving.told("service_scaled")[-1]
    serving.measure(wanted=9, prefill_wanted=0)
    serving.tick()
    serving.tick()
    assert counts(serving) == (1, 3)
    assert "at least 1 prefill replica" in serving.service.prefill.reason
    assert "at most 3 decode replicas" in serving.service.reason


def test_a_role_is_scaled_by_hand_and_the_other_one_stays() -> None:
    serving = serving_of(nodes=6)
    serving.scale(2, 2, PREFILL)
    serving.tick()
    assert counts(serving) == (2, 2)
    serving.scale(1, 1, DECODE)
    serving.tick()
    assert counts(serving) == (2, 1)
    assert serving.service.spec.replicas_text == "prefill 2, decode 1"
    serving.scale(3, 3)  # refused before; its groups are not its own
    serving.tick()
    assert counts(serving) == (2, 1)


def test_a_service_that_is_stopped_ends_both_groups() -> None:
    serving = serving_of()
    serving.stop()
    serving.tick(60.0)
    serving.leave()
    serving.tick()
    assert serving.told("service_stopped")[-1] == "service chat is stopped"


# -- revisions -------------------------------------------------------------------------


def test_a_trial_begins_once_a_pair_of_the_new_revision_is_ready() -> None:
    serving = serving_of(nodes=6)
    serving.apply(roles_spec("v2"))
    assert [roles_of(serving)[number] for number in (4, 5)] == ["prefill", "decode"]
    serving.ready(5)
    assert serving.service.trial_since is None
    serving.ready(4)
    assert serving.service.trial_since == serving.cluster.wall


def test_a_trial_that_does_not_pass_ends_both_of_its_replicas() -> None:
    serving = serving_of(nodes=6)
    serving.apply(roles_spec("v2"))
    serving.ready()
    serving.tick(3.0)
    assert {row.role for row in serving.rows if row.revision == 2} == {PREFILL, DECODE}
    serving.measure(verdict=False, verdict_reason="2 % errors")
    serving.tick()
    assert serving.service.turned_back == 2
    assert revisions(serving) == {1: 1, 2: 1, 3: 1}


@pytest.mark.parametrize("role", [PREFILL, DECODE])
def test_a_crash_loop_of_either_role_ends_the_trial(role: ServingRole) -> None:
    serving = serving_of(nodes=6)
    serving.apply(roles_spec("v2"))
    for _ in range(CRASH_LOOP):
        assert serving.service.trial == 2
        tried = [row for row in serving.rows if row.revision == 2 and row.role is role]
        serving.up(tried[-1].number)
        serving.end(tried[-1].number)
        serving.tick(10.0)
    assert serving.service.turned_back == 2
    assert revisions(serving) == {1: 1, 2: 1, 3: 1}


def test_a_new_revision_replaces_each_group_with_one_replica_more() -> None:
    serving = serving_of(roles_spec(prefill=(2, 2), canary=AT_ONCE), nodes=8)
    serving.apply(roles_spec("v2", prefill=(2, 2), canary=AT_ONCE))
    for _ in range(8):
        serving.tick()
        live = [row for row in serving.rows if row.draining_at is None]
        prefill = [row for row in live if row.role is PREFILL]
        assert len(prefill) <= 3
        assert len(live) - len(prefill) <= 3
        assert sum(row.is_ready for row in prefill) >= 2
        assert sum(row.is_ready for row in live if row.role is DECODE) >= 2
        unready = [row.number for row in live if not row.is_ready]
        if unready:
            serving.ready(unready[0])
    serving.tick()
    assert serving.service.current == 2
    assert set(revisions(serving).values()) == {2}
    assert counts(serving) == (2, 2)


def test_the_last_old_prefill_replica_stays_while_old_ones_decode() -> None:
    serving = serving_of(roles_spec(canary=AT_ONCE), nodes=6)
    serving.apply(roles_spec("v2", canary=AT_ONCE))
    serving.tick()
    new_prefill = next(
        row.number for row in serving.rows if row.revision == 2 and row.role is PREFILL
    )
    serving.ready(new_prefill)
    serving.tick()
    assert serving.row(1).draining_at is None
    for _ in range(2):
        decoding = [
            row.number
            for row in serving.rows
            if row.revision == 2 and row.role is DECODE and not row.is_ready
        ]
        serving.ready(*decoding)
        serving.tick()
    assert {row.revision for row in serving.rows if row.draining_at is None} == {2}


def test_a_rollback_takes_both_groups() -> None:
    serving = serving_of(roles_spec(canary=AT_ONCE), nodes=8)
    serving.apply(roles_spec("v2", canary=AT_ONCE))
    for _ in range(6):
        serving.ready()
    assert serving.service.current == 2
    serving.leave()
    serving.roll_back()
    for _ in range(6):
        serving.ready()
    live = [row for row in serving.rows if row.draining_at is None]
    assert {serving.job(row.number).spec.run for row in live} == {
        "prefill v1",
        "decode v1",
    }


def test_a_service_gets_roles_and_loses_them_by_a_new_revision() -> None:
    whole = service_spec(min_replicas=2, max_replicas=2, canary=AT_ONCE)
    serving = serving_of(whole, nodes=8)
    serving.apply(roles_spec(canary=AT_ONCE))
    for _ in range(6):
        serving.ready()
    serving.leave()
    assert (serving.service.current, counts(serving)) == (2, (1, 2))
    serving.apply(whole)
    for _ in range(6):
        serving.ready()
    serving.leave()
    assert serving.service.current == 3
    assert list(roles_of(serving).values()) == ["", ""]
    assert serving.service.prefill.wanted == 0


def test_a_revision_without_roles_is_tried_by_one_replica() -> None:
    serving = serving_of(nodes=6)
    serving.apply(service_spec("serve v2"))
    serving.ready()
    tried = [row.role for row in serving.rows if row.revision == 2]
    assert tried == [ServingRole.WHOLE]
    assert serving.service.trial_since == serving.cluster.wall


# -- places ----------------------------------------------------------------------------


def racks(*gpus: tuple[str, int]) -> list[Node]:
    """Return one node in a rack for each (rack, GPUs)."""
    nodes = []
    for number, (rack, count) in enumerate(gpus, 1):
        plain = node(f"n{number}", count)
        inventory = replace(plain.inventory, labels=(("rack", rack),))
        nodes.append(replace(plain, inventory=inventory))
    return nodes


def racks_of(serving: Serving) -> set[str]:
    world = serving.cluster.world
    return {
        world.nodes[id].labels["rack"]
        for row in serving.rows
        for id in (world.attempts[row.job].nodes if row.job in world.attempts else ())
    }


def in_rack() -> PlaceRule:
    return PlaceRule(topology=Topology(mode=Mode.REQUIRE, within=Level.RACK))


def test_replicas_of_both_roles_lie_in_the_rack_that_has_room() -> None:
    nodes = racks(("a", 1), ("a", 1), ("b", 2), ("b", 2), ("c", 1))
    serving = Serving(roles_spec(place=in_rack()), nodes=nodes)
    serving.ready()
    assert serving.ready_numbers == [1, 2, 3]
    assert racks_of(serving) == {"b"}


def test_a_replica_waits_for_the_rack_of_the_others_and_says_so() -> None:
    nodes = racks(("a", 2), ("b", 1), ("c", 1))
    serving = Serving(roles_spec(place=in_rack()), nodes=nodes)
    serving.ready()
    serving.tick()
    waiting = [row for row in serving.rows if not row.is_ready]
    assert racks_of(serving) == {"a"}
    assert len(waiting) == 1
    assert serving.cluster.world.jobs[waiting[0].job].state is JobState.QUEUED
    assert serving.cluster.outcome is not None
    reasons = serving.cluster.outcome.reasons
    assert reasons is not None
    reason = reasons[waiting[0].job]
    assert "the rack of the other replicas of chat" in reason.sentence
    assert any("mode: prefer" in text for text in reason.suggestions)


def test_a_later_replica_waits_for_the_rack_of_the_first_ones() -> None:
    nodes = racks(("a", 3), ("b", 2))
    serving = Serving(roles_spec(place=in_rack()), nodes=nodes)
    serving.ready()
    serving.scale(3, 3, DECODE)
    serving.tick()
    assert racks_of(serving) == {"a"}
    assert len(serving.rows) == 4


def test_the_rack_of_the_others_is_preferred() -> None:
    nodes = racks(("a", 1), ("b", 1), ("a", 2))
    serving = Serving(roles_spec(), nodes=nodes)
    serving.ready()
    assert serving.ready_numbers == [1, 2, 3]
    assert racks_of(serving) == {"a"}


def test_without_a_requirement_another_rack_is_used_once_the_first_is_full() -> None:
    serving = Serving(roles_spec(), nodes=racks(("a", 2), ("b", 1)))
    serving.ready()
    assert serving.ready_numbers == [1, 2, 3]
    assert racks_of(serving) == {"a", "b"}
