"""What the document of a service means."""

from typing import Any

import jsonschema_rs
import pytest

from corral.domain.errors import SpecInvalid
from corral.domain.ids import QueueName
from corral.domain.job import Disconnect, JobSpec, ModelCheck
from corral.domain.lending import ParkBy
from corral.domain.resources import Resources
from corral.domain.service import CanaryRule, ScaleRule, ServiceSpec
from corral.domain.service_access import (
    Adapter,
    CallAccess,
    FallbackRule,
    request_names,
)
from corral.domain.stream_continuation import ContinueBy
from corral.wire import schemas
from corral.wire.engine_presets import ENGINE_PRESETS
from corral.wire.service_document import read_service
from corral.wire.yaml_document import Document, documents_of

LONG = """\
kind: service
name: chat
model: hf://org/name@rev
engine: vllm
replicas: 1..8
nodes: 1
resources: {gpu: "h100:2"}
scale: {ttft_p90: 500ms, itl_p90: 50ms, back_within: 10s}
canary: {share: 5%, for: 10m}
limits: {body: 10MB, deadline: 60s}
"""
OWN = {"kind": "service", "name": "chat", "run": "python server.py", "probe": "/ready"}


def service(**fields: Any) -> ServiceSpec:
    return read_service(Document(value={**OWN, **fields}, source="service")).spec


def with_engine(engine: str, model: str, **fields: Any) -> ServiceSpec:
    document = {"kind": "service", "name": "chat", "engine": engine, "model": model}
    return read_service(Document(value={**document, **fields}, source="service")).spec


def test_a_long_document_means_what_it_says() -> None:
    (document,) = documents_of(LONG, source="chat.yaml")
    parsed = read_service(document)
    assert parsed.document is document
    command = parsed.spec.replica.run
    assert parsed.spec == ServiceSpec(
        name="chat",  # type: ignore[arg-type]
        replica=JobSpec(
            name="chat",
            run=command,
            resources=Resources(gpu_millis=2000, gpu_type="h100"),
            model="hf://org/name@rev",
        ),
        models=("chat", "org/name"),
        min_replicas=1,
        max_replicas=8,
        probe="/health",
        source="hf://org/name@rev",
        engine="vllm",
        scale=ScaleRule(
            ttft_p90_seconds=0.5, itl_p90_seconds=0.05, back_within_seconds=10.0
        ),
        park=ParkBy.ENGINE,
        sleep_calls=ENGINE_PRESETS["vllm"].sleep_calls,
        model_check=ModelCheck(names=("chat", "org/name")),
        canary=CanaryRule(share=0.05, seconds=600.0),
        body_bytes=10_000_000,
        deadline_seconds=60.0,
        continue_by=ContinueBy.VLLM,
    )


def test_an_adapter_in_s3_needs_new_replicas_and_a_place_for_each() -> None:
    spec = with_engine("vllm", "/data/model", adapters={"a": "/data/a"})
    more = with_engine("vllm", "/data/model", adapters={"a": "/data/a", "b": "/b/b"})
    fetched = with_engine("vllm", "/data/model", adapters={"a": "s3://bucket/a"})
    assert not more.needs_revision(spec)
    assert fetched.needs_revision(spec)
    own = {"run": "python own.py", "max_adapters": 4}
    spec = with_engine("vllm", "/m/x", adapters={"a": "/data/a"}, **own)
    fetched = with_engine("vllm", "/m/x", adapters={"a": "s3://bucket/a"}, **own)
    assert fetched.needs_revision(spec), "although the command is the same"
    with pytest.raises(
        SpecInvalid, match="2 adapters are given, but a replica loads 1"
    ):
        with_engine(
            "vllm",
            "/data/model",
            adapters={"a": "s3://bucket/a", "b": "/data/b"},
            max_adapters=1,
        )
    with pytest.raises(SpecInvalid, match="llama.cpp cannot load"):
        with_engine("llama.cpp", "/data/m.gguf", adapters={"a": "s3://bucket/a"})


def test_an_engine_shows_its_model_before_a_replica_is_ready() -> None:
    listed = with_engine("vllm", "/data/model", models=["small"]).model_check
    assert listed == ModelCheck(names=("chat", "small"))
    unlisted = with_engine("transformers", "/data/model").model_check
    assert unlisted == ModelCheck(names=("chat",), is_listed=False)
    assert service().model_check is None, "any HTTP server"


def test_a_command_of_its_own_needs_nothing_but_a_name() -> None:
    spec = service()
    assert spec.replica == JobSpec(name="chat", run="python server.py")
    assert (spec.models, spec.engine, spec.probe) == (("chat",), "", "/ready")
    assert spec.continue_by is ContinueBy.NONE
    assert (spec.min_replicas, spec.max_replicas) == (1, 1)
    assert service(probe=None).probe == "/health"


