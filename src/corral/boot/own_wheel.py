"""A wheel of this installation, so that other machines get exactly the code that runs
here, without a package index."""

import base64
import hashlib
import zipfile
from importlib import metadata
from pathlib import Path
from typing import Final

import corral

_TAG: Final = "py3-none-any"
_EPOCH: Final = (1980, 1, 1, 0, 0, 0)  # the same code makes the same file
_COPIED: Final = ("METADATA", "entry_points.txt")


def own_wheel(folder: Path) -> Path:
    """Write the wheel into the folder, and return its path. Raises: OSError;
    PackageNotFoundError if Corral is not installed."""
    about = metadata.distribution("corral")
    info = f"corral-{about.version}.dist-info"
    files = {
        f"corral/{path}": content
        for path, content in _package_files(Path(corral.__file__).parent)
    }
    for name in _COPIED:
        if (text := about.read_text(name)) is not None:
            files[f"{info}/{name}"] = text.encode()
    about_wheel = (
        f"Wheel-Version: 1.0\nGenerator: corral\nRoot-Is-Purelib: true\nTag: {_TAG}\n"
    )
    files[f"{info}/WHEEL"] = about_wheel.encode()
    rows = [
        f"{name},sha256={_record_digest(content)},{len(content)}"
        for name, content in files.items()
    ]
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,", ""]).encode()
    wheel = folder / f"corral-{about.version}-{_TAG}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(
                zipfile.ZipInfo(name, _EPOCH), content, zipfile.ZIP_DEFLATED
            )
    return wheel


def _package_files(package: Path) -> list[tuple[str, bytes]]:
    """Return (path, content) of the package's files, sorted by name, without the
    bytecode in `__pycache__`."""
    paths = (path for path in package.rglob("*") if path.is_file())
    source_paths = (path for path in paths if "__pycache__" not in path.parts)
    return sorted(
        (str(path.relative_to(package)), path.read_bytes()) for path in source_paths
    )


def _record_digest(content: bytes) -> str:
    digest = hashlib.sha256(content).digest()
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
