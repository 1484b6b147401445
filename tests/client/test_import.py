"""What a command pays for the client before its first call."""

import subprocess
import sys

import pytest

import corral


def loaded(code: str) -> set[str]:
    script = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_client_loads_neither_http_nor_pydantic_nor_asyncio_until_it_is_used() -> (
    None
):
    modules = loaded("import corral; corral.Client")
    assert "corral.client.client" in modules
    assert not modules & {
        "httpx2",
        "pydantic",
        "asyncio",
        "websockets",
        "pathspec",
        "yaml",
    }


def test_the_package_alone_loads_no_client() -> None:
    assert not loaded("import corral") & {"corral.client", "ssl", "asyncio"}


def test_the_errors_of_the_client_are_those_of_the_package() -> None:
    with pytest.raises(corral.Refusal) as refused:
        corral.Client(dir="/nowhere").submit({"name": "a", "run": "x", "nodes": 0})
    assert (refused.value.code, bool(refused.value.hint)) == ("spec_invalid", True)
    assert issubclass(corral.Refusal, corral.CorralError)
    assert issubclass(corral.Trouble, corral.CorralError)
    assert not loaded("import corral; corral.Refusal") & {"corral.client", "pydantic"}
