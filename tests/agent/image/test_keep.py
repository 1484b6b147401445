"""A node's unpacked images: by content, once, the longest unused making room."""

import os
from pathlib import Path

import pytest

from corral.agent.image import tools
from corral.agent.image.keep import KEPT, USED, Images
from corral.agent.image.root import ImageRoot
from corral.agent.image.tools import ImageTrouble, apptainer_words

PODMAN = """#!/bin/sh
echo "$@" >> {log}
case "$1 $2" in
  "image inspect") [ -e {there}/$3 ] || exit 125; cat {there}/$3 ;;
  "pull --quiet")
    case "$3" in
      private*) echo "Error: access denied" >&2; exit 125 ;;
      far*) echo "Error: dial tcp: i/o timeout" >&2; exit 125 ;;
    esac
    echo "sha256:$3 [\\"PATH=/image/bin\\"]" > {there}/$3; echo $3 ;;
  "create "*) echo container ;;
  "export container") tar -c -C {files} . ;;
  "rm --force") ;;
esac
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What a podman of the test's own was asked."""
    folders = {name: tmp_path / name for name in ("bin", "there", "files")}
    for folder in folders.values():
        folder.mkdir()
    (folders["files"] / "file").write_text("of the image")
    log = tmp_path / "log"
    program = folders["bin"] / "podman"
    program.write_text(
        PODMAN.replace("{log}", str(log))
        .replace("{there}", str(folders["there"]))
        .replace("{files}", str(folders["files"]))
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folders['bin']}:{os.environ['PATH']}")
    return log


def ready(images: Images, name: str, key: str, node_dir: Path) -> ImageRoot:
    user = node_dir / "attempts" / key / USED
    return images.ready(name, seen=("/shared",), work="/work", gpu=False, user=user)


def test_an_image_is_pulled_and_unpacked_once(tmp_path: Path, log: Path) -> None:
    images = Images(tmp_path / "n1")
    first = ready(images, "one", "j1.1", tmp_path / "n1")
    assert ready(images, "one", "j2.1", tmp_path / "n1") == first
    assert (Path(first.root) / "file").read_text() == "of the image"
    assert first.env == {"PATH": "/image/bin"}
    assert [line.split()[0] for line in log.read_text().splitlines()].count("export") == 1


def test_those_that_nobody_runs_in_make_room(tmp_path: Path, log: Path) -> None:
    node_dir = tmp_path / "n1"
    images = Images(node_dir)
    for number in range(KEPT):
        root = ready(images, f"image{number}", f"j{number}.1", node_dir).root
        os.utime(root, (number, number))
    (node_dir / "attempts" / "j1.1" / USED).unlink()
    (node_dir / "attempts" / "j3.1" / USED).unlink()
    ready(images, "another", "j99.1", node_dir)
    left = {folder.name for folder in (node_dir / "images").iterdir()}
    assert left == {f"image{number}" for number in range(KEPT) if number != 1} | {"another"}


def test_agents_that_share_a_folder_unpack_once_and_spare_what_the_other_runs_in(
    tmp_path: Path, log: Path
) -> None:
    first, second = tmp_path / "p1", tmp_path / "p2"
    shared = tmp_path / "shared"
    root = ready(Images(first, shared), "image0", "j0.1", first).root
    assert ready(Images(second, shared), "image0", "j1.1", second).root == root
    assert [line.split()[0] for line in log.read_text().splitlines()].count("export") == 1
    (first / "attempts" / "j0.1" / USED).unlink()
    for number in range(1, KEPT + 1):
        os.utime(root, (number, number))
        ready(Images(first, shared), f"image{number}", "j2.1", first)
    left = {folder.name for folder in shared.iterdir() if folder.is_dir()}
    assert left == {"image0", *(f"image{number}" for number in range(2, KEPT + 1))}


def test_a_shared_folder_that_is_not_ones_own_is_not_used(tmp_path: Path, log: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "shared").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        ready(Images(tmp_path / "p1", tmp_path / "shared"), "one", "j1.1", tmp_path / "p1")


@pytest.mark.parametrize(("name", "infra"), [("private", False), ("far", True)])
def test_who_pays_for_a_pull_that_fails(tmp_path: Path, log: Path, name: str, infra: bool) -> None:
    with pytest.raises(ImageTrouble, match=f"the image {name} cannot be pulled: Error: ") as caught:
        ready(Images(tmp_path / "n1"), name, "j1.1", tmp_path / "n1")
    assert caught.value.infra is infra


def test_an_unpacking_that_was_cut_short_is_begun_anew(tmp_path: Path, log: Path) -> None:
    left = tmp_path / "n1" / "images" / "one.partial"
    left.mkdir(parents=True)
    (left / "half").touch()
    root = ready(Images(tmp_path / "n1"), "one", "j1.1", tmp_path / "n1").root
    assert os.listdir(root) == ["file"]
    assert not left.exists()


def test_a_node_without_the_tool_says_which_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ImageTrouble, match="ubuntu needs podman or docker, and this") as one:
        ready(Images(tmp_path), "ubuntu", "j1.1", tmp_path)
    assert one.value.infra is False
    with pytest.raises(ImageTrouble, match="needs apptainer or singularity"):
        ready(Images(tmp_path), "/x.sif", "j1.1", tmp_path)


def test_an_apptainer_file_runs_in_place_of_the_ranks_own_words() -> None:
    words = apptainer_words("apptainer", "/x.sif", seen=("/a", "/b"), work="/a/work", gpu=True)
    assert " ".join(words) == (
        "apptainer exec --no-home --nv --bind /a --bind /b --pwd /a/work /x.sif"
    )


def test_a_call_that_takes_too_long_is_given_up(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "podman"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(tools, "ANSWER_SECONDS", 0.2)
    with pytest.raises(ImageTrouble, match="podman image takes over 0.2 s") as caught:
        ready(Images(tmp_path / "n1"), "one", "j1.1", tmp_path / "n1")
    assert caught.value.infra
