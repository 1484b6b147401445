"""Requests of users about services."""

from dataclasses import replace

from corral.domain.event_kind import EventKind
from corral.domain.ids import ServiceName, job_id
from corral.domain.requests import (
    ApplyService,
    RollBackService,
    ScaleService,
    StopService,
    StoredRequest,
)
from corral.domain.role_rule import PrefillGroup, range_text, replica_noun
from corral.domain.service import (
    Service,
    ServiceRevision,
    ServiceSpec,
    ServiceState,
)
from corral.domain.serving_roles import ServingRole
from corral.reconcile.changeset import Draft
from corral.reconcile.services.replica_count import first_prefill, first_reason
from corral.reconcile.services.rollout import adopt_passed, begin_revision, end_trial


def apply_service_request(
    draft: Draft,
    request: StoredRequest,
    asked: ApplyService | ScaleService | RollBackService | StopService,
) -> None:
    """Apply a request about a service. The service stays as it is if it has ended or is
    being stopped meanwhile."""
    if isinstance(asked, ApplyService):
        name = asked.spec.name
        if draft.service(name) is None:
            _make_service(draft, request, asked)
            return
    else:
        name = asked.service
    service = draft.service(name)
    if service is None or service.state != ServiceState.ACTIVE:
        if not isinstance(asked, StopService):
            _tell_refused(draft, request, name)
        return
    match asked:
        case ApplyService(spec=spec):
            changed = _change_service(draft, request, service, spec)
        case ScaleService():
            changed = _scale_service(draft, request, service, asked)
        case RollBackService(revision=revision):
            changed = _roll_back(draft, request, service, revision)
        case StopService():
            changed = _stop_service(draft, request, service)
    draft.put_service(changed)


def _tell_refused(draft: Draft, request: StoredRequest, name: ServiceName) -> None:
    text = (
        f"request {request.sequence} of {request.by} has no effect, because service "
        f"{name} is being stopped, or has ended"
    )
    draft.tell(EventKind.REQUEST_FAILED, text)


def _make_service(draft: Draft, request: StoredRequest, asked: ApplyService) -> None:
    spec = asked.spec
    revision = ServiceRevision(number=1, spec=spec, by=request.by, at=request.at)
    service = Service(
        id=job_id(request.sequence),
        name=spec.name,
        owner=request.by,
        created_at=request.at,
        revisions=(revision,),
        current=1,
        key_seed=asked.key_seed,
        wanted=spec.min_replicas,
        reason=first_reason(spec),
        prefill=first_prefill(spec),
    )
    draft.put_service(service)
    text = f"service {spec.name} was made by {request.by}"
    draft.tell(EventKind.SERVICE_APPLIED, text, job=service.id)


def _change_service(
    draft: Draft, request: StoredRequest, service: Service, spec: ServiceSpec
) -> Service:
    newest = service.trial if service.trial is not None else service.current
    if not spec.needs_revision(service.spec_of(newest)):
        changed = _with_settings(service, spec, whole=newest)
        if changed != service:
            _tell_applied(draft, request, service, "its settings were changed")
        return changed
    if not spec.needs_revision(service.spec):
        text = f"revision {service.trial} gives way to revision {service.current} again"
        _tell_applied(draft, request, service, text)
        ended = end_trial(draft, service, _replaced_text(request))
        return _with_settings(ended, spec, whole=ended.current)
    service = end_trial(draft, adopt_passed(service), _replaced_text(request))
    service = _with_settings(service, spec)
    return _with_begun(draft, request, service, spec, is_tried=spec.canary.seconds > 0)


def _replaced_text(request: StoredRequest) -> str:
    return f"another revision was applied by {request.by}"


def _with_begun(
    draft: Draft,
    request: StoredRequest,
    service: Service,
    spec: ServiceSpec,
    *,
    is_tried: bool,
) -> Service:
    """Return the service with a new revision that is tried or replaces the current
    one."""
    old = service.current
    service = service.with_new_revision(spec, request.by, request.at)
    number = service.newest.number
    service = begin_revision(service, number, is_tried=is_tried)
    if service.current == number:
        text = (
            f"revision {number} replaces revision {old} at once, because no replica of "
            "that one is ready"
        )
    elif service.passed:
        text = f"revision {number} replaces revision {old}, one replica at a time"
    else:
        text = f"revision {number} is tried together with revision {old}"
    _tell_applied(draft, request, service, text)
    return service


def _with_settings(
    service: Service, spec: ServiceSpec, *, whole: int | None = None
) -> Service:
    """Return the service with the settings of the spec that need no new revision, for
    the revisions that serve or are tried. The revision `whole` gets all of the spec."""
    for revision in service.revisions:
        if revision.number in (service.current, service.trial):
            changed = (
                spec
                if revision.number == whole
                else revision.spec.with_settings_of(spec)
            )
            service = service.with_revision(replace(revision, spec=changed))
    return service


def _tell_applied(
    draft: Draft, request: StoredRequest, service: Service, text: str
) -> None:
    sentence = f"service {service.name}: {text}, requested by {request.by}"
    draft.tell(EventKind.SERVICE_APPLIED, sentence, job=service.id)


def _scale_service(
    draft: Draft, request: StoredRequest, service: Service, asked: ScaleService
) -> Service:
    low, high = asked.min_replicas, asked.max_replicas
    if (asked.role is ServingRole.WHOLE) == bool(service.spec.roles):
        return service  # its groups have changed since the request was accepted
    spec = service.spec.with_range(asked.role, low, high)
    noun = replica_noun(asked.role)
    _tell_applied(
        draft, request, service, f"it may have {range_text(low, high)} {noun}s"
    )
    return _with_settings(service, spec, whole=service.current)


def _roll_back(
    draft: Draft, request: StoredRequest, service: Service, number: int | None
) -> Service:
    """Return the service on its way to an earlier revision. It stays as it is if that
    revision is not kept, or serves or is tried already."""
    trial = service.trial
    if trial is not None and number in (None, service.current):
        text = (
            f"revision {trial} of service {service.name} was rolled back to revision "
            f"{service.current} by {request.by}"
        )
        draft.tell(EventKind.ROLLED_BACK, text, job=service.id)
        return end_trial(draft, service, text)
    by_number = {revision.number: revision for revision in service.revisions}
    earlier = service.previous if number is None else by_number.get(number)
    if earlier is None or earlier.number == trial:
        return service
    if trial is None and not earlier.spec.needs_revision(service.spec):
        return service  # what serves is the same already
    text = (
        f"service {service.name} goes back to revision {earlier.number}, requested by "
        f"{request.by}"
    )
    draft.tell(EventKind.ROLLED_BACK, text, job=service.id)
    service = end_trial(draft, adopt_passed(service), text)
    spec = earlier.spec.with_settings_of(service.spec)
    return _with_begun(draft, request, service, spec, is_tried=False)


def _stop_service(draft: Draft, request: StoredRequest, service: Service) -> Service:
    text = f"service {service.name} is being stopped, requested by {request.by}"
    draft.tell(EventKind.SERVICE_STOPPED, text, job=service.id)
    ended = end_trial(draft, service, text)
    return replace(
        ended,
        state=ServiceState.STOPPING,
        wanted=0,
        reason=f"stopped by {request.by}",
        prefill=PrefillGroup(),
    )
