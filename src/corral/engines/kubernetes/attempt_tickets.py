"""State of each attempt, read from its Jobs and pods in Kubernetes."""

from collections.abc import Iterable, Mapping, Sequence

from lightkube.models.batch_v1 import JobStatus
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Event, Pod

from corral.domain.ids import NodeId
from corral.domain.observed_state import AttemptKey
from corral.engines.batch.interfaces import Ticket, TicketState
from corral.engines.kubernetes.names import key_of
from corral.engines.kubernetes.nodes import OVER
from corral.engines.kubernetes.reasons import lacks_room, why_ended, why_waits


def tickets_of(
    jobs: Iterable[Job],
    pods: Iterable[Pod],
    events: Mapping[AttemptKey, Sequence[Event]],
) -> tuple[Ticket, ...]:
    """Return one ticket for each attempt that has a Job or a pod."""
    own_job = {key: job for job in jobs if (key := _attempt_key(job)) is not None}
    own_pods: dict[AttemptKey, list[Pod]] = {}
    for pod in pods:
        if (key := _attempt_key(pod)) is not None:
            own_pods.setdefault(key, []).append(pod)
    return tuple(
        ticket_of(key, own_job.get(key), own_pods.get(key, []), events.get(key, ()))
        for key in sorted(own_job.keys() | own_pods.keys())
    )


def ticket_of(
    key: AttemptKey, job: Job | None, pods: Sequence[Pod], events: Sequence[Event]
) -> Ticket:
    """Return the ticket of one attempt. The attempt is over when its Job has finished
    or is gone, and no pod of it is left that may run.

    A pod that is being deleted runs until its kubelet has reported its end.
    """
    live_pods = [pod for pod in pods if not _is_over(pod)]
    is_finished = job is None or _is_finished(job)
    if is_finished and not live_pods:
        state = TicketState.ENDED
    elif not is_finished and (lacks_pods(job, pods) or any(map(_is_pending, pods))):
        state = TicketState.WAITING  # a gang begins when the last of its pods is there
    else:
        state = TicketState.RUNNING
    blame = why_ended(job, pods)
    return Ticket(
        key=key,
        handle=(job.metadata.name if job and job.metadata else None) or "",
        state=state,
        nodes=tuple(NodeId(node) for pod in pods if (node := _pod_node(pod))),
        reason=why_waits(job, pods, events) if state == TicketState.WAITING else "",
        blame=blame.text if blame else "",
        blame_is_infra=blame.infra if blame else True,
        no_room=lacks_room(pods) if state == TicketState.WAITING else "",
    )


def addresses_of(pods: Iterable[Pod]) -> dict[NodeId, str]:
    """Return the addresses of the ranks on each node, as far as Kubernetes has reported
    them."""
    return {
        NodeId(node): pod.status.podIP
        for pod in pods
        if (node := _pod_node(pod)) and pod.status is not None and pod.status.podIP
    }


def lacks_pods(job: Job | None, pods: Sequence[Pod]) -> bool:
    """Return whether the unfinished Job has fewer pods than it must have."""
    if job is None or job.spec is None or _is_finished(job):
        return False
    return len(pods) < (job.spec.parallelism or 0)


def _attempt_key(object: Job | Pod) -> AttemptKey | None:
    return key_of(object.metadata.labels if object.metadata else None)


def _pod_node(pod: Pod) -> str:
    return (pod.spec.nodeName if pod.spec else None) or ""


def _is_over(pod: Pod) -> bool:
    return pod.status is not None and pod.status.phase in OVER


def _is_pending(pod: Pod) -> bool:
    return pod.status is None or pod.status.phase in (None, "Pending")


def _is_finished(job: Job) -> bool:
    status = job.status or JobStatus()
    return any(
        condition.type in ("Complete", "Failed") and condition.status == "True"
        for condition in status.conditions or []
    )
