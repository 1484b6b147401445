"""What the files of an image can and cannot do while they are unpacked."""

import io
import json
import os
import re
import stat
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.agent.bounded_tar import (
    BadArchive,
    BoundsExceeded,
    UnpackLimits,
    unpack_members,
)
from corral.agent.image.layers import image_in, opened, unpack_layers
from corral.agent.image.tree import ImageTree
from tests.agent.image.archives import (
    Members,
    docker_archive,
    member,
    oci_layout,
    tar_of,
)

BOUNDS = UnpackLimits(members=100, bytes=10_000, seconds=10)
LINK, HARD, FOLDER = tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "evil").write_text("untouched")
    root = tmp_path / "root"
    root.mkdir()
    return root


@pytest.fixture(autouse=True)
def outside(tmp_path: Path) -> Iterator[None]:
    """Nothing is written beside the folder, whatever the image holds."""
    yield
    if (tmp_path / "evil").exists():
        assert (tmp_path / "evil").read_text() == "untouched"
        assert {one.name for one in tmp_path.iterdir()} <= {
            "evil",
            "root",
            "x.tar",
            "layout",
        }


def flat(
    root: Path, *members: tuple[tarfile.TarInfo, bytes], bounds: UnpackLimits = BOUNDS
) -> int:
    """Unpack a flat image; how many members were left out."""
    folder = os.open(root, os.O_RDONLY)
    tree = ImageTree(folder, bounds, layered=False)
    try:
        unpack_members(io.BytesIO(tar_of(members)), bounds, tree.place, disk=folder)
    finally:
        tree.close()
        os.close(folder)
    return tree.left_out


def layered(path: Path, root: Path, tag: str = "") -> None:
    folder = os.open(root, os.O_RDONLY)
    try:
        with opened(path) as layout:
            unpack_layers(layout, image_in(layout, tag), folder, BOUNDS)
    finally:
        os.close(folder)


def test_devices_setuid_bits_and_owners_do_not_come_out(root: Path) -> None:
    left_out = flat(
        root,
        (member("dev/null", tarfile.CHRTYPE, mode=0o666, devmajor=1, devminor=3), b""),
        (member("dev/sda", tarfile.BLKTYPE, mode=0o666, devmajor=8), b""),
        (member("run/pipe", tarfile.FIFOTYPE), b""),
        (member("bin/su", mode=0o6755, uid=12345, gid=12345), b"x"),
        (member("srv", FOLDER, mode=0o2775), b""),
        (member("tmp", FOLDER, mode=0o1777), b""),
    )
    assert left_out == 3
    assert os.listdir(root / "dev") == []
    assert os.listdir(root / "run") == []
    found = (root / "bin/su").stat()
    assert (stat.S_IMODE(found.st_mode), found.st_uid) == (0o755, os.geteuid())
    assert stat.S_IMODE((root / "srv").stat().st_mode) == 0o775
    assert stat.S_IMODE((root / "tmp").stat().st_mode) == 0o1777


UNSAFE: dict[str, Members] = {
    "dots": [(member("../evil"), b"x")],
    "dots inside": [(member("a/../../evil"), b"x")],
    "through a file": [(member("a"), b""), (member("a/b"), b"")],
    "through a link to itself": [
        (member("l", LINK, linkname="l"), b""),
        (member("l/x"), b""),
    ],
    "hard link out": [(member("h", HARD, linkname="../evil"), b"")],
    "hard link to nothing": [(member("h", HARD, linkname="gone/x"), b"")],
    "hard link to a folder": [
        (member("d", FOLDER, mode=0o755), b""),
        (member("h", HARD, linkname="d"), b""),
    ],
    "link to nothing": [(member("l", LINK, linkname=""), b"")],
    "a long link": [(member("l", LINK, linkname="x" * 5000), b"")],
    "a long name": [(member("x" * 300), b"")],
    "a deep name": [(member("x/" * 300), b"")],
    "a long path": [(member(("x" * 200 + "/") * 25), b"")],
}


@pytest.mark.parametrize("kind", UNSAFE)
def test_what_is_unsafe_is_refused(kind: str, root: Path) -> None:
    with pytest.raises(BadArchive):
        flat(root, *UNSAFE[kind])


@pytest.mark.parametrize(
    "target", ["..", "/..", "../../..", "/", "sub/../..", "../sub/..", "/sub/../../.."]
)
def test_links_are_followed_inside_the_image_only(target: str, root: Path) -> None:
    flat(
        root,
        (member("sub", FOLDER, mode=0o755), b""),
        (member("l", LINK, linkname=target), b""),
        (member("evil"), b"of the image"),
        (member("l/evil"), b"through the link"),
        (member("/absolute"), b"x"),
        (member("h", HARD, linkname="l/evil"), b""),
    )
    assert (root / "absolute").exists()
    assert (root / "h").read_bytes() == b"through the link"


def test_a_member_takes_the_place_of_what_came_before(
    root: Path, tmp_path: Path
) -> None:
    flat(
        root,
        (member("l", LINK, linkname=str(tmp_path / "evil")), b""),
        (member("l"), b"a file now"),
        (member("d/inner"), b""),
        (member("d", LINK, linkname="elsewhere"), b""),
        (member("f"), b""),
        (member("f", FOLDER, mode=0o755), b""),
        (member("f/inner"), b"new"),
    )
    assert (root / "l").read_bytes() == b"a file now"
    assert os.readlink(root / "d") == "elsewhere"
    assert (root / "f/inner").read_bytes() == b"new"


