"""The pilot's own copy of the settings from the head, completed with the GPUs granted
to its step."""

import os
from pathlib import Path
from typing import Final

import msgspec

from corral.agent.pilot.early_launch import GRANTED, granted_gpus
from corral.agent.settings import FILE, TOKEN, load_settings, load_token
from corral.wire.node import NodeSettings, encode_settings

IMAGES: Final = (
    # next to the folders of parts: the next part finds the images that one has unpacked
    "corral-images-"
)


def copied(source: Path, node_dir: Path) -> NodeSettings:
    """Copy the settings and the token from `source` to the pilot's folder, and return
    the settings. The GPUs are those that the batch system has granted to this step.
    Images are kept on the node, for later attempts of the same account.

    Raises: SettingsInvalid when the settings are invalid; OSError when they cannot be
    written.
    """
    settings, token = load_settings(source), load_token(source)
    granted = granted_gpus(os.environ.get(GRANTED))
    if settings.pretend_gpus is None and granted is not None:
        settings = msgspec.structs.replace(settings, real_gpus=granted)
    settings = msgspec.structs.replace(
        settings,
        hidden=(*settings.hidden, str(source)),
        images=settings.images or str(node_dir.with_name(f"{IMAGES}{os.geteuid()}")),
    )
    _write_private_file(node_dir / FILE, encode_settings(settings))
    _write_private_file(node_dir / TOKEN, token.encode() + b"\n")
    return settings


def _write_private_file(file: Path, content: bytes) -> None:
    with os.fdopen(
        os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb"
    ) as opened:
        opened.write(content)
