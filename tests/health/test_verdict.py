"""What signals mean over time: pairs settle, flaps are counted, what repeats climbs,
all passes."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import pytest

from corral.domain.ids import UserName
from corral.domain.node_fault import (
    NodeCondition,
    Remedy,
    Restriction,
    strictest_restriction,
    worst,
)
from corral.domain.node_signal import Signal, SignalKind
from corral.health.health_rules import HealthRules
from corral.health.node_diagnosis import (
    Noticed,
    Struck,
    booted,
    excused,
    judge_conditions,
    mended,
)

XID = SignalKind.XID
HOUR = 3600.0
DAY = 86400.0
RULES = HealthRules()


class Patient:
    """One node's conditions through time."""

    def __init__(self, family: str = "hopper") -> None:
        self.now = 1_000_000.0
        self.conditions: tuple[NodeCondition, ...] = ()
        self.struck: list[Struck] = []
        self._family = family
        self._numbers = count(1)

    def meets(
        self,
        kind: SignalKind,
        code: int | None = None,
        *,
        gpu: int | None = 0,
        device: str = "",
        recovery: str = "",
        users: Sequence[str] = (),
        uuid: str = "",
        lasting: bool = False,
    ) -> "Patient":
        signal = Signal(
            number=next(self._numbers),
            at=self.now,
            kind=kind,
            code=code,
            gpu=gpu,
            device=device,
            recovery=recovery,
            text=f"{kind} {code}",
            uuid=uuid,
            lasting=lasting,
        )
        self._look(
            [Noticed(signal=signal, users=tuple(UserName(user) for user in users))]
        )
        return self

    def after(self, seconds: float) -> "Patient":
        self.now += seconds
        self._look([])
        return self

    def _look(self, new: Sequence[Noticed]) -> None:
        self.conditions, struck = judge_conditions(
            self.conditions, new, self.now, RULES, lambda _: self._family
        )
        self.struck += struck

    @property
    def restriction(self) -> Restriction:
        return strictest_restriction(self.conditions)

    @property
    def remedy(self) -> Remedy:
        one = worst(self.conditions)
        return one.remedy if one is not None else Remedy.IGNORE


def test_a_gpu_that_is_lost_drains_its_node_and_ends_the_jobs_on_it_once() -> None:
    node = Patient().meets(XID, 79, gpu=3)
    assert (node.restriction, node.remedy) == (Restriction.DRAIN, Remedy.REBOOT)
    assert [(one.condition.gpu, one.whole_node) for one in node.struck] == [(3, False)]
    assert len(node.after(1.0).after(60.0).struck) == 1


def test_a_contained_error_ends_its_jobs_and_leaves_the_node_open() -> None:
    node = Patient().meets(XID, 94)
    assert (node.restriction, node.remedy, len(node.struck)) == (
        Restriction.OPEN,
        Remedy.RESTART_APP,
        1,
    )


@pytest.mark.parametrize("codes", [(48, 63), (63, 48)])
@pytest.mark.parametrize("gap", [0.0, 2.0, 5.0])
def test_a_double_bit_error_with_a_remap_is_a_reset_in_either_order(
    codes: tuple[int, int], gap: float
) -> None:
    node = Patient().meets(XID, codes[0])
    assert node.restriction == Restriction.AVOID, "the first line alone closes nothing"
    node.now += gap
    node.meets(XID, codes[1])
    assert (node.restriction, node.remedy) == (Restriction.DRAIN, Remedy.RESET)


@pytest.mark.parametrize("codes", [(48, 64), (64, 48)])
@pytest.mark.parametrize("gap", [0.0, 2.0, 5.0, 55.0])
def test_a_double_bit_error_with_a_failed_remap_is_an_rma_in_either_order(
    codes: tuple[int, int], gap: float
) -> None:
    node = Patient().meets(XID, codes[0])
    assert node.restriction == Restriction.AVOID
    node.now += gap
    node.meets(XID, codes[1])
    assert (node.restriction, node.remedy) == (Restriction.DRAIN, Remedy.RMA)


