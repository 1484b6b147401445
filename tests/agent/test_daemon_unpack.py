"""What an archive can and cannot do when it is unpacked."""

import io
import os
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from corral.agent.bounded_tar import UnpackLimits
from corral.agent.unpack_workdir import SnapshotUnsafe, unpack


def archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as target:
        for member, content in members:
            member.size = len(content)
            target.addfile(member, io.BytesIO(content))
    return path


def member(name: str, kind: bytes = tarfile.REGTYPE, **rest: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = 0o644
    for field, value in rest.items():
        setattr(info, field, value)
    return info


def test_files_folders_modes_and_inner_links_come_out_as_they_went_in(
    tmp_path: Path,
) -> None:
    packed = archive(
        tmp_path / "a.tar.gz",
        (member("src", tarfile.DIRTYPE, mode=0o755), b""),
        (member("src/train.py"), b"print(1)"),
        (member("deep/er/run.sh", mode=0o4755), b"#!/bin/sh"),
        (member("link", tarfile.SYMTYPE, linkname="src/train.py"), b""),
        (member("src/up", tarfile.SYMTYPE, linkname="../deep"), b""),
        (member("hard", tarfile.LNKTYPE, linkname="src/train.py"), b""),
    )
    into = tmp_path / "work"
    unpack(packed, into)
    assert (into / "src/train.py").read_bytes() == b"print(1)"
    assert stat.S_IMODE((into / "src/train.py").stat().st_mode) == 0o644
    assert stat.S_IMODE((into / "deep/er/run.sh").stat().st_mode) == 0o755  # no setuid
    assert (into / "link").read_bytes() == b"print(1)"
    assert (into / "hard").read_bytes() == b"print(1)"
    assert os.readlink(into / "src/up") == "../deep"


def test_unpacking_twice_leaves_only_what_is_in_the_archive(tmp_path: Path) -> None:
    packed = archive(tmp_path / "a.tar.gz", (member("one"), b"1"))
    into = tmp_path / "work"
    unpack(packed, into)
    (into / "left-over").write_text("x")
    unpack(packed, into)
    assert [entry.name for entry in into.iterdir()] == ["one"]


UNSAFE: dict[str, Callable[[Path], list[tuple[tarfile.TarInfo, bytes]]]] = {
    "absolute": lambda out: [(member(f"{out}/evil"), b"x")],
    "dots": lambda out: [(member("../evil"), b"x")],
    "dots inside": lambda out: [(member("a/../../evil"), b"x")],
    "link out": lambda out: [(member("l", tarfile.SYMTYPE, linkname="../evil"), b"")],
    "absolute link": lambda out: [(member("l", tarfile.SYMTYPE, linkname="/etc"), b"")],
    "link that climbs and returns": lambda out: [
        (member("l", tarfile.SYMTYPE, linkname="../work/../../x"), b"")
    ],
    "through a link": lambda out: [
        (member("d", tarfile.DIRTYPE, mode=0o755), b""),
        (member("l", tarfile.SYMTYPE, linkname="d"), b""),
        (member("l/file"), b"x"),
    ],
    "over a link": lambda out: [
        (member("l", tarfile.SYMTYPE, linkname="x"), b""),
        (member("l"), b"x"),
    ],
    "hard link out": lambda out: [
        (member("h", tarfile.LNKTYPE, linkname="../evil"), b"")
    ],
    "hard link to nothing": lambda out: [
        (member("h", tarfile.LNKTYPE, linkname="gone"), b"")
    ],
    "hard link to a link": lambda out: [
        (member("l", tarfile.SYMTYPE, linkname="x"), b""),
        (member("h", tarfile.LNKTYPE, linkname="l"), b""),
    ],
    "device": lambda out: [
        (member("null", tarfile.CHRTYPE, devmajor=1, devminor=3), b"")
    ],
    "block device": lambda out: [(member("disk", tarfile.BLKTYPE, devmajor=8), b"")],
    "pipe": lambda out: [(member("pipe", tarfile.FIFOTYPE), b"")],
}


@pytest.mark.parametrize("kind", UNSAFE)
def test_nothing_leaves_the_folder(kind: str, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / "evil").write_text("untouched")
    packed = archive(tmp_path / "a.tar.gz", *UNSAFE[kind](outside))
    with pytest.raises(SnapshotUnsafe):
        unpack(packed, tmp_path / "work")
    assert list(outside.iterdir()) == []
    assert (tmp_path / "evil").read_text() == "untouched"


def test_an_archive_made_to_burst_is_refused(tmp_path: Path) -> None:
    bounds = UnpackLimits(members=100, bytes=1000, seconds=10)
    packed = archive(
        tmp_path / "a.tar.gz", (member("a"), b"x" * 600), (member("b"), b"x" * 600)
    )
    with pytest.raises(SnapshotUnsafe, match="the limit for a workdir"):
        unpack(packed, tmp_path / "work", bounds)
