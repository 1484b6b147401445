"""Names of the modules that the ranks of an attempt have imported, in its folder."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

FILE: Final = "imports.json"
MOST_NAMES: Final = 20_000
MOST_LETTERS: Final = 200


def keep_imports(attempt_folder: str, names: Any) -> None:
    """Keep the first list of names that a rank sends. Raises: ValueError when it is out
    of bounds."""
    if not isinstance(names, list) or len(names) > MOST_NAMES:
        raise ValueError(f"the imported modules are not a list of {MOST_NAMES:,} names")
    for name in names:
        if not isinstance(name, str) or len(name) > MOST_LETTERS:
            raise ValueError("an imported module has no valid name")
    file = Path(attempt_folder) / FILE
    if not file.exists():
        partial_file = file.with_suffix(".part")
        with suppress(OSError):  # a full disk: the next attempt starts without them
            partial_file.write_text(json.dumps(names))
            partial_file.rename(file)


def read_imports(attempt_folder: Path) -> list[str]:
    """Return the names; an empty list when no rank has sent any."""
    with suppress(OSError, ValueError):
        return list(map(str, json.loads((attempt_folder / FILE).read_text())))
    return []
