"""Streams of outputs are written where they were asked to, and nowhere else."""

import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from corral.client.output_files import OutputUnsafe, write_outputs


def stream(*members: tuple[str, bytes | None], kind: bytes = tarfile.REGTYPE) -> bytes:
    """A tar of files; those without content are folders."""
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as archive:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.type = tarfile.DIRTYPE if content is None else kind
            member.mode, member.mtime = 0o755, 1_000_000
            if kind == tarfile.REGTYPE:
                member.size = len(content or b"")
            member.linkname = "/etc/passwd" if kind != tarfile.REGTYPE else ""
            archive.addfile(member, io.BytesIO(content or b""))
    return whole.getvalue()


def pieces(whole: bytes, size: int = 700) -> Iterator[bytes]:
    for at in range(0, len(whole), size):
        yield whole[at : at + size]


def test_a_file_goes_into_a_folder_or_gets_the_name(tmp_path: Path) -> None:
    whole = stream(("model.pt", b"w" * 5000))
    done = write_outputs(pieces(whole), "out/model.pt", tmp_path)
    assert (done.path, done.files, done.bytes) == (tmp_path / "model.pt", 1, 5000)
    assert done.path.read_bytes() == b"w" * 5000
    assert done.path.stat().st_mtime == 1_000_000
    assert (
        write_outputs(pieces(whole), "out/model.pt", tmp_path / "mine").path.name
        == "mine"
    )


def test_a_folder_goes_as_cp_puts_it(tmp_path: Path) -> None:
    whole = stream((".", None), ("a/b", b"1"), ("a", None), ("empty", None))
    assert write_outputs(pieces(whole), "out/", tmp_path).path == tmp_path / "out"
    assert (tmp_path / "out" / "a" / "b").read_text() == "1"
    assert (tmp_path / "out" / "empty").is_dir()
    assert write_outputs(pieces(whole), "", tmp_path / "new").path == tmp_path / "new"


@pytest.mark.parametrize("name", ["../out", "/abs", "a/../../out"])
def test_no_name_leads_out(tmp_path: Path, name: str) -> None:
    here = tmp_path / "here"
    with pytest.raises(OutputUnsafe, match="would be written outside of"):
        write_outputs(pieces(stream((".", None), (name, b"evil"))), "", here)
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["here"]


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.FIFOTYPE])
def test_links_and_devices_are_not_written(tmp_path: Path, kind: bytes) -> None:
    with pytest.raises(OutputUnsafe, match="neither a file nor a folder"):
        write_outputs(pieces(stream((".", None), ("x", b""), kind=kind)), "", tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_through_a_link_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "a").symlink_to(tmp_path / "out")
    with pytest.raises(OutputUnsafe, match="is a symbolic link"):
        write_outputs(pieces(stream((".", None), ("a/b", b"1"))), "", tmp_path / "here")
    assert list((tmp_path / "out").iterdir()) == []


def test_a_stream_that_ends_early_leaves_what_was_there(tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_text("before")
    whole = stream(("model.pt", b"w" * 50_000))
    with pytest.raises(OutputUnsafe):
        write_outputs(pieces(whole[:20_000]), "model.pt", tmp_path)
    assert (tmp_path / "model.pt").read_text() == "before"
    assert [path.name for path in tmp_path.iterdir()] == ["model.pt"]
