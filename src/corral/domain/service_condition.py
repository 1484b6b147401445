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
    FAILING = "FAILING", "its replicas end soon after their start"
    IDLE = "IDLE", "it needs no replica now"
    STOPPING = "STOPPING", "its replicas finish what they have begun"
    STOPPED = "STOPPED", "it has ended"


def condition_of(service: Service) -> ServiceCondition:
    """Return the condition of a service."""
    if service.state in _ENDING:
        return ServiceCondition(service.state.value)
    if service.ready_count >= service.wanted:
        return ServiceCondition.READY if service.wanted else ServiceCondition.IDLE
    if service.fruitless:
        return ServiceCondition.FAILING
    return (
        ServiceCondition.PARTIAL if service.ready_count else ServiceCondition.STARTING
    )


def failed_starts_text(service: Service) -> str:
    """Return how many replicas in a row, of the revision that serves and of the canary,
    have ended too early, and how the last one has ended; "" if none has."""
    failed_starts = service.fruitless + service.trial_fruitless
    if not failed_starts:
        return ""
    revision = service.trial if service.trial_fruitless else service.current
    last_end = f"; the last one: {service.last_end}" if service.last_end else ""
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
