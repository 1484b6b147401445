"""The agent of one attempt: what it was granted, by its settings and its step's
environment."""

import asyncio
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from corral.agent.pilot.early_launch import granted_gpus
from corral.agent.pilot.pilot import PartSupervisor, _until_settled, inventory_of
from corral.agent.pilot.start import LOST_SECONDS, private_folder
from corral.agent.processes import myself
from corral.agent.supervisor.supervisor import Supervisor
from corral.domain.attempt import Exit
from corral.domain.ids import AttemptNumber, JobId, NodeId
from corral.domain.observed_state import Phase, Progress, Seen
from corral.domain.pilot import LEAVING
from corral.wire.node import NodeSettings
from tests.patience import PATIENCE_SECONDS


def settings_of(**more: object) -> NodeSettings:
    values = {
        "node": NodeId("n1~j1.1"),
        "head_file": "/head.json",
        "gpu_type": "h100",
        **more,
    }
    return NodeSettings(**values)  # type: ignore[arg-type]


def test_pretended_gpus_are_as_many_as_were_granted() -> None:
    found = inventory_of(settings_of(pretend_gpus=2))
    assert found is not None
    assert [(gpu.type, gpu.pretend) for gpu in found.gpus] == [("h100", True)] * 2


def test_granted_gpus_are_counted_from_0_whatever_the_machine_calls_them() -> None:
    found = inventory_of(settings_of(real_gpus=(3, 5)))
    assert found is not None
    assert [(gpu.index, gpu.type, gpu.pretend) for gpu in found.gpus] == [
        (0, "h100", False),
        (1, "h100", False),
    ]


def test_what_nobody_has_said_is_asked_of_the_machine() -> None:
    assert inventory_of(settings_of()) is None


@pytest.mark.parametrize(
    ("visible", "granted"),
    [(None, None), ("", ()), ("0,3", (0, 3)), ("GPU-8f1c", None), ("NoDevFiles", None)],
)
def test_a_step_says_which_gpus_it_was_granted(
    visible: str | None, granted: tuple[int, ...] | None
) -> None:
    assert granted_gpus(visible) == granted


def test_what_killed_parts_have_left_goes_and_what_lives_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    left, young, alive = (
        tmp_path / f"corral-part-{name}" for name in ("left", "young", "alive")
    )
    for folder in (left, young, alive):
        folder.mkdir()
        (folder / "agent.pid").write_text("1 1\n")
    myself().record(alive / "launcher.pid")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.chdir("/")
    with private_folder() as own:
        long_ago = own.stat().st_mtime - LOST_SECONDS - 1.0
        for folder in (left, alive):
            os.utime(folder, (long_ago, long_ago))
    assert [path.exists() for path in (own, left, young, alive)] == [
        False,
        False,
        True,
        True,
    ]


KEY = (JobId("j1"), AttemptNumber(1))


@pytest.mark.parametrize(
    ("progress", "trouble"),
    [
        (None, LEAVING),
        (Progress(step=7, until=10), LEAVING),
        (Progress(step=10, until=10), ""),
    ],
)
def test_an_exit_0_after_the_part_was_asked_to_leave_is_a_stop_unless_all_steps_are_made(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    progress: Progress | None,
    trouble: str,
) -> None:
    clean = Seen(
        key=KEY, phase=Phase.ENDED, exits=((0, Exit(code=0)),), progress=progress
    )
    told = [Seen(key=KEY, phase=Phase.UP)]
    monkeypatch.setattr(Supervisor, "seen", lambda self: tuple(told))
    supervisor = PartSupervisor(
        tmp_path, settings=settings_of(), on_change=lambda: None
    )
    supervisor.leave()
    told[0] = clean
    (seen,) = supervisor.seen()
    assert (seen.trouble, seen.exits) == (trouble, clean.exits)


def test_an_end_from_before_the_part_was_asked_to_leave_is_the_jobs_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clean = Seen(key=KEY, phase=Phase.ENDED, exits=((0, Exit(code=0)),))
    monkeypatch.setattr(Supervisor, "seen", lambda self: (clean,))
    supervisor = PartSupervisor(
        tmp_path, settings=settings_of(), on_change=lambda: None
    )
    supervisor.leave()
    supervisor.leave()  # the batch system may ask twice
    assert supervisor.seen() == (clean,)


def test_a_part_goes_also_when_its_attempt_came_and_was_settled_between_two_looks() -> (
    None
):
    agent: Any = SimpleNamespace(seen=tuple, version=lambda: None)
    supervisor: Any = SimpleNamespace(had=True, settled=asyncio.Event())
    asyncio.run(asyncio.wait_for(_until_settled(agent, supervisor), PATIENCE_SECONDS))


def test_a_part_looks_seldom_and_goes_at_once_when_its_attempt_is_settled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("corral.agent.pilot.pilot.LOOK_SECONDS", PATIENCE_SECONDS * 10)
    supervisor = PartSupervisor(
        tmp_path, settings=settings_of(), on_change=lambda: None
    )
    supervisor.had = True
    agent: Any = SimpleNamespace(seen=tuple, version=lambda: None)

    async def story() -> None:
        going = asyncio.create_task(_until_settled(agent, supervisor))
        await asyncio.sleep(0)
        supervisor.settle((JobId("j1"), AttemptNumber(1)))
        await asyncio.wait_for(going, PATIENCE_SECONDS)

    asyncio.run(story())


@pytest.mark.skipif(
    os.geteuid() != 0, reason="only root starts ranks as other accounts"
)
def test_an_account_reaches_its_own_files_in_a_part_by_their_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A rank that opens its program by an absolute path, as Python does, passes the
    folders."""
    # where a part leaves its process; put back for the tests after it
    monkeypatch.chdir("/")
    with private_folder() as folder:
        modes = [path.stat().st_mode & 0o777 for path in (folder, folder / "attempts")]
        assert modes == [0o711, 0o711]
        assert (folder / "cache").stat().st_mode & 0o777 == 0o700


def test_an_agent_begins_without_what_only_heads_need() -> None:
    """Each attempt on Slurm and Kubernetes waits for this."""
    code = "import sys, corral.agent.pilot.start, corral.agent.pilot.pilot; print(*sys.modules)"
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert not {"pydantic", "fastapi", "httpx2", "yaml"} & set(said.stdout.split())
