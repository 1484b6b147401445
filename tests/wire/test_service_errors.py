"""What a person reads who wrote the document of a service wrong.

Golden: run with CORRAL_UPDATE_GOLDEN=1 to write the file anew, then read the diff.
"""

import os
from pathlib import Path

import pytest

from corral.domain.errors import SpecInvalid
from corral.wire.service_document import read_service
from corral.wire.yaml_document import documents_of

GOLDEN = Path(__file__).with_name("service_errors.txt")
OK = "kind: service\nname: chat\nrun: x\n"
ENGINE = "kind: service\nname: chat\nengine: vllm\n"
WRONG = [
    "kind: service",
    "kind: service\nname: chat",
    "kind: job\nname: chat\nrun: x",
    "kind: service\nname: a b\nrun: x",
    f"kind: service\nname: {'a' * 54}\nrun: x",
    "kind: service\nname: chat\nrun: ''",
    OK + "replicas: 8..1",
    OK + "replicas: -1",
    OK + "replicas: 1.5",
    OK + "replicas: many",
    OK + "replicas: 1..",
    OK + "replicas: 1..2000",
    OK + "replicas: true",
    OK + "port: 8000",
    OK + "min_replicas: 1",
    OK + "probe: health",
    OK + "probe: http://other/health",
    OK + "probe: /a b",
    OK + "scale: 4",
    OK + "scale: {queue: 0}",
    OK + "scale: {queue: 4, rps: 5}",
    OK + "scale: {tokens: 2000, ttft_p90: 500ms}",
    OK + "scale: {ttft_p90: 500}",
    OK + "scale: {ttft_p90: 0ms}",
    OK + "scale: {ttft_p90: fast}",
    OK + "scale: {itl_p90: 50 m s}",
    OK + "scale: {back_within: 2d}",
    OK + "scale: {cpu: 80}",
    OK + "queue_length: 4",
    OK + "canary: yes",
    OK + "canary: 5%",
    OK + "canary: {share: 5}",
    OK + "canary: {share: 0%}",
    OK + "canary: {share: 80%}",
    OK + "canary: {for: 0s}",
    OK + "canary: {seconds: 60}",
    OK + "limits: {body: 10}",
    OK + "limits: {body: 2GB}",
    OK + "limits: {body: ten}",
    OK + "limits: {deadline: 60}",
    OK + "limits: {timeout: 60s}",
    OK + "drain: 60",
    OK + "drain: 2d",
    OK + "continues: always",
    OK + "models: {a: b}",
    OK + "models: [a b]",
    OK + "models: [chat@3]",
    OK + "models: [3]",
    OK + "models: [" + ", ".join(f"m{number}" for number in range(101)) + "]",
    OK + "model: https://host/model.gguf",
    OK + "model: hf://org/name@",
    OK + "model: chat@3",
    OK + "model: ''",
    OK + "adapters: {legal: s3://bucket/lora}",
    OK + "roles: {prefill: {nodes: 1}}",
    OK + "roles: {prefill: {}, decode: {}}",
    OK + "roles: 2",
    OK + "roles: {prefill: 2, decode: {}}\ntransfer: shared",
    OK + "roles: {prefill: {}, decode: {}, whole: {}}\ntransfer: shared",
    OK + "roles: {prefill: {gpu: 2}, decode: {}}\ntransfer: shared",
    OK + "roles: {prefill: {resources: {gpuz: 2}}, decode: {}}\ntransfer: shared",
    OK + "roles: {prefill: {}, decode: {replicas: 8..1}}\ntransfer: shared",
    OK + "roles: {prefill: {}, decode: {}}\ntransfer: nfs",
    OK + "roles: {prefill: {}, decode: {}}\ntransfer: shared\nreplicas: 3",
    OK + "roles: {prefill: {}, decode: {}}\ntransfer: shared\nsleeping: 1\npark: cache",
    OK
    + "roles: {prefill: {}, decode: {nodes: 2}}\ntransfer: shared\nany_of: [{nodes: 4}]",
    OK + "transfer: shared",
    "kind: service\nname: chat\nroles: {prefill: {run: x}, decode: {}}\ntransfer: shared",
    ENGINE + "model: /m\nroles: {prefill: {}, decode: {nodes: 2}}",
    ENGINE + "model: /m\nroles: {prefill: {}, decode: {}}\ntransfer: shared",
    "kind: service\nname: chat\nengine: llama.cpp\nmodel: /m\n"
    "roles: {prefill: {}, decode: {}}",
    OK + "fallback: {url: http://127.0.0.1}",
    OK + "sleeping: 2",
    OK + "array: 0-9",
    OK + "retry: {user: 3}",
    OK + "max_duration: 4h",
    OK + "time: 4h",
    OK + "elastic: {min_nodes: 1, max_nodes: 2}",
    OK + "checkpoint: ./ckpt",
    OK + "after: train",
    OK + "per: gpu",
    OK + "gpus: 2",
    OK + "nodes: 0",
    OK + "partition: a100",
    OK + "topology: {mode: spread, within: rack}",
    ENGINE,
    ENGINE + "model: org/name@rev",
    ENGINE + "model: name",
    ENGINE + "model: hf://-x/name",
    ENGINE + "model: gs://bucket/model",
    ENGINE + "model: s3://bucket",
    ENGINE + "model: ./model",
    ENGINE + "model: hf://org/name\nnodes: 2",
    ENGINE + "model: hf://org/name\nany_of: [{nodes: 2}]",
    ENGINE + "model: hf://org/name\nargs: --max-model-len 8192",
    "kind: service\nname: chat\nengine: vlm\nmodel: /m",
    "kind: service\nname: chat\nengine: ollama\nmodel: /m",
    ENGINE + "model: https://host/model.gguf#sha256=1234",
    "kind: service\nname: chat\nengine: transformers\nmodel: /m\nmodels: [a]",
    "kind: service\nname: chat\nengine: vllm\nmodel: gs://b/m\nrun: x",
    "kind: service\nname: -x\nreplicas: 8..1\nscale: {queue: -1}\nport: 1\nrun: x",
]


def refusal(text: str) -> SpecInvalid:
    (document,) = documents_of(text, source="chat.yaml")
    with pytest.raises(SpecInvalid) as refused:
        read_service(document)
    return refused.value


def test_every_mistake_is_reported_with_its_line_and_what_to_write() -> None:
    found = ""
    for text in WRONG:
        error = refusal(text)
        found += f"{text[:400]}\n== \n{error.message}\n  -> {error.hint}\n\n\n"
    if os.environ.get("CORRAL_UPDATE_GOLDEN"):
        GOLDEN.write_text(found)
    assert found == GOLDEN.read_text()


@pytest.mark.parametrize("text", WRONG, ids=range(len(WRONG)))
def test_a_refusal_names_the_file_and_what_to_do(text: str) -> None:
    error = refusal(text)
    assert error.message.startswith("chat.yaml:")
    assert error.hint
    assert error.message.isprintable() or "\n" in error.message


def test_all_problems_are_reported_at_once() -> None:
    lines = refusal(WRONG[-1]).message.splitlines()
    assert [line.split(": ")[0] for line in lines] == [
        f"chat.yaml:{number}" for number in (2, 3, 4, 5)
    ]
