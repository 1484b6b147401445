"""Interface of the sources of content, and the choice of one by the text of a spec."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Protocol

from corral.agent.content_cache.manifest import ListedFile, Listing


@dataclass(frozen=True, slots=True)
class ByteStream:
    """Bytes of a file from `offset` on. `total` is the size of the whole file; None if
    the server does not give it."""

    offset: int
    chunks: Iterator[bytes]
    total: int | None = None


class ContentSource(Protocol):
    """Source of content: Hugging Face, an object store, or a web server."""

    @property
    def origin(self) -> str:
        """Return the server, as Listing.origin."""
        ...

    def listing(self) -> Listing:
        """Return the files to which the source leads now.

        Raises: ContentRefused if they do not exist, may not be read, or are not of the
        pinned revision; ContentTrouble if the source does not answer.
        """
        ...

    def size_of(self, file: ListedFile) -> int | None:
        """Return the size of a file; None if the source does not give it. Raises:
        ContentRefused, ContentTrouble."""
        ...

    def read(self, file: ListedFile, offset: int) -> AbstractContextManager[ByteStream]:
        """Open a file at this offset. A source that cannot do so begins at 0.

        Raises: ContentRefused, ContentTrouble.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ContentRequest:
    """Content that an attempt needs, or that a user wants on the node.

    Args:
        source: As the spec writes it. For example: hf://org/name@main
        user: User who may read it afterwards.
        env: Variables and secrets that sources read, such as HF_TOKEN.
    """

    source: str
    user: str
    env: Mapping[str, str] = field(repr=False)
