"""Rates of failures as clusters have seen them."""

import pytest

from corral.catalog.facts import table
from corral.catalog.failures import ClusterFailures, failing_parts, rate_of, seen


def test_the_parts_of_llama_3_come_to_all_its_unexpected_interruptions() -> None:
    # Table 5: 148 faulty GPUs and 17 other lines; the paper says 419 in all
    assert (
        sum(facts["count"].number for facts in table("failure_parts").values()) == 419
    )
    assert sum(part.share for part in failing_parts()) == pytest.approx(1.0)


@pytest.mark.parametrize(
    "one", [one for one in seen() if one.failures], ids=lambda one: one.name
)
def test_a_rate_is_what_was_counted(one: ClusterFailures) -> None:
    # Llama 3: 419 / (2,048 nodes x 54 days) = 3.789 per 1,000; GLM: 11 / (96 x 56) =
    # 2.046
    facts = table("failures")[one.name]
    counted = facts["failures"].number / (facts["nodes"].number * facts["days"].number)
    assert facts["rate"].number == pytest.approx(1_000 * counted, rel=2e-3)


def test_rates_span_2_to_16_and_the_usual_one_lies_between() -> None:
    for architecture in ("hopper", "ampere", "blackwell"):
        rate = rate_of(architecture)
        assert (rate.low, rate.high) == (2.05, 15.6)
        assert rate.low <= rate.usual <= rate.high
    assert rate_of("hopper").usual == pytest.approx((3.789 + 4.3) / 2)
    assert rate_of("blackwell").usual == 3.789  # the middle of all seven


def test_a_cluster_can_be_left_out() -> None:
    # of the other six: 2.05, 2.34, 2.98, 4.3, 6.5, 15.6; only one of them is of Hopper
    assert rate_of("hopper", without="llama-3").usual == pytest.approx((2.98 + 4.3) / 2)
