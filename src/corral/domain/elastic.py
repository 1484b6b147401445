"""Elastic jobs: the sizes that they accept."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Elastic:
    """Sizes between which a job may change, in nodes."""

    min_nodes: int
    max_nodes: int