def test_alone_a_double_bit_error_is_a_reset_once_it_has_settled() -> None:
    node = Patient().meets(XID, 48)
    assert (node.restriction, node.struck) == (Restriction.AVOID, [])
    assert node.after(9.0).restriction == Restriction.AVOID
    node.after(2.0)
    assert (node.restriction, node.remedy, len(node.struck)) == (
        Restriction.DRAIN,
        Remedy.RESET,
        1,
    )


def test_a_pending_remap_alone_disturbs_nobody() -> None:
    node = Patient().meets(XID, 63).after(60.0)
    assert (node.restriction, node.remedy, node.struck) == (
        Restriction.AVOID,
        Remedy.RESET,
        [],
    )


def test_what_holds_and_is_told_again_by_who_comes_later_has_not_come_again() -> None:
    node = Patient()
    for _ in range(4):
        node.meets(SignalKind.REMAP, 0, lasting=True).after(HOUR)
    assert (node.restriction, node.remedy, node.conditions[0].count) == (
        Restriction.AVOID,
        Remedy.RESET,
        4,
    )
    again = Patient().meets(SignalKind.REMAP, 0).after(HOUR).meets(SignalKind.REMAP, 0)
    assert (again.restriction, again.remedy) == (Restriction.DRAIN, Remedy.DEEP_TEST)


def test_gpus_that_have_names_of_their_own_are_told_apart_by_these_and_not_by_their_index() -> (
    None
):
    others = Patient()
    for name, user in (("GPU-a", "ada"), ("GPU-b", "bob"), ("GPU-c", "eve")):
        others.meets(XID, 31, gpu=0, uuid=name, users=[user])
    assert (others.restriction, len(others.conditions)) == (Restriction.OPEN, 3)
    same = Patient()
    for index, user in enumerate(("ada", "bob", "eve")):
        same.meets(XID, 31, gpu=index, uuid="GPU-a", users=[user])
    assert (same.restriction, [one.gpu for one in same.conditions]) == (
        Restriction.CORDON,
        [2],
    )
    assert same.conditions[0].where == "GPU-a"
    apart = Patient().meets(XID, 48, uuid="GPU-a").meets(XID, 64, uuid="GPU-b")
    assert {(one.uuid, one.remedy) for one in apart.conditions} == {
        ("GPU-a", Remedy.RESET),
        ("GPU-b", Remedy.RMA),
    }
    back = (
        Patient()
        .meets(XID, 95, gpu=1, uuid="GPU-a")
        .meets(XID, 95, gpu=1, uuid="GPU-b")
    )
    back.after(2 * HOUR).meets(XID, 154, gpu=5, uuid="GPU-a", recovery="None")
    assert {one.uuid for one in back.conditions if one.is_live and one.code == 95} == {
        "GPU-b"
    }


def test_a_pair_on_two_gpus_is_no_pair() -> None:
    node = Patient().meets(XID, 48, gpu=0).meets(XID, 64, gpu=1)
    assert {(one.gpu, one.remedy) for one in node.conditions} == {
        (0, Remedy.RESET),
        (1, Remedy.RMA),
    }


@pytest.mark.parametrize(
    ("said", "remedy", "restriction"),
    [
        ("GPU Reset Required", Remedy.RESET, Restriction.DRAIN),
        ("Node Reboot Required", Remedy.REBOOT, Restriction.DRAIN),
        ("None", Remedy.IGNORE, Restriction.OPEN),
    ],
)
def test_what_the_driver_names_overrides_the_table(
    said: str, remedy: Remedy, restriction: Restriction
) -> None:
    before = Patient().meets(XID, 154, recovery=said).meets(XID, 95)
    assert (before.remedy, before.restriction) == (remedy, restriction)
    after = Patient().meets(XID, 94).meets(XID, 154, recovery=said)
    assert after.restriction == restriction


