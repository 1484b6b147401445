"""Objects of S3, Google Cloud Storage and Azure, by the package obstore (extra `store`).

A request that fails for the moment is made again with growing pauses, until the client's
time is over. Credentials come from the environment, by the variables of each vendor.
"""

import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

from corral.domain.errors import Refusal, Trouble, Unsupported
from corral.domain.store_url import FAMILIES, StoreUrl

PART_BYTES: Final = 8 * 1024 * 1024
PARTS_AT_ONCE: Final = 4
DELETED_AT_ONCE: Final = 500
READ_BYTES: Final = 4 * 1024 * 1024
REQUEST_SECONDS: Final = 60.0
RETRY_SECONDS: Final = 120.0
FIRST_PAUSE_SECONDS: Final = 0.1
LAST_PAUSE_SECONDS: Final = 10.0
ERROR_TEXT: Final = 200
_CODE: Final = re.compile(r"<Code>(\w+)</Code>")
# codes of errors that another request does not mend, though their status says nothing
_FINAL_CODES: Final = frozenset(
    {
        "AccessDenied",
        "ExpiredToken",
        "InvalidAccessKeyId",
        "InvalidBucketName",
        "InvalidToken",
        "NoSuchBucket",
        "SignatureDoesNotMatch",
        "TokenRefreshRequired",
        "AuthenticationFailed",
        "AuthorizationFailure",
        "ContainerNotFound",
    }
)
_BUCKET_CODES: Final = frozenset({"NoSuchBucket", "ContainerNotFound"})
_FINAL_ERRORS: Final = frozenset(
    {
        "PermissionDeniedError",
        "UnauthenticatedError",
        "NotSupportedError",
        "UnknownConfigurationKeyError",
    }
)
# variable of the vendor's own programs -> setting of obstore
_VARIABLES: Final[Mapping[str, Mapping[str, str]]] = {
    "s3": {
        "AWS_ACCESS_KEY_ID": "access_key_id",
        "AWS_SECRET_ACCESS_KEY": "secret_access_key",
        "AWS_SESSION_TOKEN": "session_token",
        "AWS_DEFAULT_REGION": "region",
        "AWS_REGION": "region",
        "AWS_ENDPOINT_URL": "endpoint",
        "AWS_ENDPOINT_URL_S3": "endpoint",
        "AWS_WEB_IDENTITY_TOKEN_FILE": "web_identity_token_file",
        "AWS_ROLE_ARN": "role_arn",
        "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "container_credentials_relative_uri",
    },
    "gs": {
        "GOOGLE_APPLICATION_CREDENTIALS": "application_credentials",
        "GOOGLE_SERVICE_ACCOUNT": "service_account",
        "GOOGLE_SERVICE_ACCOUNT_KEY": "service_account_key",
        "GOOGLE_ENDPOINT_URL": "base_url",
    },
    "az": {
        "AZURE_STORAGE_ACCOUNT_NAME": "account_name",
        "AZURE_STORAGE_ACCOUNT_KEY": "account_key",
        "AZURE_STORAGE_SAS_TOKEN": "sas_key",
        "AZURE_CLIENT_ID": "client_id",
        "AZURE_CLIENT_SECRET": "client_secret",
        "AZURE_TENANT_ID": "tenant_id",
        "AZURE_STORAGE_ENDPOINT": "endpoint",
    },
}
STORE_VARIABLES: Final = tuple(
    name for variables in _VARIABLES.values() for name in variables
)
_CREDENTIALS: Final = {
    "s3": ("access_key_id", "web_identity_token_file", "role_arn"),
    "gs": ("application_credentials", "service_account", "service_account_key"),
    "az": ("account_key", "sas_key", "client_secret"),
}
# services that give a machine of a cloud its credentials
_METADATA_HOSTS: Final = ("169.254.169.254", "169.254.170.2", "metadata.google")
T = TypeVar("T")


class StoreRefused(Refusal):
    """The error for a bucket that does not exist, or that the credentials do not
    open."""

    code = "store_refused"

    def __init__(
        self, message: str, *, hint: str = "", no_bucket: bool = False
    ) -> None:
        super().__init__(message, hint=hint)
        self.no_bucket = no_bucket


class StoreUnavailable(Trouble):
    """The error for an object store that has not answered in the time allowed."""

    code = "store_unavailable"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredObject:
    """An object below a prefix. `version` changes with its content."""

    key: str
    size_bytes: int
    version: str