@pytest.mark.parametrize(
    ("replicas", "low", "high"),
    [("1..8", 1, 8), (2, 2, 2), ("2", 2, 2), ("0..8", 0, 8), (0, 0, 0)],
)
def test_replicas_in_every_form(replicas: Any, low: int, high: int) -> None:
    spec = service(replicas=replicas)
    assert (spec.min_replicas, spec.max_replicas) == (low, high)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("1.5ms", 0.002), ("0.25s", 0.25), ("2m", 120.0), ("1m30s", 90)],
)
def test_durations_to_the_millisecond(text: str, seconds: float) -> None:
    assert service(scale={"ttft_p90": text}).scale.ttft_p90_seconds == seconds


@pytest.mark.parametrize("measure", ["queue", "rps", "tokens"])
def test_one_measure_decides_beside_the_time_for_lent_gpus(measure: str) -> None:
    scale = service(scale={measure: 2.5, "back_within": "10s"}).scale
    assert getattr(scale, measure) == 2.5
    assert scale.back_within_seconds == 10.0


@pytest.mark.parametrize("off", ["off", False])
def test_a_canary_can_be_off(off: Any) -> None:
    assert service(canary=off).canary.seconds == 0


@pytest.mark.parametrize("on", ["on", True, {}, None])
def test_a_canary_is_on_unless_a_document_says_otherwise(on: Any) -> None:
    assert service(canary=on).canary == service().canary == CanaryRule()
    assert service(canary={"share": 0.2}).canary == CanaryRule(share=0.2)


def test_limits_drain_and_a_longer_time() -> None:
    spec = service(limits={"body": "64KiB", "deadline": "5m"}, drain="0s")
    assert (spec.body_bytes, spec.deadline_seconds) == (65_536, 300.0)
    assert spec.drain_seconds == 0.0


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("hf://org/name@rev/x", "org/name"),
        ("hf://gpt2", "gpt2"),
        ("s3://bucket/models/small/", "small"),
        ("/data/models/Llama-3", "Llama-3"),
        ("~/small.safetensors", "small"),
    ],
)
def test_a_model_is_served_under_its_name_and_that_of_the_service(
    model: str, name: str
) -> None:
    assert with_engine("sglang", model).models == ("chat", name)
    assert with_engine("sglang", model, models=["a", "b", "a"]).models == (
        "chat",
        "a",
        "b",
    )
    assert with_engine("sglang", model, models=[]).models == ("chat",)


def test_a_path_that_no_request_can_name_gives_no_name() -> None:
    assert with_engine("vllm", "/data/a model").models == ("chat",)
    assert with_engine("vllm", "/data/step@100").models == ("chat",)


@pytest.mark.parametrize(
    ("fields", "is_http"),
    [({}, True), ({"model": "chat"}, False), ({"models": ["chat"]}, False)],
)
def test_a_service_without_a_model_may_answer_any_path(
    fields: dict[str, Any], is_http: bool
) -> None:
    assert service(**fields).is_http is is_http
    assert not with_engine("vllm", "/m/base").is_http


def test_a_command_of_its_own_serves_the_model_that_it_names() -> None:
    assert service(model="tiny").models == ("tiny", "chat")
    assert service(model="org/tiny", models="x").models == ("org/tiny", "chat", "x")


def test_a_command_of_its_own_gets_a_model_that_the_node_fetches() -> None:
    spec = service(model="hf://org/name@v1")
    assert spec.models == ("chat", "org/name")
    assert spec.replica.model == "hf://org/name@v1"
    assert service(model="tiny").replica.model is None


def test_a_command_of_its_own_keeps_the_rules_of_the_engine() -> None:
    spec = with_engine("vllm", "hf://org/name", run="vllm serve org/name --seed 1")
    assert spec.replica.run == "vllm serve org/name --seed 1"
    assert (spec.engine, spec.probe) == ("vllm", "/health")
    assert spec.continue_by is ContinueBy.VLLM
    assert spec.models == ("chat", "org/name")


def test_a_document_can_say_how_streams_are_continued() -> None:
    assert service(continues="text").continue_by is ContinueBy.TEXT
    vllm = with_engine("vllm", "/m", continues="none")
    assert vllm.continue_by is ContinueBy.NONE


