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
        ("oci-archive:/data/x.tar", ImageKind.ARCHIVE, "oci-archive:/data/x.tar"),
        ("/data/torch.sif", ImageKind.APPTAINER, "/data/torch.sif"),
    ],
    ids=["registry", "with docker://", "archive", "apptainer"],
)
def test_an_image_is_of_a_registry_or_a_file(
    text: str, kind: ImageKind, name: str
) -> None:
    image = image_of(text)
    assert (image.kind, image.name) == (kind, name)


@pytest.mark.parametrize("text", [
    "", " ", "docker://", "--privileged", "a b", "/data/x.tar", "containers-storage:x", "dir:/etc",
    "docker-daemon:x:1", "oci:x", "docker-archive:../x", "UPPER/x", "a" * 2000, "x@sha256:12",
])  # fmt: skip
def test_what_names_no_image_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="image"):
        image_of(text)


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("ubuntu:24.04", "docker.io/library/ubuntu:24.04"),
        ("ann/x", "docker.io/ann/x"),
        ("localhost/x:1", "localhost/x:1"),
        ("reg:5000/a/b@sha256:" + "0" * 64, "reg:5000/a/b@sha256:" + "0" * 64),
    ],
)
def test_a_reference_in_full_names_its_registry(text: str, reference: str) -> None:
    assert image_of(text).reference == reference


def test_an_archive_has_a_path_and_perhaps_a_tag() -> None:
    image = image_of("docker-archive:/data/x.tar:ann/x:1")
    assert (image.path, image.tag) == ("/data/x.tar", "ann/x:1")