@dataclass(slots=True, kw_only=True)
class ObjectClient:
    """Objects of one bucket.

    Args:
        url: Address of the bucket; a prefix in it is ignored.
        env: Variables with the credentials, such as AWS_ACCESS_KEY_ID.
        retry_seconds: Time in which a failing request is made again.
        request_seconds: Time limit of one request.

    Raises: Unsupported without obstore.
    """

    url: StoreUrl
    env: Mapping[str, str]
    retry_seconds: float = RETRY_SECONDS
    request_seconds: float = REQUEST_SECONDS
    _store: Any = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        try:
            import obstore  # noqa: F401
        except ImportError:
            raise Unsupported(
                f"{self.url.scheme}:// needs a Python package that is not installed: obstore",
                hint="run: pip install 'corral[store]'",
            ) from None

    def put(self, key: str, data: bytes) -> None:
        """Write an object. Raises: StoreRefused, StoreUnavailable."""
        import obstore

        self._retry(lambda: obstore.put(self._opened(), key, data, use_multipart=False))

    def create(self, key: str, data: bytes) -> bool:
        """Write an object that does not exist yet, and return whether this call, or an
        earlier attempt of it, created it.

        Raises: StoreRefused, StoreUnavailable; the object may then exist or not, now or
        later.
        """
        import obstore

        def create() -> bool:
            try:
                obstore.put(
                    self._opened(), key, data, mode="create", use_multipart=False
                )
            except Exception as error:
                if type(error).__name__ in ("AlreadyExistsError", "PreconditionError"):
                    return False
                raise
            return True

        # the answer to a successful request may have been lost
        return self._retry(create) or self.get(key) == data

    def upload(
        self, key: str, size_bytes: int, chunks: Callable[[], Iterable[bytes]]
    ) -> None:
        """Write a large object in parts, several at once, each with its checksum.

        Args:
            chunks: returns the content from its beginning; called again for each retry.

        Raises: StoreRefused, StoreUnavailable.
        """
        import obstore

        if size_bytes <= PART_BYTES:
            self.put(key, b"".join(chunks()))
            return
        self._retry(
            lambda: obstore.put(
                self._opened(),
                key,
                iter(chunks()),
                use_multipart=True,
                chunk_size=PART_BYTES,
                max_concurrency=PARTS_AT_ONCE,
            )
        )

    def get(self, key: str) -> bytes | None:
        """Return the content of an object; None if it does not exist.

        Raises: StoreRefused, StoreUnavailable.
        """
        import obstore

        return self._retry_missing(
            lambda: bytes(obstore.get(self._opened(), key).bytes())
        )

    def read(self, key: str, take: Callable[[Iterator[bytes]], T]) -> T | None:
        """Return what `take` makes of the chunks of an object; None if there is no
        object. After an interruption `take` is called again with all chunks.

        Raises: StoreRefused, StoreUnavailable.
        """
        import obstore

        def read() -> T:
            stream = obstore.get(self._opened(), key).stream(min_chunk_size=READ_BYTES)
            return take(bytes(chunk) for chunk in stream)

        return self._retry_missing(read)

    def size(self, key: str) -> int | None:
        """Return the size of an object in bytes; None if it does not exist.

        Raises: StoreRefused, StoreUnavailable.
        """
        import obstore

        return self._retry_missing(lambda: obstore.head(self._opened(), key)["size"])

    def objects(self, prefix: str) -> list[StoredObject]:
        """Return the objects below a prefix, by key. The prefix ends at a slash.

        Raises: StoreRefused, StoreUnavailable.
        """
        import obstore

        def collect() -> list[StoredObject]:
            return [
                StoredObject(
                    key=entry["path"],
                    size_bytes=entry["size"],
                    version=f"{entry['e_tag']} {entry['last_modified']}",
                )
                for batch in obstore.list(self._opened(), prefix=prefix)
                for entry in batch
            ]

        return sorted(self._retry(collect), key=lambda entry: entry.key)

    def folders(self, prefix: str) -> list[str]:
        """Return the names that follow the prefix up to the next slash.

        Raises: StoreRefused, StoreUnavailable.
        """
        import obstore

        def collect() -> list[str]:
            answer = obstore.list_with_delimiter(self._opened(), prefix)
            return [path.rpartition("/")[2] for path in answer["common_prefixes"]]

        return sorted(self._retry(collect))

    def delete(self, keys: Iterable[str]) -> None:
        """Delete objects, in any order. Objects that do not exist are ignored.

        Raises: StoreRefused, StoreUnavailable.
        """
        import obstore

        remaining = list(keys)
        # only S3 ignores missing objects in a request for several
        count = DELETED_AT_ONCE if self.url.scheme == "s3" else 1
        for start in range(0, len(remaining), count):
            batch = remaining[start : start + count]
            self._retry_missing(
                lambda batch=batch: obstore.delete(self._opened(), batch)  # type: ignore[misc]
            )

    def _opened(self) -> Any:
        if self._store is None:
            self._store = _open_store(self.url, self.env, self.request_seconds)
        return self._store

    def _retry_missing(self, call: Callable[[], T]) -> T | None:
        def call_or_none() -> T | None:
            try:
                return call()
            except FileNotFoundError as error:
                if _code_of(error) in _BUCKET_CODES:
                    raise
                return None

        return self._retry(call_or_none)

    def _retry(self, call: Callable[[], T]) -> T:
        deadline = time.monotonic() + self.retry_seconds
        pause = FIRST_PAUSE_SECONDS
        while True:
            try:
                return call()
            except Exception as error:
                if isinstance(error, OSError) and error.errno is not None:
                    raise  # of this machine's disk
                fault = self._fault(error)
                is_late = time.monotonic() + pause > deadline
                if isinstance(fault, StoreRefused) or is_late:
                    raise fault from error
            time.sleep(pause)
            pause = min(2 * pause, LAST_PAUSE_SECONDS)

    def _fault(self, error: Exception) -> StoreRefused | StoreUnavailable:
        """Return the error for an exception of obstore."""
        code, kind = _code_of(error), type(error).__name__
        bucket = f"{self.url.scheme}://{self.url.bucket}"
        if code in _BUCKET_CODES:
            return StoreRefused(
                f"there is no bucket {bucket}",
                hint=f"create it, or check its name and the endpoint ({_endpoint_text(self)})",
                no_bucket=True,
            )
        if not has_credentials(self.url, self.env) and any(
            host in str(error) for host in _METADATA_HOSTS
        ):
            return StoreRefused(
                f"there are no credentials for {bucket}, and this machine has none",
                hint=f"set {', '.join(list(_VARIABLES[self.url.scheme])[:2])}",
            )
        if code in _FINAL_CODES or kind in _FINAL_ERRORS:
            return StoreRefused(
                f"{FAMILIES[self.url.scheme]} refuses access to {bucket}: "
                f"{code or _short_text(error)}",
                hint="check the credentials of the job: "
                f"{', '.join(list(_VARIABLES[self.url.scheme])[:3])}",
            )
        return StoreUnavailable(
            f"{bucket} does not answer as it should: {code or _short_text(error)}"
        )


