"""Manifests of an attempt in Kubernetes: a Secret and an indexed Job. Pure.

Source: https://kubernetes.io/docs/concepts/workloads/controllers/job/ (indexed
completion mode).
"""

import json
import math
from base64 import b64encode
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

from lightkube.models.batch_v1 import JobSpec
from lightkube.models.core_v1 import (
    Affinity,
    Capabilities,
    ConfigMapVolumeSource,
    Container,
    EmptyDirVolumeSource,
    EnvVar,
    EnvVarSource,
    KeyToPath,
    LocalObjectReference,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectFieldSelector,
    PersistentVolumeClaimVolumeSource,
    PodAffinityTerm,
    PodAntiAffinity,
    PodSecurityContext,
    PodSpec,
    PodTemplateSpec,
    ResourceRequirements,
    SeccompProfile,
    SecretVolumeSource,
    SecurityContext,
    Toleration,
    Volume,
    VolumeMount,
)
from lightkube.models.meta_v1 import LabelSelector, ObjectMeta
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, Secret

from corral.domain.desired_state import Launch
from corral.domain.errors import Refusal, Trouble
from corral.domain.ids import NodeId
from corral.engines.batch.interfaces import PartFiles
from corral.engines.kubernetes.names import (
    NAME,
    NODES,
    OWNER,
    QUEUE,
    head_name,
    labels_of,
    name_of,
)
from corral.engines.kubernetes.nodes import HOSTNAME
from corral.engines.kubernetes.settings import (
    AGENT_BYTES,
    BASELINE,
    PRIVILEGED,
    RESTRICTED,
    KubernetesSettings,
)

PART: Final = "/corral/part"  # node.json and token of the pod's own part
# head.json and the certificate, kept up to date by the kubelet
HEAD: Final = "/corral/head"
HOME: Final = "/corral/home"  # of a restricted pod: its user has no home in the image
AGENT: Final = "/corral/agent"  # of `agent_image`, copied by an init container
AGENT_SOURCE: Final = "/opt/corral-agent"  # where that image has it (deploy/kubernetes)
HEAD_JSON: Final = "head.json"
CERTIFICATE: Final = "ca.pem"
# beyond the job's own grace, for the agent to tell how it ended
LATE_SECONDS: Final = 15
# by the cluster autoscaler and by Karpenter, which else move pods to save nodes
KEPT: Final = {
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}


class NoImage(Refusal):
    """Refusal of a job for which neither the job nor the cluster names an image."""

    code = "no_image"


def secret_of(
    cluster: str, gang: Sequence[Launch], parts: Mapping[NodeId, PartFiles]
) -> Secret:
    """Return the Secret with the folders of all parts of an attempt; each pod sees only
    its own folder."""
    files: dict[str, bytes] = {}
    for node, part_files in parts.items():
        files |= {
            f"{node}.json": part_files.settings,
            f"{node}.token": part_files.token,
        }
    key = gang[0].key
    return Secret(
        metadata=ObjectMeta(name=name_of(cluster, key), labels=labels_of(cluster, key)),
        data={name: b64encode(content).decode() for name, content in files.items()},
    )


def head_map_of(cluster: str, files: Mapping[str, str]) -> ConfigMap:
    """Return the ConfigMap with the head's address for all pods of a cluster; it holds
    no secrets."""
    labels = {"app.kubernetes.io/managed-by": "corral", "corral.dev/cluster": cluster}
    return ConfigMap(
        metadata=ObjectMeta(name=head_name(cluster), labels=labels), data=dict(files)
    )


def job_of(
    cluster: str,
    gang: Sequence[Launch],
    gpu_resources: Mapping[NodeId, Sequence[str]],
    settings: KubernetesSettings,
) -> Job:
    """Return the Job of the attempt, with one pod on each node of the gang.
    `gpu_resources`: by node, the resource name of each GPU.

    Raises: NoImage; Trouble when a node has changed or is no longer known.
    """
    first_launch = gang[0]
    nodes = [launch.seat.node for launch in gang]
    labels = labels_of(cluster, first_launch.key)
    queue = {QUEUE: settings.queue} if settings.queue else {}
    annotations = {
        NAME: first_launch.job_name,
        OWNER: first_launch.owner,
        NODES: json.dumps(nodes),
    }
    return Job(
        metadata=ObjectMeta(
            name=name_of(cluster, first_launch.key),
            labels=labels | queue,
            annotations=annotations,
        ),
        spec=JobSpec(
            completionMode="Indexed",
            completions=len(gang),
            parallelism=len(gang),
            backoffLimit=0,
            suspend=bool(settings.queue),  # Kueue lets it go on when it has admitted it
            template=PodTemplateSpec(
                metadata=ObjectMeta(labels=labels, annotations=dict(KEPT)),
                spec=_pod_spec(cluster, gang, gpu_resources, settings),
            ),
        ),
    )


