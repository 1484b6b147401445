"""The commands of engines, run by a shell with programs that only print."""

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from corral.domain.stream_continuation import ContinueBy
from corral.wire.engine_presets import ENGINE_PRESETS
from corral.wire.service_document import read_service
from corral.wire.yaml_document import Document

KEY = "k3y of a replica"
PROGRAM = """#!/bin/sh
printf '%s\\n' "$(basename "$0")" "$@" "VLLM=$VLLM_API_KEY" "LLAMA=$LLAMA_API_KEY"
"""
Run = Callable[..., list[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs a replica's command, and returns what its engine got:
    its name, its arguments and its keys."""
    programs = tmp_path / "programs"
    programs.mkdir()

    def run_command(
        document: dict[str, Any],
        *,
        gpus: str = "2",
        have: str = "python vllm",
        model_path: str = "",
        more: Mapping[str, str] | None = None,
    ) -> list[str]:
        for name in have.split():
            (programs / name).write_text(PROGRAM)
            (programs / name).chmod(0o755)
        fields = {"kind": "service", "name": "chat", **document}
        spec = read_service(Document(value=fields, source="service")).spec
        done = subprocess.run(
            ["/bin/sh", "-c", spec.replica.run],
            env={
                "PATH": f"{programs}:{os.defpath}",
                "HOME": "/home/a user",
                "CORRAL_HOST": "10.0.0.7",
                "CORRAL_PORT": "29501",
                "CORRAL_REPLICA_KEY": KEY,
                "CORRAL_GPUS": gpus,
                "CORRAL_MODEL": model_path or "/node/model",
                "TMPDIR": str(tmp_path),
                **(more or {}),
            },
            capture_output=True,
            text=True,
            timeout=20,
            check=True,
        )
        return done.stdout.splitlines()

    return run_command


def option(arguments: list[str], name: str) -> str:
    return arguments[arguments.index(name) + 1]


def test_vllm_gets_the_model_its_names_and_the_gpus(run: Run) -> None:
    document = {
        "engine": "vllm",
        "model": "hf://org/name@v1",
        "models": ["a;b"],
    }
    got = run(document | {"resources": {"gpu": "h100:4"}})
    assert got[:3] == ["vllm", "serve", "/node/model"]
    assert (option(got, "--host"), option(got, "--port")) == ("10.0.0.7", "29501")
    names = got.index("--served-model-name")
    assert got[names + 1 : names + 3] == ["chat", "a;b"]
    assert option(got, "--tensor-parallel-size") == "4"
    assert f"VLLM={KEY}" in got
    assert KEY not in got


@pytest.mark.parametrize("gpu", [0, 0.5, 1, "h100"])
def test_a_model_on_one_gpu_is_not_split(run: Run, gpu: Any) -> None:
    got = run({"engine": "vllm", "model": "/m", "resources": {"gpu": gpu}})
    assert "--tensor-parallel-size" not in got


@pytest.mark.parametrize(("gpus", "split"), [("4", "4"), ("1", "1"), ("0.5", "1")])
def test_shapes_with_other_numbers_of_gpus_split_by_those_of_the_node(
    run: Run, gpus: str, split: str
) -> None:
    shapes = {"resources": {"gpu": 4}, "any_of": [{"resources": {"gpu": 0.5}}]}
    got = run({"engine": "vllm", "model": "/m", **shapes}, gpus=gpus)
    assert option(got, "--tensor-parallel-size") == split


def test_a_path_is_one_word_and_may_begin_in_the_home(run: Run) -> None:
    assert run({"engine": "vllm", "model": "/a $(id) 'b'"})[2] == "/a $(id) 'b'"
    assert run({"engine": "vllm", "model": "~/a b"})[2] == "/home/a user/a b"


@pytest.mark.parametrize("engine", ENGINE_PRESETS)
@pytest.mark.parametrize(
    "model",
    [
        "hf://org/name",
        "s3://bucket/m",
        f"https://host/m.gguf#sha256={'a' * 64}",
    ],
)
def test_every_engine_gets_the_path_of_a_model_that_the_node_has_fetched(
    run: Run, tmp_path: Path, engine: str, model: str
) -> None:
    path = tmp_path / "the model.gguf"
    path.write_text("weights")
    got = run(
        {"engine": engine, "model": model},
        have="python vllm transformers",
        model_path=str(path),
    )
    if engine == "transformers":
        (link,) = tmp_path.glob("tmp*/chat")
        assert link.resolve() == path
    else:
        assert str(path) in got


def test_llama_cpp_loads_the_first_file_of_weights_of_a_folder(
    run: Run, tmp_path: Path
) -> None:
    for number in (2, 1):
        (tmp_path / f"w-0000{number}-of-00002.gguf").write_text("weights")
    document = {"engine": "llama.cpp", "model": "hf://org/name"}
    got = run(document, model_path=str(tmp_path))
    assert option(got, "--model") == f"{tmp_path}/w-00001-of-00002.gguf"


def test_sglang_gets_one_name_and_the_key(run: Run) -> None:
    got = run({"engine": "sglang", "model": "/m/x", "resources": {"gpu": 2}})
    assert got[:3] == ["python", "-m", "sglang.launch_server"]
    assert option(got, "--model-path") == "/m/x"
    assert option(got, "--served-model-name") == "chat"
    assert option(got, "--tensor-parallel-size") == "2"
    assert option(got, "--api-key") == KEY


@pytest.mark.parametrize(
    ("engine", "option"), [("vllm", "--lora-modules"), ("sglang", "--lora-paths")]
)
def test_an_engine_gets_the_adapters_that_its_node_has_fetched(
    run: Run, engine: str, option: str
) -> None:
    adapters = {"a": "s3://bucket/a", "local": "/data/b", "c": "s3://bucket/c"}
    got = run(
        {"engine": engine, "model": "/m/x", "adapters": adapters},
        more={"CORRAL_ADAPTER_1": "/node/one", "CORRAL_ADAPTER_2": "/node/two"},
    )
    place = got.index(option)
    assert got[place + 1 : place + 3] == ["a=/node/one", "c=/node/two"]
    assert "local" not in " ".join(got), "the gateway loads it"
    without = run({"engine": engine, "model": "/m/x", "adapters": {"b": "/data/b"}})
    assert option not in without


def test_sglang_has_places_for_its_adapters_and_the_model(run: Run) -> None:
    adapters = {"adapters": {"legal": "/data/legal"}, "max_adapters": 2}
    got = run({"engine": "sglang", "model": "/m/x", **adapters})
    options = dict(zip(got, got[1:], strict=False))
    assert "--enable-lora" in got
    assert options["--max-loras-per-batch"] == options["--max-loaded-loras"] == "3"
    assert options["--lora-target-modules"] == "all"
    assert "--enable-lora" not in run({"engine": "sglang", "model": "/m/x"})


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_an_engine_with_exact_affinity_publishes_the_events_of_its_cache(
    run: Run, engine: str
) -> None:
    document = {"engine": engine, "model": "/m", "affinity": "exact"}
    ports = {"CORRAL_KV_EVENTS_PORT": "29502", "CORRAL_KV_REPLAY_PORT": "29503"}
    events = json.loads(option(run(document, more=ports), "--kv-events-config"))
    assert events.pop("enable_kv_cache_events", True) is True
    assert events == {
        "publisher": "zmq",
        "endpoint": "tcp://*:29502",
        "replay_endpoint": "tcp://10.0.0.7:29503",
    }
    # without free ports for them, it serves without events
    assert "--kv-events-config" not in run(document)
    assert "--kv-events-config" not in run(
        document | {"affinity": "prompt"}, more=ports
    )


def test_llama_cpp_runs_its_server_if_there_is_one_and_else_the_wheel(run: Run) -> None:
    document = {"engine": "llama.cpp", "model": "/m/x.gguf"}
    got = run(document)
    assert got[:3] == ["python", "-m", "corral.serve.llama_cpp"]
    assert option(got, "--alias") == "chat"
    got = run(document, have="llama-server")
    assert got[0] == "llama-server"
    assert option(got, "--model") == "/m/x.gguf"
    assert f"LLAMA={KEY}" in got
    assert KEY not in got


def test_transformers_serves_the_model_under_the_name_of_the_service(
    run: Run, tmp_path: Path
) -> None:
    (tmp_path / "weights").mkdir()
    document = {"engine": "transformers", "model": f"{tmp_path}/weights"}
    got = run(document, have="transformers")
    assert got[:3] == ["transformers", "serve", "chat"]
    (link,) = tmp_path.glob("tmp*/chat")
    assert link.resolve() == tmp_path / "weights"


def test_tiny_gets_all_names(run: Run) -> None:
    got = run({"engine": "tiny", "model": "/m/w.pt"})
    assert got[:3] == ["python", "-m", "corral.serve.tiny"]
    names = [got[place + 1] for place, word in enumerate(got) if word == "--name"]
    assert names == ["chat", "w"]


def test_every_engine_has_its_way_to_continue_streams() -> None:
    ways = {name: preset.continue_by for name, preset in ENGINE_PRESETS.items()}
    assert ways == {
        "vllm": ContinueBy.VLLM,
        "sglang": ContinueBy.NONE,
        "llama.cpp": ContinueBy.LLAMA_CPP,
        "transformers": ContinueBy.NONE,
        "tiny": ContinueBy.TEXT,
    }
    assert {preset.probe for preset in ENGINE_PRESETS.values()} == {"/health"}
