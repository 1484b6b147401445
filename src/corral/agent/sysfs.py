"""Files of sysfs and procfs: one value each; one that is not there says nothing."""

from contextlib import suppress
from pathlib import Path


def text_in(file: Path) -> str:
    """Without the spaces around it; "" where it cannot be read."""
    with suppress(OSError, ValueError):
        return file.read_text().strip()
    return ""


def number_in(file: Path) -> int | None:
    """None where it cannot be read, or is no number."""
    with suppress(OSError, ValueError):
        return int(file.read_text())
    return None
