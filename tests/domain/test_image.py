"""What an image may be called."""

import pytest

from corral.domain.image import ImageKind, image_of


@pytest.mark.parametrize(
    ("text", "kind", "name"),
    [
        ("ubuntu:24.04", ImageKind.OCI, "ubuntu:24.04"),
        (
            "docker://nvcr.io/nvidia/pytorch:25.10-py3",
            ImageKind.OCI,
            "nvcr.io/nvidia/pytorch:25.10-py3",
        ),
        ("oci-archive:/data/x.tar", ImageKind.OCI, "oci-archive:/data/x.tar"),
        ("/data/torch.sif", ImageKind.APPTAINER, "/data/torch.sif"),
    ],
    ids=["registry", "with docker://", "archive", "apptainer"],
)
def test_an_image_is_of_a_registry_or_a_file(text: str, kind: ImageKind, name: str) -> None:
    image = image_of(text)
    assert (image.kind, image.name) == (kind, name)


@pytest.mark.parametrize("text", ["", " ", "docker://", "--privileged", "a b", "/data/x.tar"])
def test_what_names_no_image_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="image"):
        image_of(text)
