"""Placement constraints of jobs in some worlds. They use separate random numbers, so
that all other worlds stay the same."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from corral.domain.job import JobSpec
from corral.domain.placement_constraints import (
    Constraint,
    Level,
    Mode,
    PlaceRule,
    Topology,
)
from corral.domain.time_point import EndWarning, Moment

ZONES = ("a", "b")


def draw_labels(chance: Random) -> tuple[tuple[str, str], ...]:
    """Return random labels for one node; most nodes get labels for their zone and rack."""
    labels = [("zone", chance.choice(ZONES))] if chance.random() < 0.8 else []
    if chance.random() < 0.9:
        labels.append(("rack", chance.choice(("r1", "r2"))))
    return tuple(labels)


def draw_requests(chance: Random, spec: JobSpec, known: Sequence[str]) -> JobSpec:
    """Return the job with some random placement and time constraints. `known`: names of
    existing jobs."""
    if chance.random() < 0.4:
        begin, start_by = chance.uniform(0.0, 12.0), chance.uniform(2.0, 40.0)
        spec = replace(
            spec,
            begin=Moment(after_seconds=begin) if chance.random() < 0.6 else None,
            start_by=Moment(after_seconds=start_by) if chance.random() < 0.6 else None,
        )
    if chance.random() < 0.5:
        spec = replace(spec, place=_draw_rule(chance, known))
    if chance.random() < 0.3:
        spec = replace(
            spec, warn=EndWarning(signal=10, before_seconds=chance.uniform(0.5, 14.0))
        )
    return spec


def _draw_rule(chance: Random, known: Sequence[str]) -> PlaceRule:
    return PlaceRule(
        constraints=tuple(_draw_constraints(chance)),
        topology=Topology(mode=chance.choice(list(Mode)), within=Level.RACK),
        exclusive=chance.random() < 0.3,
        apart_from=(chance.choice(known),) if known and chance.random() < 0.4 else (),
    )


def _draw_constraints(chance: Random) -> list[Constraint]:
    if chance.random() < 0.6:
        return []
    zone = chance.choice(ZONES)
    return [Constraint(label="zone", values=(zone,), negated=chance.random() < 0.5)]
