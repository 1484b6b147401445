"""A node's unpacked images: by content, once, the longest unused making room."""

import os
import stat
from pathlib import Path

import pytest

from corral.agent.image import tools
from corral.agent.image.image_cache import KEPT, USED, Images, digest_in_use
from corral.agent.image.root import ImageRoot
from corral.agent.image.tools import ImageTrouble, apptainer_words
from corral.agent.job_account import JobAccount
from corral.domain.node_policy import NodePolicy
from tests.agent.image.archives import docker_archive

OWN = f"account-{os.geteuid()}"
PODMAN = """#!/bin/sh
[ "$(id -u)" = 65534 ] && exit 1
echo "$@" auth=$(basename $(dirname ${REGISTRY_AUTH_FILE:-none/x})) >> {log}
case "$1 $2" in
  "image inspect") [ -e {there}/$3 ] || exit 125; cat {there}/$3 ;;
  "pull --quiet")
    case "$3" in
      private*|*/private*) echo "Error: access denied" >&2; exit 125 ;;
      far*) echo "Error: dial tcp: i/o timeout" >&2; exit 125 ;;
    esac
    echo "sha256:$(basename $3) [\\"PATH=/image/bin\\"]" > {there}/$(basename $3); basename $3 ;;
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


def ready(
    images: Images,
    name: str,
    key: str,
    node_dir: Path,
    account: JobAccount | None = None,
) -> ImageRoot:
    user = node_dir / "attempts" / key / USED
    return images.ready(
        name, seen=("/shared",), work="/work", gpu=False, user=user, account=account
    )


def test_an_image_is_pulled_and_unpacked_once(tmp_path: Path, log: Path) -> None:
    images = Images(tmp_path / "n1")
    first = ready(images, "one", "j1.1", tmp_path / "n1")
    assert ready(images, "one", "j2.1", tmp_path / "n1") == first
    assert (Path(first.root) / "file").read_text() == "of the image"
    assert first.env == {"PATH": "/image/bin"}
    assert [line.split()[0] for line in log.read_text().splitlines()].count(
        "export"
    ) == 1


def test_those_that_nobody_runs_in_make_room(tmp_path: Path, log: Path) -> None:
    node_dir = tmp_path / "n1"
    images = Images(node_dir)
    for number in range(KEPT):
        root = ready(images, f"image{number}", f"j{number}.1", node_dir).root
        os.utime(root, (number, number))
    (node_dir / "attempts" / "j1.1" / USED).unlink()
    (node_dir / "attempts" / "j3.1" / USED).unlink()
    ready(images, "another", "j99.1", node_dir)
    left = {folder.name for folder in (node_dir / "images" / OWN).iterdir()}
    assert left == {f"image{number}" for number in range(KEPT) if number != 1} | {
        "another"
    }


def test_agents_that_share_a_folder_unpack_once_and_spare_what_the_other_runs_in(
    tmp_path: Path, log: Path
) -> None:
    first, second = tmp_path / "p1", tmp_path / "p2"
    shared = tmp_path / "shared"
    root = ready(Images(first, shared), "image0", "j0.1", first).root
    assert ready(Images(second, shared), "image0", "j1.1", second).root == root
    assert [line.split()[0] for line in log.read_text().splitlines()].count(
        "export"
    ) == 1
    (first / "attempts" / "j0.1" / USED).unlink()
    for number in range(1, KEPT + 1):
        os.utime(root, (number, number))
        ready(Images(first, shared), f"image{number}", "j2.1", first)
    left = {folder.name for folder in (shared / OWN).iterdir()}
    assert left == {"image0", *(f"image{number}" for number in range(2, KEPT + 1))}


def test_a_shared_folder_that_is_not_ones_own_is_not_used(
    tmp_path: Path, log: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "shared").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionError):
        ready(
            Images(tmp_path / "p1", tmp_path / "shared"), "one", "j1.1", tmp_path / "p1"
        )


@pytest.mark.parametrize(("name", "infra"), [("private", False), ("far", True)])
def test_who_pays_for_a_pull_that_fails(
    tmp_path: Path, log: Path, name: str, infra: bool
) -> None:
    with pytest.raises(
        ImageTrouble, match=f"the image {name} cannot be pulled: Error: "
    ) as caught:
        ready(Images(tmp_path / "n1"), name, "j1.1", tmp_path / "n1")
    assert caught.value.infra is infra


def test_an_unpacking_that_was_cut_short_is_begun_anew(
    tmp_path: Path, log: Path
) -> None:
    left = tmp_path / "n1" / "images" / OWN / "one.partial"
    left.mkdir(parents=True)
    (left / "half").touch()
    root = ready(Images(tmp_path / "n1"), "one", "j1.1", tmp_path / "n1").root
    assert os.listdir(root) == ["file"]
    assert not left.exists()


def test_a_node_without_the_tool_says_which_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        ImageTrouble, match="ubuntu requires podman or docker, but this"
    ) as one:
        ready(Images(tmp_path), "ubuntu", "j1.1", tmp_path)
    assert one.value.infra is False
    with pytest.raises(ImageTrouble, match="requires apptainer or singularity"):
        ready(Images(tmp_path), "/x.sif", "j1.1", tmp_path)


def test_an_apptainer_file_runs_in_place_of_the_ranks_own_words() -> None:
    words = apptainer_words(
        "apptainer", "/x.sif", seen=("/a", "/b"), work="/a/work", gpu=True
    )
    assert " ".join(words) == (
        "apptainer exec --no-home --nv --bind /a --bind /b --pwd /a/work /x.sif"
    )


def test_a_call_that_takes_too_long_is_given_up(
    tmp_path: Path, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "bin" / "podman"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(tools, "ANSWER_SECONDS", 0.2)
    with pytest.raises(
        ImageTrouble, match="podman image did not end within 0.2 s"
    ) as caught:
        ready(Images(tmp_path / "n1"), "one", "j1.1", tmp_path / "n1")
    assert caught.value.infra


def test_unpacked_images_are_closed_to_all_but_the_agent(
    tmp_path: Path, log: Path
) -> None:
    folder = tmp_path / "n1" / "images"
    folder.mkdir(parents=True, mode=0o755)
    (folder / "of-an-older-version").mkdir()
    ready(Images(tmp_path / "n1"), "one", "j1.1", tmp_path / "n1")
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert not (folder / "of-an-older-version").exists()


def test_the_policy_of_the_node_says_which_registries(
    tmp_path: Path, log: Path
) -> None:
    policy = NodePolicy(registries=("nvcr.io/nvidia",), host_paths=("/data",))
    images = Images(tmp_path / "n1", policy=lambda: policy)
    for name in ("ubuntu:24.04", "oci-archive:/root/x.tar", "nvcr.io/nvidiax/torch"):
        with pytest.raises(
            ImageTrouble, match="the node's policy does not allow"
        ) as caught:
            ready(images, name, "j1.1", tmp_path / "n1")
        assert caught.value.infra is False
    assert not log.exists()
    assert ready(images, "nvcr.io/nvidia/torch", "j1.1", tmp_path / "n1").root


OTHER = JobAccount(
    name="corral-nobody", uid=65534, groups=(65534,), home="/", shell="/bin/sh"
)
needs_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root runs for other accounts"
)


@needs_root
def test_what_roots_podman_has_is_not_offered_to_other_accounts(
    tmp_path: Path, log: Path
) -> None:
    """The image is pulled anew, without root's credentials, and its files are the
    account's."""
    tmp_path.chmod(0o755)
    (tmp_path / "there" / "docker.io/library").mkdir(parents=True)
    (tmp_path / "there" / "docker.io/library/private").write_text("sha256:abc []")
    images = Images(tmp_path / "n1")
    with pytest.raises(ImageTrouble, match="access denied"):
        ready(images, "private", "j1.1", tmp_path / "n1", OTHER)
    root = Path(ready(images, "one", "j1.1", tmp_path / "n1", OTHER).root)
    assert root.parent.name == "account-65534"
    assert (root / "file").stat().st_uid == 65534
    asked = log.read_text()
    assert "image inspect docker.io/library/private" not in asked
    assert "pull --quiet docker.io/library/one auth=corral-image-" in asked
    assert ready(images, "one", "j2.1", tmp_path / "n1", OTHER).root == str(root)
    assert log.read_text().count("pull --quiet docker.io/library/one") == 1


@needs_root
def test_an_archive_is_opened_as_the_account_of_the_job(tmp_path: Path) -> None:
    archive = tmp_path / "x.tar"
    docker_archive(archive, {"file": b"secret"})
    archive.chmod(0o600)
    images = Images(tmp_path / "n1")
    name = f"docker-archive:{archive}"
    with pytest.raises(ImageTrouble, match="Permission denied") as caught:
        ready(images, name, "j1.1", tmp_path / "n1", OTHER)
    assert caught.value.infra is False
    own = ready(images, name, "j1.1", tmp_path / "n1")
    assert (Path(own.root) / "file").read_bytes() == b"secret"
    assert own.env == {"FROM": "the image"}


def test_an_attempt_says_which_image_it_runs_in(tmp_path: Path) -> None:
    archive = tmp_path / "x.tar"
    docker_archive(archive, {"file": b"1"})
    root = ready(
        Images(tmp_path / "n1"), f"docker-archive:{archive}", "j1.1", tmp_path / "n1"
    )
    assert root.digest.startswith("sha256:")
    assert digest_in_use(tmp_path / "n1" / "attempts" / "j1.1") == root.digest
    assert digest_in_use(tmp_path / "n1" / "attempts" / "j2.1") == ""
