"""Fields of `checkpoint` that say where saves go, and how fast."""

from typing import Any, Final

from corral.domain.store_url import is_store_url, parse_store_url
from corral.domain.units import bytes_of
from corral.wire.field_readers import WrongValue, shown, text

LEAST_BANDWIDTH: Final = 1_000_000  # slower, and no save of a model ends
MOST_BANDWIDTH: Final = 10**15
_BANDWIDTH_HINT: Final = "write: bandwidth: 500MB/s"


def read_save_path(value: Any) -> str:
    """Return the path of checkpoints: a directory, or an address in an object store in
    normal form. Raises: WrongValue."""
    written = text(
        value, noun="path", example="path: ./ckpt, or path: s3://bucket/prefix"
    )
    scheme, separator, _ = written.partition("://")
    if not separator:
        return written
    hint = "write: path: s3://bucket/prefix, or gs:// or az://, or a directory"
    if not is_store_url(written):
        raise WrongValue(f"checkpoints cannot be stored in {scheme[:20]}://", hint)
    try:
        return str(parse_store_url(written))
    except ValueError as error:
        raise WrongValue(
            f"{shown(value)} is not a valid address: {error}", hint
        ) from None


def read_bandwidth(value: Any) -> int:
    """Return the bytes a second for "500MB/s". Raises: WrongValue."""
    if not isinstance(value, str):
        raise WrongValue(f"{shown(value)} is not a bandwidth", _BANDWIDTH_HINT)
    size_text = value.strip().removesuffix("/s").strip()
    try:
        size = bytes_of(size_text)
    except (ValueError, OverflowError):
        raise WrongValue(
            f"{shown(value)} is not a valid bandwidth", _BANDWIDTH_HINT
        ) from None
    if size_text == value.strip():
        raise WrongValue(
            f"{shown(value)} is a size, not bytes a second", _BANDWIDTH_HINT
        )
    if not LEAST_BANDWIDTH <= size <= MOST_BANDWIDTH:
        raise WrongValue(
            f"{shown(value)} is out of bounds: 1 MB/s to 1,000 TB/s", _BANDWIDTH_HINT
        )
    return size