def _pod_spec(
    cluster: str,
    gang: Sequence[Launch],
    gpu_resources: Mapping[NodeId, Sequence[str]],
    settings: KubernetesSettings,
) -> PodSpec:
    first_launch = gang[0]
    pull = (
        [LocalObjectReference(name=settings.pull_secret)]
        if settings.pull_secret
        else None
    )
    return PodSpec(
        restartPolicy="Never",
        securityContext=_pod_security(settings),
        automountServiceAccountToken=False,
        enableServiceLinks=False,
        hostNetwork=True if settings.host_network else None,
        dnsPolicy="ClusterFirstWithHostNet" if settings.host_network else None,
        serviceAccountName=settings.service_account,
        imagePullSecrets=pull,
        priorityClassName=settings.priority_class,
        runtimeClassName=settings.runtime_class,
        schedulerName=settings.scheduler,
        terminationGracePeriodSeconds=math.ceil(first_launch.grace_seconds)
        + LATE_SECONDS,
        affinity=_build_affinity(cluster, gang),
        tolerations=[
            Toleration(key=key, operator="Exists") for key in settings.tolerated
        ]
        or None,
        initContainers=[_agent_container(settings)] if settings.agent_image else None,
        containers=[_container(gang, gpu_resources, settings)],
        volumes=_pod_volumes(cluster, gang, settings),
    )


def _pod_security(settings: KubernetesSettings) -> PodSecurityContext | None:
    """Return the security context of the pod, by the Pod Security Standards.

    Source: https://kubernetes.io/docs/concepts/security/pod-security-standards/
    """
    if settings.security == PRIVILEGED:
        return None
    profile = SeccompProfile(type="RuntimeDefault")
    if settings.security == BASELINE:
        return PodSecurityContext(seccompProfile=profile)
    uid, gid = settings.uid_and_gid
    return PodSecurityContext(
        runAsNonRoot=True,
        runAsUser=uid,
        runAsGroup=gid,
        fsGroup=gid,  # volumes can be written by it
        fsGroupChangePolicy="OnRootMismatch",
        seccompProfile=profile,
    )


def _container_security(settings: KubernetesSettings) -> SecurityContext:
    if settings.security == PRIVILEGED:
        return SecurityContext(privileged=True)
    capabilities = (
        Capabilities(drop=["ALL"]) if settings.security == RESTRICTED else None
    )
    return SecurityContext(
        allowPrivilegeEscalation=False, privileged=False, capabilities=capabilities
    )


def _build_affinity(cluster: str, gang: Sequence[Launch]) -> Affinity:
    """Return the affinity for exactly the nodes that Corral has chosen, with one pod on
    each."""
    terms = [
        NodeSelectorTerm(
            matchFields=[
                NodeSelectorRequirement(
                    key="metadata.name", operator="In", values=[launch.seat.node]
                )
            ]
        )
        for launch in gang
    ]
    apart = PodAffinityTerm(
        topologyKey=HOSTNAME,
        labelSelector=LabelSelector(matchLabels=labels_of(cluster, gang[0].key)),
    )
    return Affinity(
        nodeAffinity=NodeAffinity(
            requiredDuringSchedulingIgnoredDuringExecution=NodeSelector(
                nodeSelectorTerms=terms
            )
        ),
        podAntiAffinity=PodAntiAffinity(
            requiredDuringSchedulingIgnoredDuringExecution=[apart]
        ),
    )


def _container(
    gang: Sequence[Launch],
    gpu_resources: Mapping[NodeId, Sequence[str]],
    settings: KubernetesSettings,
) -> Container:
    """Return the container of the part's agent. The agent reads a copy of the part's
    folder, so it owns the files whatever user it runs as."""
    image = gang[0].image or settings.image
    if not image:
        raise NoImage(
            f"job {gang[0].key[0]} has no image, and this cluster has no default image",
            hint="add image: to the spec, or set a default image: corral up --engine "
            "kubernetes --set image=NAME",
        )
    python = f"{AGENT}/bin/python3" if settings.agent_image else settings.python
    script = (
        f"umask 077; at=`mktemp -d` && cp -RL {PART}/. $at && "
        f"exec {python} -P -m corral.agent --part $at"
    )
    mounts = [
        VolumeMount(
            name="part",
            mountPath=PART,
            readOnly=True,
            subPathExpr="$(CORRAL_NODE_NAME)",
        ),
        VolumeMount(name="head", mountPath=HEAD, readOnly=True),
        VolumeMount(name="shm", mountPath="/dev/shm"),
    ]
    if settings.agent_image:
        mounts.append(VolumeMount(name="agent", mountPath=AGENT, readOnly=True))
    if settings.security == RESTRICTED:
        mounts.append(VolumeMount(name="home", mountPath=HOME))
    for kind, mounted in _mounted_sources(settings):
        read_only = True if kind == "secret" else None
        mounts += [
            VolumeMount(
                name=f"{kind}-{source_index}", mountPath=path, readOnly=read_only
            )
            for source_index, (_, path) in enumerate(mounted)
        ]
    own_node = ObjectFieldSelector(fieldPath="spec.nodeName")
    return Container(
        name="corral",
        image=image,
        command=["sh", "-c", script],
        env=[
            EnvVar(name="CORRAL_NODE_NAME", valueFrom=EnvVarSource(fieldRef=own_node)),
            *_user_env(gang[0].owner, settings),
        ],
        securityContext=_container_security(settings),
        resources=_resources(gang, gpu_resources, settings),
        volumeMounts=mounts,
    )


