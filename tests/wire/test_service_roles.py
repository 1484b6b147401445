"""Roles in the document of a service: what each replica runs, and the way back to the
document."""

import json
import re
import shlex

import pytest

from corral.domain.service import ServiceSpec
from corral.domain.serving_roles import CacheTransfer, ServingRole
from corral.wire.service_document import read_service
from corral.wire.written_service import written_service
from corral.wire.yaml_document import Document, documents_of

PREFILL, DECODE = ServingRole.PREFILL, ServingRole.DECODE
VLLM = """
kind: service
name: chat
model: hf://org/name
engine: vllm
resources: {gpu: "h100:2"}
env: {COMMON: a, SIZE: small}
topology: {within: rack}
roles:
  prefill: {replicas: 1..4, resources: {gpu: "h100:4"}, env: {SIZE: large}}
  decode: {replicas: 2..8}
"""
SGLANG = """
kind: service
name: chat
model: /data/model
engine: sglang
roles: {prefill: {}, decode: {}}
"""
OWN = """
kind: service
name: chat
transfer: shared
roles:
  prefill: {run: serve --prefill}
  decode: {run: serve --decode, replicas: 0..2}
"""
SHARED_COMMAND = """
kind: service
name: chat
run: serve --role $CORRAL_ROLE
transfer: shared
nodes: 2
roles: {prefill: {nodes: 1}, decode: {}}
"""


def spec_of(text: str) -> ServiceSpec:
    return read_service(documents_of(text, source="chat.yaml")[0]).spec


def command(spec: ServiceSpec, role: ServingRole) -> str:
    return spec.replica_of(role).run


@pytest.mark.parametrize("text", [VLLM, SGLANG, OWN, SHARED_COMMAND])
def test_a_written_document_is_the_same_service(text: str) -> None:
    spec = spec_of(text)
    written = Document(value=written_service(spec), source="chat")
    assert read_service(written).spec == spec


def test_each_role_has_a_range_resources_and_variables_of_its_own() -> None:
    spec = spec_of(VLLM)
    prefill, decode = spec.roles
    assert (prefill.min_replicas, prefill.max_replicas) == (1, 4)
    assert (spec.min_replicas, spec.max_replicas) == (2, 8)
    assert prefill.replica.resources.gpus == 4
    assert decode.replica.resources.gpus == 2
    assert dict(prefill.replica.env) == {"COMMON": "a", "SIZE": "large"}
    assert dict(decode.replica.env) == {"COMMON": "a", "SIZE": "small"}
    assert prefill.replica.place == decode.replica.place == spec.replica.place


def test_the_replicas_of_vllm_hand_caches_over_by_nixl() -> None:
    spec = spec_of(VLLM)
    assert spec.transfer is CacheTransfer.VLLM
    for role, kv_role, gpus in (
        (PREFILL, "kv_producer", "4"),
        (DECODE, "kv_consumer", "2"),
    ):
        run = command(spec, role)
        words = shlex.split(run.splitlines()[-1])
        config = json.loads(words[words.index("--kv-transfer-config") + 1])
        assert (config["kv_connector"], config["kv_role"]) == ("NixlConnector", kv_role)
        # a lost cache must not fail the request of a client
        assert config["kv_load_failure_policy"] == "recompute"
        assert words[words.index("--tensor-parallel-size") + 1] == gpus
        assert 'VLLM_NIXL_SIDE_CHANNEL_HOST="$CORRAL_HOST"' in run
        assert 'VLLM_NIXL_SIDE_CHANNEL_PORT="${CORRAL_TRANSFER_PORT' in run


def test_the_replicas_of_sglang_run_in_its_disaggregation_mode() -> None:
    spec = spec_of(SGLANG)
    assert spec.transfer is CacheTransfer.SGLANG
    prefill, decode = command(spec, PREFILL), command(spec, DECODE)
    assert "--disaggregation-mode prefill" in prefill
    assert re.search(
        r"--disaggregation-bootstrap-port \S*CORRAL_TRANSFER_PORT", prefill
    )
    assert "--disaggregation-mode decode" in decode
    assert "bootstrap" not in decode


def test_without_roles_no_engine_gets_flags_of_a_transfer() -> None:
    for engine in ("vllm", "sglang"):
        text = f"kind: service\nname: chat\nmodel: /m\nengine: {engine}\n"
        spec = spec_of(text)
        assert (spec.roles, spec.transfer) == ((), CacheTransfer.NONE)
        assert "transfer" not in spec.replica.run.lower()
        assert "disaggregation" not in spec.replica.run
        assert not {"roles", "transfer"} & written_service(spec).keys()


def test_a_role_with_a_command_leaves_the_other_one_to_the_engine() -> None:
    spec = spec_of(
        SGLANG.replace("decode: {}", "decode: {run: serve mine, replicas: 3}")
    )
    assert command(spec, DECODE) == "serve mine"
    assert "sglang" in command(spec, PREFILL)
    written = Document(value=written_service(spec), source="chat")
    assert read_service(written).spec == spec


def test_a_range_alone_needs_no_new_revision_and_a_command_does() -> None:
    spec = spec_of(OWN)
    scaled = spec_of(
        OWN.replace("{run: serve --prefill}", "{run: serve --prefill, replicas: 4}")
    )
    changed = spec_of(OWN.replace("serve --prefill", "serve --prefill --fast"))
    assert not scaled.needs_revision(spec)
    assert changed.needs_revision(spec)
    assert changed.with_settings_of(scaled).roles[0].max_replicas == 4
    assert changed.with_settings_of(scaled).roles[0].replica == changed.roles[0].replica
