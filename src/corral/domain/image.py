"""Parsing of a job's `image`: a registry reference, an archive or an Apptainer file."""

import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

DEFAULT_REGISTRY: Final = "docker.io"
LONGEST_NAME: Final = 1024
_SCHEME: Final = "docker://"
_APPTAINER: Final = (".sif", ".simg")
_ARCHIVES: Final = ("docker-archive", "oci-archive", "oci")
# containers-transports(5): each reads what belongs to its caller
_OTHER_TRANSPORTS: Final = (
    "atomic",
    "containers-storage",
    "dir",
    "docker-daemon",
    "ostree",
    "sif",
    "tarball",
)
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_REFERENCE: Final = re.compile(
    r"(?:(?P<host>localhost(?::[0-9]{1,5})?"
    r"|[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+(?::[0-9]{1,5})?|[A-Za-z0-9-]+:[0-9]{1,5})/)?"
    r"(?P<path>[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*)"
    r"(?P<version>(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?)",
    re.ASCII,
)


class ImageKind(StrEnum):
    OCI = "oci"  # a reference to a registry
    # an OCI or Docker archive, or an OCI layout, in a file or a folder
    ARCHIVE = "archive"
    APPTAINER = "apptainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """One image.

    Args:
        name: The image as its tool accepts it: `ubuntu:24.04`,
            `oci-archive:/data/x.tar`, `/data/x.sif`.
        path: The file or folder of an archive or an Apptainer file; "" for a reference.
        tag: The image inside an archive, if the archive names one.
    """

    kind: ImageKind
    name: str
    path: str = ""
    tag: str = ""

    @property
    def reference(self) -> str:
        """Return the reference with its registry, so that the registry does not depend
        on a tool's list of search registries."""
        match = _REFERENCE.fullmatch(self.name)
        if match is None or match["host"] is not None:
            return self.name
        library = "" if "/" in match["path"] else "library/"
        return f"{DEFAULT_REGISTRY}/{library}{self.name}"


def image_of(text: str) -> Image:
    """Parse the `image` of a spec. Raises: ValueError if the text names no image."""
    name = text.strip().removeprefix(_SCHEME)
    if not name or name.startswith("-") or any(sign.isspace() for sign in name):
        raise ValueError(
            f"{text!r} names no image; write: ubuntu:24.04, or /data/torch.sif"
        )
    if len(name) > LONGEST_NAME:
        raise ValueError(
            f"the image has {len(name)} letters; at most {LONGEST_NAME} are allowed"
        )
    transport, colon, rest = name.partition(":")
    if colon and transport in _ARCHIVES:
        return _parse_archive(text, name, rest)
    if colon and transport in _OTHER_TRANSPORTS:
        raise ValueError(
            f"{text!r} does not name an image of a registry; write: ubuntu:24.04, or an archive: "
            "oci-archive:/data/x.tar"
        )
    if name.endswith(_APPTAINER):
        return Image(kind=ImageKind.APPTAINER, name=name, path=name)
    if name.startswith(("/", ".")):
        raise ValueError(
            f"{text!r} is a file, but no Apptainer image (.sif); an archive is written "
            "oci-archive:/data/x.tar"
        )
    if _REFERENCE.fullmatch(name) is None:
        raise ValueError(
            f"{text!r} is not an image reference; write: nvcr.io/nvidia/pytorch:25.10"
        )
    return Image(kind=ImageKind.OCI, name=name)


def is_digest(text: str) -> bool:
    """Return whether the text is a SHA-256 digest as registries write it."""
    return _DIGEST.fullmatch(text) is not None


def _parse_archive(text: str, name: str, rest: str) -> Image:
    path, _, tag = rest.partition(":")
    if not path.startswith("/"):
        raise ValueError(
            f"{text!r} names an image by a relative path; write: oci-archive:/data/x.tar"
        )
    return Image(kind=ImageKind.ARCHIVE, name=name, path=path, tag=tag)