def test_a_driver_that_needs_nothing_any_more_mends_what_a_reset_was_for() -> None:
    node = Patient().meets(XID, 95).after(2 * HOUR)
    assert node.restriction == Restriction.DRAIN
    assert node.meets(XID, 154, recovery="None").restriction == Restriction.OPEN


@pytest.mark.parametrize(
    "kind", [SignalKind.PORT_DOWN, SignalKind.NVLINK, SignalKind.PORT_ERRORS]
)
def test_one_flap_is_told_and_three_an_hour_close_the_node(kind: SignalKind) -> None:
    node = Patient().meets(kind, gpu=None, device="mlx5_0")
    assert node.restriction == Restriction.OPEN
    assert (
        node.after(600.0).meets(kind, gpu=None, device="mlx5_0").restriction
        == Restriction.OPEN
    )
    assert (
        node.after(600.0).meets(kind, gpu=None, device="mlx5_0").restriction
        == Restriction.CORDON
    )
    assert node.after(0.9 * HOUR).restriction == Restriction.CORDON
    assert node.after(0.2 * HOUR).restriction == Restriction.OPEN, (
        "an hour without a flap, and it is open again"
    )
    assert (
        node.meets(kind, gpu=None, device="mlx5_0").restriction == Restriction.OPEN
    ), "and counts anew"


def test_flaps_of_two_ports_or_far_apart_do_not_add_up() -> None:
    node = Patient()
    for device in ("mlx5_0", "mlx5_1", "mlx5_0", "mlx5_1"):
        node.meets(SignalKind.PORT_DOWN, gpu=None, device=device)
    assert node.restriction == Restriction.OPEN
    node = Patient()
    for _ in range(5):
        assert (
            node.meets(SignalKind.PORT_DOWN, gpu=None).after(0.6 * HOUR).restriction
            == Restriction.OPEN
        )


@pytest.mark.parametrize("code", [13, 31, 43, 45, 68])
def test_a_fault_of_programs_does_not_blame_the_node(code: int) -> None:
    node = Patient()
    for _ in range(10):
        node.meets(XID, code, users=["ada", "bob"]).after(700.0)
    assert (node.restriction, node.struck) == (Restriction.OPEN, [])


def test_a_fault_of_programs_that_three_users_meet_on_one_gpu_is_the_gpus() -> None:
    node = Patient().meets(XID, 31, users=["ada"]).meets(XID, 31, users=["bob"])
    assert node.meets(XID, 31, gpu=1, users=["eve"]).restriction == Restriction.OPEN
    assert node.meets(XID, 31, users=["eve"]).restriction == Restriction.CORDON
    assert node.remedy == Remedy.DEEP_TEST
    slow = Patient()
    for user in ("ada", "bob", "eve"):
        slow.meets(XID, 31, users=[user]).after(0.9 * DAY)
    assert slow.restriction == Restriction.OPEN


@pytest.mark.parametrize(
    ("code", "ladder"),
    [
        (
            94,
            [
                Remedy.RESTART_APP,
                Remedy.RESET,
                Remedy.DEEP_TEST,
                Remedy.RMA,
                Remedy.RMA,
            ],
        ),
        (119, [Remedy.RESET, Remedy.DEEP_TEST, Remedy.RMA]),
        (79, [Remedy.REBOOT, Remedy.DEEP_TEST, Remedy.RMA]),
    ],
)
def test_what_comes_again_within_days_climbs(code: int, ladder: list[Remedy]) -> None:
    node = Patient()
    for remedy in ladder:
        assert node.meets(XID, code).remedy == remedy
        node.conditions = mended(node.conditions, node.now)
        assert node.after(DAY).restriction == Restriction.OPEN


def test_lines_of_one_outbreak_are_one() -> None:
    node = Patient()
    for _ in range(20):
        node.meets(XID, 119).after(5.0)
    assert (node.remedy, node.conditions[0].count) == (Remedy.RESET, 20)


