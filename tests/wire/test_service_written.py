"""A document that is written out asks for the same service when it is read again."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from corral.domain.service import ServiceSpec
from corral.wire.engine_presets import ENGINE_PRESETS
from corral.wire.service_document import read_service
from corral.wire.written_service import written_service
from corral.wire.yaml_document import Document, documents_of

NAMES = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,20}[A-Za-z0-9])?", fullmatch=True)
MODEL_NAMES = st.from_regex(
    r"[A-Za-z0-9:._-]{1,9}(/[A-Za-z0-9.:_-]{1,9})?", fullmatch=True
)
MILLISECONDS = st.integers(100, 10**7).map(lambda count: f"{count}ms")
SECONDS = st.integers(1, 80_000).map(lambda count: f"{count}s")
AMOUNTS = st.integers(1, 10**6) | st.floats(0.01, 10**6)
SOURCES = st.sampled_from(
    [
        "hf://org/name",
        "hf://org/name@v1",
        "s3://bucket/a/b",
        "/data/a b",
        "~/model.gguf",
    ]
)
SCALES = (
    st.fixed_dictionaries({"queue": AMOUNTS}, optional={"back_within": MILLISECONDS})
    | st.fixed_dictionaries({"rps": AMOUNTS})
    | st.fixed_dictionaries({"tokens": AMOUNTS})
    | st.fixed_dictionaries(
        {}, optional={"ttft_p90": MILLISECONDS, "itl_p90": MILLISECONDS}
    )
)
CANARIES = st.sampled_from(["on", "off"]) | st.fixed_dictionaries(
    {"share": st.integers(1, 500).map(lambda count: f"{count / 10:g}%")},
    optional={"for": SECONDS},
)
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "body": st.integers(1, 2**30).map(lambda count: f"{count}B"),
        "deadline": MILLISECONDS,
    },
)
RESOURCES = st.fixed_dictionaries(
    {},
    optional={"gpu": st.sampled_from([0.5, 1, 4, "h100:2"]), "memory": st.just("8GB")},
)


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    low = draw(st.integers(0, 9))
    document: dict[str, Any] = {
        "kind": "service",
        "name": draw(NAMES),
        "replicas": f"{low}..{draw(st.integers(low, 1000))}",
    }
    optional: dict[str, st.SearchStrategy[Any]] = {
        "models": st.lists(MODEL_NAMES, max_size=3),
        "probe": st.sampled_from(["/health", "/v1/models", "/ready?deep=1"]),
        "scale": SCALES,
        "canary": CANARIES,
        "limits": LIMITS,
        "drain": SECONDS,
        "continues": st.sampled_from(["none", "text", "vllm", "llama.cpp"]),
        "allow": st.fixed_dictionaries(
            {},
            optional={
                "users": st.sampled_from([[], ["ann", "@operator"]]),
                "queues": st.lists(NAMES, max_size=2, unique=True),
            },
        ),
        "fallback": st.sampled_from(
            [
                {"url": url, "model": "large", "secret": "API_KEY"}
                for url in ("https://api.example.com/v1", "https://[2001:db8::1]:8443")
            ]
        ),
        "affinity": st.sampled_from(["prompt", "exact"]),
        "resources": RESOURCES,
        "any_of": st.lists(RESOURCES.map(lambda one: {"resources": one}), max_size=2),
        "queue": NAMES,
        "priority": st.sampled_from(["low", "high", 7]),
        "env": st.dictionaries(
            st.sampled_from(["A", "B"]), st.text("ab :#'", max_size=5)
        ),
        "secrets": st.sampled_from([["HF_TOKEN"], ["A", "CORRAL_TOKEN"]]),
        "topology": st.sampled_from(["spread", "require:rack"]),
        "grace": SECONDS,
        "disconnect": st.sampled_from(["wait", "replace"]),
        "preemptible": st.just(True),
        "image": st.just("ubuntu:24.04"),
        "setup": st.just("pip install x"),
    }
    for name in draw(st.sets(st.sampled_from(sorted(optional)))):
        document[name] = draw(optional[name])
    if draw(st.booleans()):
        document |= {"engine": draw(st.sampled_from(["vllm", "sglang"]))}
        document["model"] = draw(SOURCES)
        if document["engine"] == "vllm" and draw(st.booleans()):
            document["adapters"] = {"~legal": "hf://org/lora", "~tone": "~/lora"}
            document["max_adapters"] = draw(st.integers(1, 256))
    else:
        document["run"] = draw(st.sampled_from(["x", "set -e\na 'b'\nc"]))
        document["engine"] = draw(st.none() | st.sampled_from(sorted(ENGINE_PRESETS)))
        document["model"] = draw(st.none() | MODEL_NAMES)
    return document


def read(document: dict[str, Any]) -> ServiceSpec:
    return read_service(Document(value=document, source="service")).spec


@settings(max_examples=200, deadline=None)
@given(documents())
@example(
    {
        "kind": "service",
        "name": "chat",
        "engine": "vllm",
        "model": "/m",
        "continues": "none",
    }
)
def test_a_document_that_is_written_out_is_the_same_when_it_is_read(
    document: dict[str, Any],
) -> None:
    spec = read(document)
    assert read(written_service(spec)) == spec


ENGINE_DOCUMENT = {
    "kind": "service",
    "name": "chat",
    "model": "hf://org/name@v1",
    "engine": "vllm",
    "replicas": "1..8",
}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"models": ["gpt"]},
        {"models": []},
        {"engine": "sglang"},
        {"engine": "tiny", "model": "~/m.pt", "probe": "/ready"},
    ],
)
def test_what_an_engine_fills_in_is_left_out(more: dict[str, Any]) -> None:
    document = ENGINE_DOCUMENT | more
    assert written_service(read(document)) == document


def test_a_command_of_its_own_is_written_also_with_an_engine() -> None:
    written = written_service(read(ENGINE_DOCUMENT | {"run": "vllm serve x"}))
    assert (written["run"], written["engine"]) == ("vllm serve x", "vllm")


def test_what_has_its_default_is_left_out() -> None:
    least = {"kind": "service", "name": "chat", "run": "x", "workdir": "/tmp"}
    assert written_service(read(least)) == {
        "kind": "service",
        "name": "chat",
        "replicas": "1",
        "run": "x",
        "probe": "/health",
    }
    assert written_service(read({**least, "model": "chat"}))["model"] == "chat"


def test_a_queue_gives_replicas_a_limit_that_is_not_written() -> None:
    spec = read({"kind": "service", "name": "chat", "run": "x"})
    limited = replace(spec, replica=replace(spec.replica, max_duration_seconds=60.0))
    assert "max_duration" not in written_service(limited)


def test_numbers_are_written_as_people_write_them() -> None:
    text = "kind: service\nname: chat\nrun: x\nscale: {queue: 4}\n"
    (document,) = documents_of(text, source="chat.yaml")
    written = written_service(read_service(document).spec)
    assert str(written["scale"]) == "{'queue': 4}"
