"""Reading of image archives: `docker-archive:`, `oci-archive:` and `oci:`, layer by
layer.

Sources: the OCI image layout and image manifest (opencontainers/image-spec v1.1,
image-layout.md, manifest.md, config.md) and what `docker save` writes (manifest.json,
config.json, layers).
"""

import gzip
import hashlib
import json
import os
import platform
import re
import stat
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Any, Final

from corral.agent.bounded_tar import (
    BROKEN,
    BadArchive,
    Readable,
    UnpackLimits,
    unpack_members,
)
from corral.agent.image.tree import ImageTree

TEXT_BYTES: Final = 4 * 1024**2  # of a manifest or a configuration
MOST_LAYERS: Final = 512
MOST_ENTRIES: Final = 10_000  # of the archive around the layers
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}", re.ASCII)
_GZIP: Final = b"\x1f\x8b"
_ZSTD: Final = b"\x28\xb5\x2f\xfd"
_MACHINES: Final = {"x86_64": "amd64", "aarch64": "arm64"}
_INDEXES: Final = ("image.index.v1+json", "manifest.list.v2+json")


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchivedImage:
    """An image inside an archive. `layers` are the names of its layer files, lowest
    first."""

    id: str
    digest: str
    env: Mapping[str, str]
    layers: tuple[str, ...]


class ImageLayout:
    """The files of an archive or of a folder, by name."""

    def __init__(self, archive: tarfile.TarFile | None, folder: int | None) -> None:
        self._archive = archive
        self._folder = folder
        self._members: dict[str, tarfile.TarInfo] = {}
        if archive is not None:
            for number, member in enumerate(archive):
                if number >= MOST_ENTRIES:
                    raise BadArchive(f"the archive has over {MOST_ENTRIES} entries")
                self._members[os.path.normpath(member.name)] = member

    @contextmanager
    def open(self, name: str) -> Iterator[IO[bytes]]:
        """Open a file of the layout. Raises: BadArchive, OSError."""
        path_segments = name.split("/")
        if name.startswith("/") or ".." in path_segments:
            raise BadArchive(f"the path {name[:200]!r} leads out of the archive")
        if self._folder is not None:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
            with os.fdopen(os.open(name, flags, dir_fd=self._folder), "rb") as file:
                if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                    raise BadArchive(f"{name[:200]!r} is not a regular file")
                yield file
            return
        member = self._members.get(os.path.normpath(name))
        assert self._archive is not None
        for _ in range(4):  # layers of an older `docker save` are links to each other's
            if member is None or not member.issym():
                break
            target = os.path.join(os.path.dirname(member.name), member.linkname)
            member = self._members.get(os.path.normpath(target))
        if member is None or not member.isreg() or member.sparse is not None:
            raise BadArchive(f"the archive has no file {name[:200]!r}")
        content = self._archive.extractfile(member)
        assert content is not None
        with content:
            yield content

    def text(self, name: str, digest: str = "") -> bytes:
        """Read a small file, and check its digest if one is given.

        Raises: BadArchive when the file is too large or its digest differs; OSError
        when it cannot be read.
        """
        with self.open(name) as file:
            data = file.read(TEXT_BYTES + 1)
        if len(data) > TEXT_BYTES:
            raise BadArchive(f"the file {name[:200]!r} has over {TEXT_BYTES} bytes")
        if digest and digest != _digest_of(data):
            raise BadArchive(f"the file {name[:200]!r} does not match its digest")
        return data

    def has(self, name: str) -> bool:
        if self._folder is None:
            return name in self._members
        try:
            return stat.S_ISREG(
                os.stat(name, dir_fd=self._folder, follow_symlinks=False).st_mode
            )
        except OSError:
            return False


@contextmanager
def opened(path: Path) -> Iterator[ImageLayout]:
    """Open an archive or the folder of an image layout, with the rights of this
    account.

    Raises: BadArchive, OSError when it cannot be opened.
    """
    if path.is_dir():
        folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            yield ImageLayout(None, folder)
        finally:
            os.close(folder)
        return
    with path.open("rb") as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise BadArchive(f"{path} is neither a file nor a folder")
        if file.read(2) == _GZIP:
            raise BadArchive("the archive is compressed; decompress it with gunzip")
        file.seek(0)
        try:
            with tarfile.open(fileobj=file, mode="r:") as archive:
                yield ImageLayout(archive, None)
        except BROKEN as wrong:
            raise BadArchive(f"the archive cannot be read: {wrong}") from wrong


def image_in(layout: ImageLayout, tag: str) -> ArchivedImage:
    """Find the image with this tag, or the only image of the archive.

    Raises: BadArchive, OSError when it is not found.
    """
    try:
        if layout.has("index.json"):
            return _of_oci(layout, tag)
        if layout.has("manifest.json"):
            return _of_docker(layout, tag)
    except BROKEN as wrong:
        raise BadArchive(f"the image's manifest cannot be read: {wrong!r}") from wrong
    raise BadArchive("the archive has neither index.json nor manifest.json")


