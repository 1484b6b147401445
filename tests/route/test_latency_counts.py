"""Rules of latencies that are counted in buckets."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.route.latency_counts import LatencyCounts, count_latencies

BOUNDS = (0.1, 0.25, 0.5, 1.0)


@given(
    latencies=st.lists(st.floats(0.001, 0.999), min_size=1, max_size=100),
    share=st.floats(0, 1),
)
def test_a_quantile_is_within_the_bucket_of_the_exact_one(
    latencies: list[float], share: float
) -> None:
    quantile = count_latencies(BOUNDS, latencies).quantile(share)
    assert quantile is not None
    rank = share * len(latencies)
    edges = (0.0, *BOUNDS)
    below = sum(
        latency <= max(e for e in edges if e <= quantile) for latency in latencies
    )
    upto = sum(
        latency <= min(e for e in edges if e >= quantile) for latency in latencies
    )
    assert below <= rank + 1e-9 or share == 0
    assert upto >= rank - 1e-9


def test_quantiles_beside_the_buckets() -> None:
    none = count_latencies(BOUNDS, [])
    assert none.quantile(0.5) is None
    assert none.mean_seconds == 0.0
    above = count_latencies(BOUNDS, [5.0, 6.0])
    assert above.quantile(0.9) == 1.0
    assert above.mean_seconds == 5.5


@pytest.mark.parametrize(
    ("bounds", "counts", "seconds"),
    [
        ((0.1, 0.2), (1, 2), 0.0),
        ((0.2, 0.1), (1, 2, 3), 0.0),
        ((0.1, 0.2), (1, -2, 3), 0.0),
        ((0.1, 0.2), (1, 2, 3), -1.0),
        ((), (1,), 0.0),
    ],
)
def test_impossible_counts_are_refused(
    bounds: tuple[float, ...], counts: tuple[int, ...], seconds: float
) -> None:
    with pytest.raises(ValueError, match=r"bounds|counts"):
        LatencyCounts(bounds=bounds, counts=counts, seconds=seconds)