def test_what_comes_again_after_the_days_begins_anew() -> None:
    node = Patient().meets(XID, 119)
    node.conditions = mended(node.conditions, node.now)
    assert node.after(8 * DAY).conditions == ()
    assert node.meets(XID, 119).remedy == Remedy.RESET


def test_a_boot_mends_what_a_reset_or_reboot_is_for_and_no_more() -> None:
    node = Patient().meets(XID, 79).meets(XID, 64, gpu=1).after(20.0)
    node.conditions = booted(node.conditions, node.now)
    assert [one.code for one in node.conditions if one.is_live] == [64]


def test_a_passed_check_shows_that_what_was_to_be_tested_is_well() -> None:
    node = (
        Patient()
        .meets(XID, 9999, gpu=2)
        .meets(SignalKind.CHECK, 1, gpu=1, device="matmul")
    )
    assert node.restriction == Restriction.CORDON
    assert (
        node.meets(SignalKind.CHECK, 0, gpu=1, device="matmul").restriction
        == Restriction.AVOID
    )
    assert (
        node.meets(SignalKind.CHECK, 0, gpu=2, device="matmul").restriction
        == Restriction.OPEN
    )


def test_what_a_person_excuses_bars_nothing_until_it_comes_again() -> None:
    node = Patient().meets(SignalKind.DISK_ERRORS, gpu=None, device="/data")
    node.conditions = excused(node.conditions)
    assert node.after(HOUR).restriction == Restriction.OPEN
    assert (
        node.meets(SignalKind.DISK_ERRORS, gpu=None, device="/data").restriction
        == Restriction.DRAIN
    )


def test_only_what_health_needs_is_kept_however_much_is_noticed() -> None:
    node = Patient().meets(XID, 79, gpu=7)
    for number in range(200):
        node.meets(SignalKind.PORT_DOWN, gpu=None, device=f"port{number}")
        node.now += 1.0
    assert len(node.conditions) <= 32
    assert node.restriction == Restriction.DRAIN


def unconfirmed(code: int, at: float, recovery: str = "") -> Noticed:
    return Noticed(
        signal=Signal(
            number=1, at=at, kind=XID, code=code, gpu=0, text=f"XID {code}", recovery=recovery,
            confirmed=False,
        ),
        users=(UserName("ann"), UserName("ben"), UserName("cyd")),
    )  # fmt: skip


@pytest.mark.parametrize("code", [31, 48, 79, 95, 119])
def test_a_fault_that_the_driver_does_not_confirm_ends_no_job_and_closes_no_node(
    code: int,
) -> None:
    now = 1_000_000.0
    conditions: tuple[NodeCondition, ...] = ()
    for turn in range(5):  # also when it comes again and again
        at = now + turn * HOUR
        conditions, struck = judge_conditions(
            conditions, [unconfirmed(code, at)], at, RULES, lambda _: "hopper"
        )
        assert struck == ()
        assert not strictest_restriction(conditions).closes
    at = conditions[0].noticed_at
    word = Noticed(signal=replace(unconfirmed(code, at).signal, confirmed=True))
    conditions, struck = judge_conditions(
        conditions, [word], at + 1.0, RULES, lambda _: "hopper"
    )
    _, settled = judge_conditions(conditions, [], at + 61.0, RULES, lambda _: "hopper")
    assert bool(struck or settled) == (code != 31), "31 is the program's own"
    assert conditions[0].count == 5, "what is confirmed is no second fault"


def test_a_fault_is_not_mended_by_a_line_that_the_driver_does_not_confirm() -> None:
    patient = Patient().meets(XID, 79)
    assert strictest_restriction(patient.conditions).closes
    word = unconfirmed(154, patient.now, recovery="None")
    conditions, _ = judge_conditions(
        patient.conditions, [word], patient.now, RULES, lambda _: "hopper"
    )
    assert strictest_restriction(conditions).closes
