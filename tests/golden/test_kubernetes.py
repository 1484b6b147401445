"""The manifests that Kubernetes is handed. The golden file is the review."""

from dataclasses import replace

import pytest
import yaml
from lightkube.resources.batch_v1 import Job
from lightkube.resources.core_v1 import ConfigMap, Secret

from corral.domain.ids import NodeId
from corral.engines.batch.interfaces import PartFiles
from corral.engines.kubernetes import manifests as render
from corral.engines.kubernetes.settings import KubernetesSettings
from tests.engines.kubernetes.objects import CLUSTER, GPUS, SETTINGS, gang
from tests.golden.transcript import check
from tests.kube.typed import model_of, unknown_fields

PARTS = {
    NodeId(node): PartFiles(settings=b'{"node": "x"}', token=b"a-token\n")
    for node in ("gpu-b", "gpu-a")
}
ALL = KubernetesSettings(
    image="registry.example/corral:1",
    queue="research",
    service_account="runner",
    pull_secret="registry",
    priority_class="gpu-high",
    runtime_class="nvidia",
    scheduler="kai-scheduler",
    host_network=True,
    tolerate="nvidia.com/gpu",
    claims="datasets:/data,scratch:/scratch",
    secrets="s3-keys:/run/keys",
    extra="rdma/hca=1",
)
MIG = {NodeId("gpu-b"): ["nvidia.com/mig-1g.10gb"] * 7}


def text_of(*objects: ConfigMap | Secret | Job) -> str:
    """As YAML, in the order of the names."""
    return str(yaml.safe_dump_all([one.to_dict() for one in objects]))


def manifests() -> dict[str, str]:
    alone = replace(
        gang()[0], seat=replace(gang()[0].seat, gpus=(), cpu_millis=0, memory_bytes=0)
    )
    sliced = replace(gang()[0], image="other:2")
    head = render.head_map_of(CLUSTER, {"head.json": '{"url": "https://head:8700"}'})
    return {
        "where the head is": text_of(head),
        "two nodes with GPUs, CPUs and memory": text_of(
            render.secret_of(CLUSTER, gang(), PARTS),
            render.job_of(CLUSTER, gang(), GPUS, SETTINGS),
        ),
        "all settings": text_of(render.job_of(CLUSTER, gang(), GPUS, ALL)),
        "one node, nothing asked for": text_of(
            render.job_of(CLUSTER, [alone], GPUS, SETTINGS)
        ),
        "two slices of a GPU, an image of the job's own": text_of(
            render.job_of(CLUSTER, [sliced], MIG, SETTINGS)
        ),
    }


def test_manifests(request: pytest.FixtureRequest) -> None:
    check(
        "kubernetes_manifests",
        "\n".join(f"=== {what}\n{text}" for what, text in manifests().items()),
        update=bool(request.config.getoption("--update", default=False)),
    )


def test_every_manifest_is_what_kubernetes_own_models_say() -> None:
    for text in manifests().values():
        for manifest in yaml.safe_load_all(text):
            assert model_of(manifest) is not None
            assert unknown_fields(manifest) == []


def test_no_token_and_nothing_that_a_job_says_of_itself_is_outside_of_a_secret() -> (
    None
):
    said = gang(
        run="echo SWORDFISH", env=(("API_KEY", "SWORDFISH"),), setup="SWORDFISH"
    )
    text = text_of(render.job_of(CLUSTER, said, GPUS, SETTINGS))
    assert not any(word in text for word in ("SWORDFISH", "a-token", "HF_TOKEN"))