def test_a_replica_has_the_fields_of_a_job() -> None:
    job = service(
        nodes=2,
        resources={"accelerators": {"H100": 8}, "cpus": 4},
        queue="serving",
        priority="high",
        env={"A": 1},
        secrets=["HF_TOKEN"],
        workdir=".",
        setup="pip install x",
        image="ubuntu:24.04",
        grace="2m",
        disconnect="wait",
        constraints={"zone": "a"},
        topology="require:rack",
        any_of=[{"resources": {"gpu": 4}}],
    ).replica
    assert (job.nodes, job.queue, job.priority, job.grace_seconds) == (
        2,
        "serving",
        100,
        120.0,
    )
    assert job.resources == Resources(gpu_millis=8000, gpu_type="h100", cpu_millis=4000)
    assert (job.env, job.secrets, job.workdir) == ((("A", "1"),), ("HF_TOKEN",), ".")
    assert job.disconnect is Disconnect.WAIT
    assert [shape.nodes for shape in job.shapes] == [2, 2]
    assert job.place.topology.is_asked


def test_nulls_mean_the_default_as_in_the_specs_of_jobs() -> None:
    nothing = dict.fromkeys(["scale", "canary", "limits", "models", "engine", "env"])
    assert service(**nothing) == service()


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"model": "tiny", "models": ["a"], "replicas": "0..3"},
        {"scale": {"queue": 4, "back_within": "10s"}, "canary": "off"},
        {"canary": {"share": "5%", "for": "10m"}, "limits": {"body": "1MB"}},
        {"resources": {"gpu": "h100:2"}, "topology": "spread", "nodes": 2},
        {"engine": "vllm", "model": "hf://a/b", "run": None, "probe": None},
    ],
)
def test_the_schema_accepts_what_can_be_read(fields: dict[str, Any]) -> None:
    document = {**OWN, **fields}
    read_service(Document(value=document, source="service"))
    jsonschema_rs.validate(schemas()["service"], document)


@pytest.mark.parametrize(
    "fields",
    [{"replicas": -1}, {"port": 80}, {"scale": {"cpu": 1}}, {"engine": "x"}],
)
def test_the_schema_refuses_what_cannot_be_read(fields: dict[str, Any]) -> None:
    document = {**OWN, **fields}
    with pytest.raises(SpecInvalid):
        read_service(Document(value=document, source="service"))
    assert not jsonschema_rs.is_valid(schemas()["service"], document)


ADAPTERS = {"tone": "hf://org/tone", "legal": "/data/legal"}


def test_adapters_have_names_of_their_own_and_the_engine_is_started_for_them() -> None:
    spec = with_engine("vllm", "/m", adapters=ADAPTERS)
    assert spec.adapters == (
        Adapter(name="legal", source="/data/legal"),
        Adapter(name="tone", source="hf://org/tone"),
    )
    assert spec.max_adapters == 4
    assert spec.models == ("chat", "m")
    assert set(request_names(spec.models, spec.adapters)) == {
        *("chat", "m", "legal", "tone"),
        *("chat:legal", "chat:tone", "m:legal", "m:tone"),
    }
    assert "--enable-lora --max-loras 4" in spec.replica.run
    assert "--enable-lora" not in with_engine("vllm", "/m").replica.run
    assert with_engine("vllm", "/m", max_adapters=9).max_adapters == 9


def test_an_adapter_more_needs_no_new_revision_where_the_engine_loads_it() -> None:
    vllm = with_engine("vllm", "/m", adapters=ADAPTERS)
    more = with_engine("vllm", "/m", adapters={**ADAPTERS, "new": "/x"})
    assert not more.needs_revision(vllm)
    assert vllm.with_settings_of(more).adapters == more.adapters
    assert with_engine("vllm", "/m", max_adapters=5).needs_revision(vllm)
    fixed = with_engine("llama.cpp", "/m.gguf", adapters={"legal": "/l.gguf"})
    assert "--lora /l.gguf" in fixed.replica.run
    both = {"legal": "/l.gguf", "tone": "/t.gguf"}
    assert with_engine("llama.cpp", "/m.gguf", adapters=both).needs_revision(fixed)


def test_callers_and_the_fallback_are_settings_without_a_new_revision() -> None:
    spec = service(
        allow={"users": ["ann", "@operator"], "queues": "research"},
        fallback={
            "url": "https://API.example.com:443/v1/",
            "model": "large",
            "secret": "API_KEY",
        },
    )
    assert spec.allow == CallAccess(
        users=("ann", "@operator"), queues=(QueueName("research"),)
    )
    assert spec.fallback == FallbackRule(
        url="https://api.example.com/v1", model="large", secret="API_KEY"
    )
    assert not spec.needs_revision(service())
    assert service(allow={}).allow == CallAccess()
    assert service().allow is None
