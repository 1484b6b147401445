"""Other nodes of the cluster as places to fetch content from."""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

import msgspec

from corral.agent.content_cache.http_reading import bearer, read_from, read_json
from corral.agent.content_cache.manifest import (
    ContentManifest,
    ListedFile,
    is_safe_path,
)
from corral.agent.content_cache.refusals import ContentRefused, ContentTrouble
from corral.agent.content_cache.source import ByteStream
from corral.domain.ids import NodeId
from corral.wire.content_messages import ContentPeer

BLOBS: Final = "/blobs/"
MANIFESTS: Final = "/manifests/"


def request_key(access_key: str, path: str) -> str:
    """Return the key for one request to a node. It opens only this path, so who reads
    it on the network can read nothing else."""
    return hmac.new(access_key.encode(), path.encode(), hashlib.sha256).hexdigest()


class PeerReader:
    """Reads the files of one listing from another node.

    Args:
        sha256_by_tag: Hashes of files whose source gives none, by their tags.
        failed: Gets the node if it does not answer, so that it is not asked again.
    """

    def __init__(
        self,
        peer: ContentPeer,
        sha256_by_tag: Mapping[str, str],
        failed: set[NodeId],
    ) -> None:
        self._peer = peer
        self._sha256_by_tag = sha256_by_tag
        self._failed = failed

    @contextmanager
    def read(self, file: ListedFile, offset: int) -> Iterator[ByteStream]:
        """Open a file. Raises: ContentRefused if the node does not have it;
        ContentTrouble."""
        sha256 = file.sha256 or self._sha256_by_tag.get(file.tag, "")
        if not sha256:
            raise ContentRefused(f"the hash of {file.path} is not known yet")
        path = f"{BLOBS}{sha256}"
        headers = bearer(request_key(self._peer.access_key, path))
        url = _base_url(self._peer) + path
        name = f"{file.path} on node {self._peer.node}"
        try:
            with read_from(url, headers, offset, name, is_peer=True) as stream:
                yield stream
        except ContentTrouble:
            self._failed.add(self._peer.node)
            raise


def manifest_of(peer: ContentPeer, key: str) -> ContentManifest | None:
    """Return the manifest of this key from another node; None if it gives no valid
    one."""
    path = f"{MANIFESTS}{key}"
    headers = bearer(request_key(peer.access_key, path))
    try:
        answer = read_json(_base_url(peer) + path, headers, key[:12], is_peer=True)
        manifest = msgspec.convert(answer, ContentManifest)
    except (ContentRefused, ContentTrouble, msgspec.ValidationError):
        return None
    is_right = manifest.key == key and all(
        is_safe_path(file.path) for file in manifest.files
    )
    return manifest if is_right and manifest.files else None


def _base_url(peer: ContentPeer) -> str:
    host = f"[{peer.address}]" if ":" in peer.address else peer.address
    return f"http://{host}:{peer.port}"
