"""Each fault code has one row, an action, and where peers disagree a reason for
ours."""

import pytest

from corral.catalog.facts import table
from corral.catalog.fault_codes import (
    JobConsequence,
    codes_in,
    family_of,
    named_by_driver,
    rule_of,
    rules,
)
from corral.domain.node_fault import Remedy, Restriction
from corral.domain.node_signal import SignalKind

XID = SignalKind.XID
FAMILIES = ("", "ampere", "hopper", "blackwell")


def test_every_row_of_the_table_can_be_read() -> None:
    assert len(rules()) > 40
    for row in table("fault_codes").values():
        assert {"kind", "title", "action"} <= row.keys()
        Remedy(row["action"].value)


@pytest.mark.parametrize("kind", SignalKind)
def test_each_signal_has_a_rule_whatever_its_code_and_its_gpu(kind: SignalKind) -> None:
    for family in FAMILIES:
        for code in (None, 0, 1, 77_777):
            assert rule_of(kind, code, family).title


def test_whoever_disagrees_is_told_why() -> None:
    assert all(bool(rule.differs) == bool(rule.because) for rule in rules())


def test_a_row_never_ends_jobs_and_then_lets_its_node_take_them_again_at_once() -> None:
    for rule in rules():
        if rule.jobs != JobConsequence.RUN_ON and rule.remedy != Remedy.RESTART_APP:
            assert rule.restriction == Restriction.DRAIN, rule.subject


@pytest.mark.parametrize(
    ("code", "remedy"),
    [
        (13, Remedy.RESTART_APP),
        (43, Remedy.IGNORE),
        (48, Remedy.RESET),
        (63, Remedy.RESET),
        (64, Remedy.RMA),
        (79, Remedy.REBOOT),
        (92, Remedy.IGNORE),
        (94, Remedy.RESTART_APP),
        (95, Remedy.RESET),
        (109, Remedy.RESET),
        (119, Remedy.RESET),
        (158, Remedy.RESET),
        (9999, Remedy.DEEP_TEST),
    ],
)
def test_the_action_of_a_code_is_that_of_the_table(code: int, remedy: Remedy) -> None:
    assert rule_of(XID, code).remedy == remedy


@pytest.mark.parametrize(
    ("gpu", "code", "remedy"),
    [
        ("a100", 74, Remedy.RESET),
        ("h100", 74, Remedy.RESET),
        ("gb200", 74, Remedy.DEEP_TEST),
        ("h100", 149, Remedy.DEEP_TEST),
        ("b200", 149, Remedy.RESET),
        ("gb300", 144, Remedy.RESET),
    ],
)
def test_a_links_code_means_what_its_family_says(
    gpu: str, code: int, remedy: Remedy
) -> None:
    assert rule_of(XID, code, family_of(gpu)).remedy == remedy


def test_an_unknown_code_ends_nothing_and_closes_nothing() -> None:
    rule = rule_of(XID, 9999)
    assert (rule.restriction, rule.jobs) == (Restriction.AVOID, JobConsequence.RUN_ON)


@pytest.mark.parametrize(
    ("said", "remedy"),
    [
        ("None", Remedy.IGNORE),
        ("GPU Reset Required", Remedy.RESET),
        ("Node Reboot Required", Remedy.REBOOT),
        ("Drain and Reset", Remedy.RESET),
        ("Drain P2P", Remedy.DRAIN),
        ("", None),
        ("something new", None),
    ],
)
def test_the_drivers_own_words_name_a_remedy(said: str, remedy: Remedy | None) -> None:
    assert named_by_driver(said) == remedy


def test_codes_are_single_or_ranges() -> None:
    assert codes_in("48 144-146") == (48, 144, 145, 146)
