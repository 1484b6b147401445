"""The field `checkpoint.keep`: its forms, and what reaches the ranks."""

import json

import pytest

from corral.domain.errors import SpecInvalid
from corral.domain.job import CheckpointRule
from corral.domain.keep_rule import BestRule, Goal, KeepRule
from corral.wire.spec_reader import parse_specs
from corral.wire.submission import to_domain
from corral.wire.written_spec import written_spec

DAY = 86_400.0
LOSS = BestRule(metric="loss", count=2)


def read(keep: str) -> CheckpointRule:
    text = f"name: a\nrun: x\ncheckpoint: {{path: /c, keep: {keep}}}\n"
    (spec,) = to_domain(parse_specs(text, source="job.yaml"))
    assert spec.checkpoint is not None
    again = to_domain(parse_specs(json.dumps(written_spec(spec)), source="x"))[0]
    assert again.checkpoint == spec.checkpoint, "it is written as it was read"
    return spec.checkpoint


@pytest.mark.parametrize(
    ("keep", "rule"),
    [
        ("5", KeepRule(last=5)),
        ("{}", KeepRule(last=3)),
        ("{every: 1d}", KeepRule(every_seconds=DAY)),
        (
            "{last: 2, every: 1d, best: {metric: loss, count: 2}}",
            KeepRule(last=2, every_seconds=DAY, best=LOSS),
        ),
        (
            "{best: {metric: accuracy, goal: max}}",
            KeepRule(best=BestRule(metric="accuracy", goal=Goal.MAX)),
        ),
    ],
)
def test_a_number_is_the_newest_and_a_mapping_says_more(
    keep: str, rule: KeepRule
) -> None:
    assert read(keep).keep_rule == rule


@pytest.mark.parametrize(
    ("keep", "where", "hint"),
    [
        ("0", "checkpoint.keep: 0 is out of bounds", "write: keep: 1"),
        ("many", 'checkpoint.keep: "many" is not', "write: keep: 1"),
        ("{lst: 3}", "checkpoint.keep.lst: there is no such field", "mean last?"),
        ("{every: 1s}", "checkpoint.keep.every: ", "write: every: "),
        (
            "{best: {count: 2}}",
            "checkpoint.keep.best.metric: is missing",
            "metric: loss",
        ),
        ("{best: {metric: x, goal: up}}", "checkpoint.keep.best.goal: ", "goal: min"),
    ],
)
def test_a_mistake_is_named_with_its_field(keep: str, where: str, hint: str) -> None:
    with pytest.raises(SpecInvalid) as caught:
        read(keep)
    assert where in caught.value.message
    assert hint in caught.value.full_text
