"""Fields of a service's document about sleeping replicas."""

from typing import Any

import pytest

from corral.domain.errors import SpecInvalid
from corral.domain.lending import ParkBy
from corral.domain.service import ServiceSpec
from corral.wire.service_document import read_service
from corral.wire.written_service import written_service
from corral.wire.yaml_document import Document

OWN = {"kind": "service", "name": "chat", "run": "python server.py", "replicas": "1..4"}
VLLM = {**OWN, "engine": "vllm", "model": "hf://org/name"}
WITHIN = {"scale": {"back_within": "10s"}}


def read(document: dict[str, Any], **fields: Any) -> ServiceSpec:
    value = {**document, **fields}
    return read_service(Document(value=value, source="service")).spec


def with_engine(engine: str, model: str, **fields: Any) -> ServiceSpec:
    document = {name: value for name, value in OWN.items() if name != "run"}
    return read(document, engine=engine, model=model, **fields)


@pytest.mark.parametrize("fields", [{"sleeping": 1}, WITHIN])
def test_replicas_sleep_if_the_document_asks_for_it(fields: dict[str, Any]) -> None:
    assert read(OWN).park is ParkBy.NONE
    assert read(OWN, **fields).park is ParkBy.CACHE
    spec = with_engine("vllm", "hf://org/name", **fields)
    assert spec.park is ParkBy.ENGINE
    assert spec.sleep_calls is not None
    assert with_engine("sglang", "hf://org/name", **fields).park is ParkBy.CACHE


def test_an_engine_gets_the_options_of_its_sleep_only_if_it_sleeps() -> None:
    for engine, model, option in (
        ("vllm", "hf://org/name", "--enable-sleep-mode"),
        ("llama.cpp", "/data/m.gguf", "--sleep-idle-seconds"),
    ):
        assert option in with_engine(engine, model, sleeping=1).replica.run
        assert option not in with_engine(engine, model).replica.run
        parked = with_engine(engine, model, sleeping=1, park="cache")
        assert option not in parked.replica.run


def test_a_command_of_its_own_sleeps_in_the_engine_only_if_the_document_says_so() -> (
    None
):
    assert read(VLLM, sleeping=1).park is ParkBy.CACHE
    spec = read(VLLM, sleeping=1, park="engine")
    assert spec.sleep_calls is not None


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"sleeping": 5}, "5 is more than all replicas, 4"),
        ({"park": "engine"}, "cannot sleep; these engines can: vllm, llama.cpp"),
        ({"park": "none", "sleeping": 1}, "without it replicas do not sleep"),
        ({"park": "none", **WITHIN}, "without it replicas do not sleep"),
        ({"sleeping": 1, "exclusive": True}, "are lent to other jobs"),
        ({"park": "deep"}, "park"),
        ({"sleeping": -1}, "out of bounds"),
        ({"scale": {"down_after": "0s"}}, "down_after"),
    ],
)
def test_what_cannot_be_is_refused(fields: dict[str, Any], text: str) -> None:
    with pytest.raises(SpecInvalid) as refused:
        read(OWN, **fields)
    assert text in f"{refused.value} {refused.value.hint}"


@pytest.mark.parametrize(
    "fields",
    [
        {"sleeping": 1, **WITHIN},
        {"park": "cache"},
        {"scale": {"queue": 4, "down_after": "30s"}},
    ],
)
def test_a_written_document_means_the_same(fields: dict[str, Any]) -> None:
    spec = read(OWN, **fields)
    assert read(written_service(spec)) == spec


def test_another_way_to_sleep_is_another_revision() -> None:
    cache, none = read(OWN, park="cache"), read(OWN)
    assert cache.needs_revision(none)
    assert not read(OWN, park="cache", sleeping=1).needs_revision(cache)
