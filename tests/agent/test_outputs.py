"""Work folders on a node: what counts as written, what is sent, and what is kept."""

import asyncio
import io
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from corral.agent.outputs.folder_walk import list_written, sift
from corral.agent.outputs.kept_folders import KeptWorks
from corral.agent.outputs.send_helper import ABSENT, REFUSED
from corral.agent.outputs.server import AT_ONCE, OutputServer
from corral.agent.outputs.work_record import read_record, write_record
from corral.agent.shim.begin_mark import RECORD, record_begin
from corral.domain.ids import AttemptNumber, JobId, UserName
from corral.domain.kept_work import WorkLimits
from corral.wire.agent_messages import FilesNow

NOBODY = 65534
ANN = UserName("ann")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """An attempt's folder whose workdir is unpacked, and whose ranks are to begin."""
    made = tmp_path / "attempts" / "j1.1"
    work = made / "work"
    (work / "src").mkdir(parents=True)
    (work / "train.py").write_text("train")
    (work / "src" / "model.py").write_text("model")
    record_begin(str(made), str(work))
    return made


def written(folder: Path) -> list[str]:
    listing = list_written(folder / "work", read_record(folder).since_ns)
    return [file.path for file in listing.files]


def test_what_came_with_the_workdir_is_not_written_and_what_was_changed_is(
    folder: Path,
) -> None:
    assert written(folder) == []
    work = folder / "work"
    (work / "out").mkdir()
    (work / "out" / "model.pt").write_text("weights")
    (work / "train.py").write_text("changed")
    os.utime(work / "out" / "model.pt", (1, 1))  # as cp -p and tar set it
    assert written(folder) == ["out/model.pt", "train.py"]


