"""The options of llama.cpp's server, as the wheel gets them."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from corral.serve.llama_cpp import parsed_options, server_parameters


def test_the_wheel_gets_the_address_the_key_and_the_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CORRAL_HOST", "10.0.0.7")
    monkeypatch.setenv("CORRAL_PORT", "29501")
    monkeypatch.setenv("CORRAL_REPLICA_KEY", "k3y")
    asked = parsed_options(["--model", "/m.gguf", "--alias", "chat"])
    parameters = server_parameters(SimpleNamespace(model=SimpleNamespace()), asked)
    assert parameters.model.path == "/m.gguf"
    assert (parameters.hostnames, parameters.port) == (["10.0.0.7"], 29501)
    assert (parameters.api_keys, parameters.model_alias) == (["k3y"], {"chat"})
    assert parameters.n_parallel > 1


def test_without_a_key_none_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CORRAL_REPLICA_KEY", raising=False)
    asked = parsed_options(["--model", "/m.gguf"])
    parameters = server_parameters(SimpleNamespace(model=SimpleNamespace()), asked)
    assert parameters.api_keys == []


def test_an_adapter_is_applied_to_no_request_that_does_not_name_it() -> None:
    words = ["--model", "/m.gguf", "--lora", "/a.gguf", "--lora", "/b.gguf"]
    parameters = server_parameters(
        SimpleNamespace(model=SimpleNamespace()),
        parsed_options(words),
        lambda path, scale: (path, scale),
    )
    assert parameters.lora_adapters == [
        ("/a.gguf", 0.0),
        ("/b.gguf", 0.0),
    ]


@pytest.mark.parametrize("exists", [False, True])
def test_a_missing_model_or_wheel_is_reported_in_one_line(
    tmp_path: Path, exists: bool
) -> None:
    model = tmp_path / "m.gguf"
    if exists:
        model.touch()
    without_wheel = "import sys; sys.modules['xllamacpp'] = None; "
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"{without_wheel}from corral.serve.llama_cpp import main; main()",
            "--model",
            str(model),
        ],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert ("pip install xllamacpp" if exists else "is not a file") in line


def test_servers_of_replicas_load_nothing_else_of_corral() -> None:
    code = (
        "import sys, corral.serve.tiny, corral.serve.llama_cpp; "
        "print(sorted(name for name in sys.modules if name.startswith('corral.')"
        " or name in ('torch', 'pydantic', 'fastapi')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert set(eval(done.stdout)) <= {
        "corral.serve",
        "corral.serve.tiny",
        "corral.serve.llama_cpp",
        "corral.serve.text_completion",
    }
