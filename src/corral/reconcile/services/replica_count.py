"""Number of replicas that a service wants: by the measured demand, within its range."""

from dataclasses import replace

from corral.domain.event_kind import EventKind
from corral.domain.service import Service, ServiceFacts, ServiceSpec
from corral.domain.units import counted
from corral.reconcile.changeset import Draft
from corral.reconcile.services.rollout import facts_of


def first_reason(spec: ServiceSpec) -> str:
    """Return why a new service has its first number of replicas, as text."""
    at_least = "" if spec.min_replicas == spec.max_replicas else "at least "
    return f"its spec asks for {at_least}{counted(spec.min_replicas, 'replica')}"


def _sleeping(service: Service, facts: ServiceFacts | None, wanted: int) -> int:
    """Return how many replicas sleep, in addition to those that serve."""
    spec = service.spec
    if not spec.may_sleep:
        return 0
    measured = facts.sleeping if facts is not None else None
    needed = service.sleeping if measured is None else measured
    return max(0, min(max(needed, spec.sleeping), spec.max_replicas - wanted))


def set_wanted(draft: Draft, service: Service) -> Service:
    """Return the service with the number of replicas that the demand needs. Without a
    measurement the number stays, within the range of the spec."""
    facts, spec = facts_of(draft, service), service.spec
    needed = facts.wanted if facts is not None else None
    reason = facts.reason if facts is not None and needed is not None else ""
    if needed is None:
        needed = service.wanted
    wanted = min(max(needed, spec.min_replicas), spec.max_replicas)
    service = replace(service, sleeping=_sleeping(service, facts, wanted))
    if wanted == service.wanted:
        return service
    reason = reason.rstrip(".")
    if spec.min_replicas == spec.max_replicas:
        reason = f"its spec asks for {counted(wanted, 'replica')}"
    elif wanted != needed:
        bound_text = "at least" if wanted > needed else "at most"
        limit_text = f"its spec asks for {bound_text} {counted(wanted, 'replica')}"
        reason = f"{reason}; {limit_text}" if reason else limit_text
    text = (
        f"service {service.name} needs {counted(wanted, 'replica')} now, "
        f"{service.wanted:,} before{': ' if reason else ''}{reason}"
    )
    draft.tell(EventKind.SERVICE_SCALED, text, job=service.id)
    return replace(service, wanted=wanted, reason=reason)
