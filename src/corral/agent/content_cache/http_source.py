"""Single files of web servers, each pinned by its SHA-256."""

from contextlib import AbstractContextManager
from urllib.parse import unquote, urlsplit

from corral.agent.content_cache.http_reading import read_from, size_at
from corral.agent.content_cache.manifest import ListedFile, Listing, is_safe_path
from corral.agent.content_cache.source import ByteStream

DEFAULT_FILE_NAME = "model"


class HttpSource:
    """A file at an address. Its hash identifies it, wherever it comes from."""

    def __init__(self, url: str, sha256: str) -> None:
        self._url = url
        self._sha256 = sha256

    @property
    def origin(self) -> str:
        return ""  # the hash says it all

    def listing(self) -> Listing:
        """Return the file under the last part of its address."""
        path = unquote(urlsplit(self._url).path).rpartition("/")[2]
        name = path if is_safe_path(path) else DEFAULT_FILE_NAME
        file = ListedFile(path=name, sha256=self._sha256)
        return Listing(
            origin=self.origin,
            name=f"{name}#sha256={self._sha256}",
            files=(file,),
            is_file=True,
        )

    def size_of(self, file: ListedFile) -> int | None:
        """Return the size that the server gives. Raises: ContentRefused,
        ContentTrouble."""
        return size_at(self._url, self._url)

    def read(self, file: ListedFile, offset: int) -> AbstractContextManager[ByteStream]:
        """Open the file. Raises: ContentRefused, ContentTrouble."""
        return read_from(self._url, {}, offset, self._url)
