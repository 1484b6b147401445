"""A service that prefills and decodes apart, for tests."""

from typing import Any

from corral.domain.job import JobSpec
from corral.domain.role_rule import PrefillGroup, RoleRule
from corral.domain.service import ReplicaRow, Service, ServiceSpec
from corral.domain.serving_roles import CacheTransfer, ServingRole
from tests.control.services import row, service, spec

PREFILL, DECODE = ServingRole.PREFILL, ServingRole.DECODE


def roles_spec(
    transfer: CacheTransfer = CacheTransfer.SHARED, most: int = 8, **more: Any
) -> ServiceSpec:
    rules = tuple(
        RoleRule(
            role=role,
            min_replicas=1,
            max_replicas=most,
            replica=JobSpec(name="r", run=role.value),
        )
        for role in (PREFILL, DECODE)
    )
    return spec(
        min_replicas=1, max_replicas=most, roles=rules, transfer=transfer, **more
    )


def replica(number: int, role: ServingRole, **more: Any) -> ReplicaRow:
    return row(number, role=role, **more)


def apart(*rows: ReplicaRow, wanted: int = 1, prefill: int = 1, **more: Any) -> Service:
    """Return a service with these replicas."""
    more.setdefault("spec", roles_spec())
    group = PrefillGroup(wanted=prefill)
    return service(*rows, wanted=wanted, prefill=group, **more)
