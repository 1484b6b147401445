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
    "InvalidImageName": "the name of its image is not valid",
    "ErrImageNeverPull": "its image is not on the node, and may not be pulled",
    "CreateContainerConfigError": "a Secret or ConfigMap that it uses does not exist",
    "CreateContainerError": "its container cannot be created",
    "RunContainerError": "its container cannot be started",
    "ContainerCreating": "its container is being created",
    "PodInitializing": "its container is being created",
}
# https://kubernetes.io/docs/concepts/workloads/pods/disruptions/#pod-disruption-conditions
_DISRUPTED: Final = {
    "PreemptionByScheduler": "Kubernetes preempted the pod for a pod of higher "
    "priority",
    "DeletionByTaintManager": "the pod was removed because of a taint of its node",
    "EvictionByEvictionAPI": "the pod was evicted through the Kubernetes API, as by "
    "kubectl drain",
    "DeletionByPodGC": "the node of the pod was removed from Kubernetes",
    "TerminationByKubelet": "the node of the pod was short of resources, or was shut "
    "down",
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
            f"Kueue has not admitted it yet from its queue {queue}"
            if queue
            else "its Kubernetes Job is suspended"
        )
        return f"the job waits in Kubernetes: {suspension_text}"
    for pod in pods:
        if pod_reason := _why_pod_waits(pod):
            return f"the job waits in Kubernetes: {pod_reason}"
    refused = [
        event.message or "" for event in events if event.reason == "FailedCreate"
    ]
    if refused and not pods:
        return f"the job waits in Kubernetes: {refused[-1]}"
    if any(pod.spec is not None and not pod.spec.nodeName for pod in pods):
        return (
            "the job waits in Kubernetes: the scheduler has not considered its pod yet"
        )
    if pods:
        return "the job waits in Kubernetes: its node has not started its pod yet"
    return "the job waits in Kubernetes: its pods are not created yet"


def _queue_of(job: Job | None) -> str:
    labels = (job.metadata.labels if job and job.metadata else None) or {}
    return str(labels.get(QUEUE, ""))


def _why_pod_waits(pod: Pod) -> str:
    status = pod.status or PodStatus()
    for condition in status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return (
                f"{condition.message or 'no node can run its pod'} "
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
        return PodEnd(text="the pod was deleted in Kubernetes")
    status = (job.status if job else None) or JobStatus()
    for condition in status.conditions or []:
        if (
            condition.type == "Failed"
            and condition.status == "True"
            and condition.reason == "DeadlineExceeded"
        ):
            return PodEnd(
                text="the Kubernetes Job reached its time limit (DeadlineExceeded)"
            )
    return None


def _why_pod_ended(pod: Pod) -> PodEnd | None:
    status = pod.status or PodStatus()
    if status.reason == "Evicted":
        pod_message = status.message or "no reason given"
        is_own = any(phrase in pod_message for phrase in _OVER_ITS_LIMIT)
        eviction_text = (
            "the pod was evicted because it exceeded its own limits"
            if is_own
            else "the node evicted the pod"
        )
        return PodEnd(
            text=f"{eviction_text} (Evicted): {pod_message}", infra=not is_own
        )
    for container in _containers(status):
        terminated_state = container.state.terminated if container.state else None
        if terminated_state is not None and terminated_state.reason == "OOMKilled":
            return PodEnd(
                text="the pod used more memory than the job requested (OOMKilled)",
                infra=False,
            )
    for condition in status.conditions or []:
        if condition.type == "DisruptionTarget" and condition.status == "True":
            disruption_text = _DISRUPTED.get(
                condition.reason or "", "Kubernetes ended the pod"
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
                f"the container could not be started ({terminated_state.reason}): "
                f"{terminated_state.message or ''}"
            )
            return PodEnd(text=pod_message.rstrip(": "), infra=False)
        if terminated_state is not None and terminated_state.exitCode:
            return PodEnd(
                text=f"the container ended with exit code {terminated_state.exitCode}"
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
