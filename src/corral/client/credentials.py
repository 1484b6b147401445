"""Detection of credentials in a workdir: files that a snapshot leaves out, and
directories that it never contains.

A snapshot is stored on the head and on each node of its job, where a key, a token or a
cloud credential in it could be read.
"""

import json
import os
import re
import stat
from collections.abc import Collection, Sequence
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import Final

from corral.client.log_ins import LOG_IN_SUFFIX

DEFAULT_DIR: Final = "~/.corral"
_SHARED: Final = "shared"
_WORK: Final = "work"  # of an attempt: a job may submit from its own workdir
_FILES: Final = frozenset(
    {".netrc", "_netrc", ".pgpass", ".git-credentials", ".pypirc"}
)
_FOLDERS: Final = frozenset({".ssh", ".aws", ".azure", ".kube", ".gnupg"})
_PATHS: Final = (
    ".config/gcloud",
    ".docker/config.json",
    ".config/gh",
    ".cache/huggingface/token",
    ".huggingface/token",
)
_VARIABLES: Final = ".env"  # with .env.local and the like
# .env.example
_TEMPLATES: Final = ("example", "sample", "template", "dist", "defaults")
_KEY_NAMES: Final = (
    "id_rsa",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_ecdsa_sk",
    "id_ed25519_sk",
)
# also names of plain data: their first bytes decide
_MAYBE_KEYS: Final = ("*.key", "id_*")
_PRIVATE: Final = b"PRIVATE KEY-----"
_CERTIFICATE: Final = b"-----BEGIN CERTIFICATE-----"
_IDENTITY: Final = b"corral-identity-1:"  # opens sealed backups
# A key itself in a file of any name, also within YAML or the JSON of a service account.
# A program that only names the header has none.
_KEY_ITSELF: Final = re.compile(
    rb"-----BEGIN (?:[A-Z0-9]{1,20} ){0,2}PRIVATE KEY-----(?:\\[rn]|\s){1,40}"
    rb"(?:[A-Za-z0-9+/]{40}|Proc-Type:)|" + _IDENTITY + rb"[\w-]{40}"
)
_LOOKED_AT_BYTES: Final = 64 * 1024  # of a file whose name promises no key
# of a file: a bundle of certificates has no key after so much
_HEAD_BYTES: Final = 1024 * 1024
_JOINED_BYTES: Final = 64 * 1024
_OF_A_HEAD: Final = frozenset({"head.json", "head.lock", "corral.db", "token"})


def is_credential(name: str, path: Path, mode: int) -> bool:
    """Return whether a file or folder holds credentials. Its name decides; if the name
    is not enough, the content of a regular file decides. `name` is relative to the
    workdir, with slashes."""
    base = PurePosixPath(name).name
    if any(
        name == credential_path or name.endswith(f"/{credential_path}")
        for credential_path in _PATHS
    ):
        return True
    if stat.S_ISDIR(mode):
        return base in _FOLDERS
    if base in _FILES or base in _KEY_NAMES or base == _VARIABLES:
        return True
    if base.endswith(LOG_IN_SUFFIX):
        return True
    if base.startswith(f"{_VARIABLES}."):
        return not base.endswith(_TEMPLATES)
    if not stat.S_ISREG(mode):
        return False
    # of certificates alone it is public, as certifi's cacert.pem is
    if base.endswith(".pem"):
        start = _start_of(path)
        return _PRIVATE in start or _CERTIFICATE not in start
    if any(
        fnmatchcase(base, key_pattern) for key_pattern in _MAYBE_KEYS
    ) and _PRIVATE in _start_of(path):
        return True
    start = _start_of(path, _LOOKED_AT_BYTES)
    may_hold = _PRIVATE in start or _IDENTITY in start
    return may_hold and _KEY_ITSELF.search(start) is not None


def own_directories() -> frozenset[Path]:
    """Return the directories of this user's cluster: CORRAL_DIR, and the default
    directory."""
    places = (os.environ.get("CORRAL_DIR") or DEFAULT_DIR, DEFAULT_DIR)
    return frozenset(
        Path(directory_text).expanduser().resolve() for directory_text in places
    )


def is_cluster(folder: Path, names: Collection[str], own: Collection[Path]) -> bool:
    """Return whether the folder is the directory of a cluster, of a machine that has
    joined a cluster, or of a node. A reader of such a directory could act as the
    cluster.

    Args:
        folder: resolved path of the folder.
        names: names of the entries in the folder.
        own: directories that belong to a cluster whatever they contain.
    """
    if folder in own or ("key" in names and not _OF_A_HEAD.isdisjoint(names)):
        return True
    if "node.json" in names and "token" in names:
        return True
    return "joined.json" in names and _has_joined(folder / "joined.json")


def cluster_around(root: Path) -> Path | None:
    """Return the cluster's directory that is or contains the workdir `root`, else None.
    Also return None if the workdir lies in a part that is made for projects: `shared`,
    or the workdirs of jobs."""
    paths = own_directories()
    for folder in (root, *root.parents):
        if is_cluster(folder, _list_directory(folder), paths):
            inside = root.relative_to(folder).parts
            is_free = inside[:1] == (_SHARED,) or _WORK in inside
            return None if is_free else folder
    return None


def left_out_text(left_out: Sequence[str], root: Path, *, most: int = 5) -> str:
    """Return a sentence about the files that a snapshot leaves out, with the command
    that would include one of them. `most` is how many files are named."""
    listed_names = ", ".join(left_out[:most])
    remainder_text = f" and {len(left_out) - most} more" if len(left_out) > most else ""
    return (
        f"left out of the workdir as possible credentials: {listed_names}{remainder_text}; to "
        f"send one of them, run: echo '!{left_out[0]}' >> {root}/.corralignore"
    )


def never_sent_text(folders: Sequence[str]) -> str:
    """Return a sentence about directories of clusters, which a snapshot never contains:
    no ignore pattern can include them."""
    is_one = len(folders) == 1
    folder_kind = "the directory of a cluster" if is_one else "directories of clusters"
    return f"left out of the workdir as {folder_kind}, never sent: {', '.join(folders)}"


def _list_directory(folder: Path) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


def _start_of(path: Path, most: int = _HEAD_BYTES) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError:
        return b""


def _has_joined(path: Path) -> bool:
    """Return whether the file is Corral's own record of a joined cluster, which names
    the head. A file of this name may also be data of the project."""
    try:
        with path.open("rb") as file:
            joined_fields = json.loads(file.read(_JOINED_BYTES))
    except (OSError, ValueError):
        return False
    return isinstance(joined_fields, dict) and {"url", "node"} <= joined_fields.keys()
