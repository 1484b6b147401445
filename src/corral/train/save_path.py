"""Places of saves: a directory, or an address in an object store."""

from pathlib import Path

from corral.domain.store_url import StoreUrl, is_store_url, parse_store_url

SavePath = Path | StoreUrl  # of a save, or of all saves of a job


def parse_save_path(text: str) -> SavePath:
    """Return the place that the text names. Raises: ValueError for an address of an
    object store that is not valid."""
    return parse_store_url(text) if is_store_url(text) else Path(text).absolute()