def unpack_layers(
    layout: ImageLayout, image: ArchivedImage, root: int, bounds: UnpackLimits
) -> None:
    """Unpack the layers into the folder, each on top of the lower ones.

    Raises: BadArchive, OSError when a layer cannot be unpacked.
    """
    unpack_limits = bounds
    for name in image.layers:
        with layout.open(name) as file:
            tree = ImageTree(root, bounds, layered=True)
            try:
                with _open_decompressed(file) as stream:
                    members, size_bytes = unpack_members(
                        stream, unpack_limits, tree.place, disk=root
                    )
            finally:
                tree.close()
        unpack_limits = replace(
            unpack_limits,
            members=unpack_limits.members - members,
            bytes=unpack_limits.bytes - size_bytes,
        )


def _of_oci(layout: ImageLayout, tag: str) -> ArchivedImage:
    listed = json.loads(layout.text("index.json"))["manifests"]
    descriptor = _select_manifest(listed, tag)
    for _ in range(3):  # an index may list indexes
        if not str(descriptor.get("mediaType", "")).endswith(_INDEXES):
            break
        text = layout.text(_blob_path(descriptor["digest"]), descriptor["digest"])
        descriptor = _for_this_machine(json.loads(text)["manifests"])
    manifest = json.loads(
        layout.text(_blob_path(descriptor["digest"]), descriptor["digest"])
    )
    config = manifest["config"]["digest"]
    layers = tuple(_blob_path(layer["digest"]) for layer in manifest["layers"])
    text = layout.text(_blob_path(config), config)
    return _image_from_config(text, layers=layers, digest=descriptor["digest"])


def _of_docker(layout: ImageLayout, tag: str) -> ArchivedImage:
    listed = json.loads(layout.text("manifest.json"))
    tagged_manifests = [
        manifest for manifest in listed if not tag or tag in _tags_of(manifest)
    ]
    if tag and len(tagged_manifests) != 1:
        raise BadArchive(
            f"the archive has {len(tagged_manifests)} images with the tag {tag!r}; "
            "exactly one is required"
        )
    if len(tagged_manifests) != 1:
        raise BadArchive(
            f"the archive contains {len(tagged_manifests)} images; add the tag of one of "
            "them to the job's image: docker-archive:/data/x.tar:TAG"
            if tagged_manifests
            else "the archive contains no image"
        )
    text = layout.text(tagged_manifests[0]["Config"])
    return _image_from_config(
        text, layers=tuple(tagged_manifests[0]["Layers"]), digest=_digest_of(text)
    )


def _image_from_config(
    config: bytes, *, layers: tuple[str, ...], digest: str
) -> ArchivedImage:
    if len(layers) > MOST_LAYERS:
        raise BadArchive(
            f"the image has {len(layers)} layers; at most {MOST_LAYERS} are allowed"
        )
    pairs = (json.loads(config).get("config") or {}).get("Env") or ()
    env = dict(str(pair).split("=", 1) for pair in pairs if "=" in str(pair))
    id = _digest_of(config).removeprefix("sha256:")
    return ArchivedImage(id=id, digest=digest, env=env, layers=layers)


def _select_manifest(listed: Any, tag: str) -> Mapping[str, Any]:
    name = "org.opencontainers.image.ref.name"
    tagged_manifests = [
        manifest
        for manifest in listed
        if not tag or (manifest.get("annotations") or {}).get(name) == tag
    ]
    if len(tagged_manifests) == 1:
        return dict(tagged_manifests[0])
    if not tagged_manifests:
        raise BadArchive(f"the archive has no image with the tag {tag!r}")
    return _for_this_machine(tagged_manifests)


def _for_this_machine(listed: Any) -> Mapping[str, Any]:
    machine = platform.machine()
    host_platform = ("linux", _MACHINES.get(machine, machine))
    for manifest in listed:
        platform_fields = manifest.get("platform") or {}
        if (
            platform_fields.get("os"),
            platform_fields.get("architecture"),
        ) == host_platform:
            return dict(manifest)
    raise BadArchive(f"the archive has no image for {'/'.join(host_platform)}")


def _tags_of(entry: Mapping[str, Any]) -> list[str]:
    tags = [str(repo_tag) for repo_tag in entry.get("RepoTags") or ()]
    return [*tags, *(tag.rpartition(":")[2] for tag in tags)]


def _blob_path(digest: str) -> str:
    if _DIGEST.fullmatch(digest) is None:
        raise BadArchive(f"{digest[:100]!r} is not a valid digest")
    return f"blobs/{digest.replace(':', '/', 1)}"


def _digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


@contextmanager
def _open_decompressed(file: IO[bytes]) -> Iterator[Readable]:
    """Open the layer's tar stream, whether it is compressed by gzip or not compressed."""
    magic = file.read(4)
    file.seek(0)
    if magic == _ZSTD:
        raise BadArchive("the layers use zstd compression; save the image with gzip")
    if magic[:2] != _GZIP:
        yield file
        return
    with gzip.open(file) as plain:
        yield plain
