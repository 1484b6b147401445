"""The agent's settings and its node's token, each from a file that only its owner may
read."""

import os
import ssl
import stat
from pathlib import Path
from typing import Final

import msgspec

from corral.domain.errors import Refusal
from corral.wire.node import NodeSettings, decode_settings
from corral.wire.tls import trusting

FILE: Final = "node.json"
TOKEN: Final = "token"


class SettingsInvalid(Refusal):
    """The agent's settings, token or policy in the node's directory cannot be used."""

    code = "settings_invalid"


def load_settings(node_dir: Path) -> NodeSettings:
    """Return the node's settings from its directory. Raises: SettingsInvalid when
    node.json is missing, open to others, or wrong."""
    text = private_file(node_dir / FILE)
    try:
        return decode_settings(text)
    except ValueError as wrong:
        raise SettingsInvalid(
            f"{node_dir / FILE} does not contain valid node settings: {wrong}",
            hint="correct the file, or create it again: corral down; corral up",
        ) from wrong


def load_token(node_dir: Path) -> str:
    """Return the node's own token. Raises: SettingsInvalid when the token's file is
    missing, empty or open to others."""
    token = private_file(node_dir / TOKEN).decode("ascii", "replace").strip()
    if not token:
        raise SettingsInvalid(
            f"the token file {node_dir / TOKEN} is empty",
            hint="create the file again: corral down; corral up",
        )
    return token


def trust(settings: NodeSettings) -> ssl.SSLContext:
    """Return the TLS context that verifies the head's certificate. Raises:
    SettingsInvalid when the file, or this machine's certificate store, holds no usable
    certificate."""
    try:
        return trusting(settings.trusted, system=settings.trusted is None)
    except OSError as wrong:
        if settings.trusted is None:
            raise SettingsInvalid(
                f"the certificate store of this machine cannot be read: {wrong}",
                hint="install this machine's CA certificates (package ca-certificates)",
            ) from wrong
        raise SettingsInvalid(
            f"{settings.trusted} does not contain a valid certificate: {wrong}",
            hint="copy the head's certificate (PEM) into this file, then start the "
            "agent again",
        ) from wrong


class HeadFile(msgspec.Struct, frozen=True):
    """Fields of head.json that the agent needs; others are ignored."""

    url: str


def head_url(path: Path) -> str:
    """Return the current address of the head, for example "http://127.0.0.1:8700".
    Raises: OSError, ValueError."""
    return msgspec.json.decode(path.read_bytes(), type=HeadFile).url.rstrip("/")


def private_file(path: Path, *, may_be_read: bool = False) -> bytes:
    """Return the content of a file that no other account may read. With `may_be_read`,
    others may read the file but not write it.

    Raises: SettingsInvalid when its permissions or owner are not as required, or it
    cannot be read.
    """
    try:
        path_stat = path.stat()
        text = path.read_bytes()
    except OSError as absent:
        raise SettingsInvalid(
            f"{path} cannot be read: {absent.strerror}",
            hint="give the directory of a node: python -m corral.agent ~/.corral/nodes/n1",
        ) from absent
    closed = stat.S_IWGRP | stat.S_IWOTH if may_be_read else stat.S_IRWXG | stat.S_IRWXO
    if path_stat.st_mode & closed:
        raise SettingsInvalid(
            f"{path} can be {'written' if may_be_read else 'read'} by other accounts "
            f"(mode {stat.S_IMODE(path_stat.st_mode):o})",
            hint=f"run: chmod {644 if may_be_read else 600} {path}",
        )
    if path_stat.st_uid not in (0, os.geteuid()):
        raise SettingsInvalid(
            f"{path} belongs to uid {path_stat.st_uid}, which is neither root nor the "
            "agent's account",
            hint=f"run: chown {os.geteuid()} {path}",
        )
    return text
