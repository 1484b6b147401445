"""Launches, Jobs, pods and nodes for tests of the Kubernetes engine's pure parts."""

from dataclasses import replace
from typing import Any, TypeVar

import msgspec
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import Node, Pod

from corral.domain.attempt import Seat
from corral.domain.desired_state import Launch
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.job import Per
from corral.domain.observed_state import AttemptKey
from corral.engines.kubernetes import manifests, names
from corral.engines.kubernetes.settings import KubernetesSettings
from tests.kube.kinds import Json
from tests.kube.typed import unknown_fields

T = TypeVar("T")
KEY: AttemptKey = (JobId("j17_3"), AttemptNumber(2))
CLUSTER = "1a2b3c4d"
SETTINGS = KubernetesSettings(image="registry.example/corral:1")
GPUS = {
    NodeId("gpu-a"): ["nvidia.com/gpu"] * 8,
    NodeId("gpu-b"): ["nvidia.com/gpu"] * 8,
}


def gang(**more: Any) -> list[Launch]:
    """Two nodes with two GPUs each, at other indices."""
    one = Launch(
        key=KEY, job_name="tiny gpt", node_rank=0, nodes=("10.0.0.1", "10.0.0.2"), first_rank=0,
        seat=Seat(node=NodeId("gpu-b"), gpus=(4, 5), gpu_millis=2000, cpu_millis=8500,
                  memory_bytes=64 * 1024**3),
        ranks=1, world_size=2, master_address="10.0.0.1", master_port=20_000, run="true",
        setup=None, per=Per.NODE, env=(("TOKEN_FILE", "/x"),), secrets=("HF_TOKEN",), workdir=None,
        owner="ann", array_index=3, checkpoint=None, resume=(), grace_seconds=30.0,
        node_mtbf_seconds=86_400.0,
    )  # fmt: skip
    other = replace(
        one,
        node_rank=1,
        first_rank=1,
        seat=replace(one.seat, node=NodeId("gpu-a"), gpus=(0, 1)),
    )
    return [replace(launch, **more) for launch in (one, other)]


def job(status: Json | None = None, settings: KubernetesSettings = SETTINGS) -> Job:
    made = read(Job, manifests.job_of(CLUSTER, gang(), GPUS, settings).to_dict())
    return read(Job, {**made.to_dict(), "status": status or {}})


def pod(node: str, phase: str, *, labels: Json | None = None, **status: Any) -> Pod:
    """One of the attempt's, unless it has other labels."""
    own = names.labels_of(CLUSTER, KEY) if labels is None else labels
    spec: Json = {"containers": [{"name": "corral", "image": "x"}]}
    if node:
        spec["nodeName"] = node
    about = {"name": f"pod-{node or 'nowhere'}", "labels": own}
    return read(
        Pod, {"metadata": about, "spec": spec, "status": {"phase": phase, **status}}
    )


def container(**state: Any) -> list[Json]:
    return [{"name": "corral", "image": "x", "imageID": "", "ready": False, "restartCount": 0,
             "state": state}]  # fmt: skip


def node(name: str = "gpu-a", **more: Any) -> Node:
    """Eight H100; `allocatable`, `labels`, `spec` and `ready` may be other."""
    info = dict.fromkeys(
        ("architecture", "bootID", "containerRuntimeVersion", "kernelVersion", "kubeProxyVersion",
         "kubeletVersion", "machineID", "operatingSystem", "osImage", "systemUUID"), "b",
    )  # fmt: skip
    offered = more.get(
        "allocatable", {"cpu": "63500m", "memory": "512Gi", "nvidia.com/gpu": "8"}
    )
    labels = more.get("labels", {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"})
    ready = {"type": "Ready", "status": more.get("ready", "True")}
    status = {
        "allocatable": offered,
        "conditions": [ready],
        "nodeInfo": info,
        "addresses": [{"type": "Hostname", "address": name},
                      {"type": "InternalIP", "address": "10.0.0.1"}],
    }  # fmt: skip
    about = {"name": name, "labels": labels}
    return read(
        Node, {"metadata": about, "spec": more.get("spec", {}), "status": status}
    )


def read(kind: type[T], object: Json) -> T:
    """As the client reads what the server answers."""
    assert not unknown_fields({"apiVersion": "v1", "kind": kind.__name__, **object})
    return msgspec.convert(object, kind)
