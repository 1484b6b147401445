"""Ray's port on the machine of its head, by which all its nodes know it."""

import socket
from pathlib import Path

import pytest

from corral.domain.errors import Conflict
from corral.engines.ray import bringup
from corral.engines.ray.bringup import RayHere
from corral.engines.ray.driver import RayDriver
from corral.engines.ray.settings import RaySettings


def test_a_port_that_another_program_has_is_refused_and_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringup, "PORT_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (tmp_path / "port").write_text(str(port))
        ray = RayHere(dir=tmp_path, cluster="test", settings=RaySettings(host="127.0.0.1"))
        with pytest.raises(Conflict, match=f"port {port} of 127.0.0.1") as refused:
            ray.begin()
    assert str(tmp_path / "port") in (refused.value.hint or "")
    assert not ray.pid_file.exists()


def test_the_command_that_shows_its_nodes_shows_its_token() -> None:
    told = {
        token: RayDriver(
            address="10.0.0.1:6379", cluster="c", token_file=token, log_file=Path("/log")
        ).shown_by
        for token in ("", "/my ray/token")
    }
    assert told[""] == "ray status --address 10.0.0.1:6379"
    assert told["/my ray/token"].startswith(
        "RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH='/my ray/token' ray status"
    )
