"""Archives of images for tests: what `docker save` writes, and OCI layouts."""

import gzip
import hashlib
import io
import json
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path

Members = Sequence[tuple[tarfile.TarInfo, bytes]]
CONFIG = {"config": {"Env": ["FROM=the image"]}}


def member(name: str, kind: bytes = tarfile.REGTYPE, **rest: object) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.mode = 0o644
    for field, value in rest.items():
        setattr(info, field, value)
    return info


def tar_of(members: Members) -> bytes:
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w") as target:
        for info, content in members:
            info.size = len(content)
            target.addfile(info, io.BytesIO(content))
    return whole.getvalue()


def docker_archive(path: Path, *layers: Mapping[str, bytes] | Members) -> None:
    """Write an archive as `docker save` does, with these layers."""
    config = json.dumps(CONFIG).encode()
    names = [f"{number}/layer.tar" for number in range(len(layers))]
    manifest = [{"Config": "config.json", "RepoTags": ["x:1"], "Layers": names}]
    files = [("manifest.json", json.dumps(manifest).encode()), ("config.json", config)]
    files += [(name, _layer(layer)) for name, layer in zip(names, layers, strict=True)]
    path.write_bytes(tar_of([(member(name), content) for name, content in files]))


def oci_layout(folder: Path, *layers: Mapping[str, bytes] | Members) -> str:
    """Write an OCI layout, whose layers are compressed; the digest of its manifest."""
    blobs = folder / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(content: bytes) -> dict[str, object]:
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"digest": f"sha256:{digest}", "size": len(content)}

    manifest = {
        "config": blob(json.dumps(CONFIG).encode()),
        "layers": [blob(gzip.compress(_layer(layer))) for layer in layers],
    }
    listed = blob(json.dumps(manifest).encode())
    (folder / "index.json").write_text(json.dumps({"manifests": [listed]}))
    return str(listed["digest"])


def _layer(layer: Mapping[str, bytes] | Members) -> bytes:
    if isinstance(layer, Mapping):
        return tar_of([(member(name), content) for name, content in layer.items()])
    return tar_of(layer)
