"""Reading of sysfs and procfs files with one value each. A missing file is not an
error."""

from contextlib import suppress
from pathlib import Path


def text_in(file: Path) -> str:
    """Return the text of the file without surrounding spaces; "" if it cannot be read."""
    with suppress(OSError, ValueError):
        return file.read_text().strip()
    return ""


def number_in(file: Path) -> int | None:
    """Return the number in the file; None if it cannot be read or is not a number."""
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return None
