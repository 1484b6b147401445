"""A service that gets and loses roles, in any order of requests, measurements, ends and
faults: what holds for each of its groups of replicas."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from corral.domain.requests import ApplyService, ScaleService
from corral.domain.service import CanaryRule, ReplicaRow, Service
from corral.domain.service_facts import ServiceFacts
from corral.domain.serving_roles import ServingRole
from tests.reconcile.serving import CHAT, service_spec
from tests.reconcile.test_services_machine import ServiceLife
from tests.reconcile.test_services_roles import roles_spec

MOST_DECODE = 3
MOST_PREFILL = 1
DECODE_RANGES = st.tuples(st.integers(0, MOST_DECODE), st.integers(0, MOST_DECODE)).map(
    sorted
)
PREFILL_RANGES = st.sampled_from([[0, 0], [0, 1], [1, 1]])


class RolesLife(ServiceLife):
    """The life of a service whose revisions may have roles. Both groups together have
    room for one replica more of each."""

    @rule(
        run=st.sampled_from(["serve v1", "serve v2", "serve v3"]),
        canary=st.sampled_from([0.0, 60.0, 600.0]),
        span=DECODE_RANGES,
        prefill=st.one_of(st.none(), PREFILL_RANGES),
    )
    def apply(
        self,
        run: str,
        canary: float,
        span: list[int],
        prefill: list[int] | None = None,
    ) -> None:
        rule = CanaryRule(seconds=canary)
        if prefill is None:
            spec = service_spec(
                run, min_replicas=span[0], max_replicas=span[1], canary=rule
            )
        else:
            ranges = (prefill[0], prefill[1]), (span[0], span[1])
            spec = roles_spec(run, *ranges, canary=rule)
        self.ask(ApplyService(spec=spec, key_seed="5eed"))

    @rule(
        span=DECODE_RANGES,
        prefill=PREFILL_RANGES,
        role=st.sampled_from(list(ServingRole)),
    )
    def scale(
        self,
        span: list[int],
        prefill: list[int] | None = None,
        role: ServingRole = ServingRole.WHOLE,
    ) -> None:
        least, most = prefill if prefill and role.is_prefill else span
        self.ask(
            ScaleService(service=CHAT, min_replicas=least, max_replicas=most, role=role)
        )

    @rule(
        wanted=st.one_of(st.none(), st.integers(0, MOST_DECODE + 1)),
        verdict=st.sampled_from([None, None, True, False]),
        idle=st.booleans(),
        prefill_wanted=st.one_of(st.none(), st.integers(0, MOST_PREFILL + 1)),
    )
    def measure(
        self,
        wanted: int | None,
        verdict: bool | None,
        idle: bool,
        prefill_wanted: int | None = None,
    ) -> None:
        under_way = {row.job: 0 if idle else 3 for row in self.rows}
        self.cluster.facts.services[CHAT] = ServiceFacts(
            wanted=wanted,
            prefill_wanted=prefill_wanted,
            verdict=verdict,
            under_way=under_way,
        )

    def drained_only_what_may_be_missed(self) -> None:
        """A replacement of revisions takes a ready replica away only if enough of its
        group are left, or one of each group for the lack of room."""
        before, service = self.before, self.service
        if before is None or service is None or before.id != service.id:
            return
        for is_prefill in (False, True):
            rows = group_of(service, is_prefill=is_prefill)
            earlier = {
                row.number: row for row in group_of(before, is_prefill=is_prefill)
            }
            newly = [
                row
                for row in rows
                if row.draining_at is not None
                and row.ready_at is not None
                and "replaces revision" in row.reason
                and row.number in earlier
                and earlier[row.number].draining_at is None
            ]
            if any("no room" in row.reason for row in newly):
                assert len(newly) == 1
                assert not any(row.draining_at for row in earlier.values())
            elif newly:
                ready = sum(
                    row.is_ready and row.revision != service.on_trial for row in rows
                )
                assert ready >= wanted_of(service, is_prefill=is_prefill)

    @invariant()
    def there_is_at_most_one_replica_more_than_wanted(self) -> None:
        service = self.service
        if service is None:
            return
        for is_prefill in (False, True):
            staying = [
                row
                for row in group_of(service, is_prefill=is_prefill)
                if row.draining_at is None and row.leaving_since is None
            ]
            assert len(staying) <= wanted_of(service, is_prefill=is_prefill) + 1
            assert sum(row.revision == service.on_trial for row in staying) <= 1

    @invariant()
    def each_replica_has_a_role_of_its_revision(self) -> None:
        for row in self.rows:
            assert self.service is not None
            if any(row.revision == one.number for one in self.service.revisions):
                spec = self.service.spec_of(row.revision)
                roles = {rule.role for rule in spec.roles} or {ServingRole.WHOLE}
                assert row.role in roles

    def check_settled(self, service: Service) -> None:
        goal = service.spec
        assert service.ready_count == service.wanted
        assert service.prefill_ready_count == service.prefill.wanted
        assert len(self.rows) == service.all_wanted
        assert goal.min_replicas <= service.wanted <= goal.max_replicas
        rule = goal.prefill
        if rule is None:
            assert service.prefill.wanted == 0
        else:
            assert rule.min_replicas <= service.prefill.wanted <= rule.max_replicas


def group_of(service: Service, *, is_prefill: bool) -> list[ReplicaRow]:
    return [row for row in service.replicas if row.role.is_prefill == is_prefill]


def wanted_of(service: Service, *, is_prefill: bool) -> int:
    return service.prefill.wanted if is_prefill else service.wanted


TestRolesLife = RolesLife.TestCase
TestRolesLife.settings = settings(
    max_examples=15, stateful_step_count=40, deadline=None
)
