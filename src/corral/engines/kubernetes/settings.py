"""Settings of a cluster on Kubernetes: `corral up --engine kubernetes --set
image=...`."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from corral.domain.ids import NAME_RULE, QueueName, is_name
from corral.engines.typed_settings import read_settings, wrong

# each pod has its own network, and so all of them
PORTS: Final = tuple(range(20_000, 20_032))
RACK_LABELS: Final = (
    "topology.kubernetes.io/rack",
    "topology.k8s.aws/network-node-layer-3",
    "cloud.google.com/gce-topology-subblock",
)
POD_LABELS: Final = (
    "topology.k8s.aws/network-node-layer-2",
    "cloud.google.com/gce-topology-block",
    "topology.kubernetes.io/zone",
)
RESTRICTED: Final = "restricted"  # no root, no capability
# the image's own user, also root, with the runtime's capabilities
BASELINE: Final = "baseline"
PRIVILEGED: Final = "privileged"  # as root on the node
NVLINK_LABELS: Final = ("nvidia.com/gpu.clique",)
# of each pod, for the agent and the shims alongside the ranks
AGENT_BYTES: Final = 128 * 1024**2
AGENTS: Final = 4  # attempts side by side for which a node without more GPUs keeps them
# A label as RFC 1123 has it.
NAMESPACE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_RUN_AS: Final = re.compile(r"[1-9][0-9]{0,9}:[1-9][0-9]{0,9}", re.ASCII)


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSettings:
    """Settings of the Kubernetes engine. `image`: the image of jobs that name none. It
    holds Python and Corral, as every job's image must if there is no `agent_image`. If
    `agent_image` is set, an init container copies the agent from it into each pod; the
    job's image then needs only a shell, and `python` is not used.

    `kubeconfig`, `context`: as kubectl takes them; None: $KUBECONFIG, a pod's own
    account, or ~/.kube/config. `namespace`: where the Jobs are; None: the context's own
    namespace. `queue_namespaces`: other namespaces for the Jobs of some queues and of
    all queues below them, QUEUE=NAMESPACE joined by commas. `head_url`: the address at
    which pods reach the head; None: the address at which the head serves. `queue`:
    Kueue's LocalQueue. `nodes`: labels that a node must have to be used by Corral,
    joined by commas. `tolerate`: keys of taints that Corral's pods tolerate. `claims`:
    PersistentVolumeClaims that all pods mount, each NAME:/PATH, joined by commas;
    `secrets`: Secrets in the same form. `extra`: resources that each pod gets in
    addition to its GPUs, such as rdma/hca=1. `security`: what pods may do, by the names
    of the Pod Security Standards. `cpu_limits`: whether the CPUs that a job asks for
    are also the most that its pods get. `run_as`: UID:GID of restricted pods.
    `rack_label`, `pod_label`, `nvlink_label`: the node labels that describe the
    topology.
    """

    NAME: ClassVar[str] = "kubernetes"
    FILES: ClassVar[Mapping[str, str]] = {
        "kubeconfig": "write a kubeconfig that works with kubectl to FILE"
    }
    EXAMPLES: ClassVar[Mapping[str, str]] = {
        "image": "registry.example/train:1",
        "agent_image": "registry.example/corral-agent:1",
        "python": "python3",
        "kubeconfig": "~/.kube/config",
        "context": "research",
        "namespace": "corral",
        "queue_namespaces": "vision=team-vision,nlp=team-nlp",
        "head_url": "https://10.0.0.1:8080",
        "queue": "research",
        "service_account": "corral",
        "pull_secret": "registry",
        "priority_class": "training",
        "runtime_class": "nvidia",
        "security": RESTRICTED,
        "run_as": "1000:1000",
        "scheduler": "default-scheduler",
        "nodes": "pool=gpu",
        "tolerate": "nvidia.com/gpu",
        "claims": "data:/data",
        "secrets": "keys:/keys",
        "extra": "rdma/hca=1",
        "rack_label": RACK_LABELS[0],
        "pod_label": POD_LABELS[-1],
        "nvlink_label": NVLINK_LABELS[0],
    }

    image: str | None = None
    agent_image: str | None = None
    python: str = "python3"
    kubeconfig: str | None = None
    context: str | None = None
    namespace: str | None = None
    queue_namespaces: str = ""
    head_url: str | None = None
    queue: str | None = None
    service_account: str | None = None
    pull_secret: str | None = None
    priority_class: str | None = None
    runtime_class: str | None = None
    scheduler: str | None = None
    security: str = RESTRICTED
    run_as: str = "1000:1000"
    host_network: bool = False
    cpu_limits: bool = True
    nodes: str = ""
    tolerate: str = ""
    claims: str = ""
    secrets: str = ""
    extra: str = ""
    rack_label: str | None = None
    pod_label: str | None = None
    nvlink_label: str | None = None
    call_seconds: float = 10.0

    def __post_init__(self) -> None:
        for name in ("claims", "secrets"):
            if any(
                not path.startswith("/")
                for _, path in _parse_pairs(getattr(self, name), ":")
            ):
                fault_text = f"{name}={getattr(self, name)}: each must be NAME:/PATH"
                raise wrong(KubernetesSettings, name, fault_text)
        for name in ("nodes", "extra"):
            if any(not value for _, value in _parse_pairs(getattr(self, name), "=")):
                fault_text = f"{name}={getattr(self, name)}: each must be NAME=VALUE"
                raise wrong(KubernetesSettings, name, fault_text)
        self._check_queue_namespaces()
        if self.security not in (RESTRICTED, BASELINE, PRIVILEGED):
            fault_text = f"security={self.security}: use {RESTRICTED}, {BASELINE} or {PRIVILEGED}"
            raise wrong(KubernetesSettings, "security", fault_text)
        if _RUN_AS.fullmatch(self.run_as) is None:
            fault_text = f"run_as={self.run_as} must be UID:GID, and neither may be 0"
            raise wrong(KubernetesSettings, "run_as", fault_text)
        if not 1.0 <= self.call_seconds <= 60.0:
            fault_text = (
                f"call_seconds={self.call_seconds:g} must be from 1 to 60 seconds"
            )
            raise wrong(KubernetesSettings, "call_seconds", fault_text)

    def _check_queue_namespaces(self) -> None:
        """Check the queue names and namespaces in `queue_namespaces`. Raises:
        SpecInvalid."""
        pairs = _parse_pairs(self.queue_namespaces, "=")
        queues = [queue for queue, _ in pairs]
        fault = ""
        for queue, namespace in pairs:
            if not is_name(queue):
                fault = (
                    f"{queue[:80]!r} is not a valid name of a queue: use {NAME_RULE}"
                )
            elif NAMESPACE_NAME.fullmatch(namespace) is None:
                fault = (
                    f"{namespace[:80]!r} is not a valid name of a namespace: use at "
                    "most 63 lowercase letters, digits and hyphens, and no hyphen at "
                    "either end"
                )
            elif queues.count(queue) > 1:
                fault = f"queue {queue} is named twice"
        if fault:
            fault_text = f"queue_namespaces={self.queue_namespaces}: {fault}"
            raise wrong(KubernetesSettings, "queue_namespaces", fault_text)

    @property
    def namespace_by_queue(self) -> Mapping[QueueName, str]:
        """The namespace of each queue that has its own."""
        pairs = _parse_pairs(self.queue_namespaces, "=")
        return {QueueName(queue): namespace for queue, namespace in pairs}

    @property
    def mounted_claims(self) -> tuple[tuple[str, str], ...]:
        """The PersistentVolumeClaims that all pods mount, as pairs (claim, path)."""
        return _parse_pairs(self.claims, ":")

    @property
    def mounted_secrets(self) -> tuple[tuple[str, str], ...]:
        """The Secrets that all pods mount, as pairs (Secret, path)."""
        return _parse_pairs(self.secrets, ":")

    @property
    def uid_and_gid(self) -> tuple[int, int]:
        uid, _, gid = self.run_as.partition(":")
        return int(uid), int(gid)

    @property
    def node_labels(self) -> tuple[tuple[str, str], ...]:
        return _parse_pairs(self.nodes, "=")

    @property
    def extra_resources(self) -> tuple[tuple[str, str], ...]:
        return _parse_pairs(self.extra, "=")

    @property
    def tolerated(self) -> tuple[str, ...]:
        return tuple(key.strip() for key in self.tolerate.split(",") if key.strip())

    @property
    def topology(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Corral's topology levels, each with the node labels that may hold its value.
        The first label that a node has counts."""
        return (
            ("rack", (self.rack_label,) if self.rack_label else RACK_LABELS),
            ("pod", (self.pod_label,) if self.pod_label else POD_LABELS),
            ("nvlink", (self.nvlink_label,) if self.nvlink_label else NVLINK_LABELS),
        )

    @classmethod
    def read(cls, given: Mapping[str, str]) -> "KubernetesSettings":
        """Parse the settings as the user typed them. Raises: SpecInvalid."""
        return read_settings(cls, given)


def _parse_pairs(text: str, mark: str) -> tuple[tuple[str, str], ...]:
    """Parse pairs joined by commas. `mark` separates the two texts of a pair: ":" in
    NAME:/PATH,NAME:/PATH, or "=" in NAME=VALUE,NAME=VALUE."""
    split_pairs = (
        pair_text.strip().partition(mark)
        for pair_text in text.split(",")
        if pair_text.strip()
    )
    return tuple((name, value) for name, _, value in split_pairs)
