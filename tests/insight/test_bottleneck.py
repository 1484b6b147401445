"""What bounds a job is named by the number that shows it."""

from dataclasses import replace

import pytest

from corral.insight.bottleneck import (
    BottleneckKind,
    StepTimes,
    bottleneck_of,
    hung,
)
from corral.insight.data_wait import DataWaitParts
from corral.insight.link_use import LinkUse
from corral.insight.straggler import Straggler

NVLINK = LinkUse(name="NVLinks", bytes_per_s=300e9, most_bytes_per_s=450e9)
SLOW = Straggler(rank=3, seconds=0.11, others_seconds=0.1)


@pytest.mark.parametrize(
    ("spent", "bound", "number"),
    [
        (
            StepTimes(steps=9, data_seconds=4.0, compute_seconds=6.0),
            BottleneckKind.DATA,
            "40 %",
        ),
        (
            StepTimes(steps=9, save_seconds=2.0, compute_seconds=8.0),
            BottleneckKind.SAVES,
            "20 %",
        ),
        (
            StepTimes(steps=9, compute_seconds=10.0, wait_seconds=5.0),
            BottleneckKind.COMMUNICATION,
            "50 %",
        ),
        (StepTimes(utilisation=0.97), BottleneckKind.COMPUTE, "97 %"),
        (
            StepTimes(utilisation=0.3, memory_share=0.1),
            BottleneckKind.SMALL_BATCH,
            "30 %",
        ),
        (
            StepTimes(steps=9, compute_seconds=9.0, utilisation=0.97),
            BottleneckKind.COMPUTE,
            "97 %",
        ),
        (
            StepTimes(utilisation=0.97, link=NVLINK),
            BottleneckKind.COMMUNICATION,
            "NVLinks of the job's GPUs carry 300 of 450 GB/s, 67 % of their rate",
        ),
        (
            StepTimes(utilisation=0.3, link=replace(NVLINK, name="PCIe links")),
            BottleneckKind.COMMUNICATION,
            "PCIe links of the job's GPUs carry 300 of 450",
        ),
        (
            StepTimes(
                steps=9,
                compute_seconds=10.0,
                wait_seconds=5.0,
                link=replace(NVLINK, bytes_per_s=9e9),
            ),
            BottleneckKind.COMMUNICATION,
            "50 % of their time; the NVLinks of the job's GPUs carry 9 of 450 GB/s",
        ),
        (
            StepTimes(utilisation=0.97, link=replace(NVLINK, bytes_per_s=9e9)),
            BottleneckKind.COMPUTE,
            "97 %",
        ),
    ],
)
def test_each_bound_is_told_with_its_number_and_what_to_try(
    spent: StepTimes, bound: BottleneckKind, number: str
) -> None:
    found = bottleneck_of(spent, job="j1")
    assert found is not None
    assert found.bound == bound
    assert number in found.text
    assert found.advice


def test_what_is_advised_of_idle_gpus_can_be_typed() -> None:
    found = bottleneck_of(StepTimes(utilisation=0.0), job="j7")
    assert found is not None
    assert found.advice == "releasing the GPUs: corral suspend j7"


def test_the_larger_of_two_is_told_and_a_straggler_goes_first() -> None:
    both = StepTimes(steps=9, data_seconds=3.0, compute_seconds=7.0, wait_seconds=5.0)
    found = bottleneck_of(both, job="j1")
    assert found is not None
    assert found.bound == BottleneckKind.COMMUNICATION
    saving = bottleneck_of(
        StepTimes(steps=9, compute_seconds=8.0, save_seconds=2.0, wait_seconds=4.0),
        job="j1",
    )
    assert saving is not None
    assert saving.bound == BottleneckKind.COMMUNICATION
    alone = bottleneck_of(both, SLOW, "n7", job="j1", has_other_nodes=False)
    assert alone is not None
    assert "drain" not in alone.advice, "all ranks are on this node"
    slow = bottleneck_of(both, SLOW, "n7", job="j1")
    assert slow is not None
    assert "corral node drain n7" in slow.advice
    assert (slow.bound, "rank 3 on n7" in slow.text, "10 % slower" in slow.text) == (
        BottleneckKind.STRAGGLER,
        True,
        True,
    )


@pytest.mark.parametrize(
    "spent",
    [StepTimes(), StepTimes(steps=9, compute_seconds=9.0), StepTimes(utilisation=0.6)],
)
def test_where_nothing_stands_out_nothing_is_told(spent: StepTimes) -> None:
    assert bottleneck_of(spent, job="j1") is None


@pytest.mark.parametrize("utilisation", [0.97, 0.3, 0.01])
def test_times_of_before_bound_nothing_once_no_rank_makes_a_step(
    utilisation: float,
) -> None:
    """A rank may hang, and GPUs that wait for it count as busy."""
    steps = StepTimes(steps=9, compute_seconds=9.0, utilisation=utilisation)
    for seconds, is_bound in ((9.9, True), (10.0, False), (29.0, False)):
        quiet = replace(steps, since_step_seconds=seconds)
        assert (bottleneck_of(quiet, job="j1") is not None) == is_bound
    slow = replace(steps, compute_seconds=90.0, since_step_seconds=29.0)
    assert bottleneck_of(slow, job="j1") is not None, "its steps take 10 s"


def test_a_job_that_hangs_is_stalled_with_the_rank_for_which_the_others_wait() -> None:
    found = hung("rank 2 on n1 is stuck", "j1")
    assert (found.bound, found.text) == (
        BottleneckKind.STALLED,
        "rank 2 on n1 is stuck",
    )
    assert found.advice.startswith("corral debug stacks j1")


def test_a_job_that_waits_for_data_is_named_with_the_parts_of_its_wait() -> None:
    parts = DataWaitParts(
        seconds=8.0, read_seconds=1.6, decode_seconds=6.0, copy_seconds=0.0
    )
    spent = StepTimes(steps=10, data_seconds=4.0, compute_seconds=6.0, data_parts=parts)
    found = bottleneck_of(spent, job="j1")
    assert found is not None
    assert found.text.endswith("400 ms of each step: decoding 75 %, reading 20 %")
    assert "decoded in advance" in found.advice
