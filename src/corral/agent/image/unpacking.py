"""Filling of a folder with an image's files, by a helper that runs as the job's
account."""

import errno
import json
import os
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, Final

from corral.agent.bounded_tar import UnpackLimits
from corral.agent.image import tools
from corral.agent.image.account import ImageAccount
from corral.agent.image.helper import MODULE
from corral.agent.image.tools import ID, ImageTrouble, PulledImage
from corral.domain.image import Image

BOUNDS: Final = UnpackLimits(members=2_000_000, bytes=256 * 1024**3, seconds=3600.0)
LATE_SECONDS: Final = 30.0  # beyond the bounds, for the helper to say so
DESCRIBE_SECONDS: Final = 300.0
DISK_TROUBLE: Final = (errno.ENOSPC, errno.EDQUOT, errno.EIO)


def described(image: Image, account: ImageAccount | None) -> PulledImage:
    """Return the description of an image in an archive, which the account may read.

    Raises: ImageTrouble when the archive cannot be read.
    """
    request = {"path": image.path, "tag": image.tag}
    description = _run_image_helper(
        request, account, name=image.name, seconds=DESCRIBE_SECONDS
    )
    try:
        env = {str(name): str(value) for name, value in description["env"].items()}
        id, digest = str(description["id"]), str(description["digest"])
    except (KeyError, AttributeError):
        raise ImageTrouble(
            f"the description of the image {image.name} is not valid", infra=True
        ) from None
    if ID.fullmatch(id) is None:
        raise ImageTrouble(
            f"the image {image.name} has the invalid id {id[:200]!r}", infra=False
        )
    return PulledImage(id=id, env=env, digest=digest)


def unpack_archive(image: Image, into: Path, account: ImageAccount | None) -> None:
    """Unpack the image's archive into the folder, as the account.

    Raises: ImageTrouble, OSError when this fails.
    """
    request = {"path": image.path, "tag": image.tag}
    _fill_folder(request, into, account, name=image.name, source=subprocess.DEVNULL)


def unpack_found(
    tool: str,
    id: str,
    into: Path,
    *,
    name: str,
    owner: ImageAccount | None,
    account: ImageAccount | None,
) -> None:
    """Unpack an image from the tool's storage into the folder `into`.

    Args:
        owner: the account that the tool runs as; the image belongs to it.
        account: the account that will own the files.

    Raises: ImageTrouble, OSError when this fails.
    """
    container = tools.created(tool, id, owner)
    try:
        with tools.export_of(tool, container, owner) as export:
            try:
                assert export.stdout is not None
                _fill_folder({}, into, account, name=name, source=export.stdout)
                export.stdout.close()
            except BaseException:
                export.kill()
                raise
        if export.returncode != 0:
            raise ImageTrouble(
                f"{tool} export of {name} ended with {export.returncode}", infra=True
            )
    finally:
        tools.removed(tool, container, owner)


def _fill_folder(
    request: dict[str, Any],
    into: Path,
    account: ImageAccount | None,
    *,
    name: str,
    source: IO[bytes] | int,
) -> None:
    folder = os.open(into, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if account is not None:
            os.fchown(folder, account.uid, account.groups[0])
        os.fchmod(folder, 0o755)
        seconds = BOUNDS.seconds + LATE_SECONDS
        full_request = {**request, "into": folder, "bounds": asdict(BOUNDS)}
        _run_image_helper(
            full_request,
            account,
            name=name,
            seconds=seconds,
            source=source,
            keep=(folder,),
        )
    finally:
        os.close(folder)


def _run_image_helper(
    request: dict[str, Any],
    account: ImageAccount | None,
    *,
    name: str,
    seconds: float,
    source: IO[bytes] | int = subprocess.DEVNULL,
    keep: tuple[int, ...] = (),
) -> dict[str, Any]:
    """Run the image helper as the account and return its answer.

    Raises: ImageTrouble, OSError when this fails.
    """
    account_ids = (
        {"uid": account.uid, "groups": list(account.groups)}
        if account is not None
        else None
    )
    helper_command = [
        sys.executable,
        "-P",
        "-m",
        MODULE,
        json.dumps({**request, "account": account_ids}),
    ]
    try:
        done = subprocess.run(
            helper_command,
            stdin=source,
            capture_output=True,
            text=True,
            timeout=seconds,
            pass_fds=keep,
        )
    except subprocess.TimeoutExpired:
        raise ImageTrouble(
            f"the image {name} was not unpacked within {seconds:g} s", infra=False
        ) from None
    try:
        reply = json.loads(done.stdout)
    except ValueError:
        error_line = tools.last_line(done.stderr)
        raise ImageTrouble(
            f"the image {name} cannot be unpacked: {error_line}", infra=True
        ) from None
    if "wrong" in reply:
        raise ImageTrouble(
            f"the image {name} cannot be unpacked: {reply['wrong']}", infra=False
        )
    if "trouble" in reply:
        infra = not request.get("path") or reply["errno"] in DISK_TROUBLE
        raise ImageTrouble(
            f"the image {name} cannot be unpacked: {reply['trouble']}", infra=infra
        )
    return dict(reply)
