"""Formulas of failures: published values, examples by hand, and rules."""

from math import comb, isclose

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.perf.failures import (
    Saving,
    best_parts,
    best_seconds,
    chance_of_failure,
    count_band,
    daly_seconds,
    enough_nodes,
    expected_seconds,
    goodput,
    spares_for,
    young_seconds,
)

SECONDS = st.floats(min_value=0.01, max_value=1e7)


@st.composite
def savings(draw: st.DrawFn) -> Saving:
    return Saving(
        mtbf_seconds=draw(st.floats(min_value=10.0, max_value=1e8)),
        save_seconds=draw(st.floats(min_value=0.01, max_value=1e4)),
        restart_seconds=draw(st.floats(min_value=0.0, max_value=1e4)),
    )


@pytest.mark.parametrize(
    ("save", "mtbf", "young", "daly"),
    # validation/data/failures.csv.gz, the rows "formula check": BLOOM, Llama 3 with 60
    # and with
    # 20 s a save, RSC with 1,024 GPUs with 150 and with 6.3 s a save
    [
        (40.0, 604_800.0, 6955.9, 6929.2),
        (60.0, 11_135.0, 1155.9, 1116.3),
        (20.0, 11_135.0, 667.4, 654.1),
        (150.0, 28_440.0, 2921.0, 2821.8),
        (6.3, 28_440.0, 598.6, 594.4),
    ],
)
def test_young_and_daly_are_as_published(
    save: float, mtbf: float, young: float, daly: float
) -> None:
    saving = Saving(mtbf_seconds=mtbf, save_seconds=save, restart_seconds=0.0)
    assert young_seconds(saving) == pytest.approx(young, abs=0.06)
    assert daly_seconds(saving) == pytest.approx(daly, abs=0.06)
    assert best_seconds(saving) == pytest.approx(daly, rel=1e-3)  # Daly's is that near


def test_expected_time_by_hand() -> None:
    # 1 h between failures, parts of 54 min with 6 min a save: 60 min, so e^1 - 1 =
    # 1.71828 h a part, times e^(6/60) = 1.10517 for restarts of 6 min: 1.89898 h. 9 h
    # of work are 10 parts.
    saving = Saving(mtbf_seconds=3_600.0, save_seconds=360.0, restart_seconds=360.0)
    hours = expected_seconds(9 * 3_600.0, 3_240.0, saving) / 3_600
    assert hours == pytest.approx(18.9899, abs=1e-3)
    assert goodput(3_240.0, saving) == pytest.approx(9 / 18.9899, abs=1e-4)


@given(saving=savings(), factor=st.floats(min_value=0.2, max_value=5.0))
def test_no_other_interval_is_better_than_the_best(
    saving: Saving, factor: float
) -> None:
    best = best_seconds(saving)
    other = expected_seconds(1e6, best * factor, saving)
    assert expected_seconds(1e6, best, saving) <= other * (1 + 1e-9)


@given(saving=savings(), longer=st.floats(min_value=1.0, max_value=100.0))
def test_who_fails_less_often_saves_less_often(saving: Saving, longer: float) -> None:
    steadier = Saving(
        mtbf_seconds=saving.mtbf_seconds * longer,
        save_seconds=saving.save_seconds,
        restart_seconds=saving.restart_seconds,
    )
    for interval in (young_seconds, daly_seconds, best_seconds):
        assert interval(steadier) >= interval(saving) * (1 - 1e-6)
    best = goodput(best_seconds(steadier), steadier)
    assert best >= goodput(best_seconds(saving), saving) - 1e-12


@given(saving=savings(), more=st.floats(min_value=0.0, max_value=1e4))
def test_a_slower_restart_or_save_is_never_better(saving: Saving, more: float) -> None:
    kept = goodput(best_seconds(saving), saving)
    slower = Saving(
        mtbf_seconds=saving.mtbf_seconds,
        save_seconds=saving.save_seconds,
        restart_seconds=saving.restart_seconds + more,
    )
    longer = Saving(
        mtbf_seconds=saving.mtbf_seconds,
        save_seconds=saving.save_seconds + more,
        restart_seconds=saving.restart_seconds,
    )
    for worse in (slower, longer):
        assert goodput(best_seconds(worse), worse) <= kept + 1e-12


