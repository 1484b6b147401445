"""What a job's `image` names: an OCI image in a registry or an archive, or an Apptainer file."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_REGISTRY: Final = "docker://"
_APPTAINER: Final = (".sif", ".simg")


class ImageKind(StrEnum):
    OCI = "oci"
    APPTAINER = "apptainer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """`name` as its tool takes it: `ubuntu:24.04`, `oci-archive:/data/x.tar`, `/data/x.sif`."""

    kind: ImageKind
    name: str


def image_of(text: str) -> Image:
    """Raises: ValueError for what names none."""
    name = text.strip().removeprefix(_REGISTRY)
    if not name or name.startswith("-") or any(sign.isspace() for sign in name):
        raise ValueError(f"{text!r} names no image; write: ubuntu:24.04, or /data/torch.sif")
    if name.endswith(_APPTAINER):
        return Image(kind=ImageKind.APPTAINER, name=name)
    if name.startswith(("/", ".")):
        raise ValueError(
            f"{text!r} is a file, but no Apptainer image (.sif); an archive is written "
            "oci-archive:/data/x.tar"
        )
    return Image(kind=ImageKind.OCI, name=name)