@pytest.mark.parametrize(
    "bounds",
    [UnpackLimits(members=2, bytes=1000, seconds=10), UnpackLimits(members=9, bytes=10, seconds=10),
     UnpackLimits(members=9, bytes=1000, seconds=-1)],
    ids=["members", "bytes", "seconds"],
)  # fmt: skip
def test_an_image_is_bounded(bounds: UnpackLimits, root: Path) -> None:
    files = [(member(f"f{number}"), b"12345") for number in range(3)]
    with pytest.raises(BoundsExceeded):
        flat(root, *files, bounds=bounds)


def test_a_header_that_asks_for_all_memory_is_refused(root: Path) -> None:
    info = member("././@LongLink", tarfile.GNUTYPE_LONGNAME)
    info.size = 1024**4
    folder = os.open(root, os.O_RDONLY)
    tree = ImageTree(folder, BOUNDS, layered=False)
    try:
        stream = io.BytesIO(info.tobuf(tarfile.GNU_FORMAT) + bytes(10_000))
        with pytest.raises(BadArchive, match="at once"):
            unpack_members(stream, BOUNDS, tree.place, disk=folder)
    finally:
        tree.close()
        os.close(folder)


LOWER: Members = [
    (member("etc/kept"), b"1"),
    (member("etc/gone"), b"1"),
    (member("var/a"), b"1"),
    (member("var/b/c"), b"1"),
    (member("lib", LINK, linkname="usr/lib"), b""),
]
UPPER: Members = [
    (member("etc/.wh.gone"), b""),
    (member("var/new"), b"2"),
    (member("var/.wh..wh..opq"), b""),
    (member("lib/x"), b"2"),
]


@pytest.mark.parametrize("kind", ["docker", "oci"])
def test_layers_lie_over_each_other(kind: str, tmp_path: Path, root: Path) -> None:
    path = tmp_path / ("x.tar" if kind == "docker" else "layout")
    write = docker_archive if kind == "docker" else oci_layout
    write(path, LOWER, UPPER)
    layered(path, root)
    there = sorted(
        str(one.relative_to(root)) for one in root.rglob("*") if not one.is_dir()
    )
    assert there == ["etc/kept", "usr/lib/x", "var/new"]
    assert os.readlink(root / "lib") == "usr/lib"


@pytest.mark.parametrize("name", [".wh...", ".wh..", "a/.wh..."])
def test_a_whiteout_hides_nothing_outside(
    name: str, tmp_path: Path, root: Path
) -> None:
    docker_archive(tmp_path / "x.tar", {"a/b": b""}, {name: b""})
    with pytest.raises(BadArchive, match="names no file"):
        layered(tmp_path / "x.tar", root)


def test_a_whiteout_follows_links_inside_the_image_only(
    tmp_path: Path, root: Path
) -> None:
    lower: Members = [(member("l", LINK, linkname=str(tmp_path)), b"")]
    docker_archive(
        tmp_path / "x.tar", lower, {"l/.wh.evil": b"", "l/.wh..wh..opq": b""}
    )
    layered(tmp_path / "x.tar", root)
    assert (tmp_path / "evil").exists()


def test_an_image_of_a_layout_has_its_digest_and_must_match_it(tmp_path: Path) -> None:
    digest = oci_layout(tmp_path / "layout", {"a": b"1"})
    with opened(tmp_path / "layout") as layout:
        assert image_in(layout, "").digest == digest
    blob = tmp_path / "layout" / "blobs" / digest.replace(":", "/")
    blob.write_bytes(blob.read_bytes() + b" ")
    with (
        opened(tmp_path / "layout") as layout,
        pytest.raises(BadArchive, match="digest"),
    ):
        image_in(layout, "")


@pytest.mark.parametrize(
    ("tags", "tag", "why"),
    [
        (["x:1", "x:2"], "", "contains 2 images; add the tag of one of them"),
        (["x:1", "x:1"], "1", "has 2 images with the tag '1'; exactly one is required"),
        ([], "", "the archive contains no image"),
    ],
)
def test_an_archive_without_exactly_one_such_image_says_what_it_has(
    tags: list[str], tag: str, why: str, tmp_path: Path
) -> None:
    listed = [{"Config": "c", "RepoTags": [name], "Layers": []} for name in tags]
    content = json.dumps(listed).encode()
    (tmp_path / "x.tar").write_bytes(tar_of([(member("manifest.json"), content)]))
    with (
        opened(tmp_path / "x.tar") as layout,
        pytest.raises(BadArchive, match=re.escape(why)),
    ):
        image_in(layout, tag)


def test_names_of_an_archive_lead_nowhere_else(tmp_path: Path) -> None:
    layout_of = tmp_path / "layout"
    oci_layout(layout_of, {"a": b"1"})
    (layout_of / "index.json").unlink()
    (layout_of / "index.json").symlink_to("/etc/hostname")
    with opened(layout_of) as layout, pytest.raises(BadArchive, match="neither"):
        image_in(layout, "")
    with (
        opened(layout_of) as layout,
        pytest.raises(BadArchive, match="leads out of the archive"),
        layout.open("../evil"),
    ):
        pass
