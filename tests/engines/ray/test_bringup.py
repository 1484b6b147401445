"""Ray's port on the machine of its head, by which all its nodes know it."""

import asyncio
import socket
import subprocess
from pathlib import Path

import pytest

from corral.domain.errors import Conflict
from corral.engines.local.processes import LocalProcess
from corral.engines.ray import bringup
from corral.engines.ray.bringup import RayHere, folder_of
from corral.engines.ray.driver import RayDriver
from corral.engines.ray.settings import RaySettings


def test_a_port_that_another_program_has_is_refused_and_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bringup, "PORT_SECONDS", 0.0)
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        (tmp_path / "port").write_text(str(port))
        ray = RayHere(
            dir=tmp_path, cluster="test", settings=RaySettings(host="127.0.0.1")
        )
        with pytest.raises(Conflict, match=f"port {port} of 127.0.0.1") as refused:
            ray.begin()
    assert str(tmp_path / "port") in (refused.value.hint or "")
    assert not ray.pid_file.exists()


def test_the_command_that_shows_its_nodes_shows_its_token() -> None:
    told = {
        token: RayDriver(
            address="10.0.0.1:6379",
            cluster="c",
            token_file=token,
            log_file=Path("/log"),
        ).shown_by
        for token in ("", "/my ray/token")
    }
    assert told[""] == "ray status --address 10.0.0.1:6379"
    assert told["/my ray/token"].startswith(
        "RAY_AUTH_MODE=token RAY_AUTH_TOKEN_PATH='/my ray/token' ray status"
    )


@pytest.mark.parametrize("by", ["its words", "an open file"])
def test_what_ray_wrote_goes_when_nobody_uses_it_any_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    monkeypatch.setattr(bringup, "CLEAR_SECONDS", 0.0)
    folder = tmp_path / "corral-ray-x"
    folder.mkdir()
    words = [
        "sh",
        "-c",
        "echo up; read x",
        *([f"--dir={folder}/a"] if by == "its words" else []),
    ]
    pipe = subprocess.PIPE
    with (
        (folder if by == "an open file" else tmp_path).joinpath("log").open("w") as log,
        subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=log) as user,
    ):
        log.close()
        assert user.stdout is not None
        user.stdout.readline()
        asyncio.run(bringup.clear(folder))
        assert folder.exists()
        user.communicate(b"\n")
    asyncio.run(bringup.clear(folder))
    assert not folder.exists()


@pytest.mark.parametrize(("redis", "stays"), [("", False), ("10.0.0.1:6379", True)])
def test_what_the_heads_ray_wrote_stays_where_its_next_start_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, redis: str, stays: bool
) -> None:
    folder = tmp_path / "t"
    folder.mkdir()
    monkeypatch.setattr(RayHere, "_temp_dir", str(folder))
    asyncio.run(RayHere(dir=tmp_path, settings=RaySettings(redis=redis)).down())
    assert folder.exists() is stays


def test_the_folder_of_a_ray_that_was_joined_is_told_by_its_processes(
    tmp_path: Path,
) -> None:
    for word, told in (
        ("--temp_dir=/tmp/corral-ray-574bcbf1", "/tmp/corral-ray-574bcbf1"),
        ("--temp-dir=/tmp/corral-ray-574bcbf1", "/tmp/corral-ray-574bcbf1"),
        ("--temp_dir=/tmp/ray", ""),
        ("--temp_dir=/tmp/corral-ray-1/../x", ""),
    ):
        words = ["sh", "-c", "echo up; read x", word]
        pipe = subprocess.PIPE
        with subprocess.Popen(words, stdin=pipe, stdout=pipe) as one:
            assert one.stdout is not None
            one.stdout.readline()
            process = LocalProcess.find(one.pid)
            assert process is not None
            assert folder_of(process) == told
            one.communicate(b"\n")
