"""What Kubernetes says of an attempt: that it waits and why, that it runs, how it
ended."""

from datetime import UTC, datetime

import pytest
from lightkube.resources.core_v1 import Event, Pod

from corral.domain.ids import AttemptNumber, ClusterId, JobId, NodeId
from corral.domain.observed_state import AttemptKey
from corral.engines.batch.interfaces import Ticket, TicketState
from corral.engines.kubernetes import names
from corral.engines.kubernetes.attempt_tickets import (
    addresses_of,
    ticket_of,
    tickets_of,
)
from corral.engines.kubernetes.settings import KubernetesSettings
from tests.engines.kubernetes.objects import CLUSTER, KEY, container, job, pod, read
from tests.kube.kinds import Json

COMPLETE = {"conditions": [{"type": "Complete", "status": "True"}]}
FAILED = {
    "conditions": [
        {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded"}
    ]
}


def ticket(status: Json | None, *pods: Pod) -> Ticket:
    return ticket_of(KEY, job(status), pods, ())


def ended(reason: str, code: int = 1, **more: object) -> Pod:
    state = {"terminated": {"exitCode": code, "reason": reason, **more}}
    return pod("gpu-a", "Failed", containerStatuses=container(**state))


def test_names_are_names_and_an_attempt_is_found_again_by_its_labels() -> None:
    assert names.name_of(CLUSTER, KEY) == "corral-1a2b3c4d-j17-3-2"
    assert names.key_of(names.labels_of(CLUSTER, KEY)) == KEY
    assert (
        names.key_of({})
        is names.key_of({"corral.dev/job": "j1"})
        is names.key_of(None)
        is None
    )
    longest: AttemptKey = (JobId("j" + "9" * 15 + "_" + "9" * 9), AttemptNumber(99_999))
    assert len(names.name_of(CLUSTER, longest)) <= 63
    assert names.short_cluster(ClusterId("a")) != names.short_cluster(ClusterId("b"))


def test_it_waits_until_the_last_of_its_pods_has_begun() -> None:
    assert ticket({}).state == TicketState.WAITING
    assert ticket({}, pod("gpu-a", "Running")).state == TicketState.WAITING
    both = pod("gpu-a", "Running"), pod("gpu-b", "Pending")
    assert ticket({}, *both).state == TicketState.WAITING
    both = pod("gpu-a", "Running"), pod("gpu-b", "Running")
    assert ticket({}, *both).state == TicketState.RUNNING


def test_it_is_over_when_its_job_is_and_no_pod_may_run() -> None:
    both = pod("gpu-a", "Succeeded"), pod("gpu-b", "Running")
    assert ticket(COMPLETE, *both).state == TicketState.RUNNING
    assert ticket(COMPLETE, both[0]).state == TicketState.ENDED
    assert ticket_of(KEY, None, [both[1]], ()).state == TicketState.RUNNING
    assert ticket_of(KEY, None, [], ()).state == TicketState.ENDED


def test_pods_without_their_job_are_told_of_and_others_are_not() -> None:
    stranger = pod("gpu-a", "Running", labels={"app": "theirs"})
    found = tickets_of([], [pod("gpu-a", "Running"), stranger], {})
    assert [(one.key, one.nodes) for one in found] == [(KEY, (NodeId("gpu-a"),))]


def test_addresses_are_those_of_the_pods_that_have_one() -> None:
    here = pod("gpu-a", "Running", podIP="10.1.2.3")
    assert addresses_of([here, pod("gpu-b", "Pending")]) == {
        NodeId("gpu-a"): "10.1.2.3"
    }


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable",
                             "message": "0/2 nodes: 2 Insufficient nvidia.com/gpu."}]},
            "2 Insufficient nvidia.com/gpu",
        ),
        (
            {"containerStatuses": container(
                waiting={"reason": "ImagePullBackOff", "message": "Back-off pulling x"})},
            "its image cannot be pulled (ImagePullBackOff, Back-off pulling x)",
        ),
        (
            {"containerStatuses": container(waiting={"reason": "Unheard"})},
            "its container waits (Unheard)",
        ),
    ],
)  # fmt: skip
def test_why_a_pod_waits_is_told_in_kubernetes_words(status: Json, said: str) -> None:
    found = ticket({}, pod("gpu-a", "Pending", **status))
    assert found.reason.startswith("the job waits in Kubernetes: ")
    assert said in found.reason