def test_of_an_empty_folder_all_is_written(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    record_begin(str(tmp_path), str(work))
    assert not (tmp_path / RECORD).exists()
    (work / "one").write_text("1")
    assert written(tmp_path) == ["one"]


def test_what_was_not_changed_is_not_kept(folder: Path) -> None:
    work = folder / "work"
    (work / "result").write_bytes(b"x" * 5000)
    (work / "link").symlink_to("train.py")
    assert sift(work, read_record(folder).since_ns)
    assert sorted(path.name for path in work.rglob("*")) == ["link", "result"]


def kept_works(folder: Path, limits: WorkLimits | None = None) -> KeptWorks:
    return KeptWorks(attempts=folder.parent, limits=limits or WorkLimits())


def test_a_folder_in_which_nothing_was_written_goes(folder: Path) -> None:
    works = kept_works(folder)
    assert works.settle(folder, ANN, has_saves=False)
    works.sift(folder)
    assert not folder.exists()


def test_a_kept_folder_stays_within_the_limits_and_no_longer(folder: Path) -> None:
    (folder / "work" / "result").write_text("result")
    works = kept_works(folder)
    assert works.settle(folder, ANN, has_saves=False)
    works.hold_limits()  # also where the agent was ended before it sifted
    record = read_record(folder)
    assert (record.owner, record.is_kept, record.bytes > 0) == (ANN, True, True)
    assert written(folder) == ["result"]
    kept_works(folder, WorkLimits(user_bytes=0)).hold_limits()
    assert not folder.exists()


def test_the_folder_of_an_attempt_that_runs_is_never_removed(folder: Path) -> None:
    (folder / "work" / "result").write_text("result")
    kept_works(folder, WorkLimits(days=0, user_bytes=0)).hold_limits()
    assert (folder / "work" / "train.py").exists()


def test_a_record_that_does_not_read_takes_nothing_for_kept(folder: Path) -> None:
    (folder / "work.json").write_text("{")
    kept_works(folder, WorkLimits(days=0, user_bytes=0)).hold_limits()
    assert (folder / "work" / "train.py").exists()


def sent(work: Path, path: str) -> tuple[int, dict[str, bytes], str]:
    """The exit code of the helper, what its stream holds, and what it says."""
    words = [
        sys.executable,
        "-P",
        "-m",
        "corral.agent.outputs.send_helper",
        str(work),
        path,
    ]
    done = subprocess.run(words, capture_output=True)
    found = {}
    if done.returncode == 0:
        with tarfile.open(fileobj=io.BytesIO(done.stdout)) as archive:
            for member in archive:
                content = archive.extractfile(member)
                found[member.name] = content.read() if content is not None else b""
    return done.returncode, found, done.stderr.decode()


def test_files_folders_and_links_within_are_sent(folder: Path) -> None:
    work = folder / "work"
    (work / "step-2").mkdir()
    (work / "step-2" / "model").write_text("weights")
    (work / "latest").symlink_to("step-2")
    assert sent(work, "latest/model") == (0, {"model": b"weights"}, "")
    assert sent(work, "latest") == (0, {".": b"", "model": b"weights"}, "")
    assert set(sent(work, "")[1]) == {
        ".",
        "step-2",
        "step-2/model",
        "src",
        "src/model.py",
        "train.py",
    }


@pytest.mark.parametrize(
    "path", ["../secret", "/etc/passwd", "out/secret", "up/secret", "loop"]
)
def test_nothing_outside_of_the_work_folder_is_sent(folder: Path, path: str) -> None:
    work = folder / "work"
    (folder / "secret").write_text("secret")
    (work / "out").symlink_to(folder)
    (work / "up").symlink_to("..")
    (work / "loop").symlink_to("loop")
    code, found, why = sent(work, path)
    assert (code, found) == (REFUSED, {})
    assert "leads out of the work folder" in why


def test_a_folder_is_sent_without_what_its_links_lead_to(folder: Path) -> None:
    work = folder / "work"
    (folder / "secret").write_text("secret")
    (work / "out").symlink_to(folder)
    (work / "file").symlink_to(folder / "secret")
    os.mkfifo(work / "pipe")
    assert set(sent(work, "")[1]) == {".", "src", "src/model.py", "train.py"}
    assert sent(work, "pipe")[0] == REFUSED


def test_what_is_not_there_is_absent(folder: Path) -> None:
    code, _, why = sent(folder / "work", "none/at/all")
    assert (code, why) == (ABSENT, "there is no none/at/all in the work folder\n")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become another")
def test_no_more_is_read_than_the_owner_of_the_folder_may_read(folder: Path) -> None:
    """A hard link to a file of root's, where the kernel allows such links."""
    work = folder / "work"
    (folder / "secret").write_text("secret")
    (folder / "secret").chmod(0o600)
    os.link(folder / "secret", work / "mine")
    (work / "own").write_text("own")
    for path in (work, work / "own"):
        os.chown(path, NOBODY, NOBODY)
    work.chmod(0o700)
    assert sent(work, "own")[1] == {"own": b"own"}
    code, found, why = sent(work, "mine")
    assert (code, found) == (REFUSED, {})
    assert "Permission denied" in why


def test_a_record_is_written_whole(folder: Path) -> None:
    record = read_record(folder)
    assert record.since_ns > 0
    write_record(folder, record)
    assert read_record(folder) == record
    assert not (folder / ".work.json").exists()


class LeavingReader:
    """A connection whose reader takes one frame, dawdles, and is gone."""

    async def send(self, frame: bytes) -> None:
        await asyncio.sleep(0.3)  # meanwhile the helper fills what is between
        raise ConnectionResetError


async def test_a_reader_who_leaves_gives_its_place_back(tmp_path: Path) -> None:
    """With more bytes between the helper and the reader than a paused stream reads to
    the end."""
    work = tmp_path / "j1.1" / "work"
    work.mkdir(parents=True)
    with (work / "big").open("wb") as big:
        big.truncate(64 * 1024**2)
    server = OutputServer(tmp_path)
    request = FilesNow(
        session="s", job=JobId("j1"), attempt=AttemptNumber(1), path="big"
    )
    async with asyncio.timeout(30):
        for _ in range(AT_ONCE + 1):
            with pytest.raises(ConnectionResetError):
                await server.serve(request, LeavingReader())  # type: ignore[arg-type]
