"""The shipped rules, run by promtool: alarms that must fire, and those that must
not."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from corral.boot.monitoring.config import RULES
from tests.deploy.promtool import run_tests, series

pytestmark = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="needs promtool"
)
GIGABYTE = 10**9


def nodes(up: int, down: int) -> list[dict[str, str]]:
    states = [1] * up + [0] * down
    return [
        series(f'corral_node_up{{node="n{at}"}}', f"{state}x20")
        for at, state in enumerate(states)
    ]


def disk(total: int, free: str) -> list[dict[str, str]]:
    return [
        series("corral_head_disk_bytes", f"{total}x600"),
        series("corral_head_disk_free_bytes", free),
    ]


def is_firing(
    folder: Path, alert: str, input_series: list[dict[str, str]], minutes: int
) -> bool:
    """Return whether the alert fires then, held against both answers."""
    count = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) or vector(0)'
    sample = {"labels": "{}"}
    outcomes = []
    for value in (0, 1):
        expected = [{**sample, "value": value}]
        test: dict[str, Any] = {
            "input_series": input_series,
            "promql_expr_test": [
                {"expr": count, "eval_time": f"{minutes}m", "exp_samples": expected}
            ],
        }
        outcomes.append(not run_tests(folder, rules=[RULES], tests=[test]))
    assert outcomes in ([True, False], [False, True])
    return outcomes[1]


@pytest.mark.parametrize(("up", "down"), [(0, 1), (1, 1), (8, 1), (30, 2)])
def test_one_silent_node_of_a_small_cluster_is_not_many(
    tmp_path: Path, up: int, down: int
) -> None:
    assert not is_firing(tmp_path, "CorralManyNodesDown", nodes(up, down), 10)


@pytest.mark.parametrize(("up", "down"), [(0, 2), (7, 2), (15, 4)])
def test_more_than_a_tenth_and_more_than_one_are_many(
    tmp_path: Path, up: int, down: int
) -> None:
    assert is_firing(tmp_path, "CorralManyNodesDown", nodes(up, down), 10)


def test_one_silent_node_is_an_alarm_of_its_own(tmp_path: Path) -> None:
    assert is_firing(tmp_path, "CorralNodeDown", nodes(8, 1), 10)


def test_twenty_minutes_of_writing_do_not_mean_a_full_disk(tmp_path: Path) -> None:
    young = disk(100 * GIGABYTE, f"{22 * GIGABYTE}-{GIGABYTE // 50}x30")
    assert not is_firing(tmp_path, "CorralHeadDiskFilling", young, 30)


def test_a_disk_with_much_room_is_not_filling(tmp_path: Path) -> None:
    roomy = disk(100 * GIGABYTE, f"{80 * GIGABYTE}-{GIGABYTE // 18}x300")
    assert not is_firing(tmp_path, "CorralHeadDiskFilling", roomy, 300)


@pytest.mark.parametrize(
    ("free", "minutes"),
    [(f"{25 * GIGABYTE}-{GIGABYTE // 40}x300", 300), (f"{4 * GIGABYTE}x30", 20)],
)
def test_a_disk_that_fills_for_hours_or_is_full_is_an_alarm(
    tmp_path: Path, free: str, minutes: int
) -> None:
    filling = disk(100 * GIGABYTE, free)
    assert is_firing(tmp_path, "CorralHeadDiskFilling", filling, minutes)
