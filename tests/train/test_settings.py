"""What the environment says, and what it may not say."""

import json
from pathlib import Path

import pytest

from corral.domain.keep_rule import BestRule, Goal, KeepRule
from corral.train.rank_settings import SettingInvalid, read_settings

INSIDE = {"CORRAL_JOB_ID": "j1", "CORRAL_ATTEMPT": "2"}


def test_outside_corral_it_is_one_rank_that_saves_nowhere() -> None:
    found = read_settings({})
    assert (found.rank, found.world_size, found.socket, found.checkpoint_path) == (
        0,
        1,
        None,
        None,
    )
    assert (found.attempt, found.resume) == (None, None)


def test_the_spec_rules_over_the_script() -> None:
    env = INSIDE | {"CORRAL_CHECKPOINT_PATH": "/a", "CORRAL_CHECKPOINT_INTERVAL": "5"}
    found = read_settings(env, checkpoint="/b", interval=9, keep=1)
    assert (found.checkpoint_path, found.interval_seconds, found.keep.last) == (
        Path("/a"),
        5.0,
        1,
    )
    outside = read_settings({}, checkpoint="/b", interval=9)
    assert (outside.checkpoint_path, outside.interval_seconds) == (Path("/b"), 9.0)


def test_auto_is_no_fixed_interval() -> None:
    assert (
        read_settings({"CORRAL_CHECKPOINT_INTERVAL": "auto"}).interval_seconds is None
    )


def test_inside_corral_only_recorded_saves_count() -> None:
    assert read_settings(INSIDE).resume == ()
    text = (
        '[{"attempt": 1, "step": 7, "path": "/x", "manifest_sha256": "ab", "later": 1}]'
    )
    (one,) = read_settings(INSIDE | {"CORRAL_RESUME": text}).resume or ()
    assert (one.attempt, one.step, one.path, one.manifest_sha256) == (
        1,
        7,
        Path("/x"),
        "ab",
    )


@pytest.mark.parametrize(
    ("text", "nodes"), [("", 1), ("3", 3), ("a,b", 2), ("10.0.0.1 b c", 3)]
)
def test_nodes_are_a_number_or_their_names(text: str, nodes: int) -> None:
    assert read_settings({"CORRAL_NODES": text}).nodes == nodes


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("RANK", "one"),
        ("WORLD_SIZE", "-1"),
        ("CORRAL_CHECKPOINT_INTERVAL", "often"),
        ("CORRAL_CHECKPOINT_INTERVAL", "0"),
        ("CORRAL_CHECKPOINT_INTERVAL", "nan"),
        ("CORRAL_NODE_MTBF_SECONDS", "inf"),
        ("CORRAL_RESUME", "[{}]"),
        ("CORRAL_RESUME", "{"),
        ("CORRAL_CHECKPOINT_KEEP", "few"),
    ],
)
def test_what_cannot_be_is_refused(name: str, value: str) -> None:
    with pytest.raises(SettingInvalid):
        read_settings(INSIDE | {name: value})


def test_the_rule_of_saves_to_keep_is_that_of_the_spec_and_else_of_the_script() -> None:
    document = {"last": 2, "every": 60.0, "best": {"metric": "loss", "goal": "max"}}
    rule = KeepRule(
        last=2, every_seconds=60.0, best=BestRule(metric="loss", goal=Goal.MAX)
    )
    inside = INSIDE | {
        "CORRAL_CHECKPOINT_KEEP": "2",
        "CORRAL_CHECKPOINT_KEEP_RULE": json.dumps(document),
    }
    assert read_settings(inside).keep == rule
    assert read_settings({}, keep=document).keep == rule
    assert read_settings({}, keep=5).keep == KeepRule(last=5)
    older = INSIDE | {"CORRAL_CHECKPOINT_KEEP": "4"}  # of a spec with a number alone
    assert read_settings(older, keep=document).keep == KeepRule(last=4)


@pytest.mark.parametrize(
    "keep", [{"every": 0}, {"best": {}}, {"best": {"metric": "x", "goal": "up"}}]
)
def test_a_rule_that_cannot_be_read_is_refused_with_an_example(
    keep: dict[str, object],
) -> None:
    with pytest.raises(SettingInvalid, match='"metric": "loss"'):
        read_settings({}, keep=keep)