def has_credentials(url: StoreUrl, env: Mapping[str, str]) -> bool:
    """Return whether the variables contain credentials for this kind of store."""
    settings = _settings_of(url, env)
    return any(settings.get(name) for name in _CREDENTIALS[url.scheme])


def _settings_of(url: StoreUrl, env: Mapping[str, str]) -> dict[str, str]:
    return {
        setting: env[variable]
        for variable, setting in _VARIABLES[url.scheme].items()
        if env.get(variable)
    }


def _endpoint_text(client: ObjectClient) -> str:
    settings = _settings_of(client.url, client.env)
    endpoint = settings.get("endpoint") or settings.get("base_url")
    return endpoint or f"the default one of {FAMILIES[client.url.scheme]}"


def _open_store(url: StoreUrl, env: Mapping[str, str], request_seconds: float) -> Any:
    from obstore.store import AzureStore, GCSStore, S3Store

    settings: Any = _settings_of(url, env)
    options: Any = {
        "client_options": {
            "allow_http": True,
            "timeout": f"{request_seconds}s",
            "connect_timeout": f"{min(5.0, request_seconds)}s",
        },
        # short: the client retries on top of it
        "retry_config": {"max_retries": 2, "retry_timeout": timedelta(seconds=10)},
    }
    if url.scheme == "gs":
        return GCSStore(url.bucket, config=settings, **options)
    if url.scheme == "az":
        return AzureStore(url.bucket, config=settings, **options)
    defaults: Any = {"region": "us-east-1", "checksum_algorithm": "SHA256"}
    return S3Store(url.bucket, config=defaults | settings, **options)


def _code_of(error: Exception) -> str:
    match = _CODE.search(str(error))
    return match[1] if match else ""


def _short_text(error: Exception) -> str:
    """Return the error's first line, without the part for developers."""
    text = str(error).partition("\n\nDebug source")[0].replace("\n", " ")
    return text[:ERROR_TEXT] or type(error).__name__
