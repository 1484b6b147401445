"""An unpacked image as the root of a process: what is seen, what is left behind."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from corral.agent.image.enter_root import LIBRARIES
from corral.agent.image.root import ImageRoot
from corral.agent.shim import filesystem_view
from corral.agent.shim.filesystem_view import Inside, inside_of


@pytest.fixture
def image(tmp_path: Path) -> ImageRoot:
    root, upper, seen = tmp_path / "unpacked", tmp_path / "upper", tmp_path / "seen"
    for folder in (root / "etc", root / "var", upper, seen):
        folder.mkdir(parents=True)
    (root / "etc" / "release").write_text("of the image\n")
    (seen / "data").write_text("of the node\n")
    return ImageRoot(root=str(root), upper=str(upper), seen=(str(seen),))


def within(inside: Inside, do: Callable[[], str]) -> str:
    """What a process that has entered answers."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(read)
            inside.enter()
            os.write(write, do().encode())
        except BaseException as wrong:
            os.write(write, f"{wrong!r}".encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said


def opened(image: ImageRoot) -> Inside:
    try:
        return inside_of(image.as_json())
    except OSError as why:
        pytest.skip(f"this machine lets nobody have namespaces: {why}")


def test_a_process_sees_the_image_and_what_is_shown_in_it(image: ImageRoot) -> None:
    (seen,) = image.seen
    said = within(
        opened(image),
        lambda: (
            f"{sorted(os.listdir('/'))} {Path('/etc/release').read_text()}"
            f"{Path(seen, 'data').read_text()}{os.path.exists('/proc/self')}"
        ),
    )
    assert "'etc', 'proc'" in said
    assert said.endswith("of the image\nof the node\nTrue")


def test_the_processes_of_an_attempt_see_each_others_changes_and_the_image_none(
    image: ImageRoot,
) -> None:
    inside = opened(image)
    within(inside, lambda: str(Path("/etc/release").write_text("changed")))
    assert within(inside, lambda: Path("/etc/release").read_text()) == "changed"
    assert Path(image.root, "etc", "release").read_text() == "of the image\n"


def test_what_is_written_where_it_is_shown_is_the_nodes(image: ImageRoot) -> None:
    (seen,) = image.seen
    within(opened(image), lambda: str(Path(seen, "result").write_text("kept")))
    assert Path(seen, "result").read_text() == "kept"


def test_links_of_the_image_lead_nowhere_outside(
    image: ImageRoot, tmp_path: Path
) -> None:
    """A link where something is to be shown gives way: nothing is made where it
    points."""
    outside = tmp_path / "outside"
    outside.mkdir()
    first = Path(image.seen[0]).parts[1]
    Path(image.root, first).symlink_to(outside)
    Path(image.root, "etc", "resolv.conf").symlink_to(outside / "made")
    within(opened(image), lambda: "")
    assert list(outside.iterdir()) == []


def test_devices_of_the_image_are_none(image: ImageRoot) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root makes a device")
    os.mknod(Path(image.root, "var", "zero"), 0o666 | 0o020000, os.makedev(1, 5))
    said = within(opened(image), lambda: str(Path("/var/zero").read_bytes()[:1]))
    assert "PermissionError" in said


def test_the_drivers_libraries_lie_where_images_look(
    image: ImageRoot, tmp_path: Path
) -> None:
    library = tmp_path / "libcuda.so.1"
    library.write_text("driver")
    with_driver = ImageRoot(
        root=image.root, upper=image.upper, libraries=(str(library),)
    )
    inside = opened(with_driver)
    assert (
        within(inside, lambda: Path(LIBRARIES, "libcuda.so.1").read_text()) == "driver"
    )
    env = inside.env({"LD_LIBRARY_PATH": "/opt/x"}, "/work")
    assert env["LD_LIBRARY_PATH"] == f"{LIBRARIES}:/opt/x"
    assert env["HOME"] == "/work"


def test_one_that_cannot_be_entered_says_why(tmp_path: Path) -> None:
    image = ImageRoot(root=str(tmp_path / "none"), upper=str(tmp_path / "upper"))
    with pytest.raises(OSError, match="the image cannot be entered: .*No such file"):
        inside_of(image.as_json())


def test_one_whose_process_ends_without_a_word_has_a_reason(
    image: ImageRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem_view, "enter_image", lambda _: os._exit(1))
    with pytest.raises(OSError, match="entered: the process .* without an error"):
        inside_of(image.as_json())


def test_without_an_image_the_node_is_as_it_is() -> None:
    inside = inside_of(None)
    assert inside.words(["sh"]) == ["sh"]
    assert inside.env({"HOME": "/home/ann"}, "/work") == {"HOME": "/home/ann"}
    assert inside.shell("/bin/bash") == "/bin/bash"
    assert within(inside, lambda: str(Path("/proc/self").exists())) == "True"


def test_no_namespace_is_left_when_nobody_is_inside(image: ImageRoot) -> None:
    inside = opened(image)
    for descriptor in inside.namespaces.values():
        os.close(descriptor)
    mounted = subprocess.run(["mount"], capture_output=True, text=True).stdout
    assert image.upper not in mounted
