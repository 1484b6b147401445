"""The condition of a service: whether it serves as it should, and if not, why."""

from typing import Final

from corral.domain.coded import Coded
from corral.domain.service import STEADY_SECONDS, Service, ServiceState
from corral.domain.units import counted

_ENDING: Final = {ServiceState.STOPPING, ServiceState.STOPPED}


class ServiceCondition(Coded):
    """Condition of a service, as people see it."""

    READY = "READY", "as many replicas as it needs take requests"
    PARTIAL = "PARTIAL", "some of the replicas that it needs take requests"
    STARTING = "STARTING", "no replica takes requests yet"
    FAILING = "FAILING", "no replica takes requests: they end soon after their start"
    IDLE = "IDLE", "it needs no replica now"
    STOPPING = "STOPPING", "its replicas finish what they have begun"
    STOPPED = "STOPPED", "it has ended"


def condition_of(service: Service) -> ServiceCondition:
    """Return the condition of a service."""
    if service.state in _ENDING:
        return ServiceCondition(service.state.value)
    prefills = service.prefill_ready_count >= service.prefill.wanted
    if service.ready_count >= service.wanted and prefills:
        return ServiceCondition.READY if service.wanted else ServiceCondition.IDLE
    if service.ready_count:
        return ServiceCondition.PARTIAL
    return ServiceCondition.FAILING if service.fruitless else ServiceCondition.STARTING


def failed_start_count(service: Service) -> int:
    """Return how many replicas in a row have ended before they had been ready for
    STEADY_SECONDS, of the revision that serves and of the canary."""
    of_current = service.fruitless + service.prefill.fruitless
    return of_current + service.trial_fruitless


def last_end_of(service: Service) -> str:
    """Return how the last replica has ended that was not ready for long enough."""
    return service.last_end or service.prefill.last_end


def failed_starts_text(service: Service) -> str:
    """Return how many replicas in a row, of the revision that serves and of the canary,
    have ended too early, and how the last one has ended; "" if none has."""
    failed_starts = failed_start_count(service)
    if not failed_starts:
        return ""
    revision = service.trial if service.trial_fruitless else service.current
    end = last_end_of(service)
    last_end = f"; the last one: {end}" if end else ""
    return (
        f"{counted(failed_starts, 'replica')} of revision {revision} ended before being "
        f"ready for {STEADY_SECONDS:.0f} s{last_end}"
    )


def turned_back_text(service: Service) -> str:
    """Return which revision did not pass its trial, and why; "" if a newer one serves
    or is tried since."""
    newest = max(service.current, service.trial or 0)
    if service.turned_back is None or service.turned_back < newest:
        return ""
    reason = f": {service.turned_back_reason}" if service.turned_back_reason else ""
    return f"revision {service.turned_back} did not pass its trial{reason}"
