"""Number of replicas that a service wants: by the measured demand, within its range."""

from dataclasses import replace

from corral.domain.event_kind import EventKind
from corral.domain.role_rule import PrefillGroup, RoleRule, replica_noun
from corral.domain.service import Service, ServiceSpec
from corral.domain.service_facts import ServiceFacts
from corral.domain.serving_roles import ServingRole
from corral.domain.units import counted
from corral.reconcile.changeset import Draft
from corral.reconcile.services.rollout import facts_of


def first_reason(spec: ServiceSpec) -> str:
    """Return why a new service has its first number of replicas, as text."""
    return _first_reason(spec.min_replicas, spec.max_replicas, spec.answering_role)


def _first_reason(least: int, most: int, role: ServingRole) -> str:
    if least == 0 < most:
        return f"its first {replica_noun(role)} starts with the first request"
    at_least = "" if least == most else "at least "
    return f"its spec asks for {at_least}{counted(least, replica_noun(role))}"


def first_prefill(spec: ServiceSpec) -> PrefillGroup:
    """Return the prefill replicas of a new service."""
    rule = spec.prefill
    if rule is None:
        return PrefillGroup()
    reason = _first_reason(rule.min_replicas, rule.max_replicas, rule.role)
    return PrefillGroup(wanted=rule.min_replicas, reason=reason)


def _sleeping(service: Service, facts: ServiceFacts | None, wanted: int) -> int:
    """Return how many replicas sleep, in addition to those that serve."""
    spec = service.spec
    if not spec.may_sleep:
        return 0
    measured = facts.sleeping if facts is not None else None
    needed = service.sleeping if measured is None else measured
    return max(0, min(max(needed, spec.sleeping), spec.max_replicas - wanted))


def set_wanted(draft: Draft, service: Service) -> Service:
    """Return the service with the number of replicas that the demand needs, of both
    groups if it prefills and decodes apart. Without a measurement the number stays,
    within the range of the spec."""
    facts, spec = facts_of(draft, service), service.spec_of(service.goal)
    wanted, reason = _wanted_of(
        needed=facts.wanted if facts is not None else None,
        present=service.wanted,
        bounds=(spec.min_replicas, spec.max_replicas),
        reason=facts.reason if facts is not None else "",
        role=spec.answering_role,
    )
    service = replace(service, sleeping=_sleeping(service, facts, wanted))
    if wanted != service.wanted:
        _tell_scaled(
            draft, service, spec.answering_role, service.wanted, wanted, reason
        )
        service = replace(service, wanted=wanted, reason=reason)
    return _set_prefill(draft, service, facts, spec.prefill)


def _set_prefill(
    draft: Draft, service: Service, facts: ServiceFacts | None, rule: RoleRule | None
) -> Service:
    """Return the service with the number of prefill replicas that the demand needs;
    none without a rule."""
    group = service.prefill
    if rule is None:
        return replace(service, prefill=replace(group, wanted=0, reason=""))
    wanted, reason = _wanted_of(
        needed=facts.prefill_wanted if facts is not None else None,
        present=group.wanted,
        bounds=(rule.min_replicas, rule.max_replicas),
        reason=facts.prefill_reason if facts is not None else "",
        role=rule.role,
    )
    if wanted == group.wanted:
        return service
    _tell_scaled(draft, service, rule.role, group.wanted, wanted, reason)
    return replace(service, prefill=replace(group, wanted=wanted, reason=reason))


def _wanted_of(
    *,
    needed: int | None,
    present: int,
    bounds: tuple[int, int],
    reason: str,
    role: ServingRole,
) -> tuple[int, str]:
    """Return the number of replicas of a role, and why.

    Args:
        needed: Replicas that the demand needs, because of `reason`; None: not known.
        bounds: Fewest and most replicas by the spec.
    """
    least, most = bounds
    if needed is None:
        needed, reason = present, ""
    wanted = min(max(needed, least), most)
    reason = reason.rstrip(".")
    count = counted(wanted, replica_noun(role))
    if least == most:
        return wanted, f"its spec asks for {count}"
    if wanted != needed:
        bound_text = "at least" if wanted > needed else "at most"
        limit_text = f"its spec asks for {bound_text} {count}"
        reason = f"{reason}; {limit_text}" if reason else limit_text
    return wanted, reason


def _tell_scaled(
    draft: Draft,
    service: Service,
    role: ServingRole,
    before: int,
    wanted: int,
    reason: str,
) -> None:
    text = (
        f"service {service.name} needs {counted(wanted, replica_noun(role))} now, "
        f"{before:,} before{': ' if reason else ''}{reason}"
    )
    draft.tell(EventKind.SERVICE_SCALED, text, job=service.id)
