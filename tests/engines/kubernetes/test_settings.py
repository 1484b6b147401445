"""What is typed after --set for the Kubernetes engine, and what cannot be."""

import subprocess
from dataclasses import fields, replace
from pathlib import Path

import pytest
import yaml

from corral.domain.errors import SpecInvalid, Trouble
from corral.domain.ids import NodeId
from corral.engines.kubernetes import manifests as render
from corral.engines.kubernetes.rights import IN_CLUSTER, IN_NAMESPACE, KubernetesRight
from corral.engines.kubernetes.settings import AGENT_BYTES, KubernetesSettings
from tests.engines.kubernetes.objects import CLUSTER, GPUS, SETTINGS, gang
from tests.kube.cluster import require_kubectl
from tests.kube.typed import model_of, unknown_fields

GIB = 1024**3
DEPLOY = Path(__file__).parents[3] / "deploy" / "kubernetes"
GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "kubernetes.md"


def test_settings_are_read_as_they_are_typed() -> None:
    read = KubernetesSettings.read(
        {"image": "x:1", "host_network": "yes", "call_seconds": "5", "claims": "a:/a, b:/b",
         "tolerate": "gpu, spot", "nodes": "pool=gpu", "extra": "rdma/hca=2"}
    )  # fmt: skip
    assert (read.image, read.host_network, read.call_seconds) == ("x:1", True, 5.0)
    assert read.mounted_claims == (("a", "/a"), ("b", "/b"))
    assert (read.tolerated, read.node_labels) == (("gpu", "spot"), (("pool", "gpu"),))
    assert read.extra_resources == (("rdma/hca", "2"),)


@pytest.mark.parametrize(
    "given",
    [{"imagee": "x"}, {"host_network": "perhaps"}, {"call_seconds": "0"}, {"call_seconds": "soon"},
     {"claims": "data"}, {"secrets": "keys:relative"}, {"nodes": "gpu"}, {"extra": "rdma/hca"},
     {"security": "none"}, {"run_as": "0:0"}, {"run_as": "1000"}],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_way_out(given: dict[str, str]) -> None:
    with pytest.raises(SpecInvalid) as refused:
        KubernetesSettings.read(given)
    assert refused.value.hint


def test_a_job_without_an_image_is_refused_where_the_cluster_has_none() -> None:
    with pytest.raises(
        render.NoImage, match="has no image, and this cluster has no default"
    ):
        render.job_of(CLUSTER, gang(), GPUS, KubernetesSettings())
    own = render.job_of(CLUSTER, gang(image="mine:1"), GPUS, KubernetesSettings())
    assert "mine:1" in str(own.to_dict())


@pytest.mark.parametrize(
    ("security", "non_root", "privileged", "dropped"),
    [("restricted", True, False, ["ALL"]), ("baseline", None, False, None),
     ("privileged", None, True, None)],
)  # fmt: skip
def test_only_an_explicit_setting_lets_a_pod_be_root(
    security: str, non_root: bool | None, privileged: bool, dropped: list[str] | None
) -> None:
    settings = KubernetesSettings(image="x:1", security=security)
    spec = render.job_of(CLUSTER, gang(), GPUS, settings).to_dict()["spec"]["template"][
        "spec"
    ]
    own = spec["containers"][0]["securityContext"]
    pod = spec.get("securityContext", {})
    assert pod.get("runAsNonRoot") is non_root
    assert own["privileged"] is privileged
    assert own.get("capabilities", {}).get("drop") == dropped
    assert spec["automountServiceAccountToken"] is False
    restricted = {"allowPrivilegeEscalation": False} if security != "privileged" else {}
    assert restricted.items() <= own.items()


def test_a_gang_whose_gpus_have_several_names_cannot_be_one_job() -> None:
    mixed = {**GPUS, NodeId("gpu-a"): ["amd.com/gpu"] * 8}
    with pytest.raises(Trouble, match="have different resource names"):
        render.job_of(CLUSTER, gang(), mixed, SETTINGS)
    with pytest.raises(Trouble, match="fewer than the job was placed on"):
        render.job_of(
            CLUSTER, gang(), {NodeId("gpu-a"): [], NodeId("gpu-b"): []}, SETTINGS
        )


def test_the_roles_that_are_shipped_build_and_are_what_kubernetes_models_say() -> None:
    require_kubectl()
    made = subprocess.run(
        ["kubectl", "kustomize", str(DEPLOY)],
        capture_output=True,
        text=True,
        check=True,
    )
    kinds = []
    for manifest in yaml.safe_load_all(made.stdout):
        assert (model_of(manifest) is not None, unknown_fields(manifest)) == (True, [])
        kinds.append(manifest["kind"])
        assert manifest["metadata"].get("namespace", "corral") == "corral"
    assert {"Namespace", "ServiceAccount", "Role", "ClusterRole"} <= set(kinds)


def test_every_setting_is_in_the_guide() -> None:
    text = GUIDE.read_text()
    assert [
        one.name for one in fields(KubernetesSettings) if f"`{one.name}`" not in text
    ] == []


def test_the_rights_that_are_asked_for_are_those_of_the_roles_that_are_shipped() -> (
    None
):
    manifests = list(yaml.safe_load_all((DEPLOY / "roles.yaml").read_text()))

    def granted(kind: str) -> set[KubernetesRight]:
        rules = [
            rule for one in manifests if one["kind"] == kind for rule in one["rules"]
        ]
        return {
            KubernetesRight(verb=verb, group=group, resource=resource)
            for rule in rules
            for group in rule["apiGroups"]
            for resource in rule["resources"]
            for verb in rule["verbs"]
        }

    assert (granted("Role"), granted("ClusterRole")) == (
        set(IN_NAMESPACE),
        set(IN_CLUSTER),
    )


@pytest.mark.parametrize(
    ("settings", "cpu"),
    [(SETTINGS, "8500m"), (KubernetesSettings(image="x", cpu_limits=False), None)],
)
def test_what_a_job_asks_for_is_also_its_limit(
    settings: KubernetesSettings, cpu: str | None
) -> None:
    made = render._resources(gang(), GPUS, settings)
    memory = str(64 * GIB + AGENT_BYTES)
    limits = {"nvidia.com/gpu": "2", "memory": memory} | ({"cpu": cpu} if cpu else {})
    assert (made.limits, made.requests) == (limits, {"memory": memory, "cpu": "8500m"})


def test_a_pod_of_a_job_that_asks_for_nothing_is_not_the_first_to_be_evicted() -> None:
    """Without a request it would be of the class BestEffort."""
    seat = replace(gang()[0].seat, cpu_millis=0, memory_bytes=0, gpus=())
    made = render._resources(gang(seat=seat), GPUS, SETTINGS)
    assert (made.limits, made.requests) == (None, {"memory": str(AGENT_BYTES)})


def test_an_init_container_brings_the_agent_where_an_image_of_it_is_named() -> None:
    own = KubernetesSettings(image="busybox", agent_image="corral-agent:1")
    spec = render._pod_spec(CLUSTER, gang(), GPUS, own)
    assert spec.initContainers is not None
    (first,) = spec.initContainers
    assert (first.image, first.name) == ("corral-agent:1", "agent")
    assert first.securityContext == spec.containers[0].securityContext
    assert first.resources is not None
    # a quota may ask for both
    assert set(first.resources.limits or ()) == {"cpu", "memory"}
    script = (spec.containers[0].command or [])[-1]
    assert f"exec {render.AGENT}/bin/python3 -P -m corral.agent --part" in script
    assert render._pod_spec(CLUSTER, gang(), GPUS, SETTINGS).initContainers is None
