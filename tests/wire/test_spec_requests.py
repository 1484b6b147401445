"""What a job requests about time and place, in every spelling."""

from contextlib import suppress
from typing import Any

import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from corral.domain.errors import SpecInvalid
from corral.domain.job import JobSpec
from corral.domain.placement_constraints import (
    Constraint,
    Level,
    Mode,
    PlaceRule,
    Topology,
)
from corral.domain.time_point import EndWarning, Moment
from corral.wire import schemas
from corral.wire.spec_reader import parse_specs, parse_values
from corral.wire.submission import to_domain

FULL = """\
name: train
run: x
begin: 30m
start_by: 2026-11-22T08:00+02:00
max_duration: 4h
warn: {signal: USR1, before: 2m}
constraints: {zone: a, tier: [gold, silver], node: {not: n3}, nvme: true, gen: 5}
topology: {mode: require, within: nvlink}
exclusive: true
apart_from: [noisy]
preemptible: true
"""


def job(text: str, *, toml: bool = False) -> JobSpec:
    return to_domain(parse_specs(text, source="job", toml=toml))[0]


def test_every_request_is_read() -> None:
    spec = job(FULL)
    assert spec.begin == Moment(after_seconds=1800.0)
    assert spec.start_by == Moment(at=1795327200.0)
    assert spec.warn == EndWarning(signal=10, before_seconds=120.0)
    assert (spec.warned_after_seconds, spec.preemptible) == (14280.0, True)
    assert spec.place == PlaceRule(
        constraints=(
            Constraint(label="gen", values=("5",)),
            Constraint(label="node", values=("n3",), negated=True),
            Constraint(label="nvme", values=("true",)),
            Constraint(label="tier", values=("gold", "silver")),
            Constraint(label="zone", values=("a",)),
        ),
        topology=Topology(mode=Mode.REQUIRE, within=Level.NVLINK),
        exclusive=True,
        apart_from=("noisy",),
    )


def test_the_schema_for_editors_takes_it() -> None:
    value = dict(parse_specs(FULL, source="job")[0].document.value)
    assert jsonschema_rs.validator_for(schemas()["spec"]).is_valid(value)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("warn: USR1@120", "warn: {signal: SIGUSR1, before: 120s}"),
        ("warn: 10", "warn: {signal: 10}"),
        ("topology: rack", "topology: {mode: require, within: rack}"),
        ("topology: {within: pod}", "topology: require:pod"),
        ("topology: spread", "topology: {mode: spread}"),
        ("apart_from: a", "anti_affinity: [a]"),
        ("begin: now+30m", "begin: 30m"),
        ("constraints: {a: b}", "constraints: {a: [b]}"),
    ],
)
def test_short_and_long_forms_mean_the_same(short: str, long: str) -> None:
    base = "name: a\nrun: x\n"
    if short == "warn: 10":
        short = 'warn: "10"'
    assert job(base + short) == job(base + long)


def test_a_moment_of_toml_is_that_of_yaml() -> None:
    toml = 'name = "a"\nrun = "x"\nbegin = 2026-11-22T08:00:00Z\n'
    assert job(toml, toml=True) == job("name: a\nrun: x\nbegin: 2026-11-22T08:00Z")


def test_a_job_that_requests_nothing_is_warned_a_minute_or_a_tenth_before_its_end() -> (
    None
):
    assert job("name: a\nrun: x\nmax_duration: 1h").warned_after_seconds == 3540.0
    assert job("name: a\nrun: x\nmax_duration: 1m").warned_after_seconds == 54.0
    assert job("name: a\nrun: x").warned_after_seconds is None


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner)
    ),
    max_leaves=6,
)
FIELDS = [
    "begin",
    "start_by",
    "warn",
    "constraints",
    "topology",
    "exclusive",
    "apart_from",
]


@given(st.sampled_from(FIELDS), anything)
def test_whatever_is_written_is_read_or_refused_as_wrong(
    field: str, value: Any
) -> None:
    """No other error comes out of it."""
    with suppress(SpecInvalid):
        to_domain(parse_values([{"name": "a", "run": "x", field: value}]))


@pytest.mark.parametrize("value", ["nan", "inf", "-inf"])
@pytest.mark.parametrize(
    "line",
    [
        "env = {{A = {0}}}",
        "constraints = {{z = {0}}}",
        "constraints = {{z = {{not = {0}}}}}",
    ],
)
def test_a_number_that_cannot_be_sent_is_refused_where_any_text_goes(
    line: str, value: str
) -> None:
    with pytest.raises(SpecInvalid) as refused:
        job(f'name = "train"\nrun = "x"\n{line.format(value)}\n', toml=True)
    assert "job:3: " in refused.value.message
    assert refused.value.hint.startswith("write: ")
