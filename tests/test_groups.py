"""Tests that share a costly thing are one group, and run one after the other in one
process."""

import pytest


@pytest.mark.xdist_group("marked")
def test_a_group_stays_together(request: pytest.FixtureRequest) -> None:
    """pytest-xdist tells groups by the end of a node's id, and passes over marks in
    silence where it cannot write that."""
    if request.config.getoption("loadgroup", False):
        assert request.node.nodeid.endswith("@marked")
