"""The field `watch`: its forms, what each means, and what records of before mean."""

from typing import Any

import msgspec
import pytest

from corral.domain.hang import HangAct, WatchRule
from corral.domain.ids import ServiceName
from corral.domain.job import JobSpec, ReplicaRole
from corral.wire.spec_reader import parse_specs
from corral.wire.submission import to_domain

RESTART = WatchRule()
NO_HANG = WatchRule(is_on=False)


def read(watch: str) -> JobSpec:
    (spec,) = to_domain(parse_specs(f"name: a\nrun: x\n{watch}\n", source="job.yaml"))
    return spec


@pytest.mark.parametrize(
    ("written", "counts", "rule"),
    [
        ("", True, RESTART),
        ("watch: true", True, RESTART),
        ("watch: on", True, RESTART),
        ("watch: {}", True, RESTART),
        ("watch: {hang: auto, act: restart}", True, RESTART),
        ("watch: {hang: 5m}", True, WatchRule(bound_seconds=300.0)),
        ("watch: {hang: 5s}", True, WatchRule(bound_seconds=5.0)),
        ("watch: {act: alert}", True, WatchRule(act=HangAct.ALERT)),
        ("watch: {hang: off}", True, NO_HANG),
        ("watch: {hang: false, act: alert}", True, NO_HANG),
        ("watch: false", False, NO_HANG),
        ("watch: off", False, NO_HANG),
    ],
)
def test_each_form_means_whether_steps_are_counted_and_what_a_hang_leads_to(
    written: str, counts: bool, rule: WatchRule
) -> None:
    spec = read(written)
    assert (spec.watch, spec.hang_rule) == (counts, rule)


@pytest.mark.parametrize(
    ("record", "rule"), [({"watch": True}, RESTART), ({"watch": False}, NO_HANG)]
)
def test_a_record_of_before_the_rule_reads_as_its_default_and_off_stays_off(
    record: dict[str, Any], rule: WatchRule
) -> None:
    spec = msgspec.convert({"name": "a", "run": "x", **record}, JobSpec)
    assert spec.hang_rule == rule
    assert msgspec.json.decode(msgspec.json.encode(spec), type=JobSpec) == spec


def test_hangs_of_replicas_are_never_looked_for() -> None:
    role = ReplicaRole(
        service=ServiceName("chat"), revision=1, probe="/health", key_seed="seed"
    )
    spec = JobSpec(name="a", run="x", replica=role, hang=WatchRule(bound_seconds=5.0))
    assert spec.hang_rule == NO_HANG
