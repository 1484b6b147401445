"""The index and the manifest of a save, as the bytes of its last files."""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.distributed.checkpoint.metadata import Metadata

from corral.domain.keep_rule import Metrics
from corral.train.save.manifest import FileEntry, Manifest, digest, encode
from corral.train.save.storage import INDEX, Written, encode_index


@dataclass(frozen=True, slots=True, kw_only=True)
class SaveDocuments:
    """Index and manifest of one save. `size_bytes` is the size of all of its files."""

    index: bytes
    manifest: bytes
    saved_at: float
    size_bytes: int

    @property
    def manifest_sha256(self) -> str:
        return digest(self.manifest)


def describe_save(
    parts: Sequence[Written],
    metadata: Metadata,
    *,
    job: str,
    attempt: int,
    step: int,
    metrics: Metrics,
) -> SaveDocuments:
    """Return the index and the manifest of the save that consists of these parts, one
    of each rank."""
    index = encode_index(metadata, parts)
    saved_at = time.clock_gettime(time.CLOCK_REALTIME)
    entry = FileEntry(name=INDEX, size_bytes=len(index), sha256=digest(index))
    manifest = Manifest(
        job=job,
        attempt=attempt,
        step=step,
        world_size=len(parts),
        torch=torch.__version__,
        files=(entry, *(file for written in parts for file in written.files)),
        metrics=metrics,
        saved_at=saved_at,
    )
    return SaveDocuments(
        index=index,
        manifest=encode(manifest),
        saved_at=saved_at,
        size_bytes=manifest.size_bytes,
    )
