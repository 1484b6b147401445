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


class WrongImage(ValueError):
    """The error for text that is not an image; `hint` says what to write."""

    def __init__(self, text: str, hint: str) -> None:
        super().__init__(f"{text}; {hint}")
        self.text = text
        self.hint = hint


class ImageKind(StrEnum):
    OCI = "oci"  # a reference to a registry
    # an OCI or Docker archive, or an OCI layout, in a file or a folder
    ARCHIVE = "archive"
    APPTAINER = "apptainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A container image, or a file or folder that contains one.

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
    """Parse the `image` of a spec. Raises: WrongImage if the text is not one."""
    name = text.strip().removeprefix(_SCHEME)
    if not name or name.startswith("-") or any(sign.isspace() for sign in name):
        raise WrongImage(
            f"{text!r} is not a valid image",
            "write: image: ubuntu:24.04, or image: /data/torch.sif",
        )
    if len(name) > LONGEST_NAME:
        raise WrongImage(
            f"the name of the image has {len(name)} characters; at most {LONGEST_NAME} "
            "are allowed",
            "use a shorter name",
        )
    transport, colon, rest = name.partition(":")
    if colon and transport in _ARCHIVES:
        return _parse_archive(text, name, rest)
    if colon and transport in _OTHER_TRANSPORTS:
        raise WrongImage(
            f"{text!r} is not an image of a registry",
            "write: image: ubuntu:24.04, or for an archive: oci-archive:/data/x.tar",
        )
    if name.endswith(_APPTAINER):
        return Image(kind=ImageKind.APPTAINER, name=name, path=name)
    if name.startswith(("/", ".")):
        raise WrongImage(
            f"{text!r} is a path, but not of an Apptainer image (.sif)",
            "for an archive, write: image: oci-archive:/data/x.tar",
        )
    if _REFERENCE.fullmatch(name) is None:
        raise WrongImage(
            f"{text!r} is not an image reference",
            "write, for example: image: nvcr.io/nvidia/pytorch:25.10",
        )
    return Image(kind=ImageKind.OCI, name=name)


def is_digest(text: str) -> bool:
    """Return whether the text is a SHA-256 digest as registries write it."""
    return _DIGEST.fullmatch(text) is not None


def _parse_archive(text: str, name: str, rest: str) -> Image:
    path, _, tag = rest.partition(":")
    if not path.startswith("/"):
        raise WrongImage(
            f"{text!r} is not a valid image: its path is not absolute",
            "write, for example: image: oci-archive:/data/x.tar",
        )
    return Image(kind=ImageKind.ARCHIVE, name=name, path=path, tag=tag)
