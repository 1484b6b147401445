"""What results of active checks mean, against data sheets, the node's own past and
other nodes."""

from dataclasses import replace

import pytest

from corral.catalog.check_bounds import bounds_of, rated
from corral.domain.active_checks import (
    MOST_MEASURES,
    MOST_PAST,
    CheckKind,
    CheckMeasure,
    CheckUp,
    Result,
)
from corral.domain.ids import NodeId
from corral.domain.node import Node
from corral.domain.node_signal import OVER, Signal, SignalKind
from corral.health.check_results import slow_end, speaks_against_node, take_checks
from corral.health.health_rules import HealthRules
from corral.health.node_diagnosis import Noticed, judge_conditions
from tests.worlds import node

SHEET = rated(CheckKind.MEMORY, "h100")
ID = "7"


def of(device: str, code: int | None = None, **more: object) -> Signal:
    return Signal(
        number=1, at=0.0, kind=SignalKind.CHECK, text=device, device=device, code=code,
        checkup=ID, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def asked(*kinds: CheckKind, gpus: int = 1) -> Node:
    one = CheckUp(
        id=ID, kinds=kinds or (CheckKind.MATMUL,), by="ada", at=0.0, until=60.0
    )
    return replace(node("n0", gpus), checkups=(one,))


def shown(
    kind: CheckKind, value: float, *past: float, unit: str = "B/s", on: Node
) -> CheckMeasure:
    """What the newest result is, after these earlier ones."""
    for number in (*past, value):
        on = take_checks(on, [of(kind, gpu=0, value=number, unit=unit)], [on], 1.0).node
    return on.measures[-1]


def test_a_gpus_memory_is_held_against_its_data_sheet() -> None:
    assert SHEET is not None
    least = SHEET * (bounds_of(CheckKind.MEMORY).least or 0.0)
    good = shown(CheckKind.MEMORY, least * 1.01, on=asked())
    assert (good.result, good.expected) == (Result.PASSED, least)
    bad = shown(CheckKind.MEMORY, least * 0.99, on=asked())
    assert bad.result == Result.FAILED
    assert "data sheet" in bad.text


def test_it_is_held_against_its_own_past_once_there_is_enough_of_it() -> None:
    assert SHEET is not None
    fallen = SHEET * 0.75  # still above what the data sheet asks for
    assert (
        shown(CheckKind.MEMORY, fallen, *[SHEET * 0.9] * 2, on=asked()).result
        == Result.PASSED
    )
    found = shown(CheckKind.MEMORY, fallen, *[SHEET * 0.9] * 3, on=asked())
    assert found.result == Result.FAILED
    assert "of the node's earlier results" in found.text


def test_what_failed_does_not_become_what_is_expected() -> None:
    on = asked()
    assert SHEET is not None
    for value in [SHEET * 0.9] * 3 + [SHEET * 0.75] * 20:
        on = take_checks(
            on, [of("memory", gpu=0, value=value, unit="B/s")], [on], 1.0
        ).node
    assert on.measures[-1].result == Result.FAILED


def test_a_cpu_that_stands_in_is_held_against_nothing_but_itself() -> None:
    found = shown(CheckKind.MEMORY, 1e9, on=asked(), unit="B/s on CPU")
    assert (found.result, found.expected) == (Result.MEASURED, None)


def test_another_means_of_measuring_begins_a_past_of_its_own() -> None:
    on = take_checks(asked(), [of("disk", value=5e8, unit="B/s")], [], 1.0).node
    on = take_checks(on, [of("disk", value=1e8, unit="B/s shared")], [], 2.0).node
    assert on.measures[-1].past == (1e8,)


@pytest.mark.parametrize(
    ("offset", "result"), [(-0.4, Result.PASSED), (-0.6, Result.FAILED)]
)
def test_a_clock_may_be_half_a_second_off_either_way(
    offset: float, result: Result
) -> None:
    assert shown(CheckKind.CLOCK, offset, on=asked(), unit="s").result == result


def test_a_wrong_product_speaks_against_its_gpu_and_the_round_does_not_clear_the_node() -> (
    None
):
    signals = [of("matmul", 1, gpu=0), of("matmul", 0, gpu=1), of(OVER)]
    found = take_checks(asked(gpus=2), signals, [], 5.0)
    assert [(one.gpu, one.code) for one in found.signals] == [(0, 1), (1, 0)]
    ((_, well),) = found.over
    assert not well
    assert found.node.checked_at == 5.0
    assert not found.node.checkups


def test_a_round_in_which_each_gpu_multiplies_well_clears_the_node() -> None:
    signals = [of("matmul", 0, gpu=0), of("matmul", 0, gpu=1), of(OVER)]
    found = take_checks(asked(gpus=2), signals, [], 5.0)
    assert (found.signals[-1].device, found.signals[-1].code) == (OVER, 0)
    missing = take_checks(asked(gpus=2), [of("matmul", 0, gpu=0), of(OVER)], [], 5.0)
    assert [one.device for one in missing.signals] == ["matmul"]


def test_a_round_that_ended_for_work_shows_nothing_of_the_node() -> None:
    found = take_checks(asked(), [of("matmul", 0, gpu=0), of(OVER, 2)], [], 5.0)
    assert found.node.checked_at is None
    assert [well for _, well in found.over] == [False]


def test_what_could_not_be_run_is_no_sign_either_way() -> None:
    found = take_checks(asked(), [of("matmul", 2, gpu=0), of(OVER)], [], 5.0)
    assert found.node.measures[0].result == Result.NOT_RUN
    assert found.signals == ()


@pytest.mark.parametrize("device", ["clock", "data:/set", "link:n1"])
def test_what_is_not_this_nodes_own_doing_does_not_close_it(device: str) -> None:
    assert take_checks(asked(), [of(device, 1)], [], 5.0).signals == ()


def test_a_slow_shared_disk_is_told_and_closes_nobody() -> None:
    on = asked()
    for value in (5e8, 5e8, 5e8, 1e7):
        found = take_checks(
            on, [of("disk:/shared", value=value, unit="B/s shared")], [], 1.0
        )
        on = found.node
    assert on.measures[-1].result == Result.FAILED
    assert not speaks_against_node(on.measures[-1])
    assert found.signals == ()


def test_other_signals_go_by_and_so_do_checks_that_nobody_asked_for() -> None:
    own = [
        Signal(number=1, at=0.0, kind=SignalKind.XID, code=79, text="x"),
        Signal(
            number=2, at=0.0, kind=SignalKind.CHECK, code=1, text="x", device="matmul"
        ),
    ]
    assert take_checks(asked(), own, [], 1.0).signals == tuple(own)


def test_what_is_kept_of_a_node_is_bounded() -> None:
    on = asked()
    for number in range(MOST_MEASURES + 5):
        on = take_checks(on, [of(f"data:/{number}", 0, value=1.0)], [], 1.0).node
    assert len(on.measures) == MOST_MEASURES
    assert on.measures[-1].device == f"/{MOST_MEASURES + 4}"
    many = shown(CheckKind.DISK, 1.0, *[1.0] * 40, on=asked(), unit="B/s")
    assert len(many.past) == MOST_PAST


def test_only_products_or_a_whole_round_mend_what_was_to_be_deep_tested() -> None:
    blamed, _ = judge_conditions(
        (), [Noticed(signal=replace(of(""), kind=SignalKind.LEMON, checkup=""))], 1.0,
        HealthRules(), lambda _: "",
    )  # fmt: skip

    def after(device: str) -> bool:
        passed = [Noticed(signal=of(device, 0))]
        found, _ = judge_conditions(blamed, passed, 2.0, HealthRules(), lambda _: "")
        return found[0].is_live

    assert after("disk")
    assert not after(OVER)


# -- links ---------------------------------------------------------------------------------------


def ring_of(slow: set[tuple[int, int]], count: int = 4) -> list[Node]:
    """Nodes with a link to the next, of which these are slow."""
    found = []
    for number in range(count):
        links = []
        for other in ((number - 1) % count, (number + 1) % count):
            bad = {(number, other), (other, number)} & slow
            links.append(
                CheckMeasure(
                    kind=CheckKind.LINK,
                    device=f"n{other}",
                    text="",
                    at=0.0,
                    result=Result.FAILED if bad else Result.PASSED,
                )
            )
        found.append(
            replace(node(f"n{number}"), id=NodeId(f"n{number}"), measures=tuple(links))
        )
    return found


def ill(nodes: list[Node]) -> list[str]:
    return [one.id for one in nodes if slow_end(one, nodes)]


def test_a_node_whose_links_are_all_slow_is_told_from_its_neighbours() -> None:
    assert ill(ring_of({(0, 1), (1, 2)})) == ["n1"]


def test_one_slow_link_blames_neither_of_its_ends() -> None:
    assert ill(ring_of({(0, 1)})) == []


def test_a_single_slow_link_of_a_node_that_has_no_other_blames_nobody() -> None:
    first, second, *others = ring_of({(0, 1)})
    lone = replace(
        first, measures=tuple(one for one in first.measures if one.device == "n1")
    )
    assert ill([lone, second, *others]) == []


def test_a_node_with_one_good_link_is_not_the_slow_end() -> None:
    first, second, *others = ring_of({(0, 1), (1, 2)})
    good = CheckMeasure(
        kind=CheckKind.LINK, device="n3", text="", at=0.0, result=Result.PASSED
    )
    reached = replace(second, measures=(*second.measures, good))
    assert ill([first, reached, *others]) == []


def test_where_all_is_slow_it_is_the_fabric() -> None:
    assert ill(ring_of({(0, 1), (1, 2), (2, 3), (3, 0)})) == []


def test_a_link_is_held_against_those_of_other_nodes() -> None:
    others = [
        replace(
            node(f"n{number}"),
            measures=(
                CheckMeasure(
                    kind=CheckKind.LINK,
                    device="x",
                    text="",
                    at=0.0,
                    value=40e9,
                    unit="B/s",
                    result=Result.MEASURED,
                ),
            ),
        )
        for number in range(1, 4)
    ]
    slow = take_checks(
        asked(), [of("link:n1", value=19e9, unit="B/s")], others, 1.0
    ).node
    assert slow.measures[-1].result == Result.FAILED
    well = take_checks(
        asked(), [of("link:n1", value=21e9, unit="B/s")], others, 1.0
    ).node
    assert well.measures[-1].result == Result.PASSED