def _agent_container(settings: KubernetesSettings) -> Container:
    """Return the init container that copies the agent from its image into the pod,
    where the job's image finds it."""
    requests = {"cpu": "100m", "memory": str(AGENT_BYTES)}
    return Container(
        name="agent",
        image=settings.agent_image,
        command=["sh", "-c", f"cp -R {AGENT_SOURCE}/. {AGENT}/"],
        securityContext=_container_security(settings),
        resources=ResourceRequirements(limits=requests, requests=requests),
        volumeMounts=[VolumeMount(name="agent", mountPath=AGENT)],
    )


def _user_env(owner: str, settings: KubernetesSettings) -> list[EnvVar]:
    """Return the variables HOME, USER and LOGNAME for a restricted pod. Programs need
    them because the image's password file has no entry for the pod's user."""
    if settings.security != RESTRICTED:
        return []
    pairs = {"HOME": HOME, "USER": owner, "LOGNAME": owner}
    return [EnvVar(name=name, value=value) for name, value in pairs.items()]


def _resources(
    gang: Sequence[Launch],
    gpu_resources: Mapping[NodeId, Sequence[str]],
    settings: KubernetesSettings,
) -> ResourceRequirements:
    """Return the resources of each pod: the same on every node, since one template
    makes them all."""
    gpu_counts = [_gpus_of(launch, gpu_resources) for launch in gang]
    if any(node_counts != gpu_counts[0] for node_counts in gpu_counts):
        raise Trouble(
            f"the GPUs of the nodes of {gang[0].key[0]} have different resource names"
        )
    limits = {name: str(count) for name, count in sorted(gpu_counts[0].items())}
    limits |= dict(settings.extra_resources)
    seat = gang[0].seat
    # without any it is evicted first
    requests = {"memory": str(seat.memory_bytes + AGENT_BYTES)}
    if seat.memory_bytes:
        limits["memory"] = requests["memory"]
    if seat.cpu_millis:
        requests["cpu"] = f"{seat.cpu_millis}m"
        if settings.cpu_limits:
            limits["cpu"] = requests["cpu"]
    return ResourceRequirements(limits=limits or None, requests=requests)


def _gpus_of(
    launch: Launch, gpu_resources: Mapping[NodeId, Sequence[str]]
) -> Counter[str]:
    names = gpu_resources.get(launch.seat.node, ())
    if any(index >= len(names) for index in launch.seat.gpus):
        raise Trouble(
            f"node {launch.seat.node} now has only {len(names)} GPUs, fewer than the "
            "job was placed on"
        )
    return Counter(names[index] for index in launch.seat.gpus)


def _pod_volumes(
    cluster: str, gang: Sequence[Launch], settings: KubernetesSettings
) -> list[Volume]:
    items = []
    for launch in gang:
        node = launch.seat.node
        items += [
            KeyToPath(key=f"{node}.json", path=f"{node}/node.json"),
            KeyToPath(key=f"{node}.token", path=f"{node}/token"),
        ]
    name = name_of(cluster, gang[0].key)
    volumes = [
        Volume(name="part", secret=SecretVolumeSource(secretName=name, items=items)),
        Volume(name="head", configMap=ConfigMapVolumeSource(name=head_name(cluster))),
        Volume(name="shm", emptyDir=EmptyDirVolumeSource(medium="Memory")),
    ]
    if settings.agent_image:
        volumes.append(Volume(name="agent", emptyDir=EmptyDirVolumeSource()))
    if settings.security == RESTRICTED:
        volumes.append(Volume(name="home", emptyDir=EmptyDirVolumeSource()))
    for kind, mounted in _mounted_sources(settings):
        for source_index, (source, _) in enumerate(mounted):
            volume = (
                Volume(
                    name=f"secret-{source_index}",
                    secret=SecretVolumeSource(secretName=source),
                )
                if kind == "secret"
                else Volume(
                    name=f"claim-{source_index}",
                    persistentVolumeClaim=PersistentVolumeClaimVolumeSource(
                        claimName=source
                    ),
                )
            )
            volumes.append(volume)
    return volumes


def _mounted_sources(
    settings: KubernetesSettings,
) -> list[tuple[str, tuple[tuple[str, str], ...]]]:
    return [("claim", settings.mounted_claims), ("secret", settings.mounted_secrets)]