@given(
    saving=savings(),
    work=st.floats(min_value=1.0, max_value=1e7),
    parts=st.integers(min_value=1, max_value=400),
)
def test_a_short_run_is_cut_in_the_best_number_of_parts(
    saving: Saving, work: float, parts: int
) -> None:
    best = best_parts(work, saving)
    other = expected_seconds(work, work / parts, saving)
    assert expected_seconds(work, work / best, saving) <= other * (1 + 1e-9)


@given(seconds=SECONDS, mtbf=SECONDS)
def test_a_chance_lies_between_none_and_all(seconds: float, mtbf: float) -> None:
    assert 0 <= chance_of_failure(seconds, mtbf) <= 1


def test_chance_by_hand() -> None:
    # 100 h with a failure every 100 h: 1 - 1/e
    assert chance_of_failure(360_000.0, 360_000.0) == pytest.approx(0.632121, abs=1e-6)


@pytest.mark.parametrize(
    ("events", "low", "high"),
    # Garwood's 90 %: half the 5 % quantile of chi-square with 2 n degrees, and half the
    # 95 % one with 2 n + 2, from tables: 10 events 10.851 / 2 and 33.924 / 2; 5 events
    # 3.940 / 2, 21.026 / 2
    [(10, 5.4254, 16.962), (5, 1.9701, 10.513)],
)
def test_a_count_has_a_band(events: int, low: float, high: float) -> None:
    assert count_band(events) == pytest.approx((low, high), rel=0.01)
    assert count_band(0)[0] == 0.0


def test_enough_nodes_by_hand() -> None:
    # up 9 h of 10: 2 of 3 are up for 0.9^3 + 3 * 0.9^2 * 0.1 = 0.729 + 0.243 of the
    # time
    assert enough_nodes(2, 1, mtbf_hours=9.0, repair_hours=1.0) == pytest.approx(0.972)


@given(
    nodes=st.integers(1, 60),
    spares=st.integers(0, 12),
    repair=st.floats(min_value=0.0, max_value=50.0),
)
def test_without_a_line_at_the_repair_the_chain_is_the_binomial(
    nodes: int, spares: int, repair: float
) -> None:
    whole, up = nodes + spares, 100.0 / (100.0 + repair)
    binomial = sum(
        comb(whole, down) * up ** (whole - down) * (1 - up) ** down
        for down in range(spares + 1)
    )
    found = enough_nodes(nodes, spares, mtbf_hours=100.0, repair_hours=repair)
    assert isclose(found, binomial, rel_tol=1e-9)
    one_crew = enough_nodes(
        nodes, spares, mtbf_hours=100.0, repair_hours=repair, crews=1
    )
    assert one_crew <= found + 1e-12


@given(
    nodes=st.integers(1, 300),
    availability=st.floats(min_value=0.5, max_value=0.9999),
    repair=st.floats(min_value=0.1, max_value=20.0),
)
def test_spares_suffice_and_one_fewer_does_not(
    nodes: int, availability: float, repair: float
) -> None:
    spares = spares_for(nodes, availability, mtbf_hours=100.0, repair_hours=repair)
    if spares is None:
        assert (
            enough_nodes(nodes, nodes, mtbf_hours=100.0, repair_hours=repair)
            < availability
        )
        return
    assert (
        enough_nodes(nodes, spares, mtbf_hours=100.0, repair_hours=repair)
        >= availability
    )
    if spares:
        fewer = enough_nodes(nodes, spares - 1, mtbf_hours=100.0, repair_hours=repair)
        assert fewer < availability


def test_a_run_that_cannot_get_on_never_ends() -> None:
    saving = Saving(mtbf_seconds=1.0, save_seconds=1_000.0, restart_seconds=0.0)
    assert goodput(best_seconds(saving), saving) == 0.0
    with pytest.raises(ValueError, match="saves"):
        Saving(mtbf_seconds=1.0, save_seconds=0.0, restart_seconds=0.0)
