"""Explanations of the reasons that Kubernetes gives for waiting and ended pods."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from lightkube.models.batch_v1 import JobStatus
from lightkube.models.core_v1 import ContainerStatus, PodStatus
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Event, Pod

from corral.engines.kubernetes.names import QUEUE

# https://kubernetes.io/docs/concepts/containers/images/#imagepullbackoff, and the
# kubelet's own
_WAITS: Final = {
    "ErrImagePull": "its image cannot be pulled",
    "ImagePullBackOff": "its image cannot be pulled",
    "InvalidImageName": "its image's name cannot be",
    "ErrImageNeverPull": "its image is not on the node, and may not be pulled",
    "CreateContainerConfigError": "a Secret or ConfigMap that it names is not there",
    "CreateContainerError": "its container cannot be made",
    "RunContainerError": "its container cannot be started",
    "ContainerCreating": "its container is being made",
    "PodInitializing": "its container is being made",
}
# https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
_DISRUPTED: Final = {
    "PreemptionByScheduler": "Kubernetes has preempted it for a pod of higher priority",
    "DeletionByTaintManager": "its node's taint drove it away",
    "EvictionByEvictionAPI": "it was evicted through Kubernetes' API, as by kubectl drain",
    "DeletionByPodGC": "its node is gone from Kubernetes",
    "TerminationByKubelet": "its node needed the room, or was shut down",
}


# https://github.com/kubernetes/kubernetes: the scheduler's plugins NodeResourcesFit and
# NodePorts
_NO_ROOM: Final = ("Insufficient ", "Too many pods", "didn't have free ports")
# The kubelet's words for a pod that is over its own limits, not for a node in want.
_OVER_ITS_LIMIT: Final = (
    "exceeded its local ephemeral storage limit",
    "usage exceeds the total limit of containers",
    "Usage of EmptyDir volume",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PodEnd:
    """Why a pod ended, and whether the infrastructure caused this end."""

    text: str
    infra: bool = True


def why_waits(job: Job | None, pods: Sequence[Pod], events: Iterable[Event]) -> str:
    """Return a sentence for `corral why` about why the attempt waits."""
    queue = _queue_of(job)
    if job is not None and job.spec is not None and job.spec.suspend:
        suspension_text = (
            f"Kueue has not let it in yet, by its queue {queue}"
            if queue
            else "it is suspended"
        )
        return f"it waits in Kubernetes: {suspension_text}"
    for pod in pods:
        if pod_reason := _why_pod_waits(pod):
            return f"it waits in Kubernetes: {pod_reason}"
    refused = [
        event.message or "" for event in events if event.reason == "FailedCreate"
    ]
    if refused and not pods:
        return f"it waits in Kubernetes: {refused[-1]}"
    if any(pod.spec is not None and not pod.spec.nodeName for pod in pods):
        return "it waits in Kubernetes: the scheduler has not looked at its pod yet"
    if pods:
        return "it waits in Kubernetes: its pod has been given to a node, which has yet to begin it"
    return "it waits in Kubernetes: its pods are being made by the controller of Jobs"


def _queue_of(job: Job | None) -> str:
    labels = (job.metadata.labels if job and job.metadata else None) or {}
    return str(labels.get(QUEUE, ""))


def _why_pod_waits(pod: Pod) -> str:
    status = pod.status or PodStatus()
    for condition in status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return (
                f"{condition.message or 'no node takes its pod'} "
                f"({condition.reason or 'Unschedulable'})"
            )
    for container in _containers(status):
        waiting_state = container.state.waiting if container.state else None
        if waiting_state is not None and waiting_state.reason:
            wait_text = _WAITS.get(waiting_state.reason, "its container waits")
            message_suffix = (
                f", {waiting_state.message}" if waiting_state.message else ""
            )
            return f"{wait_text} ({waiting_state.reason}{message_suffix})"
    return ""


def lacks_room(pods: Iterable[Pod]) -> str:
    """Return the scheduler's message if the node of a pod has no room for this pod; ""
    if there is room."""
    for pod in pods:
        for condition in (pod.status or PodStatus()).conditions or []:
            condition_text = condition.message or ""
            is_refused = (
                condition.type == "PodScheduled" and condition.status == "False"
            )
            if is_refused and any(phrase in condition_text for phrase in _NO_ROOM):
                return condition_text
    return ""


def why_ended(job: Job | None, pods: Sequence[Pod]) -> PodEnd | None:
    """Return the cause of the first pod that was ended from outside; None if no pod
    was."""
    for pod in sorted(pods, key=_ended_at):
        if (blame := _why_pod_ended(pod)) is not None:
            return blame
    if any(pod.metadata and pod.metadata.deletionTimestamp for pod in pods):
        return PodEnd(text="its pod was deleted in Kubernetes")
    status = (job.status if job else None) or JobStatus()
    for condition in status.conditions or []:
        if (
            condition.type == "Failed"
            and condition.status == "True"
            and condition.reason == "DeadlineExceeded"
        ):
            return PodEnd(text="its time in Kubernetes is over (DeadlineExceeded)")
    return None


def _why_pod_ended(pod: Pod) -> PodEnd | None:
    status = pod.status or PodStatus()
    if status.reason == "Evicted":
        pod_message = status.message or "no reason given"
        is_own = any(phrase in pod_message for phrase in _OVER_ITS_LIMIT)
        eviction_text = (
            "it was evicted for what it used of its own"
            if is_own
            else "its node evicted it"
        )
        return PodEnd(
            text=f"{eviction_text} (Evicted): {pod_message}", infra=not is_own
        )
    for container in _containers(status):
        terminated_state = container.state.terminated if container.state else None
        if terminated_state is not None and terminated_state.reason == "OOMKilled":
            return PodEnd(
                text="it took more memory than it asked for (OOMKilled)", infra=False
            )
    for condition in status.conditions or []:
        if condition.type == "DisruptionTarget" and condition.status == "True":
            disruption_text = _DISRUPTED.get(
                condition.reason or "", "Kubernetes has ended its pod"
            )
            return PodEnd(
                text=f"{disruption_text} ({condition.reason}): {condition.message or ''}".rstrip(
                    ": "
                )
            )
    for container in _containers(status):
        terminated_state = container.state.terminated if container.state else None
        if terminated_state is not None and terminated_state.reason in (
            "StartError",
            "ContainerCannotRun",
        ):
            pod_message = (
                f"its container could not be started ({terminated_state.reason}): "
                f"{terminated_state.message or ''}"
            )
            return PodEnd(text=pod_message.rstrip(": "), infra=False)
        if terminated_state is not None and terminated_state.exitCode:
            return PodEnd(
                text=f"its container ended with code {terminated_state.exitCode}"
            )
    return None


def _containers(status: PodStatus) -> list[ContainerStatus]:
    return [*(status.initContainerStatuses or []), *(status.containerStatuses or [])]


def _ended_at(pod: Pod) -> str:
    for container in _containers(pod.status or PodStatus()):
        terminated_state = container.state.terminated if container.state else None
        if terminated_state is not None and terminated_state.finishedAt is not None:
            return str(terminated_state.finishedAt)
    return "~"  # after all that have an end
