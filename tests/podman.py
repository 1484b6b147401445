"""A small image in the node's own podman, without any registry: busybox, one file, one
variable."""

import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path
from typing import Final

import pytest

PACKAGES: Final = ("podman", "busybox-static")
CONTENT: Final = "of the image"
BUSYBOX: Final = Path("/bin/busybox")


def _install() -> str:
    """Why there is no podman here; "" when there is."""
    if shutil.which("podman") and BUSYBOX.exists():
        return ""
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        return (
            "podman and busybox-static are not installed, and only root installs them"
        )
    words = ["apt-get", "install", "-y", "--no-install-recommends", *PACKAGES]
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(words, env=quiet, capture_output=True, text=True)
    return "" if done.returncode == 0 else f"apt-get failed: {done.stderr[-300:]}"


@contextmanager
def small_image() -> Iterator[str]:
    """Its name; nothing of it is left afterwards. Skips where no podman is to be
    had."""
    if why := _install():
        if os.environ.get("CI"):
            pytest.fail(why)
        pytest.skip(why)
    name = f"corral-test-{os.getpid()}:1"
    with tempfile.TemporaryDirectory() as folder:
        archive = Path(folder) / "image.tar"
        write_root(archive)
        change = ["--change", "ENV FROM_IMAGE=set-by-the-image"]
        subprocess.run(
            ["podman", "import", "--quiet", *change, str(archive), name],
            check=True,
            capture_output=True,
        )
    try:
        yield name
    finally:
        subprocess.run(["podman", "rmi", "--force", name], capture_output=True)


def write_root(archive: Path) -> None:
    """Write the files of the image as one archive."""
    with tarfile.open(archive, "w") as tar:
        for folder in ("bin", "etc", "tmp"):
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, 0o755
            tar.addfile(made)
        tar.add(BUSYBOX, "bin/busybox")
        for applet in ("sh", "cat", "sleep", "echo", "env", "touch", "ls"):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            tar.addfile(link)
        text = f"{CONTENT}\n".encode()
        file = tarfile.TarInfo("etc/corral-image")
        file.size = len(text)
        tar.addfile(file, BytesIO(text))