def test_why_there_is_no_pod_is_told_by_the_jobs_events() -> None:
    refused = "Error creating: pods is forbidden: exceeded quota: small"
    event = read(Event, {"metadata": {"name": "e"}, "involvedObject": {}, "reason": "FailedCreate",
                         "message": refused})  # fmt: skip
    assert refused in ticket_of(KEY, job({}), (), [event]).reason


def test_a_job_that_kueue_holds_waits_for_kueue() -> None:
    queued = job({}, KubernetesSettings(image="x", queue="research"))
    found = ticket_of(KEY, queued, (), ())
    assert found.reason.endswith(
        "Kueue has not admitted it yet from its queue research"
    )


@pytest.mark.parametrize(
    ("ends", "said", "infra"),
    [
        (ended("OOMKilled", 137), "more memory than the job requested (OOMKilled)", False),
        (ended("Error", 3), "the container ended with exit code 3", True),
        (ended("StartError", 128, message="no such file"), "could not be started", False),
        (
            pod("gpu-a", "Failed", reason="Evicted", message="The node was low on memory."),
            "the node evicted the pod (Evicted): The node was low on memory.",
            True,
        ),
        (
            pod("gpu-a", "Failed", reason="Evicted", message="Pod ephemeral local storage usage "
                "exceeds the total limit of containers 1Gi. "),
            "evicted because it exceeded its own limits (Evicted): Pod ephemeral local",
            False,
        ),
        (
            pod("gpu-a", "Failed", conditions=[{"type": "DisruptionTarget", "status": "True",
                                               "reason": "PreemptionByScheduler"}]),
            "Kubernetes preempted the pod for a pod of higher priority",
            True,
        ),
    ],
)  # fmt: skip
def test_whose_doing_an_end_was_is_told(ends: Pod, said: str, infra: bool) -> None:
    found = ticket(FAILED, ends)
    assert (found.state, found.blame_is_infra) == (TicketState.ENDED, infra)
    assert said in found.blame


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("PreemptionByScheduler", "preempted the pod for a pod of higher priority"),
        ("EvictionByEvictionAPI", "as by kubectl drain"),
    ],
)
def test_why_kubernetes_ends_a_pod_is_known_before_it_has_ended(
    reason: str, said: str
) -> None:
    told = [{"type": "DisruptionTarget", "status": "True", "reason": reason}]
    both = pod("gpu-a", "Running", conditions=told), pod("gpu-b", "Running")
    found = ticket({}, *both)
    assert (found.state, found.blame_is_infra) == (TicketState.RUNNING, True)
    assert said in found.blame


def test_a_pod_that_somebody_deletes_says_so_and_a_cause_goes_before_that() -> None:
    deleted = pod("gpu-a", "Running")
    assert deleted.metadata is not None
    deleted.metadata.deletionTimestamp = datetime.now(UTC)
    assert ticket({}, deleted, pod("gpu-b", "Running")).blame == (
        "the pod was deleted in Kubernetes"
    )
    told = [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
        }
    ]
    assert (
        "kubectl drain"
        in ticket({}, deleted, pod("gpu-b", "Running", conditions=told)).blame
    )


def test_only_a_pod_for_which_its_node_has_no_room_is_said_to_lack_it() -> None:
    def waits(message: str) -> str:
        told = {"type": "PodScheduled", "status": "False", "message": message}
        return ticket({}, pod("", "Pending", conditions=[told])).no_room

    full = "0/2 nodes are available: 1 Insufficient nvidia.com/gpu, 1 node(s) didn't match."
    assert waits(full) == full
    assert (
        waits("0/2 nodes are available: pod has unbound PersistentVolumeClaims.") == ""
    )


def test_the_pod_that_ended_first_is_blamed() -> None:
    late = ended("Error", 143, finishedAt="2026-11-22T08:00:09Z")
    first = ended("OOMKilled", 137, finishedAt="2026-11-22T08:00:01Z")
    assert "OOMKilled" in ticket(FAILED, late, first).blame


def test_a_clean_end_blames_nobody() -> None:
    clean = pod(
        "gpu-a", "Succeeded", containerStatuses=container(terminated={"exitCode": 0})
    )
    assert ticket(COMPLETE, clean).blame == ""
