"""Prefixes of object stores with the S3 API, by the package obstore (extra `store`)."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from corral.agent.content_cache.manifest import ListedFile, Listing, check_paths
from corral.agent.content_cache.refusals import ContentRefused, ContentTrouble
from corral.agent.content_cache.source import ByteStream

if TYPE_CHECKING:
    from obstore.store import S3Store

CHUNK_BYTES: Final = 4 * 1024 * 1024
# variable of AWS's own programs -> setting of obstore
_SETTINGS: Final = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_REGION": "region",
    "AWS_DEFAULT_REGION": "region",
    "AWS_ENDPOINT_URL": "endpoint",
    "AWS_ENDPOINT_URL_S3": "endpoint",
}
S3_VARIABLES: Final = tuple(_SETTINGS)
_RETRIES: Final[Any] = {"max_retries": 2}


class S3Source:
    """All objects below a prefix, or one object. `env` has the usual variables of AWS,
    such as AWS_ACCESS_KEY_ID and AWS_ENDPOINT_URL."""

    def __init__(self, url: str, env: Mapping[str, str]) -> None:
        self._url = url
        self._bucket, _, self._prefix = url.removeprefix("s3://").partition("/")
        self._prefix = self._prefix.strip("/")
        self._settings = {
            setting: env[variable]
            for variable, setting in _SETTINGS.items()
            if env.get(variable)
        }
        self._is_one_object = False

    @property
    def origin(self) -> str:
        return f"{self._settings.get('endpoint', '')} s3://{self._bucket}"

    def listing(self) -> Listing:
        """Return the objects. Their versions are the revision.

        Raises: ContentRefused, ContentTrouble.
        """
        import obstore

        store = self._store()
        files = []
        try:
            for batch in obstore.list(store, prefix=self._prefix or None):
                files += [
                    ListedFile(
                        path=self._relative(entry["path"]),
                        size=entry["size"],
                        etag=(entry["e_tag"] or "").strip('"'),
                    )
                    for entry in batch
                    if not entry["path"].endswith("/")
                ]
            if not files:
                meta = obstore.head(store, self._prefix)
                etag = (meta["e_tag"] or "").strip('"')
                path = self._prefix.rpartition("/")[2]
                files = [ListedFile(path=path, size=meta["size"], etag=etag)]
                self._is_one_object = True
        except FileNotFoundError as error:
            raise ContentRefused(f"there is nothing at {self._url}") from error
        except Exception as error:
            raise self._fault(error) from error
        check_paths(files, self._url)
        versions = sorted((file.path, file.etag, file.size) for file in files)
        revision = hashlib.sha256(json.dumps(versions).encode()).hexdigest()[:40]
        return Listing(
            origin=self.origin,
            name=f"{self._url}@{revision}",
            files=tuple(files),
            is_public="access_key_id" not in self._settings,
            is_file=self._is_one_object,
        )

    def size_of(self, file: ListedFile) -> int | None:
        return file.size

    @contextmanager
    def read(self, file: ListedFile, offset: int) -> Iterator[ByteStream]:
        """Open an object. Raises: ContentRefused, ContentTrouble."""
        import obstore

        folder = "" if self._is_one_object else f"{self._prefix}/"
        path = self._prefix if self._is_one_object else folder.lstrip("/") + file.path
        try:
            result = obstore.get(
                self._store(), path, options={"range": {"offset": offset}}
            )
            chunks = result.stream(min_chunk_size=CHUNK_BYTES)
        except Exception as error:
            raise self._fault(error) from error
        yield ByteStream(offset, self._chunks(chunks), file.size)

    def _chunks(self, stream: Any) -> Iterator[bytes]:
        try:
            for chunk in stream:
                yield bytes(chunk)
        except Exception as error:
            raise self._fault(error) from error

    def _relative(self, path: str) -> str:
        return path.removeprefix(self._prefix).lstrip("/")

    def _fault(self, error: Exception) -> ContentRefused | ContentTrouble:
        """Return the error for an exception of obstore, which has a class of its own
        for objects that are missing or forbidden."""
        kind = type(error).__name__
        text = str(error).partition("\n")[0][:300]
        if kind in ("NotFoundError", "PermissionDeniedError", "UnauthenticatedError"):
            return ContentRefused(f"{self._url} cannot be read: {kind}: {text}")
        return ContentTrouble(f"{self._url} cannot be read now: {kind}: {text}")

    def _store(self) -> "S3Store":
        from obstore.store import S3Store

        is_open = "access_key_id" not in self._settings
        settings: Any = {"region": "us-east-1", **self._settings}
        return S3Store(
            self._bucket,
            config=settings | {"skip_signature": is_open},
            client_options={"allow_http": True, "timeout": "60s"},
            retry_config=_RETRIES,
        )


def check_obstore() -> None:
    """Check that obstore is installed. Raises: ContentRefused."""
    try:
        import obstore  # noqa: F401
    except ImportError:
        raise ContentRefused(
            "s3:// needs a Python package that this node does not have: obstore; "
            "install it there: pip install 'corral[store]'"
        ) from None
