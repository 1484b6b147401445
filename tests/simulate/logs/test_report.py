"""The page of a simulation: read on any screen, and without anything from elsewhere."""

from typing import Any

import pytest

from corral.plan.page import DARK
from corral.plan.plot import LIGHT
from corral.traces.report import curve, page


def result(waits: list[float]) -> dict[str, Any]:
    return {
        "jobs": 28_467, "jct_p50_s": 865.0, "lost_gpu_s": 0.0, "slowdown_mean": 71.405,
        "utilisation": 0.7013, "waits_s": curve(waits), "used": [0.5, 0.9],
        "sizes": {"1 GPU": {"jobs": 3, "wait_mean_s": 1_140.4}}, "queues": {},
    }  # fmt: skip


def shown(waits: list[float]) -> str:
    answer = {"trace": "a<b.csv", "nodes": 2, "gpus": 16, "skipped": 0, "too_large": 0}
    return page(
        {**answer, "policies": {"fifo": result(waits), "default": result(waits)}}
    )


def test_it_is_for_light_and_dark_and_narrow_screens() -> None:
    told = shown([0.0, 50.0])
    assert "prefers-color-scheme:dark" in told
    for colour in ("var(--c0)", "var(--c1)", *LIGHT, *DARK):
        assert colour in told
    assert 'name="viewport"' in told
    assert told.count('<div class="wide"><svg') == 2
    assert told.count('<div class="wide"><table>') == 2  # nothing was in a queue
    assert "a&lt;b.csv" in told
    assert "<script" not in told


def test_numbers_have_the_digits_that_say_something_and_their_unit() -> None:
    told = shown([0.0])
    for cell in (
        "<th>jct p50 (s)</th><td>865<",
        "<th>lost GPU (s)</th><td>0<",
        "<td>28,467<",
    ):
        assert cell in told
    for cell in ("<td>71.4<", "<td>0.701<", "<td>1,140<"):
        assert cell in told


@pytest.mark.parametrize(
    ("longest", "there", "beyond"),
    [(0.0, "10 s", "1 min"), (7_200.0, "1 h", "10 h"), (1e10, "1,000 d", "10,000 d")],
)
def test_waits_are_drawn_as_far_as_there_are_any(
    longest: float, there: str, beyond: str
) -> None:
    told = shown([0.0, longest])
    assert f">{there}</text>" in told
    assert f">{beyond}</text>" not in told
