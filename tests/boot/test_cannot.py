"""What engines do not do: a job that asks for it is told what to leave out, and is then
taken."""

from typing import Any

import pytest

from corral.control.request_checks import check_specs
from corral.domain.engine_limit import EngineLimit
from corral.domain.errors import SpecInvalid, Unsupported
from corral.engines.kubernetes.engine import CANNOT as KUBERNETES
from corral.engines.local.engine import CANNOT as LOCAL
from corral.engines.ray.engine import CANNOT as RAY
from corral.engines.slurm.engine import CANNOT as SLURM
from corral.engines.slurm.engine import CANNOT_PLACED
from corral.wire.spec_reader import parse_values
from corral.wire.submission import to_domain
from tests.worlds import Cluster, node

PLAIN = {"name": "a", "run": "x"}
SERVICE = {"kind": "service", "service": {"port": 80}}
ASKED: dict[str, dict[str, Any]] = {
    "any_of": {"any_of": [{"nodes": 1}]},
    "elastic": {"elastic": {"min_nodes": 1, "max_nodes": 2}},
    "apart_from": {"apart_from": ["b"]},
    "topology": {"topology": {"mode": "require"}},
}


def check(cannot: dict[str, EngineLimit], asked: dict[str, Any]) -> None:
    specs = to_domain(parse_values([{**PLAIN, **asked}], source="spec"))
    check_specs(Cluster(node("n1")).world, specs, cannot)


@pytest.mark.parametrize("cannot", [LOCAL, RAY, SLURM, KUBERNETES])
def test_a_service_is_told_to_run_as_a_job(cannot: dict[str, EngineLimit]) -> None:
    with pytest.raises(Unsupported, match="cannot serve requests yet") as refused:
        check(cannot, SERVICE)
    assert (
        refused.value.hint
        == "remove kind: service and service: from the spec; it then runs as a job"
    )
    check(cannot, {})


@pytest.mark.parametrize("part", ["kind", "service"])
def test_half_a_service_is_not_led_to_a_whole_one(part: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        check({}, {part: SERVICE[part]})
    assert "remove kind: service and the service section" in refused.value.hint


@pytest.mark.parametrize("left_out", ASKED)
def test_what_slurm_cannot_where_it_places_is_told_to_be_left_out(
    left_out: str,
) -> None:
    with pytest.raises(Unsupported) as refused:
        check(dict(CANNOT_PLACED), ASKED[left_out])
    assert refused.value.hint == f"remove {left_out} from the spec"
    check(dict(CANNOT_PLACED), {})
