"""A node's unpacked images: one copy per account; the oldest are evicted to free space.

An image belongs to the account whose job requested it, and that account unpacks it. No
job runs in files from another account's tool. Only the agent can open the folder. The
shim enters the folder before it changes to the account.
"""

import fcntl
import json
import os
import shutil
import stat
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from threading import Lock
from typing import Final

from corral.agent.image import tools, unpacking
from corral.agent.image.account import ImageAccount
from corral.agent.image.root import ImageRoot
from corral.agent.image.tools import ImageTrouble, PulledImage
from corral.domain.image import Image, ImageKind, image_of
from corral.domain.node_policy import NodePolicy

KEPT: Final = 10
# in an attempt's folder: id and digest of the image that it runs in
USED: Final = "image.used"
LOCK: Final = ".lock"
# in an account's folder: what the agent has pulled for it
PULLED: Final = "pulled.json"
_PARTIAL: Final = ".partial"
_ACCOUNT: Final = "account-"


class Images:
    """The unpacked images in the node's folder `images`, or in a folder that several
    agents share.

    It is used in threads; an account's images are fetched one at a time.

    Args:
        policy: reads from which sources the node's administrator allows images.
    """

    def __init__(
        self,
        node_dir: Path,
        shared: Path | None = None,
        *,
        policy: Callable[[], NodePolicy] = NodePolicy,
    ) -> None:
        self._folder = node_dir / "images" if shared is None else shared
        self._nodes = (node_dir.parent, f"*/attempts/*/{USED}")
        if shared is None:
            self._nodes = (node_dir, f"attempts/*/{USED}")
        self._policy = policy
        self._locks: defaultdict[int, Lock] = defaultdict(Lock)
        self._own_tools: dict[tuple[str, int], bool] = {}

    def ready(
        self,
        text: str,
        *,
        seen: tuple[str, ...],
        work: str,
        gpu: bool,
        user: Path,
        account: ImageAccount | None = None,
    ) -> ImageRoot:
        """Return the image named by `text`, ready for a rank to enter, except for
        `upper`.

        Args:
            seen: paths of the node that are visible inside.
            user: a file in the attempt's folder; the image counts as in use as long as
                this file exists.
            account: the account that the job's ranks run as; None for the agent's own.

        Raises: ImageTrouble, OSError when the image is not available.
        """
        try:
            image = image_of(text)
        except ValueError as wrong:
            raise ImageTrouble(str(wrong), infra=False) from None
        if refusal := self._policy().refuses_image(image.name):
            raise ImageTrouble(
                f"this node does not run the image: {refusal}", infra=False
            )
        if image.kind == ImageKind.APPTAINER:
            tool = tools.tool_of(tools.APPTAINER_TOOLS, image.name)
            if not tools.may_read(image.path, account):
                raise ImageTrouble(
                    f"the job's account cannot read {image.path} on this node",
                    infra=False,
                )
            command_prefix = tools.apptainer_words(
                tool, image.name, seen=seen, work=work, gpu=gpu
            )
            return ImageRoot(words=command_prefix)
        with self._lock_account_folder(account) as folder:
            pulled_image, unpack = self._found(image, folder, account)
            root = self._unpack_image(folder, pulled_image, unpack)
            user.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            user.write_text(f"{pulled_image.id}\n{_image_digest(pulled_image)}\n")
        libraries = tools.driver_libraries() if gpu else []
        return ImageRoot(
            root=str(root),
            seen=seen,
            libraries=libraries,
            env=pulled_image.env,
            digest=_image_digest(pulled_image),
        )

    @contextmanager
    def _lock_account_folder(self, account: ImageAccount | None) -> Iterator[Path]:
        """Lock the account's folder of images, also against other agents that use the
        folder, and yield its path.

        Raises: OSError when this fails.
        """
        uid = account.uid if account is not None else os.geteuid()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _check_own(self._folder)
        self._folder.chmod(0o700)
        folder = self._folder / f"{_ACCOUNT}{uid}"
        with self._locks[uid], (self._folder / f"{LOCK}-{uid}").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            folder.mkdir(mode=0o700, exist_ok=True)
            yield folder

    def _found(
        self, image: Image, folder: Path, account: ImageAccount | None
    ) -> tuple[PulledImage, Callable[[Path], None]]:
        """Find an image; pull it if that is needed. Return its description, and a
        function that writes its files into a folder.

        Raises: ImageTrouble when the image is not available.
        """
        if image.kind == ImageKind.ARCHIVE:
            pulled_image = unpacking.described(image, account)
            return pulled_image, lambda into: unpacking.unpack_archive(
                image, into, account
            )
        tool = tools.oci_tool(image.name)
        owner = account
        if account is None or self._has_own(tool, account):
            name = image.reference if self._lists_registries else image.name
            pulled_image = tools.found(tool, name, account)
        else:
            pulled_image, owner = self._pull_image(tool, image, folder), None
        return pulled_image, lambda into: unpacking.unpack_found(
            tool, pulled_image.id, into, name=image.name, owner=owner, account=account
        )

    @property
    def _lists_registries(self) -> bool:
        """Return whether an administrator has restricted pulls to a list of registries."""
        return self._policy().registries is not None

    def _has_own(self, tool: str, account: ImageAccount) -> bool:
        key = (tool, account.uid)
        if key not in self._own_tools:
            self._own_tools[key] = tools.is_own_tool(tool, account)
        return self._own_tools[key]

    def _pull_image(self, tool: str, image: Image, folder: Path) -> PulledImage:
        """Pull the image with the agent's own tool, on behalf of another account, and
        return it. An image that the account has already unpacked is not pulled again.

        An image of that name in the agent's own storage is not used. The agent's
        credentials are used only if an operator has listed the registry. So an account
        gets only what the registry gives to everyone.
        """
        notes = folder / PULLED
        known_images = _read_notes(notes)
        if (noted := known_images.get(image.reference)) and (
            folder / noted.id
        ).exists():
            return noted
        pulled_image = tools.pulled(
            tool, image.reference, credentials=self._lists_registries
        )
        present_images = {
            name: image
            for name, image in known_images.items()
            if (folder / image.id).exists()
        }
        present_images[image.reference] = pulled_image
        new_notes = notes.with_suffix(".new")
        new_notes.write_text(
            json.dumps({name: asdict(image) for name, image in present_images.items()})
        )
        new_notes.rename(notes)
        return pulled_image

    def _unpack_image(
        self, folder: Path, known: PulledImage, unpack: Callable[[Path], None]
    ) -> Path:
        root = folder / known.id
        if not root.exists():
            self._make_room(folder)
            partial = folder / f"{known.id}{_PARTIAL}"
            _remove_tree(partial)
            partial.mkdir(mode=0o700)
            try:
                unpack(partial)
                partial.rename(root)
            finally:
                _remove_tree(partial)
        os.utime(root)  # when it was last asked for
        return root

    def _make_room(self, folder: Path) -> None:
        """Remove the account's images that no rank runs in, the least recently used
        first. Remove unused images in the old layout too, where all accounts shared an
        image."""
        nodes, users = self._nodes
        used_image_ids = {
            text.split("\n")[0]
            for file in nodes.glob(users)
            if (text := file.read_text())
        }
        for path in self._folder.iterdir():
            if (
                not path.name.startswith((_ACCOUNT, LOCK))
                and path.name not in used_image_ids
            ):
                _remove_tree(path)
        unpacked = [
            entry
            for entry in folder.iterdir()
            if entry.is_dir() and not entry.name.endswith(_PARTIAL)
        ]
        idle = [entry for entry in unpacked if entry.name not in used_image_ids]
        idle.sort(key=lambda one: one.stat().st_mtime)
        for path in idle[: max(len(unpacked) - KEPT + 1, 0)]:
            _remove_tree(path)


def digest_in_use(attempt: Path) -> str:
    """Return the digest of the image that an attempt runs in, given the attempt's
    folder; "" for none."""
    with suppress(OSError):
        lines = (attempt / USED).read_text().splitlines()
        return lines[1] if len(lines) > 1 else ""
    return ""


def _image_digest(known: PulledImage) -> str:
    return known.digest or f"sha256:{known.id}"


def _check_own(folder: Path) -> None:
    """Check that the folder belongs to this account.

    Raises: PermissionError when it belongs to another account or is a link.
    """
    folder_stat = folder.lstat()
    if not stat.S_ISDIR(folder_stat.st_mode) or folder_stat.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is not a folder of the agent's account")


def _read_notes(notes: Path) -> dict[str, PulledImage]:
    try:
        return {
            name: PulledImage(**fields)
            for name, fields in json.loads(notes.read_text()).items()
        }
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def _remove_tree(path: Path) -> None:
    shutil.rmtree(path, ignore_errors=True)
