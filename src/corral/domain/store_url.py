"""Addresses in object stores, such as s3://bucket/prefix."""

from dataclasses import dataclass
from typing import Final

STORE_SCHEMES: Final = ("s3", "gs", "az")
FAMILIES: Final = {"s3": "Amazon S3", "gs": "Google Cloud Storage", "az": "Azure Blob"}


def is_store_url(text: str) -> bool:
    """Return whether the text begins like an address in an object store."""
    return text.partition("://")[0] in STORE_SCHEMES and "://" in text


@dataclass(frozen=True, slots=True, order=True)
class StoreUrl:
    """Address of an object, or of all objects below a prefix. It has no final slash."""

    text: str

    def __str__(self) -> str:
        return self.text

    def __truediv__(self, name: str) -> "StoreUrl":
        return StoreUrl(f"{self.text}/{name}")

    @property
    def scheme(self) -> str:
        return self.text.partition("://")[0]

    @property
    def bucket(self) -> str:
        """Return the bucket; in Azure, the container."""
        return self.text.partition("://")[2].partition("/")[0]

    @property
    def key(self) -> str:
        """Return the key, or the prefix, within the bucket."""
        return self.text.partition("://")[2].partition("/")[2]

    @property
    def name(self) -> str:
        return self.text.rpartition("/")[2]

    @property
    def parent(self) -> "StoreUrl":
        return StoreUrl(self.text.rpartition("/")[0])


def parse_store_url(text: str) -> StoreUrl:
    """Return the address in normal form: without empty parts, and without a final slash.

    Raises: ValueError with a text about what is wrong.
    """
    scheme, separator, rest = text.partition("://")
    if scheme not in STORE_SCHEMES or not separator:
        raise ValueError("it does not begin with s3://, gs:// or az://")
    bucket, *parts = rest.split("/")
    if not bucket:
        raise ValueError("it names no bucket")
    if any(part in (".", "..") for part in parts):
        raise ValueError("it contains . or .., which object stores do not resolve")
    if any(letter in text for letter in "?#\\") or not text.isprintable():
        raise ValueError("it contains ?, #, \\ or a letter that cannot be printed")
    return StoreUrl(f"{scheme}://{'/'.join([bucket, *filter(None, parts)])}")
