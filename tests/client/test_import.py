"""What a command pays for the client before its first call."""

import subprocess
import sys


def loaded(code: str) -> set[str]:
    script = f"import sys; {code}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


def test_the_client_loads_neither_http_nor_pydantic_nor_asyncio_until_it_is_used() -> None:
    modules = loaded("import corral; corral.Client")
    assert "corral.client.sync" in modules
    assert not modules & {"httpx2", "pydantic", "asyncio", "websockets", "pathspec", "yaml"}


def test_the_package_alone_loads_no_client() -> None:
    assert not loaded("import corral") & {"corral.client", "ssl", "asyncio"}
