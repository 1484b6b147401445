"""What engines do not do: a job that asks for it is told what to leave out, and is then
taken."""

from typing import Any

import pytest

from corral.control.request_checks import check_specs
from corral.domain.engine_limit import EngineLimit
from corral.domain.errors import Unsupported
from corral.engines.slurm.engine import CANNOT_PLACED
from corral.wire.spec_reader import parse_values
from corral.wire.submission import to_domain
from tests.worlds import Cluster, node

PLAIN = {"name": "a", "run": "x"}
ASKED: dict[str, dict[str, Any]] = {
    "any_of": {"any_of": [{"nodes": 1}]},
    "elastic": {"elastic": {"min_nodes": 1, "max_nodes": 2}},
    "apart_from": {"apart_from": ["b"]},
    "topology": {"topology": {"mode": "require"}},
}


def check(cannot: dict[str, EngineLimit], asked: dict[str, Any]) -> None:
    specs = to_domain(parse_values([{**PLAIN, **asked}], source="spec"))
    check_specs(Cluster(node("n1")).world, specs, cannot)


@pytest.mark.parametrize("left_out", ASKED)
def test_what_slurm_cannot_where_it_places_is_told_to_be_left_out(
    left_out: str,
) -> None:
    with pytest.raises(Unsupported) as refused:
        check(dict(CANNOT_PLACED), ASKED[left_out])
    assert refused.value.hint == f"remove {left_out} from the spec"
    check(dict(CANNOT_PLACED), {})
